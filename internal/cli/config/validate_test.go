// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

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

func TestInterruptedValidateHasNoVerdict(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	dir := t.TempDir()
	seen, kubelet, pipe := filepath.Join(dir, "seen"), filepath.Join(dir, "kubelet"), filepath.Join(dir, "pipe")
	assert.NoError(t, os.WriteFile(kubelet, []byte("#!/bin/sh\n>"+seen+"\nexec sleep 60\n"), 0o700))
	assert.NoError(t, syscall.Mkfifo(pipe, 0o600))
	file := fakeapi.File(t, fakeapi.Header)
	r := newAPI(t).Begin("config", "validate", file, "--component-binary=kubelet="+kubelet)
	assert.Eventually(t, "the kubelet runs", func() bool { _, err := os.Stat(seen); return err == nil })
	r.Interrupt()
	assert.Equal(t, <-r.Ended, fakeapi.Result{Code: 2, Err: "error: interrupted at " + file + "\n"})
	left, err := os.ReadDir(os.Getenv("TMPDIR"))
	assert.That(t, err == nil && len(left) == 0, "left are %v, %v", left, err)

	r = newAPI(t).Begin("config", "validate", pipe)
	r.Interrupt()
	assert.Equal(t, <-r.Ended, fakeapi.Result{Code: 2, Err: "error: interrupted: nothing was judged\n"}, "while it reads")
}

func TestValidateReportsAWriteError(t *testing.T) {
	full := assert.Value(os.OpenFile("/dev/full", os.O_WRONLY, 0))(t)
	defer full.Close()
	var errOut strings.Builder
	env := command.NewEnv(program.Info{}, genericclioptions.IOStreams{Out: full, ErrOut: &errOut})
	cmd := Command(env)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetArgs([]string{"validate", fakeapi.File(t, fakeapi.Header), "-o", "json"})
	code := env.Execute(t.Context(), cmd)
	assert.That(t, code == 2 && errOut.String() == "error: write /dev/full: no space left on device\n", "%d, %s", code, errOut.String())
}
