// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/nodetest"
)

// TestARealKubeletAnswersPreflightsAndNothingElseHappens asks an agent through
// NodeConfigPreflights.
func TestARealKubeletAnswersPreflightsAndNothingElseHappens(t *testing.T) {
	t.Parallel()
	n := newNode(t, "asked")
	n.Up()
	n.Controlled()
	cpus := assert.Value(n.Object(t.Context()))(t).Status.Capacity.Cpu().Value()
	var pods []string
	for i := range cpus + 1 {
		pods = append(pods, fmt.Sprint(i))
	}

	n.RunPods(pods...)
	containers := n.Containers()
	crowded := fmt.Sprintf("OutOfpods (pods: %d needed by all pods together, %d allocatable);", len(pods), cpus)
	n.is(localInit)
	// The first comparison is reported some time after the start, the next in
	// ten minutes. Another test may allow agents to read /configz.
	n.Awaits("the first comparison for drift is reported", func(nc *v1alpha1.NodeConfig) error {
		return assert.Unless(nc.Status.Drift != nil, "it is not")
	})

	kubelet, before := n.Steady(), n.inventory()
	for _, c := range []struct{ name, fields, reason, words string }{
		{"good", "containerLogMaxFiles: 4", "", ""},
		{"the kubelet rejects it", "imageGCHighThresholdPercent: 101", v1alpha1.ReasonValidationFailed, "imageGCHighThresholdPercent"},
		{"a protected field", "staticPodPath: /etc", v1alpha1.ReasonProtectedFields, `protected field staticPodPath would be "/etc"`},
		{"too few places for the pods", "podsPerCore: 1", v1alpha1.ReasonWouldEvictPods, crowded},
		{"a threshold that the usage crosses", "evictionHard: {memory.available: 99%}", v1alpha1.ReasonWouldEvictPods,
			"Evicted (the usage crosses, or nearly crosses, evictionHard memory.available (99%, "},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := n.in(t)
			n.preflight(c.fields, c.reason, c.words)
			assert.NoDiff(t, cmp.Diff(before, n.inventory()), "the node was changed")
			kubelet.Check(t)
		})
	}

	kubelet.End(t)
	n.SameContainers(containers)
	refusals := n.refusals("")
	assert.That(t, len(refusals) == 0, "requests were taken for assignments: %q", refusals)
}

// preflight asks the node about a drop-in with these fields. It must refuse it
// for the reason, with these words; if reason is empty, it must accept it.
func (n *node) preflight(fields, reason, words string) {
	n.t.Helper()
	was := n.config().Status.Preflight
	code, verdict, said := 2, v1alpha1.PreflightRefused, "1 "+reason+" ("+n.Node.Name()+")"
	if reason == "" {
		code, verdict, said = 0, v1alpha1.PreflightAccepted, "1 node accepts\n"
	}

	n.Plugin(code, []string{"preflight", "-f", n.File(nodetest.Upstream + fields + "\n"), "--drop-in", "--selector=kubernetes.io/hostname=" + n.Node.Name(), "--timeout=" + nodetest.Patience.String()}, said)
	a := n.config().Status.Preflight
	if a == nil || a.Verdict != verdict || a.Reason != reason || !strings.Contains(a.Message, words) || was != nil && a.UID == was.UID {
		n.t.Errorf("the answer is %+v, want %s %s %q", a, verdict, reason, words)
	}
}

// config returns the NodeConfig.
func (n *node) config() *v1alpha1.NodeConfig {
	n.t.Helper()
	return assert.Value(n.Get(n.t.Context()))(n.t)
}

// inventory is what a preflight must not change: the NodeConfig, and the files
// in the agent's directory and of the local configuration.
func (n *node) inventory() map[string]string {
	n.t.Helper()
	nc := n.config()
	s := nc.Status
	s.Preflight, s.WorkloadPods, s.PodsUnreadyOnRestart = nil, nil, nil // counts are written along with an answer
	found := map[string]string{"the NodeConfig": string(assert.Value(json.Marshal([]any{nc.UID, nc.Generation, nc.Spec, s}))(n.t))}
	for _, root := range []string{n.Dir, n.Node.KubeletConfig()} {
		assert.NoError(n.t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}

			info, err := entry.Info()
			if err == nil {
				found[path] = fmt.Sprintf("%s, %d bytes, written at %s", info.Mode(), info.Size(), info.ModTime().Format(time.RFC3339Nano))
			}

			return err
		}))
	}

	assert.Must(n.t, len(found) >= 3, "the agent has no files")

	return found
}
