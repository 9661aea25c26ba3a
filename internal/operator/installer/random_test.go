// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// TestEveryOperationKeepsItsLimitsAndEnds has nodes do anything, and checks
// every decision.
func TestEveryOperationKeepsItsLimitsAndEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		w.policy.Operation = rapid.SampledFrom([]Operation{Install, Uninstall}).Draw(t, "operation")
		w.policy.MaxUnavailable = rapid.IntRange(1, 3).Draw(t, "limit")
		w.policy.Retry = rapid.Bool().Draw(t, "retry")
		does := rapid.SampledFrom([]string{"comes-back", "comes-back", "taken-back", "crashes", "falters", "hangs", "pending", "no-pod", "no-image", "silent", "loses-ready", "unscheduled"})
		before := rapid.SampledFrom([]string{"ready", "ready", "cordoned", "not-ready", "label:install", "label:uninstall", "failed:before", "pod:r1", "agent:v1", "control-plane"})
		names := strings.Split("abcdefgh", "")[:rapid.IntRange(1, 8).Draw(t, "nodes")]
		for _, name := range names {
			for _, verb := range []string{"does:" + does.Draw(t, "does"), before.Draw(t, "before"), before.Draw(t, "before")} {
				assert.NoError(t, w.set(name, verb))
			}
		}

		w.start()
		interruptAt := rapid.IntRange(0, 200).Draw(t, "interrupted after")
		begun := map[string]string{} // label before
		for decisions := 0; ; decisions++ {
			assert.Must(t, decisions <= 2000, "it does not end")
			if decisions == interruptAt {
				w.read = nil
			}

			labels := map[string]string{}
			for _, n := range w.nodes {
				labels[n.Name] = n.Label
			}

			was := w.progress
			d := w.decide(decisions >= interruptAt)
			for _, s := range d.Steps {
				switch s.Action {
				case Begin:
					assert.Must(t, len(d.Steps) <= 1 && !was.Stopped && decisions < interruptAt,
						"%v begins after %v, interrupted after %d decisions", d.Steps, was, interruptAt)
					n := len(d.Next.In(Doing))
					assert.Must(t, n <= max(w.policy.MaxUnavailable, len(was.In(Doing))), "%d nodes are in progress", n)
					begun[s.Node] = labels[s.Node]
				case RestoreLabel:
					if before, ok := begun[s.Node]; !ok || before != s.Label || w.node(s.Node).started() {
						t.Fatalf("%v is restored; its label was %q", s, before)
					}
				}
			}

			if again := Decide(w.policy, d.Next, Observed{Now: w.now}); d.Verdict == End && decisions < interruptAt && (again.Verdict != End || len(again.Steps) > 0) {
				t.Fatalf("it ended, and then goes on with %v", again)
			}
			if d.Verdict == End {
				break
			}

			w.read = d.Read
			if d.Verdict == Wait {
				w.now = w.now.Add(time.Second)
				w.second()
			}

			if rapid.IntRange(0, 30).Draw(t, "happens") == 0 {
				name := rapid.SampledFrom(names).Draw(t, "to")
				_ = w.set(name, rapid.SampledFrom([]string{"cordoned", "gone", "label:", "does:comes-back", "not-ready", "ready"}).Draw(t, "what"))
			}

			w.apiDown = rapid.IntRange(0, 9).Draw(t, "API") == 0 && !slices.Contains(w.progress.In(ToDo), strings.Join(w.read, ""))
		}

		for _, n := range w.nodes {
			// A node that was labelled before, such as one that is upgraded,
			// keeps its label.
			if before, ok := begun[n.Name]; ok && before != w.policy.Operation.label && !n.started() && !n.removed && !w.apiDown && n.Label == w.policy.Operation.label && slices.Contains(w.progress.In(Doing), n.Name) {
				t.Fatalf("%s stays labelled, and nothing has started there", n.Name)
			}
		}
	})
}
