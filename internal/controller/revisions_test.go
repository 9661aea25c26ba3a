// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func use(maxPods int) func(*v1alpha1.NodeConfigRolloutSpec) {
	return func(s *v1alpha1.NodeConfigRolloutSpec) { s.Template = template(maxPods) }
}

func TestAForeignConfigMapIsNotUsedAsARevision(t *testing.T) {
	sha := contentOf(t, template(100)).SHA256
	content := contentOf(t, template(100))
	yes := true
	for _, test := range []struct {
		name string
		cm   func(*corev1.ConfigMap)
		want string
	}{
		{"without-label", func(cm *corev1.ConfigMap) { cm.Labels = nil }, `its label evenkeel.dev/rollout is "": it is not a revision of this rollout; delete it, or give the rollout another name`},
		{"of-another", func(cm *corev1.ConfigMap) { cm.Labels[v1alpha1.LabelRollout] = "another" }, `its label evenkeel.dev/rollout is "another"`},
		{"edited", func(cm *corev1.ConfigMap) { cm.Data[content.Key] += "\n" }, "another content; delete it, and the controller creates it again"},
		{"mutable", func(cm *corev1.ConfigMap) { cm.Immutable = nil }, "is not immutable; delete it, and the controller creates it again"},
	} {
		t.Run(test.name, func(t *testing.T) {
			world(t)
			node := "n-" + test.name
			addNodes(t, "pool="+test.name, node)
			agents(t, nil, node)
			cm := &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: v1alpha1.SystemNamespace, Name: fleet.RevisionName(test.name, sha),
					Labels: map[string]string{v1alpha1.LabelRollout: test.name, v1alpha1.LabelRevision: "1"},
				},
				Immutable: &yes, Data: map[string]string{content.Key: string(content.Data)},
			}
			test.cm(cm)
			assert.NoError(t, admin.Create(t.Context(), cm))
			c := start(t, own())
			roll(t, test.name)
			r := awaitRollout(t, test.name, phase(v1alpha1.RolloutInvalid))
			assert.That(t, strings.Contains(r.Status.Message, "ConfigMap evenkeel-system/"+cm.Name) && strings.Contains(r.Status.Message, test.want),
				"the message is %q", r.Status.Message)
			s := nodeConfig(t, node).Spec.ConfigSource
			assert.That(t, s == nil && r.Status.UpdateRevision == nil, "something was assigned: %+v", s)
			assert.NoError(t, admin.Delete(t.Context(), cm))
			c.fleet.scheduleAll() // a ConfigMap without the label is not watched, but looked for now and then
			awaitRollout(t, test.name, completeAt(1))
		})
	}
}

func TestARevisionRestoredByHandIsUsed(t *testing.T) {
	pool(t, "byhand", "h1")
	c := start(t, own())
	roll(t, "byhand")
	awaitRollout(t, "byhand", completeAt(1))
	cm := revisions(t, "byhand")["1"]
	c.stop()
	assert.NoError(t, admin.Delete(t.Context(), &cm))
	again := corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: cm.Namespace, Name: cm.Name, Labels: map[string]string{v1alpha1.LabelRollout: "byhand", v1alpha1.LabelRevision: "x"}}, Immutable: cm.Immutable, Data: cm.Data}
	assert.NoError(t, admin.Create(t.Context(), &again))
	start(t, own())
	awaitRollout(t, "byhand", completeAt(1), func(st status) error {
		return assert.Unless(st.UpdateRevision.ConfigMapRef.UID == again.UID, "the target is %+v", st.UpdateRevision)
	})
	if got := revisions(t, "byhand")["1"]; got.UID != again.UID {
		t.Errorf("its label is not 1: %v", revisions(t, "byhand"))
	}
}

func TestUnusedRevisionsBeyondTheLimitAreDeleted(t *testing.T) {
	pool(t, "many", "c1", "c2")
	c := start(t, own())
	limit := int32(1)
	roll(t, "many", func(s *v1alpha1.NodeConfigRolloutSpec) { s.RevisionHistoryLimit = &limit })
	awaitRollout(t, "many", completeAt(1))
	// c2 keeps running revision 1, and nothing else speaks of it.
	nc := nodeConfig(t, "c2")
	nc.Spec.ConfigSource.RolloutRef = nil
	assert.NoError(t, admin.Update(t.Context(), nc))
	for i := range 4 {
		edit(t, "many", use(200+i))
		awaitRollout(t, "many", completeAt(int64(i+2)))
	}

	eventually(t, func() error {
		c.cleanUp(t.Context(), time.Now())
		got := revisions(t, "many")
		_, first := got["1"]
		_, second := got["2"]
		if len(got) != 4 || !first || second { // 5 is the target, 4 is what c1 had before, 3 the one that is kept
			return fmt.Errorf("the revisions are %v", got)
		}

		return nil
	})
	h := rolloutNamed(t, "many").Status.History
	assert.That(t, len(h) == 1 && h[0].Revision == 5, "the history is %+v, want one entry", h)
	r := rolloutNamed(t, "many")
	assert.NoError(t, admin.Delete(t.Context(), r))
	for _, name := range []string{"c1", "c2"} {
		nc := nodeConfig(t, name)
		nc.Spec.ConfigSource = nil
		assert.NoError(t, admin.Update(t.Context(), nc))
	}

	eventually(t, func() error {
		c.cleanUp(t.Context(), time.Now())
		got := revisions(t, "many")
		return assert.Unless(len(got) == 0, "of a deleted rollout that no node names, these are left: %v", got)
	})
}

func TestATemplateThatNamesAConfigMapFollowsItsContent(t *testing.T) {
	pool(t, "follows", "t1")
	c := start(t, own())
	roll(t, "follows", func(s *v1alpha1.NodeConfigRolloutSpec) {
		s.Template = v1alpha1.RolloutTemplate{ConfigMapRef: &v1alpha1.TemplateConfigMap{Namespace: v1alpha1.SystemNamespace, Name: "source"}}
	})
	r := awaitRollout(t, "follows", phase(v1alpha1.RolloutInvalid))
	assert.That(t, strings.Contains(r.Status.Message, "ConfigMap evenkeel-system/source does not exist: create it, or name another"),
		"the message is %q", r.Status.Message)
	source := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: "source"}, Data: map[string]string{"kubelet-dropin": string(contentOf(t, template(100)).Data)}}
	assert.NoError(t, admin.Create(t.Context(), source))
	first := awaitRollout(t, "follows", completeAt(1)).Status.UpdateRevision
	source.Data["kubelet-dropin"] = string(contentOf(t, template(101)).Data)
	assert.NoError(t, admin.Update(t.Context(), source))
	second := awaitRollout(t, "follows", completeAt(2)).Status.UpdateRevision
	source.Data["kubelet-dropin"] = "maxPods: [" // nobody can read that
	assert.NoError(t, admin.Update(t.Context(), source))
	r = awaitRollout(t, "follows", phase(v1alpha1.RolloutInvalid))
	assert.That(t, strings.Contains(r.Status.Message, "ConfigMap evenkeel-system/source: ") && *r.Status.UpdateRevision == *second,
		"the message is %q, the target %+v", r.Status.Message, r.Status.UpdateRevision)
	source.Data["kubelet-dropin"] = string(contentOf(t, template(101)).Data)
	assert.NoError(t, admin.Update(t.Context(), source))
	awaitRollout(t, "follows", completeAt(2))
	before := generations(t, "t1")
	assert.NoError(t, admin.Delete(t.Context(), source))
	r = awaitRollout(t, "follows", phase(v1alpha1.RolloutInvalid))
	c.fleet.scheduleAll()
	eventually(t, func() error { return idle(c) })
	assert.That(t, *r.Status.UpdateRevision == *second && first.ConfigMapRef != second.ConfigMapRef, "the target is %+v", r.Status.UpdateRevision)
	assert.Equal(t, *nodeConfig(t, "t1").Spec.ConfigSource.ConfigMapRef, second.ConfigMapRef, "what the node has")
	assert.NoDiff(t, cmp.Diff(before, generations(t, "t1")), "the generation of the NodeConfig")
	source.ResourceVersion, source.UID = "", ""
	source.Data["kubelet-dropin"] = string(contentOf(t, template(102)).Data)
	assert.NoError(t, admin.Create(t.Context(), source))
	awaitRollout(t, "follows", completeAt(3))

	edit(t, "follows", func(s *v1alpha1.NodeConfigRolloutSpec) { s.Template.ConfigMapRef.Namespace = metav1.NamespaceSystem })
	awaitRollout(t, "follows", phase(v1alpha1.RolloutInvalid), waitsFor("ConfigMap kube-system/source cannot be read"),
		waitsFor("forbidden"), waitsFor("grant the controller's ServiceAccount get, list and watch on it"))
}
