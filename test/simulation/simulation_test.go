// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/rogpeppe/go-internal/diff"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

var (
	oneSeed       = flag.Uint64("seed", 0, "play the history of one seed, with its trace")
	firstSeed     = flag.Uint64("first", 1, "the first of the new seeds")
	budgetFlag    = flag.Duration("budget", 45*time.Second, "how long new histories are played")
	shrinkFlag    = flag.Duration("shrink", 30*time.Second, "how long a history that fails is made shorter")
	processesFlag = flag.Int("processes", 1, "how many processes play new histories at the same time")
	maxFailed     = flag.Int("max-failed", 3, "after how many histories that fail the test ends")
)

// leftOut is what the flags leave out of the history of -seed.
var leftOut without

func init() {
	flag.BoolVar(&leftOut.errors, "no-errors", false, "with -seed: no request fails, except in outages")
	flag.BoolVar(&leftOut.delays, "no-delays", false, "with -seed: all requests are quick")
	flag.IntVar(&leftOut.nodes, "fewer-nodes", 0, "with -seed: the number of machines")
	flag.Func("without", "with -seed: the numbers of the actions to leave out", func(text string) error {
		return json.Unmarshal([]byte("["+text+"]"), &leftOut.actions)
	})
}

func TestMain(m *testing.M) {
	flag.Parse()
	if *oneSeed != 0 {
		_ = flag.Set("test.run", "^TestOneHistory$")
	}

	runtime.GOMAXPROCS(1) // the same seed is the same history
	debug.SetGCPercent(2000)
	debug.SetMemoryLimit(512 << 20)
	klog.SetLogger(logr.Discard())
	ctrllog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// TestOneHistory plays the history of -seed; the other tests choose the seeds.
func TestOneHistory(t *testing.T) {
	if *oneSeed == 0 {
		return
	}

	p := planOf(*oneSeed, leftOut)
	began := time.Now()
	o := play(t, p, true)
	t.Logf("%s\n%sin %s, %+v", p, o.trace, time.Since(began), o.stats)
	for _, f := range o.failures {
		t.Error(f)
	}
}

// explain makes a history that failed shorter, and returns a report.
func explain(t *testing.T, seed uint64, o outcome, limit time.Duration) string {
	x := shrink(t, seed, o.failures[0], limit)
	short := play(t, planOf(seed, x), false)
	if len(short.failures) == 0 {
		short = o
	}

	return fmt.Sprintf("seed %d: %s\nthe end of a shorter history:\n%s%s", seed, o.failures[0], short.trace, again(seed, x))
}

// fixed are histories that every run plays.
var fixed = []uint64{20, 1002, 1013, 2001, 3008, 5040, 31002}

func TestFixedHistories(t *testing.T) {
	for _, seed := range fixed {
		if o := play(t, planOf(seed, without{}), false); len(o.failures) > 0 {
			t.Error(explain(t, seed, o, *shrinkFlag))
		}
	}
}

// TestTheSameSeedIsTheSameHistory compares whole records: each change of the
// API and each event of a kubelet, with its time. A select of Go with two
// channels that are ready at the same instant takes a random one, so that a
// seed has several histories: for seed 2000 about 15. Two of 30 are equal then;
// if anything is not drawn from the seed, no two are.
func TestTheSameSeedIsTheSameHistory(t *testing.T) {
	for _, seed := range []uint64{1004, 1010, 2000} {
		seen := map[string]bool{}
		var last string
		for tries := 0; ; tries++ {
			o := play(t, planOf(seed, without{}), true)
			if seen[o.trace] {
				break
			}

			if tries == 30 {
				t.Errorf("seed %d: %d histories in a row differ:\n%s", seed, tries, diff.Diff("one", []byte(last), "another", []byte(o.trace)))
				break
			}

			seen[o.trace], last = true, o.trace
		}
	}
}

// TestNewHistories plays as many histories as fit into the budget, and prints
// totals that the soak adds up.
func TestNewHistories(t *testing.T) {
	began := time.Now()
	n, failed := 0, 0
	var total stats
	left := func() time.Duration {
		if failed >= *maxFailed {
			return 0
		}

		return *budgetFlag - time.Since(began)
	}
	next, err := playNew(*firstSeed, left, func(r result) {
		n++
		total.add(r.Stats)
		if r.Failed != "" {
			failed++
			t.Error(r.Failed)
		}
	})
	assert.OK(t, err)
	summary := fmt.Sprintf("simulation: %d histories (seeds %d to %d) in %s, %s\n", n, *firstSeed, next-1, time.Since(began).Round(time.Second), total.describe())
	fmt.Print(summary)
	for _, line := range total.lines() {
		fmt.Println("soak:", line)
	}

	fmt.Printf("soak: histories %d\nsoak: next-seed %d\n", n, next)
	if file := os.Getenv("SIMULATION_SUMMARY"); file != "" { // go test shows nothing of a package that passes
		assert.OK(t, os.WriteFile(file, []byte(summary), 0o644))
	}
}

// TestOutagesStopNoRolloutOfHealthyNodes takes the API server away in the
// middle of rollouts whose nodes have hardly more time than their trial, for
// all clients and in every way.
func TestOutagesStopNoRolloutOfHealthyNodes(t *testing.T) {
	for kind := outageNone; kind <= outageSilent; kind++ {
		for i, length := range []time.Duration{3 * time.Second, 8 * time.Second, 14 * time.Second, 40 * time.Second} {
			if i == 0 && kind == outageErrors || i <= 1 && kind == outageBusy {
				continue // no outage: the watches go on, and a request for the Lease can succeed
			}

			t.Run(fmt.Sprintf("%d for %s", kind, length), func(t *testing.T) {
				p := hasty(uint64(100*int(kind)+i), kind, length)
				if o := play(t, p, false); len(o.failures) > 0 {
					t.Errorf("%s: %s\n%s", p, o.failures[0], o.trace)
				}
			})
			if kind == outageNone {
				break
			}
		}
	}
}

// hasty returns a history with outages of one kind.
func hasty(seed uint64, kind outageKind, length time.Duration) *plan {
	p := &plan{seed: seed, nodes: 4, first: 4, active: 20 * time.Minute, trial: 10 * time.Second, quiet: time.Minute, lease: 15 * time.Second, replicas: 2, own: -1, slow: 20 * time.Millisecond}
	do := func(at time.Duration, name string, do func(x *act)) {
		p.actions = append(p.actions, action{at: at, index: len(p.actions), name: name, seed: seed, do: do})
	}
	do(time.Minute, "create", func(x *act) {
		x.direct(x.server.Create("nodeconfigrollouts", "", map[string]any{"metadata": map[string]any{"name": "all"}, "spec": map[string]any{
			"nodeSelector": map[string]any{"matchLabels": map[string]any{"pool": "all"}}, "template": template(10, nil),
			"strategy": map[string]any{"maxUnavailable": 2, "steps": []any{map[string]any{"nodes": "100%"}}}, "nodeTimeoutSeconds": 60,
		}}))
	})
	r := dice(seed, "outages")
	for n := range int64(16) { // while nodes are assigned a revision, or on trial
		at := time.Duration(n+1) * time.Minute
		if n > 0 {
			do(at, "push", func(x *act) { x.patch("all", map[string]any{"template": template(10+10*n, nil)}) })
		}

		do(at+between(r, 0, 10*time.Second), "outage", func(x *act) {
			x.trouble.Store(int32(kind))
			x.later(length, func() { x.trouble.Store(int32(outageNone)) })
		})
	}

	const end = 19 * time.Minute
	for at := 2 * time.Minute; at <= end; at += 20 * time.Second {
		do(at, "look", func(x *act) {
			st := x.rollout().Status
			x.book.must(st.Halt == nil && (at != end || st.Phase == v1alpha1.RolloutComplete), "the rollout is %s: %s", st.Phase, st.Message)
		})
	}

	return p
}
