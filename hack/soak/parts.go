// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
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
	// run runs one slice.
	run func(ctx context.Context, s *soak, seed uint64, budget time.Duration) (outcome, error)
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

func simulation(ctx context.Context, s *soak, seed uint64, budget time.Duration) (outcome, error) {
	return s.goTest(ctx, "simulation", "test/simulation",
		"-test.run=^TestNewHistories$", fmt.Sprintf("-first=%d", seed), fmt.Sprintf("-budget=%s", budget), fmt.Sprintf("-processes=%d", runtime.NumCPU()), "-max-failed=1000000")
}

// pairs is how many restarts of kubelets a slice has: with two kubelets at a
// time, they take some minutes.
const pairs = 24

func podGuard(ctx context.Context, s *soak, seed uint64, _ time.Duration) (outcome, error) {
	o, err := s.goTest(ctx, "pod-guard", "test/podguard", "-kubelets=all", fmt.Sprintf("-seed=%d", seed), fmt.Sprintf("-pairs=%d", pairs))
	if err == nil {
		o.figures = append(o.figures, figure{"pod-guard-pairs", pairs})
		o.seed = seed + pairs
	}

	return o, err
}

// cuts is how many power cuts a slice has: one during each moment.
const cuts = 7

func powerCuts(ctx context.Context, s *soak, seed uint64, _ time.Duration) (outcome, error) {
	args := []string{"-only=cuts", fmt.Sprintf("-cuts=%d", cuts), fmt.Sprintf("-seed=%d", seed), "-previous=dist/v0.91.0", "-release=dist/v0.92.0"}
	for _, arg := range args[3:] {
		if _, dir, _ := strings.Cut(arg, "="); !exists(filepath.Join(s.tree, dir)) {
			return outcome{}, fmt.Errorf("there is no release %s to install in a machine: run make vm-releases", dir)
		}
	}

	program := filepath.Join(s.temp, "vm")
	if out, _, err := s.execute(ctx, ".", "go", "build", "-o", program, "./hack/vm"); err != nil {
		return outcome{}, fmt.Errorf("build hack/vm: %w\n%s", err, out)
	}

	out, _, runErr := s.execute(ctx, ".", program, args...)
	o, err := s.read(ctx, "power-cuts", "go run ./hack/vm "+strings.Join(args, " "), out, runErr)
	if err == nil && o.seed == 0 { // it failed before it was done; the seed is in the command of the finding
		o.seed = seed + 1
	}

	return o, err
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// goTest runs the tests of a package until they end, and returns what they
// print. Whoever ends it earlier gets an error.
func (s *soak) goTest(ctx context.Context, part, dir string, args ...string) (_ outcome, err error) {
	defer must.Catch(&err)

	program := must.Get(s.build(ctx, dir))
	args = append([]string{"-test.timeout=0", "-test.count=1"}, args...)
	out, _, runErr := s.execute(ctx, dir, program, args...)

	return s.read(ctx, part, fmt.Sprintf("go test ./%s -timeout=0 -count=1 -args %s", dir, strings.Join(args[2:], " ")), out, runErr)
}

// read returns what a part printed. If it failed without saying how to
// reproduce that, the finding has the part's command.
func (s *soak) read(ctx context.Context, part, command string, out []byte, runErr error) (_ outcome, err error) {
	defer must.Catch(&err)

	must.OK(ctx.Err())
	o := must.Get(readOutput(part, out))
	if runErr != nil && len(o.findings) == 0 {
		o.findings = []finding{{Part: part, What: fmt.Sprintf("%v: %s", runErr, lastLine(out)), Command: command}}
	}

	return o, nil
}

// build builds the tests of a package, once for each run.
func (s *soak) build(ctx context.Context, dir string, flags ...string) (string, error) {
	program := filepath.Join(s.temp, strings.ReplaceAll(dir, "/", "-")+".test")
	if exists(program) {
		return program, nil
	}

	args := append([]string{"test", "-c", "-o", program}, flags...)
	if out, _, err := s.execute(ctx, ".", "go", append(args, "./"+dir)...); err != nil {
		return "", fmt.Errorf("build the tests of %s: %w\n%s", dir, err, out)
	}

	return program, nil
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
	var out bytes.Buffer
	cmd.Stdout = io.MultiWriter(&out, s.log)
	cmd.Stderr = cmd.Stdout
	err := cmd.Run()
	if cmd.Process == nil {
		return out.Bytes(), 0, err
	}

	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what it left behind; usually nothing

	return out.Bytes(), cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), err
}

var (
	seedLine   = regexp.MustCompile(`\bseed (\d+): (.*)`)
	reproduced = regexp.MustCompile(`reproduce it(?: with)?: (.*)`)
)

// readOutput reads the lines "soak: NAME NUMBER" and the failures that a part
// prints: a line with "seed N: " and what failed, and later one with "reproduce
// it: " and a command.
func readOutput(part string, out []byte) (outcome, error) {
	var o outcome
	failure := ""
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		line := lines.Text()
		if m := seedLine.FindStringSubmatch(line); m != nil {
			failure = fmt.Sprintf("seed %s: %s", m[1], m[2])
		}

		if m := reproduced.FindStringSubmatch(line); m != nil && failure != "" {
			o.findings = append(o.findings, finding{Part: part, What: failure, Command: m[1]})
			failure = ""
		}

		rest, ok := strings.CutPrefix(line, "soak: ")
		if !ok {
			continue
		}

		name, number, ok := strings.Cut(rest, " ")
		if !ok {
			return outcome{}, fmt.Errorf("%s printed %q, which is not \"soak: NAME NUMBER\"", part, line)
		}

		if name == "next-seed" {
			seed, err := strconv.ParseUint(number, 10, 64)
			if err != nil {
				return outcome{}, fmt.Errorf("%s printed %q: %w", part, line, err)
			}

			o.seed = seed
			continue
		}

		n, err := strconv.ParseFloat(number, 64)
		if err != nil {
			return outcome{}, fmt.Errorf("%s printed %q: %w", part, line, err)
		}

		o.figures = append(o.figures, figure{name, n})
	}

	return o, lines.Err()
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
