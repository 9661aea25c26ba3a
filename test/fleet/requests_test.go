package fleet_test

import (
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestStatusAndHistoryShowWhatWasAskedAndWhy(t *testing.T) {
	t.Parallel()
	s := play(t, "requests", 2)
	r := s.roll("maxPods: 101", `strategy: {maxUnavailable: 100%, steps: [{nodes: 1}, {pause: {}}, {nodes: 100%}]}`)
	r.await(at(1, v1alpha1.RolloutAwaitingApproval))
	has := func(kind v1alpha1.RequestKind, reason string) check {
		return that("the request "+string(kind)+" is recorded", func(st *status) bool {
			for _, x := range st.Requests {
				if x.Kind == kind {
					return x.Reason == reason && !x.Time.IsZero()
				}
			}
			return false
		})
	}
	s.plugin(0, "rollout", "pause", s.name, "--reason", "a storm")
	st := r.await(at(1, v1alpha1.RolloutPaused), has(v1alpha1.RequestPause, "a storm"))
	assert.That(t, strings.HasPrefix(st.Message, "spec.paused: a storm; revision 1: "), "it says %s", st.Message)
	if out := s.plugin(0, "rollout", "status", s.name); !strings.Contains(out, "Asked  paused: a storm (") {
		t.Errorf("the status shows\n%s", out)
	}
	s.plugin(0, "rollout", "resume", s.name)
	r.await(at(1, v1alpha1.RolloutAwaitingApproval), that("no request is left", func(st *status) bool { return len(st.Requests) == 0 }))
	o := r.object()
	assert.That(t, o.Spec.PausedReason == "", "the spec still says %q", o.Spec.PausedReason)
	s.plugin(0, "rollout", "promote", s.name, "--reason", "looks good")
	r.complete(1)
	r.await(has(v1alpha1.RequestApproval, "looks good"))

	s.plugin(0, "rollout", "freeze", s.name, "--reason", "hands off")
	st = r.await(at(1, v1alpha1.RolloutFrozen), has(v1alpha1.RequestFreeze, "hands off"))
	assert.That(t, strings.HasPrefix(st.Message, "spec.frozen: hands off; no node moves, not even new nodes; "), "it says %s", st.Message)
	s.plugin(0, "rollout", "unfreeze", s.name)
	r.push("maxPods: 102")
	r.await(at(2, v1alpha1.RolloutAwaitingApproval))
	s.plugin(0, "rollout", "abort", s.name, "--reason", "wrong value")
	st = r.await(at(2, v1alpha1.RolloutHalted), has(v1alpha1.RequestAbort, "wrong value"))
	if !strings.Contains(st.Message, "revision 2 was stopped (Aborted): stopped by a person: wrong value; ") || st.Halt.Message != "stopped by a person: wrong value" {
		t.Errorf("it says %s", st.Message)
	}
	if h := st.History; len(h) != 2 || len(h[0].Requests) != 1 || h[0].Requests[0].Kind != v1alpha1.RequestAbort || len(h[1].Requests) != 1 || h[1].Requests[0].Reason != "looks good" {
		t.Errorf("the history is %+v", h)
	}
	out := s.plugin(0, "rollout", "history", s.name)
	for _, want := range []string{"REQUESTS", "aborted: wrong value", "approved up to step 1: looks good"} {
		assert.That(t, strings.Contains(out, want), "the history lacks %q:\n%s", want, out)
	}
}
