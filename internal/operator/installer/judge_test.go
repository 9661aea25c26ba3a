// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestHowANodeStandsAndWhy(t *testing.T) {
	w := Desired{Revision: "new", Version: "v1.0.0"}
	node := func(label string, change func(*corev1.Node)) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{corev1.LabelOSStable: "linux"}}}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		if label != "" {
			n.Labels[v1alpha1.LabelAgent] = label
		}
		if change != nil {
			change(n)
		}

		return n
	}
	notReady := func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }
	pod := func(revision string, ready bool, containers ...corev1.ContainerStatus) corev1.Pod {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"controller-revision-hash": revision}}}
		p.Status.Phase, p.Status.ContainerStatuses = corev1.PodPending, containers
		if ready {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		}

		return p
	}
	ended := func(code, restarts int32, said string) corev1.ContainerStatus {
		return corev1.ContainerStatus{RestartCount: restarts, LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: said}}}
	}
	runs := corev1.ContainerStatus{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
	turn := func(revision string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Annotations = map[string]string{v1alpha1.AnnotationAgentTurn: revision} }
	}
	evicted := pod("new", false)
	evicted.Status.Phase, evicted.Status.Message = corev1.PodFailed, "The node was low on resource: memory."
	reports := func(version string) *v1alpha1.NodeConfig {
		return &v1alpha1.NodeConfig{Status: v1alpha1.NodeConfigStatus{AgentVersion: version}}
	}
	for name, tt := range map[string]struct {
		m      Operation
		node   *corev1.Node
		config *v1alpha1.NodeConfig
		pods   []corev1.Pod
		want   State
	}{
		"an agent reports without it":  {m: Install, node: node("", nil), config: reports("v1.0.0"), want: State{Stage: ToDo}},
		"being deleted":                {m: Install, node: node("", func(n *corev1.Node) { now := metav1.Now(); n.DeletionTimestamp = &now }), want: State{Stage: Skipped, Why: "it is being deleted"}},
		"failed before":                {m: Install, node: node("install-failed", nil), want: State{Stage: Failed, Why: "an earlier attempt failed; its reason was not recorded"}},
		"failed to be uninstalled":     {m: Install, node: node("uninstall-failed", nil), want: State{Stage: ToDo}},
		"of the version before":        {m: Install, node: node("install", nil), pods: []corev1.Pod{pod("old", true)}, want: State{Stage: ToDo}},
		"of the version before, down":  {m: Install, node: node("install", notReady), pods: []corev1.Pod{pod("old", true)}, want: State{Stage: Skipped, Why: "it is not Ready"}},
		"evicted":                      {m: Install, node: node("install", nil), pods: []corev1.Pod{evicted}, want: State{Stage: Doing, Why: "its pod is failed: the node was low on resource: memory."}},
		"an error, again and again":    {m: Install, node: node("install", nil), pods: []corev1.Pod{pod("new", false, ended(1, 2, "evenkeel-agent: no D-Bus"))}, want: State{Stage: Failed, Why: "its installer ended with 1: no D-Bus", Said: "evenkeel-agent: no D-Bus"}},
		"taken back":                   {m: Install, node: node("install", nil), pods: []corev1.Pod{pod("new", false, ended(2, 0, "a\nb\n"))}, want: State{Stage: Failed, Why: "tried and rolled back: b", Said: "a\nb"}},
		"taken back, and said nothing": {m: Install, node: node("install", nil), pods: []corev1.Pod{pod("new", false, ended(2, 1, ""))}, want: State{Stage: Failed, Why: "tried and rolled back"}},
		"usage":                        {m: Install, node: node("install", nil), pods: []corev1.Pod{pod("new", false, ended(3, 0, "x"))}, want: State{Stage: Failed, Why: "the command line of its installer is wrong: x", Said: "x"}},
		"not on the host":              {m: Install, node: node("install", nil), pods: []corev1.Pod{pod("new", false, ended(6, 0, "x"))}, want: State{Stage: Failed, Why: "its installer cannot run on the host: x", Said: "x"}},
		"an older agent is there, and it is not its turn":     {m: Install, node: node("install", nil), config: reports("v0.9.0"), pods: []corev1.Pod{pod("new", false, runs)}, want: State{Stage: ToDo}},
		"an older agent is there, and its turn was another's": {m: Install, node: node("install", turn("old")), config: reports("v0.9.0"), pods: []corev1.Pod{pod("new", false, runs)}, want: State{Stage: ToDo}},
		"an older agent is there, and it is its turn":         {m: Install, node: node("install", turn("new")), config: reports("v0.9.0"), pods: []corev1.Pod{pod("new", false, runs)}, want: State{Stage: Doing, Why: "its pod runs; the kubelet is not back yet"}},
		"done, cordoned afterwards":                           {m: Install, node: node("install", func(n *corev1.Node) { n.Spec.Unschedulable = true }), config: reports("v1.0.0"), pods: []corev1.Pod{pod("new", true)}, want: State{Stage: Done, Why: "v1.0.0"}},
		"to be uninstalled, after fail":                       {m: Uninstall, node: node("install-failed", nil), want: State{Stage: ToDo}},
		"uninstalled":                                         {m: Uninstall, node: node("uninstall", nil), config: reports("v0.9.0"), pods: []corev1.Pod{pod("new", true)}, want: State{Stage: Done}},
	} {
		assert.Equal(t, (Policy{Operation: tt.m, Desired: w}).judge(nodeOf(fleet.Pair{Node: tt.node, Config: tt.config}, tt.pods)), tt.want, name)
	}
}

func TestDecisionsKnowNoClient(t *testing.T) {
	may := []string{"cmp", "fmt", "slices", "strings", "time", "k8s.io/api/apps/v1", "k8s.io/api/core/v1",
		"github.com/evenkeel/evenkeel/api/v1alpha1", "github.com/evenkeel/evenkeel/internal/fleet", "github.com/evenkeel/evenkeel/internal/operator/describe", "github.com/evenkeel/evenkeel/internal/printable"}
	for _, name := range []string{"types.go", "judge.go", "decide.go"} {
		file := assert.Value(parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly))(t)
		for _, i := range file.Imports {
			path := strings.Trim(i.Path.Value, `"`)
			assert.That(t, slices.Contains(may, path), "%s imports %s: what decides does no I/O", name, path)
		}
	}
}
