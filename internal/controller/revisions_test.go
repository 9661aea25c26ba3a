// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func use(maxPods int) func(*v1alpha1.NodeConfigRolloutSpec) {
	return func(s *v1alpha1.NodeConfigRolloutSpec) { s.Template = template(maxPods) }
}

func TestAForeignConfigMapIsNotUsedAsARevision(t *testing.T) {
	content := contentOf(t, template(100))
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
					Namespace: v1alpha1.SystemNamespace, Name: fleet.RevisionName(test.name, content.SHA256),
					Labels: map[string]string{v1alpha1.LabelRollout: test.name, v1alpha1.LabelRevision: "1"},
				},
				Immutable: new(true), Data: map[string]string{content.Key: string(content.Data)},
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
	assert.Equal(t, revisions(t, "byhand")["1"].UID, again.UID, "the ConfigMap whose label is 1")
}

func TestUnusedRevisionsBeyondTheLimitAreDeleted(t *testing.T) {
	pool(t, "many", "c1", "c2")
	c := start(t, own())
	roll(t, "many", func(s *v1alpha1.NodeConfigRolloutSpec) { s.RevisionHistoryLimit = new(int32(1)) })
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
	degraded := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionDegraded)
	assert.That(t, degraded != nil && degraded.Status == metav1.ConditionTrue && degraded.Reason == "TemplateInvalid",
		"Degraded is %+v", degraded)
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

func TestAStoppedRevisionIsAnnotatedBeyondTheHistoryLimit(t *testing.T) {
	world(t)
	addNodes(t, "pool=brand", "s1", "s2")
	worst := fleet.RevisionName("brand", contentOf(t, template(3)).SHA256)
	agents(t, func(cm string) bool { return cm == worst }, "s1", "s2")
	start(t, own())
	roll(t, "brand", use(3), func(s *v1alpha1.NodeConfigRolloutSpec) { s.RevisionHistoryLimit = new(int32(0)) })
	bad := awaitRollout(t, "brand", phase(v1alpha1.RolloutHalted)).Status.UpdateRevision.ConfigMapRef
	eventually(t, func() error {
		cm := revisions(t, "brand")["1"]
		return assert.Unless(strings.HasPrefix(cm.Annotations[v1alpha1.AnnotationStopped], "TooManyFailures: "),
			"the stopped revision bears %v", cm.Annotations)
	})
	failed := rolloutNamed(t, "brand").Status.FailedNodes[0].Name

	edit(t, "brand", use(50))
	awaitRollout(t, "brand", completeAt(2))
	nc := nodeConfig(t, failed)
	assert.That(t, slices.Contains(nc.Spec.Revoked, bad.UID) && nc.Spec.ConfigSource.RolloutRef.Previous == nil,
		"%s left the stopped revision, and revokes %v and has %+v before", failed, nc.Spec.Revoked, nc.Spec.ConfigSource.RolloutRef.Previous)
}

func TestARetryTriesTheNamedNodesAndRemovesTheStoppedAnnotation(t *testing.T) {
	world(t)
	addNodes(t, "pool=again", "t1", "t2")
	tried := 0
	agents(t, func(string) bool { tried++; return tried <= 2 }, "t1", "t2") // each of them fails once
	start(t, own())
	roll(t, "again", func(s *v1alpha1.NodeConfigRolloutSpec) {
		s.FailurePolicy.MaxFailures = new(intOrString("2"))
	})
	awaitRollout(t, "again", phase(v1alpha1.RolloutHalted))
	edit(t, "again", func(s *v1alpha1.NodeConfigRolloutSpec) {
		s.Retry = &v1alpha1.RolloutRetry{Revision: 1, Attempt: 2, Nodes: []string{"t1"}}
	})
	awaitRollout(t, "again", completeAt(1), func(st status) error {
		is := st.Attempt == 2 && st.AttemptTime != nil && st.Nodes.Failed == 1 && st.Nodes.Updated == 1 && st.Halt == nil
		return assert.Unless(is, "attempt %d at %s, stop %+v, want attempt 2 with 1 failed", st.Attempt, st.AttemptTime, st.Halt)
	})
	for node, want := range map[string]int64{"t1": 2, "t2": 1} {
		assert.Equal(t, nodeConfig(t, node).Spec.ConfigSource.RolloutRef.Attempt, want, "the attempt of", node)
	}

	assert.Equal(t, revisions(t, "again")["1"].Annotations[v1alpha1.AnnotationStopped], "", "the revision bears")
}

// What the controller takes for a revision, and what not.

var then = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// held is a ConfigMap of rollout "r" with the name of what it holds.
func held(text string, number string, uid types.UID) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: v1alpha1.SystemNamespace, Name: fleet.RevisionName("r", digest(text)), UID: uid, CreationTimestamp: metav1.NewTime(then),
			Labels: map[string]string{v1alpha1.LabelRollout: "r", v1alpha1.LabelRevision: number},
		},
		Immutable: new(true), Data: map[string]string{"kubelet": text},
	}
}

func digest(text string) string { return payload.Digest("kubelet", []byte(text)) }

func TestForgedConfigMapsDoNotDisplaceRevisions(t *testing.T) {
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
	f := newCache("", time.Second)
	for _, cm := range append(all, foreign) {
		f.setRevision(cm)
	}

	o := everywhere()
	o.Spec.RevisionHistoryLimit = new(int32(2))
	o.Spec.Pin = &v1alpha1.RolloutPin{SHA256: digest("pinned"), Instead: digest("edited since")}
	ref := v1alpha1.ConfigMapReference{Name: target.Name, UID: target.UID, SHA256: digest("target")}
	o.Status.UpdateRevision = &v1alpha1.RolloutRevision{Number: 2, ConfigMapRef: ref}
	o.Status.History = []v1alpha1.RolloutOutcome{{Revision: 1, ConfigMap: first.Name, UID: "u1", SHA256: digest("first")}}
	f.setRollout(o)
	f.rollouts["r"].decided = &v1alpha1.NodeConfigRolloutStatus{}
	var collected []string
	for _, cm := range f.unusedRevisions() {
		collected = append(collected, string(cm.UID))
	}

	f.deleteRollout(o)
	left := len(f.unusedRevisions())
	assert.That(t, left == len(all), "of a deleted rollout that no node names, %d of %d revisions are collected", left, len(all))
	assert.That(t, len(collected) == 11 && !slices.ContainsFunc(collected, func(uid string) bool { return !strings.HasPrefix(uid, "p") }),
		"collected are %v, want 11 of those that were planted", collected)
}
