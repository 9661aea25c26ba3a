package fleet_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestAbortRevokesPendingAssignmentsAndCanReturnToThePreviousRevision(t *testing.T) {
	t.Parallel()
	for _, rollback := range []bool{false, true} {
		t.Run(fmt.Sprintf("rollback=%t", rollback), func(t *testing.T) {
			t.Parallel()
			s := play(t, fmt.Sprintf("abort-%t", rollback), 5)
			silent := s.node(0)
			s.label("canary", "yes", s.nodes(0, 2)...)
			r := s.roll("maxPods: 101", `
strategy:
  maxUnavailable: 5
  canarySelector: {matchLabels: {canary: "yes"}}
  steps: [{nodes: 2}, {pause: {}}, {nodes: 100%}]
approval: {revision: 1, step: 2}
`)
			first := r.complete(1)
			s.do(s.fleet.Silence(silent))
			r.push("maxPods: 102")
			st := r.await(that("the second revision is on a canary", func(st *status) bool { return st.UpdateRevision.Number == 2 && st.Nodes.Updated >= 1 }))
			second := st.UpdateRevision.ConfigMapRef
			got := s.everGiven(second)
			assert.That(t, slices.Contains(got, silent), "the silent node was not given it: %v", got)

			r.edit(func(s *v1alpha1.NodeConfigRolloutSpec) {
				s.Abort = &v1alpha1.RolloutAbort{Revision: 2, Rollback: rollback}
			})
			phase := v1alpha1.RolloutHalted
			if rollback {
				phase = v1alpha1.RolloutRolledBack
			}
			st = r.await(at(2, phase))
			h := st.Halt
			assert.That(t, h.Reason == "Aborted" && h.Message == "stopped by a person" && h.Rollback == rollback, "the stop is %+v", h)
			r.looked()
			src := s.nodeConfig(silent).Spec.ConfigSource
			assert.That(t, src != nil && src.ConfigMapRef.UID == first.UID && src.RolloutRef.Name == r.as && src.RolloutRef.Revision == 1,
				"the silent node has %+v, want its previous source %+v", src, first)
			updated := s.everGiven(second)
			updated = slices.DeleteFunc(updated, func(n string) bool { return n == silent })
			if rollback {
				s.same("have the second revision", s.given(second), nil)
				for _, name := range updated {
					assert.That(t, slices.Contains(s.revoking(second), name), "%s left the second revision and does not revoke it", name)
				}
			} else {
				s.same("keep the second revision", s.running(second), updated)
				for _, name := range updated {
					assert.That(t, !slices.Contains(s.revoking(second), name), "%s keeps the second revision and revokes it", name)
				}
			}
			s.do(s.fleet.Unsilence(t.Context(), silent))
			s.until("the silent node speaks and runs the first revision", func() (string, bool) {
				nc := s.nodeConfig(silent)
				return nameOf(nc.Status.Active), runs(nc, first.UID) && !unsettled(nc)
			})
			st = r.looked()
			assert.That(t, st.Phase == phase, "it did not stay stopped: %s", st.Message)
		})
	}
}

func TestUndoCreatesARevisionWithOldContentThatIsTriedAgain(t *testing.T) {
	t.Parallel()
	s := play(t, "undo", 4)
	s.label("canary", "yes", s.nodes(0, 2)...)
	r := s.roll("maxPods: 101", `
strategy:
  maxUnavailable: 4
  canarySelector: {matchLabels: {canary: "yes"}}
  steps: [{nodes: 2}, {pause: {}}, {nodes: 100%}]
rollback: {maxUnavailable: 4}
approval: {revision: 1, step: 2}
`)
	first := r.complete(1)
	r.push("maxPods: 102")
	second := r.await(at(2, v1alpha1.RolloutAwaitingApproval), updated(2)).UpdateRevision.ConfigMapRef
	r.edit(func(s *v1alpha1.NodeConfigRolloutSpec) { s.Abort = &v1alpha1.RolloutAbort{Revision: 2, Rollback: true} })
	r.await(at(2, v1alpha1.RolloutRolledBack))
	s.same("revoke the second revision", s.revoking(second), s.nodes(0, 2))
	s.until("all run the first revision", func() (string, bool) {
		on := s.running(first)
		return strings.Join(on, " "), slices.Equal(on, s.nodes(0, 4))
	})

	// Back to the first content: every node has it, so nothing changes.
	r.push("maxPods: 101")
	r.await(at(3, v1alpha1.RolloutAwaitingApproval), updated(4)) // the steps stand
	r.approve(3, 2)
	st := r.await(at(3, v1alpha1.RolloutComplete))
	assert.That(t, st.UpdateRevision.ConfigMapRef == first && st.Halt == nil && st.CurrentRevision.Number == 3,
		"the first content is %+v now, was %+v; the status says %+v", st.UpdateRevision.ConfigMapRef, first, st)
	cm := &corev1.ConfigMap{}
	s.do(kube.Get(t.Context(), types.NamespacedName{Namespace: first.Namespace, Name: first.Name}, cm))
	assert.Equal(t, cm.Labels[v1alpha1.LabelRevision], "3", "the label of the first content")

	// And to the second one, that two nodes have proven and were told never to run.
	before := len(watched.of(s))
	r.push("maxPods: 102")
	r.await(that("it is the fourth revision", func(st *status) bool { return st.UpdateRevision.Number == 4 }))
	r.approve(4, 2)
	st = r.await(at(4, v1alpha1.RolloutComplete))
	assert.That(t, st.UpdateRevision.ConfigMapRef == second, "the second content is %+v now, was %+v", st.UpdateRevision.ConfigMapRef, second)
	s.same("run the second content", s.running(second), s.nodes(0, 4))
	s.same("revoke it", s.revoking(second), nil)
	s.caughtUp()
	tried := map[string]bool{}
	for _, v := range watched.of(s)[before:] {
		if v.config != nil && v.config.Status.Trial != nil {
			tried[v.name] = true
		}
	}
	if len(tried) != 4 { // also nodes that had proven it: it is no longer their last-known-good
		t.Errorf("not all nodes tried it: %v", tried)
	}
	for _, name := range s.nodes(0, 4) {
		ref := s.nodeConfig(name).Spec.ConfigSource.RolloutRef
		assert.That(t, ref.Revision == 4, "%s has revision %d", name, ref.Revision)
	}
	var outcomes []string
	for _, h := range st.History {
		outcomes = append(outcomes, fmt.Sprint(h.Revision, " ", h.Outcome))
	}
	want := []string{"4 Succeeded", "3 Succeeded", "2 RolledBack", "1 Succeeded"}
	assert.That(t, slices.Equal(outcomes, want), "the history is %v, want %v", outcomes, want)
}
