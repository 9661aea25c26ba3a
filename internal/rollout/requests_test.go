package rollout

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// requested is a rollout at revision 3 with all kinds of requests.
func requested() *v1alpha1.NodeConfigRollout {
	r := &v1alpha1.NodeConfigRollout{}
	r.Spec = v1alpha1.NodeConfigRolloutSpec{
		Paused: true, PausedReason: "a storm", Frozen: true,
		Approval: &v1alpha1.RolloutApproval{Revision: 3, Step: 1},
		Abort:    &v1alpha1.RolloutAbort{Revision: 3, Reason: "wrong"},
	}
	r.Status.UpdateRevision = &v1alpha1.RolloutRevision{Number: 3}
	return r
}

// requestsOf returns the requests for a rollout's next status.
func requestsOf(r *v1alpha1.NodeConfigRollout, now time.Time) []v1alpha1.RolloutRequest {
	in := Input{Spec: r.Spec, Status: r.Status, Target: v1alpha1.RolloutRevision{Number: r.Status.UpdateRevision.Number}, Now: now}
	return in.requests()
}

func TestRequestsKeepTheirTimeWhileTheyLast(t *testing.T) {
	r := requested()
	noon := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	first := metav1.NewTime(noon)
	want := []v1alpha1.RolloutRequest{
		{Kind: v1alpha1.RequestApproval, Revision: 3, Step: new(int32(1)), Time: first},
		{Kind: v1alpha1.RequestAbort, Revision: 3, Reason: "wrong", Time: first},
		{Kind: v1alpha1.RequestPause, Reason: "a storm", Time: first},
		{Kind: v1alpha1.RequestFreeze, Time: first},
	}
	r.Status.Requests = requestsOf(r, noon)
	assert.NoDiff(t, cmp.Diff(want, r.Status.Requests))

	// An hour later the next step and another reason are new.
	later := metav1.NewTime(noon.Add(time.Hour))
	r.Spec.Approval.Step, r.Spec.PausedReason = 2, "two storms"
	want[0].Step, want[0].Time = new(int32(2)), later
	want[2].Reason, want[2].Time = "two storms", later
	r.Status.Requests = requestsOf(r, later.Time)
	assert.NoDiff(t, cmp.Diff(want, r.Status.Requests))

	r.Spec.Paused, r.Spec.Abort = false, nil
	want = []v1alpha1.RolloutRequest{want[0], want[3]}
	r.Status.Requests = requestsOf(r, noon.Add(2*time.Hour))
	assert.NoDiff(t, cmp.Diff(want, r.Status.Requests))

	// The next revision has no requests about the last one.
	r.Status.UpdateRevision.Number = 4
	got := requestsOf(r, noon.Add(3*time.Hour))
	assert.That(t, len(got) == 1 && got[0].Kind == v1alpha1.RequestFreeze, "got %+v", got)
}

func TestARolloutWithoutARevisionHasNoRequestsAboutOne(t *testing.T) {
	r := &v1alpha1.NodeConfigRollout{}
	r.Status.UpdateRevision = &v1alpha1.RolloutRevision{}
	got := requestsOf(r, time.Time{})
	assert.That(t, got == nil, "got %+v", got)
}
