// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestTheSelfTestReportsTheLimitsOfAKubelet(t *testing.T) {
	const local = "maxPods: 1 # LOCAL"
	for _, tt := range []struct {
		name, body, local string
		want              string // Supported, the failed steps, the reasons of the limits
		message           string // prefix of the message if the kubelet cannot be used
	}{
		{"nothing", printing + "accept", local, "true [] []", ""},
		{"it prints nothing", "quiet; accept", local, "false [effective configuration] [NotComparable]", noDump.Message},
		{"it prints text logs only", `case "$dropins" in *json*) quiet; accept;; esac; ` + printing + "accept", local, "false [a drop-in that logs in JSON] []",
			"no configuration can be adopted: the kubelet did not print the effective configuration"},
		{"unknown fields pass", printing + "accept", local, "false [dry run] []",
			"cannot find out how this kubelet reports its configuration: it ignores unknown fields"},
		{"it continues after stage 2", printing + `[ $stage = 2 ] && log '"Started kubelet"' && exec sleep 60; accept`, local, "true [an empty drop-in a drop-in that logs in JSON] [ValidationOnly]", ""},
		{"local fails in stage 2", printing + `[ $stage = 2 ] && end "swap is on"; accept`, local, "false [an empty drop-in] []",
			"an empty drop-in is could not tell: correct the node's local configuration, and this one is judged again: the kubelet would not start with the local one: swap is on"},
		{"the local configuration is invalid", `case "$config" in *LOCAL*) end "no good";; esac; accept`, local, "false [the local configuration] []", "the local configuration is rejected: no good"},
		{"it does not stop", `log '"Standalone mode, no API client"'; sleep 60`, local, "false [dry run] []", "the dry run does not work with this kubelet: "},
		{"no version", `exit 0`, local, "false [version] []", "the kubelet does not report a version: "},
		{"drop-ins are rejected", printing + `[ -z "$dropins" ] || end "no drop-ins"; accept`, local, "false [an empty drop-in] []", "an empty drop-in is rejected: no drop-ins"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			switch tt.name {
			case "unknown fields pass":
				t.Setenv("LENIENT", "lenient")
			case "no version":
				t.Setenv("VERSION", "none")
			}
			k := fake(t, tt.body)
			if tt.local != "" {
				k = fakeWithLocal(t, tt.body, tt.local)
			}
			h := dryRunner(t, k)
			h.Protected = payload.DefaultProtection()
			got := h.SelfTest(context.Background(), "")
			failed, limits := []string{}, []string{}
			for _, step := range got.Steps {
				if !step.OK {
					failed = append(failed, step.Name)
				}
			}
			for _, limit := range got.Limits {
				limits = append(limits, limit.Reason)
			}
			s := fmt.Sprint(got.Supported, " ", failed, " ", limits)
			assert.That(t, s == tt.want && strings.HasPrefix(got.Message, tt.message) && (got.Message == "") == got.Supported, "got  %s: %s\nwant %s: %s", s, got.Message, tt.want, tt.message)
		})
	}
}

func TestEveryRealKubeletPassesTheSelfTestWithoutLimits(t *testing.T) {
	endpoint := startContainerd(t)
	for _, kubelet := range realKubelets(t) {
		k := kubeletWith(t, "containerRuntimeEndpoint: "+endpoint+"\n", "--node-ip=127.0.0.1", "--hostname-override=n1")
		k.Path = kubelet
		h := dryRunner(t, k)
		h.Protected = payload.DefaultProtection()
		got := h.SelfTest(context.Background(), "")
		assert.That(t, got.Supported && len(got.Limits) == 0 && len(got.Steps) == 6, "%s: %+v", filepath.Base(filepath.Dir(kubelet)), got)
	}
}
