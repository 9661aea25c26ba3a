// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// aSoak returns a run with an empty ledger.
func aSoak(t *testing.T) *soak {
	path := filepath.Join(t.TempDir(), "ledger.json")
	assert.NoError(t, os.WriteFile(path, []byte("{}"), 0o644))
	return &soak{file: path, tree: "../..", temp: t.TempDir(), run: monday, failed: map[string]bool{}}
}

func (s *soak) ledger(t *testing.T) *ledger {
	return assert.Value(readLedger(s.file))(t)
}

func TestARunContinuesWhereTheLastOneStopped(t *testing.T) {
	s := aSoak(t)
	var seeds []uint64
	p := part{name: "simulation", weight: 1, seed: 100, run: func(_ context.Context, _ *soak, seed uint64, _ time.Duration) outcome {
		seeds = append(seeds, seed)
		return readOutput("simulation", []byte("soak: histories 5\nsoak: node-days 0.25\nsoak: next-seed "+map[uint64]string{100: "105", 105: "110"}[seed]+"\n"))
	}}
	for range 2 {
		assert.NoError(t, assert.Err(s.slice(t.Context(), p, time.Minute)))
	}

	l := s.ledger(t)
	next := l.Next["simulation"]
	assert.That(t, len(seeds) == 2 && seeds[0] == 100 && seeds[1] == 105 && next == 110, "the seeds were %v, the next is %d", seeds, next)
	assert.That(t, l.Totals["histories"].Sum == 10 && l.Totals["node-days"].Sum == 0.5, "the totals are %+v", l.Totals)
}

// A part that finds something is listed and goes on; one that cannot run stops;
// the others go on; the run ends with an error.
func TestFailuresOfAPartDoNotStopTheOthers(t *testing.T) {
	s := aSoak(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	slices := map[string]int{}
	err := s.all(ctx, []part{
		{name: "finds", weight: 1, run: func(context.Context, *soak, uint64, time.Duration) outcome {
			slices["finds"]++
			return readOutput("finds", []byte("x_test.go:1: seed 12: node-0 has no kubelet\n  trace\nreproduce it: go test -seed=12 -no-errors\nsoak: histories 1\n"))
		}},
		{name: "broken", weight: 1, run: func(context.Context, *soak, uint64, time.Duration) outcome {
			slices["broken"]++
			return must.Get(outcome{}, errors.New("no kubelet is built"))
		}},
		{name: "works", weight: 1, run: func(context.Context, *soak, uint64, time.Duration) outcome {
			if slices["works"]++; slices["works"] == 3 {
				cancel()
			}

			return outcome{figures: []figure{{"kills", 1}}}
		}},
	}, time.Hour)
	assert.ErrorHas(t, err, "seed 12: node-0 has no kubelet; reproduce it: go test -seed=12 -no-errors")
	assert.ErrorHas(t, err, "broken: no kubelet is built")
	assert.That(t, slices["broken"] == 1 && slices["finds"] >= 2, "slices: %v", slices)
	l := s.ledger(t)
	assert.That(t, len(l.Findings) == 1 && l.Findings[0].Command == "go test -seed=12 -no-errors" && l.Totals["kills"].Sum == 3,
		"the ledger has %+v and %+v", l.Findings, l.Totals)
}

func TestWhatAnInterruptedSliceDidNotPrintIsNotCounted(t *testing.T) {
	s := aSoak(t)
	ctx, cancel := context.WithCancel(t.Context())
	err := s.all(ctx, []part{{name: "a", weight: 1, seed: 7, run: func(context.Context, *soak, uint64, time.Duration) outcome {
		cancel()
		return must.Get(outcome{}, ctx.Err())
	}}}, time.Hour)
	l := s.ledger(t)
	assert.That(t, err == nil && len(l.Totals)+len(l.Next)+len(l.Findings) == 0, "%v, and the ledger has %+v", err, l)
}

// A part that fails without a word about it is a finding with its command; what
// it printed before counts.
func TestAPartThatFailsIsReproducedWithItsCommand(t *testing.T) {
	s := aSoak(t)
	o := s.read(t.Context(), "power-cuts", "go run ./hack/vm -seed=4", []byte("soak: power-cuts 2\nthe node has no kubelet\n"), errors.New("exit status 1"))
	want := finding{Part: "power-cuts", What: "exit status 1: the node has no kubelet", Command: "go run ./hack/vm -seed=4"}
	assert.That(t, len(o.findings) == 1 && o.findings[0] == want && len(o.figures) == 1, "%+v", o)
}
