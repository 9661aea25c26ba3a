package policy

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet/rollout"
)

// requestsIn returns the requests in a policy that have a user or a reason, without their times. Requests about other revisions
// than the target are not in force.
func requestsIn(p *rollout.Policy) (out []v1alpha1.RolloutRequest) {
	add := func(kind v1alpha1.RequestKind, r rollout.Request, revision int64) {
		if r.User != "" || r.Reason != "" {
			out = append(out, v1alpha1.RolloutRequest{Kind: kind, Revision: revision, User: r.User, Verified: r.Verified, Reason: r.Reason})
		}
	}
	if a := p.Approval; a.Revision == p.Target.Number {
		add(v1alpha1.RequestApproval, a.Request, a.Revision)
		if len(out) > 0 {
			out[0].Step = new(int32(a.Step))
		}
	}
	if a := p.Abort; a.Revision == p.Target.Number {
		add(v1alpha1.RequestAbort, a.Request, a.Revision)
	}
	if p.Paused {
		add(v1alpha1.RequestPause, p.Pauser, 0)
	}
	if p.Frozen {
		add(v1alpha1.RequestFreeze, p.Freezer, 0)
	}
	return out
}

// recorded returns the entry of a status for the same request; nil if there is none.
func recorded(st *v1alpha1.NodeConfigRolloutStatus, r v1alpha1.RolloutRequest) *v1alpha1.RolloutRequest {
	i := slices.IndexFunc(st.Requests, func(x v1alpha1.RolloutRequest) bool {
		return x.Kind == r.Kind && x.Revision == r.Revision && x.User == r.User && x.Reason == r.Reason && equal(x.Step, r.Step)
	})
	if i < 0 {
		return nil
	}
	return &st.Requests[i]
}

func equal(a, b *int32) bool { return a == b || a != nil && b != nil && *a == *b }

// RequestsOf returns the requests in force for the status of a rollout. A request that the status records keeps its time.
func RequestsOf(st *v1alpha1.NodeConfigRolloutStatus, p *rollout.Policy) []v1alpha1.RolloutRequest {
	all := requestsIn(p)
	for i := range all {
		all[i].Time = metav1.NewTime(p.Now)
		if was := recorded(st, all[i]); was != nil {
			all[i].Time = was.Time
		}
	}
	return all
}

// verifyRequests marks the users that the API server wrote. For a request that the status records, the record counts: later
// nobody can find out.
func verifyRequests(p *rollout.Policy, st *v1alpha1.NodeConfigRolloutStatus, verifies bool) {
	of := map[v1alpha1.RequestKind]*rollout.Request{
		v1alpha1.RequestApproval: &p.Approval.Request, v1alpha1.RequestAbort: &p.Abort.Request,
		v1alpha1.RequestPause: &p.Pauser, v1alpha1.RequestFreeze: &p.Freezer,
	}
	for _, r := range requestsIn(p) {
		verified := verifies
		if was := recorded(st, r); was != nil {
			verified = was.Verified
		}
		of[r.Kind].Verified = verified && r.User != ""
	}
}

// HasNewUser reports whether a rollout's spec names a user in a request that its status does not record: then the caller has to
// find out whether the API server wrote the name.
func HasNewUser(r *v1alpha1.NodeConfigRollout) bool {
	p, _ := FromSpec(r, Times{}, time.Time{}) // an invalid spec has requests too
	revisions := []int64{p.Approval.Revision, p.Abort.Revision}
	if u := r.Status.UpdateRevision; u != nil { // requests about earlier revisions are over
		revisions = []int64{max(u.Number, p.Approval.Revision), max(u.Number, p.Abort.Revision)}
	}
	for _, revision := range revisions {
		p.Target.Number = revision
		for _, x := range requestsIn(&p) {
			if x.User != "" && recorded(&r.Status, x) == nil {
				return true
			}
		}
	}
	return false
}
