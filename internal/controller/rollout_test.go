// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/output"
)

func intOrString(s string) intstr.IntOrString { return intstr.Parse(s) }

func TestAFirstRolloutReachesAllItsNodes(t *testing.T) {
	names := []string{"a1", "a2", "a3"}
	pool(t, "first", names...)
	start(t, own())
	roll(t, "first", func(s *v1alpha1.NodeConfigRolloutSpec) {
		oneAtATime(s)
		pause := &v1alpha1.RolloutPause{Duration: &metav1.Duration{Duration: time.Hour}}
		s.Strategy.Steps = append([]v1alpha1.RolloutStep{{Nodes: s.Strategy.MaxUnavailable}, {Pause: pause}}, s.Strategy.Steps...)
	})
	r := awaitRollout(t, "first", phase(v1alpha1.RolloutWaiting))
	assert.That(t, strings.Contains(r.Status.Message, "1/3 steps done; waiting until ") && r.Status.Nodes.Updated == 1, "at the timed pause the status says %+v", r.Status)
	edit(t, "first", func(s *v1alpha1.NodeConfigRolloutSpec) { s.Strategy.Steps[1].Pause.Duration.Duration = time.Second })
	r = awaitRollout(t, "first", completeAt(1))

	st := r.Status
	assert.That(t, st.Nodes.Updated == 3 && st.Nodes.Selected == 3 && st.Step == 3, "the status says %+v", st)
	assert.That(t, st.CurrentRevision != nil && *st.CurrentRevision == *st.UpdateRevision, "the status says %+v", st)
	assert.That(t, len(st.History) == 1 && st.History[0].Outcome == "Succeeded" && st.History[0].Revision == 1 && st.History[0].Updated == 3,
		"the history says %+v", st.History)
	cm, ok := revisions(t, "first")["1"]
	assert.Must(t, ok && cm.Immutable != nil && *cm.Immutable && len(cm.OwnerReferences) == 0 && len(cm.Finalizers) == 0,
		"revision 1 is %+v", cm.ObjectMeta)
	ref := st.UpdateRevision.ConfigMapRef
	assert.That(t, ref.UID == cm.UID && ref.Name == cm.Name && cm.Name == fleet.RevisionName("first", ref.SHA256) &&
		cm.Annotations[annotationSHA256] == ref.SHA256, "the status names %+v, the ConfigMap is %+v", ref, cm.ObjectMeta)
	for _, name := range names {
		s := nodeConfig(t, name).Spec.ConfigSource
		assert.That(t, s != nil && *s.ConfigMapRef == ref && s.RolloutRef.Name == "first" && s.RolloutRef.Revision == 1,
			"NodeConfig %s has %+v", name, s)
	}
}

func TestOnlyTheTargetIsAssignedWithTheRolloutsTrialTerms(t *testing.T) {
	world(t)
	addNodes(t, "pool=termed", "t1", "t2")
	worst := fleet.RevisionName("termed", contentOf(t, template(3)).SHA256)
	agents(t, func(cm string) bool { return cm == worst }, "t1", "t2", "t3")
	start(t, own())
	asked := &v1alpha1.TrialTerms{ConfigTrialDuration: &metav1.Duration{Duration: 20 * time.Minute}, AllowPodLoss: true}
	roll(t, "termed", func(s *v1alpha1.NodeConfigRolloutSpec) {
		s.Trial, s.FailurePolicy.Action = asked, v1alpha1.FailureActionRollback
	})
	have := func(want *v1alpha1.TrialTerms, names ...string) {
		t.Helper()
		for _, name := range names {
			assert.NoDiff(t, cmp.Diff(want, nodeConfig(t, name).Spec.Trial), "NodeConfig", name)
		}
	}
	awaitRollout(t, "termed", completeAt(1))
	have(asked, "t1", "t2")

	// Other terms are no other revision, and reach who is given one later.
	later := &v1alpha1.TrialTerms{CrashLoopThreshold: new(int32(0))}
	edit(t, "termed", func(s *v1alpha1.NodeConfigRolloutSpec) { s.Trial = later })
	addNodes(t, "pool=termed", "t3")
	awaitRollout(t, "termed", completeAt(1), func(st status) error { return assert.Unless(st.Nodes.Updated == 3, "updated: %d", st.Nodes.Updated) })
	have(asked, "t1", "t2")
	have(later, "t3")

	// Who goes back is given none: that revision may have terms of its own.
	edit(t, "termed", func(s *v1alpha1.NodeConfigRolloutSpec) { s.Template = template(3) })
	awaitRollout(t, "termed", phase(v1alpha1.RolloutRolledBack))
	have(nil, "t1", "t2", "t3")
}

func TestACompleteRolloutWritesNothing(t *testing.T) {
	names := []string{"f1", "f2"}
	pool(t, "fixed", names...)
	writes := &output.Buffer{}
	config := answering(func(r *http.Request, _ http.RoundTripper) (*http.Response, error) {
		if r.Method != http.MethodGet && !strings.Contains(r.URL.Path, "/events") && !strings.Contains(r.URL.Path, "/leases") {
			fmt.Fprintln(writes, r.Method, r.URL.Path)
		}

		return nil, nil
	})
	c := start(t, config)
	roll(t, "fixed")
	awaitRollout(t, "fixed", completeAt(1))

	eventually(t, func() error {
		before := writes.String()
		<-time.After(2 * time.Second) // the test is that nothing happens
		return assert.Unless(writes.String() == before, "the controller still writes:\n%s", writes)
	})
	before := writes.String()
	c.fleet.scheduleAll()
	eventually(t, func() error { return idle(c) })
	assert.Equal(t, writes.String(), before, "with nothing to do the rollout has written")
}

func TestOneOfTwoControllersLeadsAndTheOtherTakesOver(t *testing.T) {
	world(t)
	names := []string{"l1", "l2", "l3"}
	addNodes(t, "pool=led", names...)
	first := start(t, own(), leads, func(o *Options) { o.Version = "v0.3.0" })
	eventually(t, func() error { return holds(t, "v0.3.0") })
	second := start(t, own(), leads, func(o *Options) { o.Version = "no value of a label" })
	roll(t, "led", oneAtATime)
	awaitRollout(t, "led", func(st status) error {
		return assert.Unless(st.Nodes.Assigned+st.Nodes.Stale != 0, "nothing is assigned")
	})
	second.fleet.mu.Lock()
	seen := len(second.fleet.nodes)
	second.fleet.mu.Unlock()
	assert.That(t, seen == 0, "who waits has read %d nodes; what it has read would be old when it leads", seen)
	first.stop()
	agents(t, nil, names...)
	r := awaitRollout(t, "led", completeAt(1))
	assert.That(t, r.Status.Attempt == 1 && len(revisions(t, "led")) == 1, "the second one did not carry on: %+v", r.Status)
	assert.OK(t, holds(t, ""), "after the second one took over")
}

func TestADeletedRolloutKeepsItsNodesAndReportsIt(t *testing.T) {
	names := []string{"d1", "d2"}
	pool(t, "deleted", names...)
	c := start(t, own())
	roll(t, "deleted")
	awaitRollout(t, "deleted", completeAt(1))
	edit(t, "deleted", func(s *v1alpha1.NodeConfigRolloutSpec) {
		one, all := intOrString("1"), intOrString("100%")
		s.Template, s.Strategy.Steps = template(103), []v1alpha1.RolloutStep{{Nodes: &one}, {Pause: &v1alpha1.RolloutPause{}}, {Nodes: &all}}
	})
	r := awaitRollout(t, "deleted", phase(v1alpha1.RolloutAwaitingApproval))
	before := generations(t, names...)
	assert.NoError(t, admin.Delete(t.Context(), r))
	eventually(t, func() error {
		return told(t, "deleted", "its nodes stay as they are: 1 on revision 1, 1 on revision 2")
	})
	c.cleanUp(t.Context(), time.Now())
	assert.Equal(t, len(revisions(t, "deleted")), 2, "revisions that are left, as nodes name them")
	for _, name := range names {
		s := nodeConfig(t, name).Spec.ConfigSource
		assert.That(t, s != nil && s.RolloutRef.Name == "deleted", "%s has %+v", name, s)
	}

	assert.NoDiff(t, cmp.Diff(before, generations(t, names...)), "the generations of NodeConfigs")
	assert.Equal(t, series(t, c.registry, "evenkeel_rollout_"), "", "a rollout that is gone is measured still")

	// A rollout of that name that is created later takes the nodes over, and
	// continues the numbers.
	roll(t, "deleted", use(104))
	awaitRollout(t, "deleted", completeAt(3))
}

func TestTheNodeConfigOfADeletedNodeIsDeletedAfterAnHour(t *testing.T) {
	world(t)
	addNodes(t, "pool=leaving", "g1", "g2")
	agents(t, nil, "g1", "g2", "byhand")
	byHand := &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: "byhand"}, Spec: v1alpha1.NodeConfigSpec{ConfigSource: &v1alpha1.NodeConfigSource{Local: &v1alpha1.LocalSource{}}}}
	assert.NoError(t, admin.Create(t.Context(), byHand))
	c := start(t, own())
	roll(t, "leaving")
	awaitRollout(t, "leaving", completeAt(1))
	assert.NoError(t, admin.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "g1"}}))
	awaitRollout(t, "leaving", func(st status) error {
		return assert.Unless(st.Nodes.Updated == 1 && st.Nodes.Selected == 1, "the counts are %+v", st.Nodes)
	})
	c.cleanUp(t.Context(), time.Now().Add(59*time.Minute))
	nodeConfig(t, "g1")
	c.cleanUp(t.Context(), time.Now().Add(61*time.Minute))
	nodeConfig(t, "g2")
	nodeConfig(t, "byhand")
	err := admin.Get(t.Context(), types.NamespacedName{Name: "g1"}, &v1alpha1.NodeConfig{})
	assert.That(t, apierrors.IsNotFound(err), "NodeConfig g1 of a Node that is gone: %v", err)
}

func TestAFrozenRolloutDoesNotEvenCreateNodeConfigs(t *testing.T) {
	pool(t, "frozen", "z1")
	start(t, own())
	roll(t, "frozen", func(s *v1alpha1.NodeConfigRolloutSpec) { s.Frozen = true })
	awaitRollout(t, "frozen", phase(v1alpha1.RolloutFrozen))
	err := admin.Get(t.Context(), types.NamespacedName{Name: "z1"}, &v1alpha1.NodeConfig{})
	assert.That(t, apierrors.IsNotFound(err), "a frozen rollout made a NodeConfig: %v", err)
	edit(t, "frozen", func(s *v1alpha1.NodeConfigRolloutSpec) { s.Frozen = false })
	awaitRollout(t, "frozen", completeAt(1))
}
