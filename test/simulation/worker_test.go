// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// New histories are played by other processes, one at a time in each, so that a
// panic, a deadlock or a history without end costs one process, and its seed is
// known. A worker writes one result for each history as a line of JSON.

const (
	workerEnv = "SIMULATION_WORKER"
	// workerPlays is after how many histories a process is replaced: what
	// libraries keep for ever must not add up.
	workerPlays = 500
)

// result is what a worker says about a history.
type result struct {
	Seed   uint64
	Failed string // a report; empty: the history passed
	Stats  stats
}

// TestWorker plays every seed from -first on that is one of this process, until
// the budget ends or a history fails.
func TestWorker(t *testing.T) {
	if os.Getenv(workerEnv) == "" {
		return // it is not asked
	}

	out, end := json.NewEncoder(os.Stdout), time.Now().Add(*budgetFlag)
	for r := (result{Seed: *firstSeed}); r.Failed == "" && r.Seed < *firstSeed+uint64(workerPlays**processesFlag) && time.Now().Before(end); r.Seed += uint64(*processesFlag) {
		silent := time.AfterFunc(longestPlay+*shrinkFlag+time.Minute, func() { panic("the history does not end") })
		o := play(t, planOf(r.Seed, without{}), false)
		r.Stats = o.stats
		if len(o.failures) > 0 {
			r.Failed = explain(t, r.Seed, o, *shrinkFlag)
		}

		silent.Stop()
		assert.NoError(t, out.Encode(r))
	}
}

// playSome lets another process play seeds from first on, calls done with each
// result, and returns the next seed when the process has ended. If it fails,
// the history that it played has failed.
func playSome(first uint64, budget time.Duration, done func(result)) (next uint64, err error) {
	defer must.Catch(&err)

	cmd := exec.Command(must.Get(os.Executable()), "-test.run=^TestWorker$", "-test.timeout=0", "-shrink="+shrinkFlag.String(),
		fmt.Sprint("-first=", first), fmt.Sprint("-processes=", *processesFlag), fmt.Sprint("-budget=", budget))
	cmd.Env = append(os.Environ(), workerEnv+"=1", "GOTRACEBACK=all", "GOGC=400") // memory is cheaper than time
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	results, out := must.Get2(os.Pipe())
	defer results.Close()
	cmd.Stdout, cmd.Stderr = out, out
	err = cmd.Start()
	out.Close()
	must.OK(err)
	var said []byte
	for in := bufio.NewReader(results); ; {
		line, err := in.ReadBytes('\n')
		var r result
		if bytes.HasPrefix(line, []byte(`{"Seed"`)) && json.Unmarshal(line, &r) == nil {
			done(r)
			first, said = r.Seed+uint64(*processesFlag), nil
		} else {
			said = append(said, line...)
		}

		if err != nil {
			break
		}
	}

	if err := cmd.Wait(); err != nil {
		done(result{Seed: first, Failed: fmt.Sprintf("seed %d: the process that plays it ended (%v):\n%s\n%s", first, err, said, again(first, without{}))})
		first += uint64(*processesFlag)
	}

	return first, nil
}

// playNew lets several processes play the seeds from first on, and calls done
// with each result, one at a time. It returns the next seed when next returns
// false and all histories that were begun have ended.
func playNew(first uint64, next func() time.Duration, done func(result)) (last uint64, err error) {
	var mu sync.Mutex
	var all sync.WaitGroup
	last = first
	left := func() time.Duration { return locked(&mu, next) }
	for i := range *processesFlag {
		all.Go(func() {
			for seed := first + uint64(i); left() > 0; {
				now, failed := playSome(seed, left(), func(r result) {
					mu.Lock()
					defer mu.Unlock()
					done(r)
					last = max(last, r.Seed+1)
				})
				if failed != nil {
					mu.Lock()
					defer mu.Unlock()
					err = failed
					return
				}

				seed = now
			}
		})
	}

	all.Wait()

	return last, err
}

// again returns the command that plays a history again.
func again(seed uint64, x without) string {
	return strings.TrimSpace(fmt.Sprintf("reproduce it: go test ./test/simulation -count=1 -v -seed=%d %s", seed, x))
}

// shrink leaves out of a history that fails what does not matter to its
// failure, for some time at most. Two histories fail in the same way if the
// beginnings of their failures are equal.
func shrink(t *testing.T, seed uint64, failure string, limit time.Duration) without {
	deadline := time.Now().Add(limit)
	var best without
	fails := func(x without) bool {
		if time.Now().After(deadline) {
			return false
		}

		o := play(t, planOf(seed, x), false)

		return len(o.failures) > 0 && kindOf(o.failures[0]) == kindOf(failure)
	}
	try := func(change func(x *without)) bool {
		x := best
		x.actions = slices.Clone(best.actions)
		change(&x)
		if !fails(x) {
			return false
		}

		best = x

		return true
	}
	all := planOf(seed, without{})
	for n := 1; n < all.nodes; n++ {
		if try(func(x *without) { x.nodes = n }) {
			break
		}
	}

	try(func(x *without) { x.errors = true })
	try(func(x *without) { x.delays = true })
	// First many actions at a time, then fewer.
	for size := len(all.actions); size > 0; size /= 2 {
		for from := len(all.actions); from > 0; from -= size {
			try(func(x *without) {
				for i := max(0, from-size); i < from; i++ {
					if !slices.Contains(x.actions, i) {
						x.actions = append(x.actions, i)
					}
				}
			})
		}
	}

	slices.Sort(best.actions)

	return best
}

// kindOf returns the first words of a failure, without those that contain
// digits.
func kindOf(failure string) string {
	words := slices.DeleteFunc(strings.Fields(failure), func(word string) bool { return strings.ContainsAny(word, "0123456789") })
	return strings.Join(words[:min(5, len(words))], " ")
}
