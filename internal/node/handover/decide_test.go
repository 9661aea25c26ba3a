// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
	"github.com/evenkeel/evenkeel/internal/node/checkpoint"
	"github.com/evenkeel/evenkeel/internal/node/lockfile"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/transcript"
)

// TestTheTranscriptsSayWhenANodeIsGivenUp runs testdata/*.txt: what happens to
// an agent and its kubelet, and below the line what the agent decides and
// remembers. Run with -rewrite after a change, and read the difference.
func TestTheTranscriptsSayWhenANodeIsGivenUp(t *testing.T) {
	transcript.Run(t, func(*testing.T) transcript.Command {
		n := &nodeSim{now: time.Date(2030, 1, 2, 3, 0, 0, 0, time.UTC)}
		return func(t *testing.T, td *datadriven.TestData, out *strings.Builder) error {
			command, ok := transcriptCommands[td.Cmd]
			if !ok {
				return fmt.Errorf("unknown command; known are %v", slices.Sorted(maps.Keys(transcriptCommands)))
			}

			n.out = out
			command(t, n, td)
			if out.Len() == 0 {
				out.WriteString("nothing changes\n")
			}

			return nil
		}
	})
}

// nodeSim is a node with at most one agent that runs, or wants to run, its
// kubelet.
type nodeSim struct {
	now     time.Time
	attempt string
	limit   time.Duration
	waited  bool
	runs    bool
	decided Decision
	last    checkpoint.GivenUp
	out     *strings.Builder
}

var transcriptCommands = map[string]func(*testing.T, *nodeSim, *datadriven.TestData){
	// An agent starts, has the lock at once if it asks for it, and starts its
	// kubelet.
	"start": func(t *testing.T, n *nodeSim, td *datadriven.TestData) {
		var limit string
		td.ScanArgs(t, "attempt", &n.attempt)
		td.MaybeScanArgs(t, "limit", &limit)
		if limit != "" {
			n.limit = duration(t, limit)
		}

		d := DecideStart(StartFacts{Now: n.now, Attempt: n.attempt, Last: n.last})
		fmt.Fprintf(n.out, "%s: %s\n", d.Action, d.Reason)
		n.runs, n.decided = d.Action == Run, Decision{}
	},
	// An agent ends for another reason than that it gave the node up.
	"end": func(_ *testing.T, n *nodeSim, _ *datadriven.TestData) { n.ended(false) },
	"waiter": func(t *testing.T, n *nodeSim, td *datadriven.TestData) {
		n.waited = td.CmdArgs[0].Key == "comes"
	},
	"healthy":   func(t *testing.T, n *nodeSim, td *datadriven.TestData) { n.pass(t, td, true) },
	"unhealthy": func(t *testing.T, n *nodeSim, td *datadriven.TestData) { n.pass(t, td, false) },
	// The clock goes on, or is set back, while no agent runs.
	"clock": func(t *testing.T, n *nodeSim, td *datadriven.TestData) {
		n.now = n.now.Add(duration(t, td.CmdArgs[0].Key))
	},
}

func duration(t *testing.T, text string) time.Duration {
	t.Helper()
	d := assert.Value(time.ParseDuration(text))(t)
	return d
}

// pass lets the agent decide every second, and notes each decision that differs
// from the one before.
func (n *nodeSim) pass(t *testing.T, td *datadriven.TestData, healthy bool) {
	t.Helper()
	assert.Must(t, n.runs, "no agent runs")
	begin, limit := n.now, duration(t, td.CmdArgs[0].Key)
	for passed := time.Duration(0); passed <= limit; passed += time.Second {
		n.now = begin.Add(passed)
		d := DecideTenure(n.decided.Next, TenureFacts{Now: n.now, Limit: n.limit, Healthy: healthy, Waited: n.waited && !healthy && n.limit > 0})
		if d.Reason != n.decided.Reason {
			fmt.Fprintf(n.out, "after %s %s: %s\n", passed, d.Action, d.Reason)
		}

		if n.decided = d; d.Action == GiveUp {
			n.ended(true)
			return
		}
	}
}

func (n *nodeSim) ended(gaveUp bool) {
	n.runs = false
	if n.last = nextGivenUp(n.last, n.attempt, gaveUp, n.now); n.last == (checkpoint.GivenUp{}) {
		n.out.WriteString("remembered: nothing\n")
		return
	}

	fmt.Fprintf(n.out, "remembered: %s gave the node up at %s, %d in a row\n", n.last.By, n.last.At.Format(time.RFC3339), n.last.Times)
}

// wantFailed checks an error's cause and how its text begins.
func wantFailed(t *testing.T, err error, why Failure, words string) {
	t.Helper()
	failed, ok := errors.AsType[*Error](err)
	assert.That(t, ok && failed.Failure == why && strings.HasPrefix(err.Error(), words),
		"the error is %v, want failure %v and %q", err, why, words)
}

func TestAnAttemptThatGaveTheNodeUpIsRememberedOnDisk(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	a := &Attempt{Dir: t.TempDir(), ID: "a", Log: slog.New(slog.DiscardHandler)}
	remembered := func(want checkpoint.GivenUp) {
		t.Helper()
		assert.Returns(t, want, "remembered is")(checkpoint.LastGivenUp(atomicfile.OS{}, a.Dir))
	}
	assert.NoError(t, a.CheckStart(now))
	gaveUp := fail(GaveUp, errors.New("no kubelet was healthy"))
	wantFailed(t, a.Ended(gaveUp, now), GaveUp, "no kubelet was healthy; see the kubelet's log above")
	remembered(checkpoint.GivenUp{By: "a", At: now, Times: 1})
	wantFailed(t, a.CheckStart(now.Add(59*time.Minute)), GaveUp, "this kubelet was never healthy and released the node at 2030-01-02T03:04:05Z; "+
		"next attempt at 2030-01-02T04:04:05Z; correct the flags, the image or the local configuration; delete the pod to retry now")
	assert.NoError(t, (&Attempt{Dir: a.Dir, ID: "b", Log: a.Log}).CheckStart(now), "another attempt")
	assert.NoError(t, a.CheckStart(now.Add(time.Hour)))
	odd := errors.New("odd")
	assert.Equal(t, a.Ended(odd, now), odd, "it ends with")
	remembered(checkpoint.GivenUp{})
}

func TestADiskThatCannotRememberAnAttemptIsNoReasonToKeepOrRefuseTheNode(t *testing.T) {
	var log strings.Builder
	dir := t.TempDir()
	a := &Attempt{Dir: dir, ID: "a", Log: slog.New(slog.NewTextHandler(&log, nil))}
	assert.NoError(t, os.WriteFile(filepath.Join(dir, "given-up"), []byte("no JSON"), 0o600))
	err := a.CheckStart(time.Now())
	assert.That(t, err == nil && strings.Contains(log.String(), "cannot read whether this kubelet has failed before"),
		"got %v, and the log is %s", err, log.String())

	assert.NoError(t, a.Ended(nil, time.Now()))
	assert.Is(t, assert.Err(os.Stat(filepath.Join(dir, "given-up"))), os.ErrNotExist, "a file that is not understood is left")
	a.Dir = filepath.Join(dir, "gone")
	wantFailed(t, a.Ended(fail(GaveUp, errors.New("no kubelet")), time.Now()), GaveUp, "no kubelet")
	assert.That(t, strings.Contains(log.String(), "cannot record whether this kubelet released the node"), "the log is %s", log.String())
	a.Dir = "" // no --dynamic-config-dir
	assert.NoError(t, errors.Join(a.CheckStart(time.Now()), a.Ended(nil, time.Now())))
}

func TestTheKernelSaysWhetherAnotherAgentWaitsForTheNode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	lock := assert.Value(lockfile.TryAcquire(path))(t)
	defer func() { _ = lock.Release() }()
	a := &Attempt{Limit: time.Minute, Lock: path, Log: slog.New(slog.DiscardHandler)}
	now := time.Now()
	for _, after := range []time.Duration{0, time.Minute} { // nobody waits, and the time begins again
		assert.NoError(t, a.CheckTenure(now.Add(after), false), "after", after)
	}

	waiter := locker(t, path)
	waits(t, waiter.Process.Pid)
	assert.NoError(t, a.CheckTenure(now.Add(90*time.Second), false), "within the limit")
	wantFailed(t, a.CheckTenure(now.Add(2*time.Minute), false), GaveUp,
		"no kubelet was healthy for 1m0s: the agent that waits for the lock takes over the node")
}
