// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/assert"
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
