// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// aSoak returns a run with an empty page.
func aSoak(t *testing.T) *soak {
	path := filepath.Join(t.TempDir(), "soak.md")
	text := beginLine + "\n" + strings.Join((&ledger{}).print(), "\n") + "\n" + endLine + "\n"
	assert.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	return &soak{file: path, tree: "../..", temp: t.TempDir(), log: io.Discard, run: monday, failed: map[string]bool{}}
}

func (s *soak) ledger(t *testing.T) *ledger {
	_, l, err := open(s.file)
	assert.NoError(t, err)
	return l
}

func TestARunContinuesWhereTheLastOneStopped(t *testing.T) {
	s := aSoak(t)
	var seeds []uint64
	p := part{name: "simulation", weight: 1, seed: 100, run: func(_ context.Context, _ *soak, seed uint64, _ time.Duration) (outcome, error) {
		seeds = append(seeds, seed)
		return readOutput("simulation", []byte("soak: histories 5\nsoak: node-days 0.25\nsoak: next-seed "+map[uint64]string{100: "105", 105: "110"}[seed]+"\n"))
	}}
	for range 2 {
		assert.NoError(t, assert.Err(s.slice(t.Context(), p, time.Minute)))
	}
	l := s.ledger(t)
	next, _ := l.seed("simulation")
	assert.That(t, len(seeds) == 2 && seeds[0] == 100 && seeds[1] == 105 && next == 110, "the seeds were %v, the next is %d", seeds, next)
	assert.That(t, l.sum("histories") == 10*unit && l.sum("node-days") == unit/2, "the totals are %+v", l.totals)
}

// A part that finds something is listed and goes on; one that cannot run stops; the others go on; the run ends with an error.
func TestFailuresOfAPartDoNotStopTheOthers(t *testing.T) {
	s := aSoak(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	slices := map[string]int{}
	err := s.all(ctx, []part{
		{name: "finds", weight: 1, run: func(context.Context, *soak, uint64, time.Duration) (outcome, error) {
			slices["finds"]++
			return readOutput("finds", []byte("x_test.go:1: seed 12: node-0 has no kubelet\n  trace\nreproduce it: go test -seed=12 -no-errors\nsoak: histories 1\n"))
		}},
		{name: "broken", weight: 1, run: func(context.Context, *soak, uint64, time.Duration) (outcome, error) {
			slices["broken"]++
			return outcome{}, errors.New("no kubelet is built")
		}},
		{name: "works", weight: 1, run: func(context.Context, *soak, uint64, time.Duration) (outcome, error) {
			if slices["works"]++; slices["works"] == 3 {
				cancel()
			}
			return outcome{figures: []figure{{"kills", unit}}}, nil
		}},
	}, time.Hour)
	if err == nil || !strings.Contains(err.Error(), "seed 12: node-0 has no kubelet; reproduce it: go test -seed=12 -no-errors") || !strings.Contains(err.Error(), "broken: no kubelet is built") {
		t.Errorf("the run ends with %v", err)
	}
	assert.That(t, slices["broken"] == 1 && slices["finds"] >= 2, "slices: %v", slices)
	l := s.ledger(t)
	assert.That(t, len(l.findings) == 1 && l.findings[0].command == "go test -seed=12 -no-errors" && l.sum("kills") == 3*unit,
		"the page has %+v and %+v", l.findings, l.totals)
}

func TestWhatAnInterruptedSliceDidNotPrintIsNotCounted(t *testing.T) {
	s := aSoak(t)
	ctx, cancel := context.WithCancel(t.Context())
	err := s.all(ctx, []part{{name: "a", weight: 1, seed: 7, run: func(context.Context, *soak, uint64, time.Duration) (outcome, error) {
		cancel()
		return outcome{}, ctx.Err()
	}}}, time.Hour)
	l := s.ledger(t)
	assert.That(t, err == nil && len(l.totals)+len(l.next)+len(l.findings) == 0, "%v, and the page has %+v", err, l)
}

// A part that fails without a word about it is a finding with its command; what it printed before counts.
func TestAPartThatFailsIsReproducedWithItsCommand(t *testing.T) {
	s := aSoak(t)
	o, err := s.read(t.Context(), "power-cuts", "go run ./hack/vm -seed=4", []byte("soak: power-cuts 2\nthe node has no kubelet\n"), errors.New("exit status 1"))
	want := finding{part: "power-cuts", what: "exit status 1: the node has no kubelet", command: "go run ./hack/vm -seed=4"}
	assert.That(t, err == nil && len(o.findings) == 1 && o.findings[0] == want && len(o.figures) == 1, "%+v, %v", o, err)
}

func TestARunByHandIsRecorded(t *testing.T) {
	s := aSoak(t)
	assert.NoError(t,
		s.recordOutput(t.Context(), "power-cuts", strings.NewReader("machine boots\nsoak: power-cuts 3\nsoak: cuts-during-install 1\nsoak: next-seed 4\n")))
	l := s.ledger(t)
	if seed, _ := l.seed("power-cuts"); l.sum("power-cuts") != 3*unit || l.sum("cuts-during-install") != unit || seed != 4 {
		t.Errorf("the page has %+v %+v", l.totals, l.next)
	}
	for part, text := range map[string]string{"power-cuts": "nothing", "Power cuts": "soak: power-cuts 1"} {
		assert.That(t, s.recordOutput(t.Context(), part, strings.NewReader(text)) != nil, "%q of %q was recorded", text, part)
	}
}
