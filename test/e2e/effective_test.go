// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/podguard/machine"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/must"
	"github.com/evenkeel/evenkeel/testkit/nodetest"
)

// dropin creates a ConfigMap with a drop-in.
func (n *node) dropin(name, fields string) *corev1.ConfigMap {
	n.t.Helper()
	return n.CreateMap(name, dropin(fields))
}

// own writes one of the drop-ins that the node itself has, and gives the
// kubelet their directory.
func (n *node) own(name, fields string) {
	n.t.Helper()
	dir := filepath.Join(n.Node.Dir(), "kubelet.conf.d")
	assert.NoError(n.t, os.MkdirAll(dir, 0o755))
	assert.NoError(n.t, os.WriteFile(filepath.Join(dir, name), []byte(nodetest.Upstream+fields), 0o644))
	if flag := "--config-dir=" + dir; !slices.Contains(n.Kubelet, flag) {
		n.Kubelet = append(n.Kubelet, flag)
	}
}

// kubeletHas waits until the kubelet's own /configz has these values, and
// returns all of it.
func (n *node) kubeletHas(want map[string]any) component.Effective {
	n.t.Helper()
	for field, value := range want {
		n.KubeletHas(field, value)
	}

	return assert.Value(n.KubeletConfigz(n.t.Context()))(n.t)
}

// differ requires that two configurations differ in these fields alone.
func (n *node) differ(a, b component.Effective, fields ...string) {
	n.t.Helper()
	var found []string
	for _, d := range payload.Diff(a, b) {
		found = append(found, d.Field)
	}
	if !slices.Equal(found, fields) {
		n.t.Errorf("%q differ, want %q: %v", found, fields, payload.Diff(a, b))
	}
}

func TestADropInIsMergedOverTheNodesConfiguration(t *testing.T) {
	t.Parallel()
	n := newNode(t, "dropin", "--config-trial-duration=2s")
	n.own("10-pods.conf", "maxPods: 90\n")
	n.own("20-registry.conf", "registryBurst: 21\n")
	n.Up()
	n.is(localInit)
	local := n.kubeletHas(map[string]any{"maxPods": 90, "registryBurst": 21})

	over := n.dropin("over", "maxPods: 77\nevictionHard: {imagefs.available: 2%}\n")
	n.AssignMap(over)
	nc := n.is(allChecksPassed(over))
	if a := nc.Status.Active; a == nil || a.UID != over.UID || a.SHA256 != payload.Digest("kubelet-dropin", []byte(over.Data["kubelet-dropin"])) {
		t.Errorf("active is %+v", a)
	}

	n.healthyWith(over)
	laidOver := map[string]any{"maxPods": 77, "registryBurst": 21, "evictionHard[imagefs.available]": "2%", "evictionHard[memory.available]": "50Mi", "clusterDomain": "cluster.local"}
	n.differ(n.kubeletHas(laidOver), local, "evictionHard[imagefs.available]", "maxPods")
	n.LastKnownGood(over)
	n.Event("Normal", "ConfigLastKnownGood", fmt.Sprintf("(UID: %s) became last-known-good after 2s of observed health", over.UID))

	page := n.page("")
	assert.That(t, page.Source.Kind == "remote" && page.Source.UID == over.UID, "/configz is of %+v", page.Source)
	for _, d := range payload.Diff(n.kubeletHas(laidOver), page.Effective) { // the judged configuration is the running one
		if d.Value != "unset" && d.Field != "apiVersion" && d.Field != "kind" { // the kubelet omits empty values
			t.Errorf("the kubelet's configuration differs from the agent's /configz: %s", d)
		}
	}

	// What the node has below is read at each start.
	n.stop()
	n.own("20-registry.conf", "registryBurst: 22\n")
	n.Up()
	n.is(allChecksPassed(over))
	n.Event("Normal", "ConfigOnTrial", fmt.Sprintf("last-known-good (UID: %s) has not passed a trial with this kubelet version and local configuration", over.UID))
	laidOver["registryBurst"] = 22
	n.kubeletHas(laidOver)
}

// drifts waits until Drifted has the status and the reason, and its message
// contains words. It returns status.drift.
func (n *node) drifts(status, reason, words string) v1alpha1.Drift {
	n.t.Helper()
	nc := n.Awaits(fmt.Sprintf("Drifted is %s, %s", status, reason), func(nc *v1alpha1.NodeConfig) error {
		c := meta.FindStatusCondition(nc.Status.Conditions, v1alpha1.ConditionDrifted)
		is := c != nil && nc.Status.Drift != nil && string(c.Status) == status && c.Reason == reason && strings.Contains(c.Message, words)

		return assert.Unless(is, "it is %+v, drift %+v", c, nc.Status.Drift)
	})

	return *nc.Status.Drift
}

// again restarts the agent, and with it the kubelet.
func (n *node) again() {
	n.t.Helper()
	n.stop()
	n.Up()
}

func TestDriftOfARealKubeletIsReportedAndNotCorrected(t *testing.T) {
	t.Parallel()
	n := newNode(t, "drift", "--config-trial-duration=1s")
	// The program of the node adds a flag when it is not a dry run.
	n.wrap(`[ $mode = run ] && [ -e "$dir/adds" ] && set -- "$@" --max-pods=77`)
	assert.NoError(t, n.ApplyConfig(t.Context(), "drift"))
	n.Up()

	// A fresh kubelet has no drift, whatever it runs.
	wantNone := func() {
		t.Helper()
		d := n.drifts("False", v1alpha1.DriftNone, "as they were")
		assert.That(t, d.NotCompared == "", "drift is %+v", d)
	}
	wantNone()

	// A kubelet that runs with something else than the agent started it with is
	// neither restarted nor blamed.
	assert.NoError(t, os.WriteFile(n.beside("adds"), nil, 0o600))
	n.again()
	undisturbed := n.Steady()
	d := n.drifts("True", v1alpha1.DriftConfigzDiffers, "the running kubelet differs in field maxPods from the configuration that the agent validated and started")
	assert.That(t, slices.Equal(d.Fields, []string{"maxPods"}) && len(d.Files) == 0 && d.NotCompared == "", "drift is %+v", d)
	n.is(localInit)
	undisturbed.End(t)

	assert.NoError(t, os.Remove(n.beside("adds")))
	cm := n.ConfigMap("other", map[string]any{
		"maxPods": 60, "podPidsLimit": 4001, "syncFrequency": "90s", "containerLogMaxSize": "5Mi", "shutdownGracePeriod": "0s", "imageGCHighThresholdPercent": 81,
		"kubeReserved": map[string]any{"cpu": "10m"}, "evictionSoft": map[string]any{"memory.available": "70Mi"}, "evictionSoftGracePeriod": map[string]any{"memory.available": "2m"},
		"logging": map[string]any{"verbosity": 3, "flushFrequency": "7s"},
	})
	n.proves(cm)
	n.again()
	wantNone()
}

func TestRulesGiveWhatTheKubeletsOwnCapacityGives(t *testing.T) {
	t.Parallel()
	n := newNode(t, "rules", "--config-trial-duration=2s")
	n.Up()
	n.is(localInit)
	var capacity corev1.ResourceList
	n.Eventually("the Node has its capacity", func(ctx context.Context) error {
		capacity = must.Get(n.Object(ctx)).Status.Capacity
		return assert.Unless(!capacity.StorageEphemeral().IsZero(), "it has none")
	})
	total, kubelets := machine.Machine{KubeletDir: filepath.Join(n.Node.Dir(), "kubelet")}.Total(), payload.CapacityOf(capacity)
	assert.That(t, total.PIDs > 0, "there are %d PIDs", total.PIDs)
	kubelets.PIDs = total.PIDs // a Node does not have them
	assert.NoDiff(t, cmp.Diff(kubelets, total), "the capacity that the agent measures differs from the kubelet's")

	sizes := string(assert.Value(os.ReadFile("testdata/sizes.yaml"))(t))
	cm := n.CreateMap("sizes", map[string]string{payload.KeyKubeletDropin: sizes})
	p := assert.Value(payload.FromConfigMap(cm))(t)
	want := assert.Value(p.Resolve(kubelets))(t)
	n.AssignMap(cm)
	n.LastKnownGood(cm)
	nc := n.config()
	assert.NoDiff(t, cmp.Diff(want.Values, nc.Status.ResolvedValues))
	assert.That(t, len(want.Values) == 6 && nc.Status.Active.ResolvedSHA256 == want.Digest, "active is %+v", nc.Status.Active)
	has := map[string]any{}
	for _, v := range want.Values {
		has[v.Path] = v.Value
	}

	n.kubeletHas(has)
	assert.NoDiff(t, cmp.Diff(want.Values, n.page("").Resolved))
}
