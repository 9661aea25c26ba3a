package fleet_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestStatusAndHistoryShowWhoAskedAndWhy(t *testing.T) { // not parallel: an admission policy is for all rollouts
	s := play(t, "requests", 2)
	r := s.roll("maxPods: 101", `strategy: {maxUnavailable: 100%, steps: [{nodes: 1}, {pause: {}}, {nodes: 100%}]}`)
	r.await(at(1, v1alpha1.RolloutAwaitingApproval))
	has := func(kind v1alpha1.RequestKind, verified bool, reason string) check {
		return that("the request "+string(kind)+" is recorded", func(st *status) bool {
			for _, x := range st.Requests {
				if x.Kind == kind {
					return x.User == "evenkeel-admin" && x.Verified == verified && x.Reason == reason && !x.Time.IsZero()
				}
			}
			return false
		})
	}
	s.plugin(0, "rollout", "pause", s.name, "--reason", "a storm")
	st := r.await(at(1, v1alpha1.RolloutPaused), has(v1alpha1.RequestPause, false, "a storm"))
	assert.That(t, strings.HasPrefix(st.Message, "spec.paused by evenkeel-admin (claimed): a storm; revision 1: "), "it says %s", st.Message)
	if out := s.plugin(0, "rollout", "status", s.name); !strings.Contains(out, "Asked  paused by evenkeel-admin (claimed): a storm (") {
		t.Errorf("the status shows\n%s", out)
	}
	s.plugin(0, "rollout", "resume", s.name)
	r.await(at(1, v1alpha1.RolloutAwaitingApproval), that("no request is left", func(st *status) bool { return len(st.Requests) == 0 }))
	o := r.object()
	assert.That(t, o.Spec.PausedBy == "" && o.Spec.PausedReason == "", "the spec still says %q, %q", o.Spec.PausedBy, o.Spec.PausedReason)
	s.plugin(0, "rollout", "promote", s.name, "--reason", "looks good")
	r.complete(1)

	// With the policy of config/actors the API server writes the name: it is verified. Those from before stay claimed.
	kubectl := func(verb string) {
		t.Helper()
		out, err := exec.Command(root+"/bin/tools/kubectl", "--kubeconfig="+cluster.AdminKubeconfig(), verb, "-k", root+"/config/actors").CombinedOutput()
		assert.Must(t, err == nil, "%v: %s", err, out)
	}
	kubectl("apply")
	defer kubectl("delete")
	s.until("the API server writes names", func() (string, bool) {
		r.edit(func(s *v1alpha1.NodeConfigRolloutSpec) { s.Paused, s.PausedBy = false, "" })
		r.edit(func(s *v1alpha1.NodeConfigRolloutSpec) { s.Paused = true })
		return "it does not", r.object().Spec.PausedBy == "evenkeel-admin"
	})
	r.await(has(v1alpha1.RequestPause, true, ""), has(v1alpha1.RequestApproval, false, "looks good"))
	s.plugin(0, "rollout", "resume", s.name)
	s.plugin(0, "rollout", "freeze", s.name, "--reason", "hands off")
	st = r.await(at(1, v1alpha1.RolloutFrozen), has(v1alpha1.RequestFreeze, true, "hands off"))
	assert.That(t, strings.HasPrefix(st.Message, "spec.frozen by evenkeel-admin: hands off; no node moves, not even new nodes; "),
		"it says %s", st.Message)
	s.plugin(0, "rollout", "unfreeze", s.name)
	r.push("maxPods: 102")
	r.await(at(2, v1alpha1.RolloutAwaitingApproval))
	s.plugin(0, "rollout", "abort", s.name, "--reason", "wrong value")
	st = r.await(at(2, v1alpha1.RolloutHalted), has(v1alpha1.RequestAbort, true, "wrong value"))
	if !strings.Contains(st.Message, "revision 2 was stopped (Aborted): stopped by evenkeel-admin: wrong value; ") || st.Halt.Message != "stopped by evenkeel-admin: wrong value" {
		t.Errorf("it says %s", st.Message)
	}
	if h := st.History; len(h) != 2 || len(h[0].Requests) != 1 || h[0].Requests[0].Kind != v1alpha1.RequestAbort || len(h[1].Requests) != 1 || h[1].Requests[0].Reason != "looks good" {
		t.Errorf("the history is %+v", h)
	}
	out := s.plugin(0, "rollout", "history", s.name)
	for _, want := range []string{"REQUESTS", "aborted by evenkeel-admin: wrong value", "approved up to step 1 by evenkeel-admin (claimed): looks good"} {
		assert.That(t, strings.Contains(out, want), "the history lacks %q:\n%s", want, out)
	}
}
