// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/program"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/fakeapi"
)

func TestOutcomesHaveTheNamesOfComponentOutcomes(t *testing.T) {
	for theirs, ours := range map[component.Outcome]outcome{component.Accepted: accepted, component.Rejected: rejected, component.CouldNotTell: couldNotTell} {
		assert.That(t, theirs.String() == string(ours), "%s is not %s", theirs, ours)
	}
}

func TestTheWorstVerdictDecides(t *testing.T) {
	for _, tt := range []struct {
		all  []outcome
		want outcome
	}{
		{nil, notJudged},
		{[]outcome{notJudged}, notJudged},
		{[]outcome{notJudged, accepted}, accepted},
		{[]outcome{accepted, unvalidated, accepted}, couldNotTell},
		{[]outcome{couldNotTell, accepted}, couldNotTell},
		{[]outcome{couldNotTell, unvalidated, rejected, accepted, notJudged}, rejected},
	} {
		var all []judgement
		for _, one := range tt.all {
			all = append(all, judgement{Verdict: one})
		}

		assert.Equal(t, overall(all), tt.want, tt.all)
	}
}

// On a host with cgroup v1 the real kubelet's verdict has such a warning; this
// one may have v2.
func TestWarningsAreUnderTheVerdict(t *testing.T) {
	var out bytes.Buffer
	a := &app{&command.Env{IOStreams: genericclioptions.IOStreams{Out: &out}}}
	a.printJudgement(judgement{
		Place: "f.yaml, document 2", Kind: "KubeletConfiguration", Component: "kubelet", Version: "v1.36.3", Verdict: accepted,
		Warnings: []string{"not judged: failCgroupV1\nis true\x1b[2J"},
	})
	want := "f.yaml, document 2: kubelet v1.36.3: accepted\n  not judged: failCgroupV1 is true\\x1b[2J\n"
	assert.That(t, out.String() == want, "got %q, want %q", out.String(), want)
}

func execute(ctx context.Context, env *command.Env, args ...string) int {
	cmd := Command(env)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetArgs(args)
	return env.Execute(ctx, cmd)
}

// validateUntil runs config validate until begun says so, and interrupts it
// then.
func validateUntil(t *testing.T, begun func() bool, in io.Reader, args ...string) fakeapi.Result {
	t.Helper()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var out, errOut bytes.Buffer
	code := make(chan int)
	go func() {
		env := command.NewEnv(program.Info{}, genericclioptions.IOStreams{In: in, Out: &out, ErrOut: &errOut})
		code <- execute(ctx, env, append([]string{"validate"}, args...)...)
	}()
	for deadline := time.After(time.Minute); !begun(); {
		select {
		case <-deadline:
			t.Fatal("it did not begin")
		case c := <-code:
			t.Fatalf("it ended with %d: %s", c, errOut.String())
		case <-time.After(10 * time.Millisecond):
		}
	}

	interrupt()

	return fakeapi.Result{Code: <-code, Out: out.String(), Err: errOut.String()}
}

func TestInterruptedValidateHasNoVerdict(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	seen := filepath.Join(t.TempDir(), "seen")
	kubelet := filepath.Join(t.TempDir(), "kubelet")
	assert.NoError(t, os.WriteFile(kubelet, []byte("#!/bin/sh\n>"+seen+"\nexec sleep 60\n"), 0o700))
	begun := func() bool { _, err := os.Stat(seen); return err == nil }
	file := fakeapi.File(t, fakeapi.Header)
	got := validateUntil(t, begun, nil, file, "--component-binary=kubelet="+kubelet)
	assert.That(t, got.Code == 2 && got.Out == "" && got.Err == "error: interrupted at "+file+"\n", "%+v", got)
	left, err := os.ReadDir(os.Getenv("TMPDIR"))
	assert.That(t, err == nil && len(left) == 0, "left are %v, %v", left, err)
}

func TestValidateIsInterruptedWhileReadingStandardInput(t *testing.T) {
	in, nobody := io.Pipe()
	defer nobody.Close()
	got := validateUntil(t, func() bool { return true }, in, "-")
	assert.That(t, got.Code == 2 && got.Out == "" && got.Err == "error: interrupted: nothing was judged\n", "%+v", got)
}

func TestValidateReportsAWriteError(t *testing.T) {
	full := assert.Value(os.OpenFile("/dev/full", os.O_WRONLY, 0))(t)
	defer full.Close()
	var errOut strings.Builder
	env := command.NewEnv(program.Info{}, genericclioptions.IOStreams{Out: full, ErrOut: &errOut})
	code := execute(t.Context(), env, "validate", fakeapi.File(t, fakeapi.Header), "-o", "json")
	assert.That(t, code == 2 && errOut.String() == "error: write /dev/full: no space left on device\n", "%d, %s", code, errOut.String())
}
