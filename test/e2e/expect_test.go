// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/atomicfile"
	"github.com/evenkeel/evenkeel/internal/node/checkpoint"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/bed"
)

// want is ConfigOK in the proposal's terms, word for word: the message says
// what is used, the cause why. reason is the CamelCase one.
type want struct {
	status, reason string
	message, cause string
	err            string // that status.error begins with; empty: there is none
}

func allChecksPassed(cm *corev1.ConfigMap) want {
	return want{status: "True", reason: "AllChecksPassed", message: fmt.Sprintf("using current (UID: %s)", cm.UID), cause: "all checks passed"}
}

var localInit = want{
	status: "True", reason: "LocalInit", message: "using current (init)",
	cause: "current is set to the local default, and an init config was provided",
}

// rolledBack is ConfigOK after a trial has failed.
func rolledBack(cm *corev1.ConfigMap, reason, lastKnownGood, how string) want {
	cause := fmt.Sprintf("current (UID: %s) %s", cm.UID, how)
	return want{"False", reason, "using last-known-good " + lastKnownGood, cause, cause}
}

// withoutInAll removes words that depend on when the agent looks: whether it
// saw the kubelet unhealthy before it became healthy. The transcripts of trial
// have both.
func withoutInAll(message string) string { return strings.TrimSuffix(message, " in all") }

// is waits until ConfigOK is exactly that, in the NodeConfig and on the Node,
// and returns the NodeConfig.
func (n *node) is(w want) *v1alpha1.NodeConfig {
	n.t.Helper()
	return n.Awaits(fmt.Sprintf("ConfigOK is %+v", w), func(nc *v1alpha1.NodeConfig) error {
		c := bed.ConfigOK(nc)
		if string(c.Status) != w.status || c.Reason != w.reason || withoutInAll(c.Message) != w.message+": "+w.cause || c.ObservedGeneration != nc.Generation {
			return fmt.Errorf("NodeConfig of generation %d: %s, %s, %q at %d; error %q", nc.Generation, c.Status, c.Reason, c.Message, c.ObservedGeneration, nc.Status.Error)
		}
		if w.err == "" && nc.Status.Error != "" || !strings.HasPrefix(nc.Status.Error, w.err) {
			return fmt.Errorf("status.error is %q", nc.Status.Error)
		}

		return n.nodeSays(n.t.Context(), w)
	})
}

// nodeSays compares the Node's own condition.
func (n *node) nodeSays(ctx context.Context, w want) error {
	obj, err := n.Object(ctx)
	if err != nil {
		return err
	}

	i := slices.IndexFunc(obj.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == v1alpha1.ConditionConfigOK })
	if i < 0 {
		return errors.New("the Node has no condition ConfigOK")
	}

	c := obj.Status.Conditions[i]

	return assert.Unless(string(c.Status) == w.status && withoutInAll(c.Reason) == w.cause && c.Message == w.message,
		"the Node: %s, %q, %q", c.Status, c.Message, c.Reason)
}

// onDisk is what the agent would find if it started now.
func (n *node) onDisk() trial.State {
	n.t.Helper()
	view := assert.Value(checkpoint.ReadOnly(atomicfile.OS{}, n.Dir, ""))(n.t)
	for _, p := range view.Problems {
		n.t.Errorf("on disk: %s", p)
	}

	return view.State
}

// recorded waits until current and last-known-good on disk are these
// revisions, "" being local.
func (n *node) recorded(current, lastKnownGood string) {
	n.t.Helper()
	n.Eventually("the records on disk", func(context.Context) error {
		view, err := checkpoint.ReadOnly(atomicfile.OS{}, n.Dir, "")
		is, lkg := view.State.Current.Revision, view.State.LastKnownGood.Revision

		return errors.Join(err, assert.Unless(is == current && lkg == lastKnownGood,
			"current is %q, last-known-good %q, want %q and %q", is, lkg, current, lastKnownGood))
	})
}

// assignNew creates a ConfigMap with the node's configuration and changes, and
// assigns it.
func (n *node) assignNew(name string, changes map[string]any) *corev1.ConfigMap {
	n.t.Helper()
	cm := n.ConfigMap(name, changes)
	n.AssignMap(cm)
	return cm
}

// proves assigns a ConfigMap, and waits until it has passed its trial.
func (n *node) proves(cm *corev1.ConfigMap) {
	n.t.Helper()
	n.AssignMap(cm)
	n.is(allChecksPassed(cm))
	n.LastKnownGood(cm)
}

// good is assignNew, and waits until the ConfigMap has passed its trial.
func (n *node) good(name string, changes map[string]any) *corev1.ConfigMap {
	n.t.Helper()
	cm := n.ConfigMap(name, changes)
	n.proves(cm)
	return cm
}

// text is the node's configuration with changes, as a payload.
func (n *node) text(changes map[string]any) string {
	n.t.Helper()
	return assert.Value(n.Config(changes))(n.t)
}

// patchNode changes the Node.
func (n *node) patchNode(format string, args ...any) {
	n.t.Helper()
	_, err := n.Kube.CoreV1().Nodes().Patch(n.t.Context(), n.Node.Name(), types.StrategicMergePatchType, fmt.Appendf(nil, format, args...), metav1.PatchOptions{})
	assert.NoError(n.t, err)
}
