package policy

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/rollout"
)

// RequestsOf returns the requests in force for the status of a rollout. A request that the status records keeps its time. Requests
// about other revisions than the target are not in force.
func RequestsOf(st *v1alpha1.NodeConfigRolloutStatus, p *rollout.Policy) (all []v1alpha1.RolloutRequest) {
	add := func(r v1alpha1.RolloutRequest) {
		r.Time = metav1.NewTime(p.Now)
		i := slices.IndexFunc(st.Requests, func(x v1alpha1.RolloutRequest) bool {
			return x.Kind == r.Kind && x.Revision == r.Revision && x.Reason == r.Reason && equal(x.Step, r.Step)
		})
		if i >= 0 {
			r.Time = st.Requests[i].Time
		}
		all = append(all, r)
	}
	target := p.Target.Number
	if a := p.Approval; target != 0 && a.Revision == target {
		add(v1alpha1.RolloutRequest{Kind: v1alpha1.RequestApproval, Revision: target, Step: new(int32(a.Step)), Reason: a.Reason})
	}
	if a := p.Abort; target != 0 && a.Revision == target {
		add(v1alpha1.RolloutRequest{Kind: v1alpha1.RequestAbort, Revision: target, Reason: a.Reason})
	}
	if p.Paused {
		add(v1alpha1.RolloutRequest{Kind: v1alpha1.RequestPause, Reason: p.PausedReason})
	}
	if p.Frozen {
		add(v1alpha1.RolloutRequest{Kind: v1alpha1.RequestFreeze, Reason: p.FrozenReason})
	}
	return all
}

func equal(a, b *int32) bool { return a == b || a != nil && b != nil && *a == *b }
