// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"testing"

	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/testkit/assert"
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
	if want := "f.yaml, document 2: kubelet v1.36.3: accepted\n  not judged: failCgroupV1 is true\\x1b[2J\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}
