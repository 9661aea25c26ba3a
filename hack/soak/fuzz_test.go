package main

import (
	"errors"
	"slices"
	"testing"
)

func TestFuzzTargetsAreFound(t *testing.T) {
	names, err := fuzzTargets("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"internal/payload.FuzzDecodeNeverPanics", "internal/node/admission.FuzzCPUSet"} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is not among %v", want, names)
		}
	}
	for _, name := range names {
		if !targetForm.MatchString(name) {
			t.Errorf("the page cannot have the target %q", name)
		}
	}
}

func TestTheTargetWithTheLeastTimeIsNext(t *testing.T) {
	names := []string{"a.FuzzA", "b.FuzzB", "c.FuzzC"}
	done := []target{{name: "a.FuzzA", hours: 3}, {name: "c.FuzzC", hours: 1}}
	if got := leastFuzzed(names, done); got != "b.FuzzB" {
		t.Errorf("the new target waits for %s", got)
	}
	if got := leastFuzzed(names, append(done, target{name: "b.FuzzB", hours: 2})); got != "c.FuzzC" {
		t.Errorf("the next is %s", got)
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
	if got := executions([]byte(failed)); got != 2017*unit {
		t.Errorf("%s executions", got)
	}
	want := finding{part: "fuzz", what: "internal/x.FuzzX: x_test.go:12: parsed again, it is different", command: "go test ./internal/x -run=FuzzX/6c2f"}
	if got := fuzzFinding("internal/x", "FuzzX", errors.New("exit status 1"), []byte(failed)); got != want {
		t.Errorf("the finding is %+v", got)
	}
	for text, want := range map[string]bool{
		failed: false,
		"--- FAIL: FuzzX (60.06s)\n    context deadline exceeded\nFAIL\n": true,
		"--- FAIL: FuzzX (1.00s)\n    --- FAIL: FuzzX/seed#3 (0.00s)\n":   false,
	} {
		if got := endedByDeadline([]byte(text)); got != want {
			t.Errorf("%q: ended by the deadline %v", text, got)
		}
	}
}
