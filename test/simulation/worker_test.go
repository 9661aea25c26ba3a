// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// New histories are played by other processes, one at a time in each, so that a panic, a deadlock or a history without end costs one
// process, and its seed is known. A worker reads seeds from its standard input and writes one result for each as a line of JSON to
// descriptor 3.

const (
	workerEnv     = "SIMULATION_WORKER"
	workerResults = 3 // a file descriptor
	// workerPlays is after how many histories a process is replaced: what libraries keep for ever must not add up.
	workerPlays = 500
)

// result is what a worker says about a history.
type result struct {
	Seed   uint64
	Failed string // a report; empty: the history passed
	Stats  stats
}

// TestWorker plays the histories that another process asks for.
func TestWorker(t *testing.T) {
	if os.Getenv(workerEnv) == "" {
		return // it is not asked
	}
	out := json.NewEncoder(os.NewFile(workerResults, "results"))
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		seed := assert.Value(strconv.ParseUint(in.Text(), 10, 64))(t)
		p := planOf(seed, without{})
		began := time.Now()
		o := play(t, p, false)
		r := result{Seed: seed, Stats: o.stats}
		if len(o.failures) > 0 {
			r.Failed = explain(t, seed, o, *shrinkFlag)
		}
		assert.NoError(t, out.Encode(r))
		if os.Getenv("SIMULATION_TIMES") != "" {
			fmt.Fprintf(os.Stderr, "%s: %s %+v\n", p, time.Since(began).Round(time.Millisecond), o.stats)
		}
	}
}

// worker is a process that plays histories. Only one goroutine uses it.
type worker struct {
	cmd     *exec.Cmd
	in      *os.File
	results *bufio.Reader
	plays   int
	output  tail
}

// tail keeps the end of what a process writes.
type tail struct {
	mu   sync.Mutex
	data []byte
}

const tailSize = 64 << 10

func (t *tail) Write(p []byte) (int, error) {
	if os.Getenv("SIMULATION_TIMES") != "" {
		os.Stderr.Write(p)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.data = append(t.data, p...)
	if len(t.data) > 2*tailSize {
		t.data = append([]byte(nil), t.data[len(t.data)-tailSize:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	return locked(&t.mu, func() string { return string(t.data[max(0, len(t.data)-tailSize):]) })
}

func startWorker() (*worker, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	w := &worker{}
	in, toWorker, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	fromWorker, out, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer out.Close()
	w.in, w.results = toWorker, bufio.NewReader(fromWorker)
	w.cmd = exec.Command(exe, "-test.run=^TestWorker$", "-test.timeout=0", "-shrink="+shrinkFlag.String())
	w.cmd.Env = append(os.Environ(), workerEnv+"=1", "GOTRACEBACK=all", "GOGC=400") // memory is cheaper than time
	w.cmd.Stdin, w.cmd.Stdout, w.cmd.Stderr, w.cmd.ExtraFiles = in, &w.output, &w.output, []*os.File{out}
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return w, w.cmd.Start()
}

// play plays a history. If the process ends instead, that is the failure, and the worker cannot be used again.
func (w *worker) play(seed uint64) (r result, alive bool) {
	w.plays++
	silent := time.AfterFunc(longestPlay+*shrinkFlag+time.Minute, func() {
		_ = w.cmd.Process.Signal(syscall.SIGQUIT) // it prints its goroutines and ends
	})
	defer silent.Stop()
	_, err := fmt.Fprintln(w.in, seed)
	if err == nil {
		var line []byte
		if line, err = w.results.ReadBytes('\n'); err == nil {
			err = json.Unmarshal(line, &r)
		}
	}
	if err != nil {
		end := w.cmd.Wait()
		return result{Seed: seed, Failed: fmt.Sprintf("seed %d: the process that plays it ended (%v):\n%s\n%s", seed, end, w.output.String(), again(seed, without{}))}, false
	}
	return r, true
}

// stop ends an idle worker.
func (w *worker) stop() error {
	if err := w.in.Close(); err != nil {
		return err
	}
	if err := w.cmd.Wait(); err != nil {
		return fmt.Errorf("a process that plays histories: %w\n%s", err, w.output.String())
	}
	return nil
}

// playNew lets several processes play the seeds from first on, and calls done with each result, one at a time. It
// returns the next seed when next returns false and all histories that were begun have ended.
func playNew(first uint64, processes int, next func() bool, done func(result)) (uint64, error) {
	var mu sync.Mutex
	var all sync.WaitGroup
	seed := first
	errs := make([]error, processes)
	take := func() (uint64, bool) {
		mu.Lock()
		defer mu.Unlock()
		if !next() {
			return 0, false
		}
		seed++
		return seed - 1, true
	}
	for i := range processes {
		all.Go(func() {
			var w *worker
			for {
				s, more := take()
				if w != nil && (!more || w.plays >= workerPlays) {
					if errs[i] = w.stop(); errs[i] != nil {
						return
					}
					w = nil
				}
				if !more {
					return
				}
				if w == nil {
					if w, errs[i] = startWorker(); errs[i] != nil {
						return
					}
				}
				r, alive := w.play(s)
				if !alive {
					w = nil
				}
				mu.Lock()
				done(r)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return seed, err
		}
	}
	return seed, nil
}

// again returns the command that plays a history again.
func again(seed uint64, x without) string {
	return strings.TrimSpace(fmt.Sprintf("reproduce it: go test ./test/simulation -count=1 -v -seed=%d %s", seed, x))
}
