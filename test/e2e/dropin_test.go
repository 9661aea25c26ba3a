// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/agent"
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
	var all component.Effective
	n.Eventually(fmt.Sprintf("the kubelet has %v", want), func(ctx context.Context) (err error) {
		if all, err = n.KubeletConfigz(ctx); err != nil {
			return err
		}

		for field, value := range want {
			if is, _ := all.Field(field); fmt.Sprint(is) != fmt.Sprint(value) {
				return fmt.Errorf("%s is %v", field, is)
			}
		}

		return nil
	})

	return all
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

// origins requires where fields come from; "": they are defaults.
func (n *node) origins(page agent.Configz, want map[string]component.Origin) {
	n.t.Helper()
	for field, origin := range want {
		assert.Equal(n.t, page.Origins[field], origin, "/configz says that", field, "is of origin")
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
	n.origins(page, map[string]component.Origin{
		"maxPods": "drop-in", "evictionHard[imagefs.available]": "drop-in", "evictionHard[memory.available]": "local",
		"registryBurst": "local", "clusterDomain": "local", "logging.verbosity": "flag", "kubeAPIBurst": "",
	})
	if d := page.Differs; len(d) != 2 || d[0].String() != `evictionHard[imagefs.available] would be "2%", but is "1%" locally` || d[1].String() != "maxPods would be 77, but is 90 locally" {
		t.Errorf("/configz says that these differ from local: %v", d)
	}

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
	// A whole payload takes the place of all that the node has.
	whole := n.assignNew("whole", map[string]any{"maxPods": 120})
	n.is(allChecksPassed(whole))
	n.healthyWith(whole)
	n.kubeletHas(map[string]any{"maxPods": 120, "registryBurst": 10, "evictionHard[imagefs.available]": "1%"})
	n.LastKnownGood(whole)

	n.AssignMap(nil)
	nc = n.is(localInit)
	assert.That(t, nc.Status.Active == nil && nc.Status.LastKnownGood == nil,
		"active is %+v, last-known-good %+v", nc.Status.Active, nc.Status.LastKnownGood)
	n.healthyWith(nil)
	n.kubeletHas(map[string]any{"maxPods": 90, "registryBurst": 22, "evictionHard[imagefs.available]": "1%"})
	n.recorded("", "")
	n.Eventually("nothing of it is left on disk", func(context.Context) error {
		left, err := filepath.Glob(filepath.Join(n.Dir, "*", "*"+string(over.UID)+"*"))
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("there are %q", left)
		}

		return err
	})
}
