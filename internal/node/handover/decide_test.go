// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/evenkeel/evenkeel/internal/node/checkpoint"
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
