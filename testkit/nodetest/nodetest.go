// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodetest is a real node in a test: the agent with a stock kubelet,
// and what tests wait for and compare. Packages of tests that need more add
// methods to a type of their own that embeds Subject.
//
// The package must not know which stories its users tell.
package nodetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/bed"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// Patience limits how long a test waits for a condition, on a busy machine. How
// long it does take is for hack/bench to say.
const Patience = 3 * time.Minute

// Subject is a node with an agent. What is not as expected fails T.
type Subject struct {
	*bed.Bed
	*bed.Agent
	T *testing.T
}

// New adds a node to a cluster. Its agent is not started yet. The caller ends
// the node with StopNode.
func New(t *testing.T, cluster *localcluster.Cluster, name string, flags ...string) *Subject {
	t.Helper()
	b, err := bed.On(t.Context(), cluster, name)
	if errors.Is(err, localcluster.ErrNoNode) {
		t.Skip("no real node can run here: ", err)
	}

	assert.NoError(t, err)

	return &Subject{b, assert.Value(b.Agent(flags...))(t), t}
}

// StopNode stops the agent, and everything else of the node.
func (n *Subject) StopNode() error {
	return errors.Join(n.Stop(time.Minute), n.Node.Stop())
}

// On is New for a node that ends with its test.
func On(t *testing.T, cluster *localcluster.Cluster, name string, flags ...string) *Subject {
	t.Helper()
	n := New(t, cluster, name, flags...)
	t.Cleanup(func() {
		assert.OK(t, n.Stop(time.Minute))
		if t.Failed() {
			n.ShowLog()
		}

		assert.OK(t, n.Node.Stop())
	})

	return n
}

// In is the node, failing another test: a subtest, or the next test that shares
// the node.
func (n *Subject) In(t *testing.T) *Subject {
	m := *n
	m.T = t
	return &m
}

// ShowLog prints what the agent, not the kubelet, said.
func (n *Subject) ShowLog() {
	raw, err := os.ReadFile(n.Log)
	if err != nil {
		n.T.Log(err)
		return
	}

	for line := range strings.Lines(string(raw)) {
		if strings.HasPrefix(line, "time=") || strings.HasPrefix(line, "evenkeel-agent:") {
			n.T.Logf("%.700s", strings.TrimSpace(line))
		}
	}

	n.T.Log("agent and kubelet said more in ", filepath.Base(n.Log))
}

// Up starts the agent and waits until the kubelet is healthy, and its node
// Ready and with a NodeConfig.
func (n *Subject) Up() {
	n.T.Helper()
	assert.NoError(n.T, n.Start())
	n.Eventually("the node is Ready", func(ctx context.Context) error {
		must.OK(n.Healthy(ctx))
		must.OK(n.Ready(ctx))

		return assert.Err(n.Get(ctx))
	})
}

// Ready returns nil if the Node is Ready.
func (n *Subject) Ready(ctx context.Context) error {
	obj, err := n.Object(ctx)
	return errors.Join(err, assert.Unless(slices.ContainsFunc(obj.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	}), "not Ready"))
}

// Eventually waits until check returns nil. Check may use package must.
func (n *Subject) Eventually(what string, check func(context.Context) error) {
	n.T.Helper()
	if err := bed.Eventually(n.T.Context(), Patience, check); err != nil {
		n.T.Fatalf("%s: %v", what, err)
	}
}

// Awaits waits until the NodeConfig is as check wants it, and returns it.
func (n *Subject) Awaits(what string, check func(*v1alpha1.NodeConfig) error) (nc *v1alpha1.NodeConfig) {
	n.T.Helper()
	n.Eventually(what, func(ctx context.Context) error {
		nc = must.Get(n.Get(ctx))
		return check(nc)
	})

	return nc
}

// ConfigMap creates a ConfigMap with the node's configuration and changes.
func (n *Subject) ConfigMap(name string, changes map[string]any) *corev1.ConfigMap {
	n.T.Helper()
	return n.CreateMap(name, map[string]string{"kubelet": assert.Value(n.Config(changes))(n.T)})
}

// CreateMap creates a ConfigMap whose name begins with the node's.
func (n *Subject) CreateMap(name string, data map[string]string) *corev1.ConfigMap {
	n.T.Helper()
	return assert.Value(n.Create(n.T.Context(), n.Node.Name()+"-"+name, data))(n.T)
}

// AssignMap assigns a ConfigMap; nil: local.
func (n *Subject) AssignMap(cm *corev1.ConfigMap) {
	n.T.Helper()
	var source *v1alpha1.NodeConfigSource
	if cm != nil {
		source = bed.Ref(cm)
	}

	assert.NoError(n.T, n.Assign(n.T.Context(), source))
}

// Says waits until ConfigOK has the status and the reason, and its message
// holds words. It returns the NodeConfig.
func (n *Subject) Says(status, reason, words string) *v1alpha1.NodeConfig {
	n.T.Helper()
	return n.Awaits(fmt.Sprintf("ConfigOK is %s, %s, %q", status, reason, words), func(nc *v1alpha1.NodeConfig) error {
		c := bed.ConfigOK(nc)
		return assert.Unless(string(c.Status) == status && c.Reason == reason && strings.Contains(c.Message, words),
			"is %s, %s, %q; error %q", c.Status, c.Reason, c.Message, nc.Status.Error)
	})
}

// LastKnownGood waits until a ConfigMap is last-known-good.
func (n *Subject) LastKnownGood(cm *corev1.ConfigMap) {
	n.T.Helper()
	n.Awaits(cm.Name+" is last-known-good", func(nc *v1alpha1.NodeConfig) error {
		l := nc.Status.LastKnownGood
		return assert.Unless(l != nil && l.UID == cm.UID, "last-known-good is %+v, ConfigOK %+v", l, bed.ConfigOK(nc))
	})
}

// Events returns the Events on the Node with a reason.
func (n *Subject) Events(ctx context.Context, reason string) ([]corev1.Event, error) {
	list, err := n.Kube.CoreV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{
		FieldSelector: "involvedObject.kind=Node,involvedObject.name=" + n.Node.Name() + ",reason=" + reason,
	})
	return list.Items, err
}

// Event waits for an Event of the agent on the Node, whose message holds words.
func (n *Subject) Event(severity, reason, words string) {
	n.T.Helper()
	n.Eventually(fmt.Sprintf("event %s %s, %q", severity, reason, words), func(ctx context.Context) error {
		var others []string
		for _, e := range must.Get(n.Events(ctx, reason)) {
			if e.Type == severity && e.Source.Component == "evenkeel-agent" && strings.Contains(e.Message, words) {
				return nil
			}

			others = append(others, e.Type+": "+e.Message)
		}

		return fmt.Errorf("there are: %q", others)
	})
}
