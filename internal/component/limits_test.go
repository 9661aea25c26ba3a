// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func checkEmptyDropin(t *testing.T, k *Kubelet) Verdict {
	t.Helper()
	empty := emptyConfig(payload.UpstreamAPIVersion, payload.KubeletKind)
	return protectedDryRunner(t, k).Check(context.Background(), Candidate{Data: empty, Dropin: true}, "")
}

func TestAnEmptyDropinFindsTheLimitsOfAKubelet(t *testing.T) {
	for _, tt := range []struct {
		name, body string
		want       string // outcome, stage, message and the reasons of the limits
	}{
		{"unknown fields pass", printing + "accept",
			"could not tell at stage 0: cannot find out how this kubelet reports its configuration: it ignores unknown fields, so a typo would have no effect and not be reported[]"},
		{"it continues after stage 2", printing + `[ $stage = 2 ] && log '"Started kubelet"' && exec sleep 60; accept`,
			"accepted at stage 1: stage 2 of the dry run was not used: the local configuration does not pass it: " +
				`the dry run of the kubelet: it continued past the end of the dry run ("Started kubelet") and was killed` + "[ValidationOnly]"},
		{"drop-ins are rejected", printing + `[ -z "$dropins" ] || end "no drop-ins"; accept`, "rejected at stage 1: no drop-ins[]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.name == "unknown fields pass" {
				t.Setenv("LENIENT", "lenient")
			}

			v := checkEmptyDropin(t, fakeWithLocal(t, tt.body, "maxPods: 1 # LOCAL"))
			limits := []string{}
			for _, limit := range v.Limits {
				limits = append(limits, limit.Reason)
			}

			assert.Equal(t, fmt.Sprintf("%s at stage %d: %s%v", v.Outcome, v.Stage, v.Message, limits), tt.want)
		})
	}
}

func TestEveryRealKubeletAcceptsAnEmptyDropinWithoutLimits(t *testing.T) {
	endpoint := startContainerd(t)
	for _, kubelet := range realKubelets(t) {
		k := kubeletWith(t, "containerRuntimeEndpoint: "+endpoint+"\n", "--node-ip=127.0.0.1", "--hostname-override=n1")
		k.Path = kubelet
		v := checkEmptyDropin(t, k)
		assert.That(t, v.Outcome == Accepted && v.Stage == 2 && v.Message == "" && len(v.Limits) == 0, "%s: %+v", filepath.Base(filepath.Dir(kubelet)), v)
	}
}
