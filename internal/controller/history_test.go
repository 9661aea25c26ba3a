// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// What the controller takes for a revision, and what not.

var then = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// held is a ConfigMap of rollout "r" as the cache has it, with the name of what
// it holds.
func held(text string, number string, uid types.UID) *corev1.ConfigMap {
	yes := true
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: v1alpha1.SystemNamespace, Name: fleet.RevisionName("r", digest(text)), UID: uid, CreationTimestamp: metav1.NewTime(then),
			Labels: map[string]string{v1alpha1.LabelRollout: "r", v1alpha1.LabelRevision: number},
		},
		Immutable: &yes, Data: map[string]string{"kubelet": text},
	}
	fleet.StripRevision(cm)

	return cm
}

func digest(text string) string { return payload.Digest("kubelet", []byte(text)) }

func revisionNamed(number int64, cm *corev1.ConfigMap) *v1alpha1.RolloutRevision {
	return &v1alpha1.RolloutRevision{Number: number, ConfigMapRef: v1alpha1.ConfigMapReference{Namespace: cm.Namespace, Name: cm.Name, UID: cm.UID, SHA256: cm.Annotations[fleet.AnnotationDigest]}}
}

// knowing is a controller whose cache has these ConfigMaps.
func knowing(all ...*corev1.ConfigMap) *Controller {
	c := &Controller{settings: fleet.DefaultSettings, fleet: newCache("", time.Second)}
	for _, cm := range all {
		c.fleet.setRevision(cm)
	}

	return c
}

func TestForgedConfigMapsDoNotDisplaceRevisions(t *testing.T) {
	limit := int32(2)
	target, first := held("target", "2", "u2"), held("first", "1", "u1")
	pinned := held("pinned", "3", "u3") // by spec.pin, and nowhere else
	all := []*corev1.ConfigMap{target, first, pinned}
	for i := range 12 {
		cm := held("planted "+strconv.Itoa(i), strconv.Itoa(1000+i), types.UID("p"+strconv.Itoa(i)))
		cm.CreationTimestamp = metav1.NewTime(then.Add(time.Hour))
		all = append(all, cm)
	}

	foreign := held("foreign", "9", "f")
	foreign.Name = "precious"
	c := knowing(append(all, foreign)...)
	o := &v1alpha1.NodeConfigRollout{ObjectMeta: metav1.ObjectMeta{Name: "r", UID: "r"}, Spec: v1alpha1.NodeConfigRolloutSpec{NodeSelection: v1alpha1.NodeSelection{AllNodes: true}, RevisionHistoryLimit: &limit}}
	o.Spec.Pin = &v1alpha1.RolloutPin{SHA256: digest("pinned"), Instead: digest("edited since")}
	o.Status.UpdateRevision = revisionNamed(2, target)
	o.Status.History = []v1alpha1.RolloutOutcome{
		{Revision: 1, ConfigMap: first.Name, UID: "u1", SHA256: digest("first")},
	}
	c.fleet.setRollout(o)
	c.fleet.rollouts["r"].decided = &v1alpha1.NodeConfigRolloutStatus{}
	var collected []string
	for _, cm := range c.fleet.unusedRevisions() {
		collected = append(collected, string(cm.UID))
	}

	assert.That(t, len(collected) == 11 && !slices.ContainsFunc(collected, func(uid string) bool { return !strings.HasPrefix(uid, "p") }),
		"collected are %v, want 11 of those that were planted", collected)
}
