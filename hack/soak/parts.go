// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/evenkeel/evenkeel/testkit/must"
)

// part is a kind of test that never ends. It is run in slices.
type part struct {
	name   string
	weight int           // its share of the time
	slice  time.Duration // about as long as one slice takes
	seed   uint64        // the first one ever
	// run runs one slice. It ends at the first error, with package must.
	run func(ctx context.Context, s *soak, seed uint64, budget time.Duration) outcome
}

// parts are all of them.
var parts = []part{
	{name: "simulation", weight: 5, slice: 5 * time.Minute, seed: 1_000_000, run: simulation},
	{name: "fuzz", weight: 3, slice: time.Minute, run: fuzz},
	{name: "pod-guard", weight: 1, slice: 4 * time.Minute, seed: 100_000, run: podGuard},
	{name: "power-cuts", weight: 1, slice: 20 * time.Minute, seed: 1000, run: powerCuts},
}

// outcome is what a slice has done.
type outcome struct {
	figures  []figure
	target   *fuzzed
	seed     uint64 // the next one, or 0
	findings []finding
}

// fuzzed is what one fuzz target was given.
type fuzzed struct {
	name       string
	cpuHours   float64
	executions int64
}

type figure struct {
	name string
	n    float64
}

func simulation(ctx context.Context, s *soak, seed uint64, budget time.Duration) outcome {
	return s.goTest(ctx, "simulation", "test/simulation",
		"-test.run=^TestNewHistories$", fmt.Sprintf("-first=%d", seed), fmt.Sprintf("-budget=%s", budget), fmt.Sprintf("-processes=%d", runtime.NumCPU()), "-max-failed=1000000")
}

// pairs is how many restarts of kubelets a slice has: with two kubelets at a
// time, they take some minutes.
const pairs = 24

func podGuard(ctx context.Context, s *soak, seed uint64, _ time.Duration) outcome {
	o := s.goTest(ctx, "pod-guard", "test/podguard", "-kubelets=all", fmt.Sprintf("-seed=%d", seed), fmt.Sprintf("-pairs=%d", pairs))
	o.figures = append(o.figures, figure{"pod-guard-pairs", pairs})
	o.seed = seed + pairs

	return o
}

// cuts is how many power cuts a slice has: one during each moment.
const cuts = 7

func powerCuts(ctx context.Context, s *soak, seed uint64, _ time.Duration) outcome {
	args := []string{"-only=cuts", fmt.Sprintf("-cuts=%d", cuts), fmt.Sprintf("-seed=%d", seed)}
	program := s.builds(ctx, "vm", "build", "./hack/vm")
	out, _, runErr := s.execute(ctx, ".", program, args...)
	o := s.read(ctx, "power-cuts", "go run ./hack/vm "+strings.Join(args, " "), out, runErr)
	if o.seed == 0 { // it failed before it was done; the seed is in the command of the finding
		o.seed = seed + 1
	}

	return o
}

// goTest runs the tests of a package until they end, and returns what they
// print. Whoever ends it earlier gets an error.
func (s *soak) goTest(ctx context.Context, part, dir string, args ...string) outcome {
	program := s.build(ctx, dir)
	args = append([]string{"-test.timeout=0", "-test.count=1"}, args...)
	out, _, runErr := s.execute(ctx, dir, program, args...)

	return s.read(ctx, part, fmt.Sprintf("go test ./%s -timeout=0 -count=1 -args %s", dir, strings.Join(args[2:], " ")), out, runErr)
}

// read returns what a part printed. If it failed without saying how to
// reproduce that, the finding has the part's command.
func (s *soak) read(ctx context.Context, part, command string, out []byte, runErr error) outcome {
	must.OK(ctx.Err())
	o := readOutput(part, out)
	if runErr != nil && len(o.findings) == 0 {
		o.findings = []finding{{Part: part, What: fmt.Sprintf("%v: %s", runErr, lastLine(out)), Command: command}}
	}

	return o
}

// build builds the tests of a package, once for each run.
func (s *soak) build(ctx context.Context, dir string, flags ...string) string {
	args := append([]string{"test", "-c"}, flags...)
	return s.builds(ctx, strings.ReplaceAll(dir, "/", "-")+".test", append(args, "./"+dir)...)
}

// builds runs go to build a program, unless this run has it already, and
// returns its path.
func (s *soak) builds(ctx context.Context, name string, args ...string) string {
	program := filepath.Join(s.temp, name)
	if _, err := os.Stat(program); err == nil {
		return program
	}

	args = slices.Insert(args, 1, "-o", program)
	out, _, err := s.execute(ctx, ".", "go", args...)
	must.That(err == nil, "go %s: %w\n%s", strings.Join(args, " "), err, out)

	return program
}

// execute runs a program in a directory of the tree, and returns what it prints
// and the CPU time that it and its children used. If the context ends, the
// program is interrupted, and killed with its children if it does not end.
func (s *soak) execute(ctx context.Context, dir, program string, args ...string) ([]byte, time.Duration, error) {
	if s.nice > 0 {
		args = append([]string{"-n", strconv.Itoa(s.nice), program}, args...)
		program = "nice"
	}

	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = filepath.Join(s.tree, dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	if cmd.Process == nil {
		return out, 0, err
	}

	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what it left behind; usually nothing

	return out, cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), err
}

var (
	seedLine   = regexp.MustCompile(`\bseed (\d+): (.*)`)
	reproduced = regexp.MustCompile(`reproduce it(?: with)?: (.*)`)
)

// readOutput reads the lines "soak: NAME NUMBER" and the failures that a part
// prints: a line with "seed N: " and what failed, and later one with "reproduce
// it: " and a command.
func readOutput(part string, out []byte) (o outcome) {
	failure := ""
	for line := range strings.Lines(string(out)) {
		if m := seedLine.FindStringSubmatch(line); m != nil {
			failure = fmt.Sprintf("seed %s: %s", m[1], m[2])
		}

		if m := reproduced.FindStringSubmatch(line); m != nil && failure != "" {
			o.findings = append(o.findings, finding{Part: part, What: failure, Command: m[1]})
			failure = ""
		}

		if !strings.HasPrefix(line, "soak: ") {
			continue
		}

		var f figure
		_, err := fmt.Sscanf(line, "soak: %s %g", &f.name, &f.n)
		must.That(err == nil, "%s printed %q, which is not \"soak: NAME NUMBER\": %w", part, line, err)
		if f.name == "next-seed" {
			o.seed = uint64(f.n) // far below 2^53
		} else {
			o.figures = append(o.figures, f)
		}
	}

	return o
}

// lastLine returns the last line that is no summary of package testing.
func lastLine(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	for i := len(lines) - 1; i > 0; i-- {
		if l := strings.TrimSpace(lines[i]); l != "" && l != "FAIL" && !strings.HasPrefix(l, "exit status") {
			return l
		}
	}

	return lines[0]
}
