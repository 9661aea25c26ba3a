// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestTheStartupTaintHasAKeyAndAnEffect(t *testing.T) {
	const key = v1alpha1.TaintUnconfigured
	for name, tt := range map[string]struct {
		key   string
		taint corev1.Taint
		want  bool
	}{
		"it":               {key, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule}, true},
		"with a value":     {key, corev1.Taint{Key: key, Value: "true", Effect: corev1.TaintEffectNoSchedule}, true},
		"another effect":   {key, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute}, false},
		"another key":      {key, corev1.Taint{Key: key + "x", Effect: corev1.TaintEffectNoSchedule}, false},
		"there is no such": {"", corev1.Taint{Effect: corev1.TaintEffectNoSchedule}, false},
	} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "example.com/theirs"}, tt.taint}}}
		StripNode(node)
		assert.Equal(t, HasStartupTaint(node, tt.key), tt.want, name)
	}
}

func TestKeysOfStartupTaints(t *testing.T) {
	for _, key := range []string{"", v1alpha1.TaintUnconfigured, "startup-taint.cluster-autoscaler.kubernetes.io/evenkeel", "readiness.k8s.io/evenkeel", "unconfigured"} {
		if err := CheckStartupTaint(key); err != nil {
			t.Errorf("%q: %v", key, err)
		}
	}

	for key, want := range map[string]string{
		"a b": "must be the key of a taint", "a/b/c": "must be the key of a taint", "a'b": "must be the key of a taint",
		v1alpha1.TaintDraining: "another meaning", "node.kubernetes.io/not-ready": "another meaning",
		"node.cloudprovider.kubernetes.io/uninitialized": "another meaning", "ToBeDeletedByClusterAutoscaler": "another meaning", "karpenter.sh/disrupted": "another meaning",
	} {
		if err := CheckStartupTaint(key); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want an error with %q", key, err, want)
		}
	}
}

func TestANodeOnWhichAnAgentWroteConfigOKIsKnown(t *testing.T) {
	for status, want := range map[corev1.ConditionStatus]bool{corev1.ConditionTrue: true, corev1.ConditionFalse: false} {
		node := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: v1alpha1.ConditionConfigOK, Status: status}}}}
		StripNode(node)
		assert.Equal(t, NodeOf(node, nil).Known, want, status)
	}
}
