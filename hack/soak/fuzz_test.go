// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"slices"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestFuzzTargetsAreFound(t *testing.T) {
	names := assert.Value(fuzzTargets("../.."))(t)
	for _, want := range []string{"internal/payload.FuzzDecodeNeverPanics", "internal/node/podguard.FuzzCPUSet"} {
		assert.That(t, slices.Contains(names, want), "%s is not among %v", want, names)
	}
}

func TestOutputOfFuzzingIsUnderstood(t *testing.T) {
	failed := `fuzz: elapsed: 0s, gathering baseline coverage: 0/12 completed
fuzz: elapsed: 3s, execs: 1200 (400/sec), new interesting: 3 (total: 15)
fuzz: elapsed: 5s, execs: 2017 (408/sec), new interesting: 3 (total: 15)
--- FAIL: FuzzX (5.00s)
    --- FAIL: FuzzX (0.00s)
        x_test.go:12: parsed again, it is different

    Failing input written to testdata/fuzz/FuzzX/6c2f
    To re-run:
    go test -run=FuzzX/6c2f
FAIL
`
	assert.Equal(t, executions([]byte(failed)), 2017)
	want := finding{Part: "fuzz", What: "internal/x.FuzzX: x_test.go:12: parsed again, it is different", Command: "go test ./internal/x -run=FuzzX/6c2f"}
	assert.Equal(t, fuzzFinding("internal/x", "FuzzX", errors.New("exit status 1"), []byte(failed)), want, "the finding")
	for text, want := range map[string]bool{
		failed: false,
		"--- FAIL: FuzzX (60.06s)\n    context deadline exceeded\nFAIL\n": true,
		"--- FAIL: FuzzX (1.00s)\n    --- FAIL: FuzzX/seed#3 (0.00s)\n":   false,
	} {
		got := endedByDeadline([]byte(text))
		assert.That(t, got == want, "%q: ended by the deadline %v", text, got)
	}
}
