package policy

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// asked is a rollout at revision 3 with all kinds of requests.
func asked() *v1alpha1.NodeConfigRollout {
	r := &v1alpha1.NodeConfigRollout{}
	r.Spec = v1alpha1.NodeConfigRolloutSpec{
		Paused: true, PausedBy: "ann", PausedReason: "a storm", Frozen: true, FrozenReason: "hands off",
		Approval: &v1alpha1.RolloutApproval{Revision: 3, Step: 1, RequestedBy: "bob"},
		Abort:    &v1alpha1.RolloutAbort{Revision: 3, RequestedBy: "eve", Reason: "wrong"},
	}
	r.Status.UpdateRevision = &v1alpha1.RolloutRevision{Number: 3}
	return r
}

// requestsOf returns the requests for a rollout's next status.
func requestsOf(r *v1alpha1.NodeConfigRollout, verifies bool, now time.Time) []v1alpha1.RolloutRequest {
	p, _ := FromSpec(r, Times{}, now)
	p.Target.Number = r.Status.UpdateRevision.Number
	verifyRequests(&p, &r.Status, verifies)
	return RequestsOf(&r.Status, &p)
}

func TestRequestsKeepTheirTimeAndVerificationWhileTheyLast(t *testing.T) {
	r := asked()
	noon := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	first := metav1.NewTime(noon)
	want := []v1alpha1.RolloutRequest{
		{Kind: v1alpha1.RequestApproval, Revision: 3, Step: new(int32(1)), User: "bob", Time: first},
		{Kind: v1alpha1.RequestAbort, Revision: 3, User: "eve", Reason: "wrong", Time: first},
		{Kind: v1alpha1.RequestPause, User: "ann", Reason: "a storm", Time: first},
		{Kind: v1alpha1.RequestFreeze, Reason: "hands off", Time: first},
	}
	r.Status.Requests = requestsOf(r, false, noon)
	assert.NoDiff(t, cmp.Diff(want, r.Status.Requests))

	// The same names an hour later are as they were, although the API server would write new ones. The next step is new.
	later := metav1.NewTime(noon.Add(time.Hour))
	r.Spec.Approval.Step = 2
	want[0].Step, want[0].Verified, want[0].Time = new(int32(2)), true, later
	r.Status.Requests = requestsOf(r, true, later.Time)
	assert.NoDiff(t, cmp.Diff(want, r.Status.Requests))

	// Without the policy, what was verified stays so. A request with a reason only has no name to verify.
	r.Spec.Paused, r.Spec.Abort = false, nil
	want = []v1alpha1.RolloutRequest{want[0], want[3]}
	r.Status.Requests = requestsOf(r, false, noon.Add(2*time.Hour))
	assert.NoDiff(t, cmp.Diff(want, r.Status.Requests))

	// The next revision has no requests about the last one.
	r.Status.UpdateRevision.Number = 4
	got := requestsOf(r, false, noon.Add(3*time.Hour))
	assert.That(t, len(got) == 1 && got[0].Kind == v1alpha1.RequestFreeze, "got %+v", got)
}

func TestAPlainRequestIsNotRecorded(t *testing.T) {
	r := asked()
	r.Spec = v1alpha1.NodeConfigRolloutSpec{Paused: true, Frozen: true, Approval: &v1alpha1.RolloutApproval{Revision: 3}, Abort: &v1alpha1.RolloutAbort{Revision: 3}}
	got := requestsOf(r, true, time.Time{})
	assert.That(t, got == nil, "got %+v, which an older CRD does not know", got)
}

func TestOnlyANewUserHasToBeVerified(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*v1alpha1.NodeConfigRollout)
		want   bool
	}{
		"all are recorded":           {func(*v1alpha1.NodeConfigRollout) {}, false},
		"another user":               {func(r *v1alpha1.NodeConfigRollout) { r.Spec.PausedBy = "bob" }, true},
		"another reason":             {func(r *v1alpha1.NodeConfigRollout) { r.Spec.PausedReason = "calm" }, true},
		"another reason, no user":    {func(r *v1alpha1.NodeConfigRollout) { r.Spec.FrozenReason = "calm" }, false},
		"a name of what is over":     {func(r *v1alpha1.NodeConfigRollout) { r.Spec.Paused, r.Spec.PausedBy = false, "bob" }, false},
		"about an earlier revision":  {func(r *v1alpha1.NodeConfigRollout) { r.Spec.Abort.Revision, r.Spec.Approval.Revision = 2, 1 }, false},
		"about a later revision":     {func(r *v1alpha1.NodeConfigRollout) { r.Spec.Approval.Revision = 4 }, true},
		"another step":               {func(r *v1alpha1.NodeConfigRollout) { r.Spec.Approval.Step = 2 }, true},
		"a rollout without a status": {func(r *v1alpha1.NodeConfigRollout) { r.Status = v1alpha1.NodeConfigRolloutStatus{} }, true},
		"an invalid spec": {func(r *v1alpha1.NodeConfigRollout) {
			r.Spec.PausedBy, r.Spec.Priority = "bob", 1
			r.Spec.NodeSelector.MatchLabels = map[string]string{"?": ""}
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := asked()
			r.Status.Requests = requestsOf(r, false, time.Time{})
			tt.change(r)
			assert.Equal(t, HasNewUser(r), tt.want)
		})
	}
}
