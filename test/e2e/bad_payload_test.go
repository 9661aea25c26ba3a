// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// rejected is ConfigOK for a configuration that the dry run rejected; words are
// the kubelet's, or the agent's own where no kubelet should be shown it.
func rejected(cm *corev1.ConfigMap, using, words string) want {
	cause := fmt.Sprintf("failed to validate current (UID: %s)", cm.UID)
	return want{"False", "ValidationFailed", using, cause, cause + ": " + words}
}

// aMebibyte is as much as a ConfigMap can hold, less what its name may take.
const aMebibyte = 1<<20 - 1024

func TestARejectedPayloadNeverTouchesTheKubelet(t *testing.T) {
	n := newNode(t, "payload", "--config-trial-duration=1s", "--crash-loop-threshold=0", "--protected-fields=-cgroupRoot")
	n.Up()
	n.is(localInit)
	kubelet := n.Steady()

	config := n.text
	whole := config(nil)
	var fields strings.Builder
	for i := 0; fields.Len() < aMebibyte-len(whole)-64; i++ {
		fmt.Fprintf(&fields, "unknownField%06d: 1\n", i)
	}

	for i, c := range []struct{ name, text, words string }{
		{"two documents", whole + "---\nmaxPods: 3\n", `ConfigMap evenkeel-system/payload-0: key "kubelet": more than one YAML document`},
		{"health endpoint off", config(map[string]any{"healthzPort": 0}), `ConfigMap evenkeel-system/payload-1: key "kubelet": healthzPort is 0, which disables the health endpoint`},
		{"unknown field", config(map[string]any{"maxPodz": 3}), `strict decoding error: unknown field "maxPodz"`},
		{"value out of range", config(map[string]any{"imageGCHighThresholdPercent": 101}), `invalid configuration: imageGCHighThresholdPercent`},
		{"a mebibyte of unknown fields", whole + fields.String(), `strict decoding error: unknown field "unknownField000000"`},
		{"only this host: a threshold that is no quantity", config(map[string]any{"evictionHard": map[string]string{"memory.available": "banana"}}), `evictionHard[memory.available]: "banana": quantities must match the regular expression`},
		{"only this host: CPUs that it does not have", config(map[string]any{"reservedSystemCPUs": "0-99"}), `reservedSystemCPUs: "0-99": reserved-cpus: 0-99 is not a subset of online-cpus: `},
		{"only this host: a cgroup that is missing", config(map[string]any{"cgroupRoot": "/evenkeel-not-there"}), `cgroupRoot: "/evenkeel-not-there": invalid configuration: cgroup ["evenkeel-not-there"] has some missing paths: `},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := n.in(t)
			cm := n.CreateMap(fmt.Sprint(i), map[string]string{"kubelet": c.text})
			n.AssignMap(cm)
			nc := n.is(rejected(cm, "using last-known-good (init)", c.words))
			n.Event("Warning", "ConfigRejected", fmt.Sprintf("failed to validate current (UID: %s): ", cm.UID))
			t.Logf("%.300s", nc.Status.Error)
			if nc.Status.Assigned == nil || nc.Status.Assigned.UID != cm.UID || nc.Status.Active != nil || nc.Status.LastKnownGood != nil {
				t.Errorf("assigned is %+v, active %+v, last-known-good %+v", nc.Status.Assigned, nc.Status.Active, nc.Status.LastKnownGood)
			}

			assert.That(t, len(nc.Status.Error) <= 3000, "status.error has %d bytes", len(nc.Status.Error))
			bad := nc.Status.BadConfigs
			assert.That(t, len(bad) == i+1 && bad[0].UID == cm.UID && shortOf(bad[0].Reason, nc.Status.Error), "badConfigs are %+v", bad)
			disk := n.onDisk()
			assert.That(t, disk.Current.IsLocal() && disk.LastKnownGood.IsLocal() && disk.Trial == nil,
				"on disk: current %+v, last-known-good %+v, trial %+v", disk.Current, disk.LastKnownGood, disk.Trial)
			if !slices.ContainsFunc(disk.Bad, func(b trial.BadConfig) bool {
				return b.Revision == string(cm.UID) && b.Failure == v1alpha1.ReasonValidationFailed
			}) {
				t.Errorf("bad-configs on disk are %+v", disk.Bad)
			}

			kubelet.Check(t)
		})
	}

	kubelet.End(t)
}

// TestAConfigurationThatPassesTheDryRunIsRolledBackInItsTrial: these pass both
// stages of the dry run.
func TestAConfigurationThatPassesTheDryRunIsRolledBackInItsTrial(t *testing.T) {
	n := newNode(t, "trial", "--config-trial-duration=1s", "--crash-loop-threshold=1", "--health-timeout=10s", "--ready-timeout=6s",
		"--protected-fields=-healthzPort")
	n.Up()
	good := n.good("good", map[string]any{"maxPods": 119})
	taken := assert.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer taken.Close()
	for i, c := range []struct {
		name    string
		changes map[string]any
		reason  string
		words   string
		why     string // the kubelet's own words
	}{
		{"more storage reserved than the node has", overReserved(110), "CrashLooped", "crash-looped: 2 starts in its trial, last: exit status 1",
			`Failed to start ContainerManager: invalid Node Allocatable configuration`},
		{"a health endpoint at the port of somebody else", map[string]any{"healthzPort": taken.Addr().(*net.TCPAddr).Port}, "NotHealthy", "was not healthy for 10s", ""},
		{"a content type that the API does not speak", map[string]any{"contentType": "application/nonsense"}, "NotReady", "left the node not ready for 6s", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := n.in(t)
			cm := n.assignNew(fmt.Sprint(i), c.changes)
			cause := fmt.Sprintf("current (UID: %s) %s", cm.UID, c.words)
			nc := n.is(rolledBack(cm, c.reason, fmt.Sprintf("(UID: %s)", good.UID), c.words))
			if nc.Status.Active == nil || nc.Status.Active.UID != good.UID || nc.Status.Trial != nil || nc.Status.BadConfigs[0].UID != cm.UID {
				t.Errorf("active is %+v, trial %+v, badConfigs %+v", nc.Status.Active, nc.Status.Trial, nc.Status.BadConfigs)
			}

			n.recorded(string(cm.UID), string(good.UID))
			n.Event("Warning", "ConfigRolledBack", cause+fmt.Sprintf("; going back to last-known-good (UID: %s)", good.UID))
			assert.That(t, strings.Contains(nc.Status.Error, c.why), "status.error does not contain %q: %s", c.why, nc.Status.Error)
			n.Eventually("the kubelet is healthy, and its node Ready", func(ctx context.Context) error {
				if err := n.Healthy(ctx); err != nil {
					return err
				}

				return n.Ready(ctx)
			})
		})
	}
}

// shortOf reports whether a text is another, or begins as that does and is
// shortened because it is long.
func shortOf(text, long string) bool {
	const begin = 300
	return text == long || len(text) > begin && len(text) < len(long) && strings.HasPrefix(long, text[:begin])
}
