// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/testkit/must"
)

// instrumented makes the compiler count branches, which guide fuzzing, in the
// project's own packages only. The flag -fuzz of go test would compile every
// dependency again.
const instrumented = "-gcflags=github.com/evenkeel/evenkeel/...=-d=libfuzzer"

// fuzz gives one slice to the target that had the least CPU time so far.
func fuzz(ctx context.Context, s *soak, _ uint64, budget time.Duration) outcome {
	names := must.Get(fuzzTargets(s.tree))
	names = slices.DeleteFunc(names, func(name string) bool { return s.failed[name] })
	must.That(len(names) > 0, "there is no fuzz target that has not failed")
	ledger := must.Get(readLedger(s.file))
	name := leastFuzzed(names, ledger.Fuzzing)
	dir, function, _ := strings.Cut(name, ".")
	program := s.build(ctx, dir, instrumented)
	cache := filepath.Join(s.tree, "bin", "fuzz", dir)
	out, cpu, runErr := s.execute(ctx, dir, program, "-test.run=^$", "-test.fuzz=^"+function+"$", "-test.fuzztime="+budget.String(),
		"-test.parallel=1", "-test.fuzzcachedir="+cache)
	o := outcome{target: &fuzzed{name, cpu.Hours(), executions(out)}}
	if runErr != nil && ctx.Err() == nil && !endedByDeadline(out) {
		s.failed[name] = true
		o.findings = []finding{fuzzFinding(dir, function, runErr, out)}
	}

	return o
}

// leastFuzzed returns the target with the least CPU time, the first of equals.
func leastFuzzed(names []string, done map[string]*target) string {
	hours := func(name string) float64 {
		if t := done[name]; t != nil {
			return t.CPUHours
		}

		return 0
	}
	return slices.MinFunc(names, func(a, b string) int { return cmp.Compare(hours(a), hours(b)) })
}

var (
	fuzzFunction = regexp.MustCompile(`(?m)^func (Fuzz[A-Za-z0-9]+)\(\w+ \*testing\.F\)`)
	executed     = regexp.MustCompile(`(?m)^fuzz: elapsed: .*execs: (\d+) `)
	written      = regexp.MustCompile(`Failing input written to (testdata/fuzz/\S+)`)
	deadline     = regexp.MustCompile(`(?m)^\s+context deadline exceeded$`)
	failureLine  = regexp.MustCompile(`(?m)^\s+(\S+\.go:\d+: .*|panic: .*)$`)
)

// fuzzTargets returns all fuzz functions of the project's own module, sorted,
// each as its directory and its name.
func fuzzTargets(tree string) (names []string, err error) {
	defer must.Catch(&err)

	for _, top := range []string{"api", "build", "cmd", "internal", "test", "testkit"} {
		must.OK(filepath.WalkDir(filepath.Join(tree, top), func(file string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(file, "_test.go") {
				return err
			}

			data := must.Get(os.ReadFile(file))
			relative, err := filepath.Rel(tree, file)
			for _, m := range fuzzFunction.FindAllSubmatch(data, -1) {
				names = append(names, path.Dir(filepath.ToSlash(relative))+"."+string(m[1]))
			}

			return err
		}))
	}

	slices.Sort(names)

	return names, nil
}

// executions returns the last count that package testing printed.
func executions(out []byte) int64 {
	all := executed.FindAllSubmatch(out, -1)
	if len(all) == 0 {
		return 0
	}

	n, _ := strconv.ParseInt(string(all[len(all)-1][1]), 10, 48) // digits only

	return n
}

// endedByDeadline reports whether the end of the time alone made the target
// fail: package testing sometimes reports it as a failure without an input.
func endedByDeadline(out []byte) bool {
	return !written.Match(out) && deadline.Match(out) && !failureLine.Match(out)
}

// fuzzFinding describes a target that failed, and the command that runs its
// input again.
func fuzzFinding(dir, function string, err error, out []byte) finding {
	f := finding{Part: "fuzz", What: fmt.Sprintf("%s.%s: %v", dir, function, err), Command: fmt.Sprintf("go test ./%s -run='^%s$'", dir, function)}
	if m := failureLine.FindSubmatch(out); m != nil {
		f.What = fmt.Sprintf("%s.%s: %s", dir, function, m[1])
	}
	if m := written.FindSubmatch(out); m != nil {
		f.Command = fmt.Sprintf("go test ./%s -run=%s/%s", dir, function, path.Base(string(m[1])))
	}

	return f
}
