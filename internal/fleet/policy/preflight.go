package policy

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/rollout"
)

// preflightOf returns what a NodeConfig says about preflight requests. Nodes cannot write the annotation.
func preflightOf(nc *v1alpha1.NodeConfig) rollout.Preflight {
	st := &nc.Status
	out := rollout.Preflight{Able: slices.Contains(st.Capabilities, v1alpha1.CapabilityPreflight)}
	var request v1alpha1.PreflightRequest
	if text := nc.Annotations[v1alpha1.AnnotationPreflight]; text != "" && json.Unmarshal([]byte(text), &request) == nil {
		out.Asked, out.AskedAt = request.UID, request.Time.Time
	}
	if a := st.Preflight; a != nil {
		out.Answered, out.Verdict, out.Reason, out.Message = a.UID, string(a.Verdict), a.Reason, a.Message
	}
	return out
}

// PreflightRequestText returns a preflight request as the annotation stores it.
func PreflightRequestText(uid string, r rollout.Revision, attempt int64, trial *v1alpha1.TrialTerms, now time.Time) (string, error) {
	text, err := json.Marshal(v1alpha1.PreflightRequest{
		UID: uid, ConfigMapRef: v1alpha1.ConfigMapReference{Namespace: r.Namespace, Name: r.Name, UID: types.UID(r.UID), SHA256: r.SHA256},
		Trial: trial, Attempt: attempt, Time: metav1.NewTime(now.UTC()),
	})
	if err != nil {
		return "", fmt.Errorf("encode a preflight request: %w", err)
	}
	return string(text), nil
}

// preflightMode converts a mode.
func preflightMode(m v1alpha1.PreflightMode) rollout.PreflightMode {
	switch m {
	case v1alpha1.PreflightReport:
		return rollout.PreflightReport
	case v1alpha1.PreflightRequire:
		return rollout.PreflightRequire
	}
	return rollout.PreflightOff
}

// preflightProgress converts the preflight in a rollout's status; nil if it is not about this attempt.
func preflightProgress(st *v1alpha1.NodeConfigRolloutStatus) *rollout.PreflightResult {
	s := st.Preflight
	if s == nil || st.UpdateRevision == nil || s.Revision != st.UpdateRevision.Number || s.Attempt != st.Attempt {
		return nil
	}
	return new(PreflightResultOf(&s.PreflightResult))
}

// PreflightResultOf converts a result in a status.
func PreflightResultOf(s *v1alpha1.PreflightResult) rollout.PreflightResult {
	out := rollout.PreflightResult{
		Started: s.StartTime.Time, Ended: TimeOf(s.EndTime), Accepted: int(s.Accepted), Refused: int(s.Refused), Blocked: int(s.Blocked),
		Unknown: int(s.Unknown), Unanswered: int(s.Unanswered), Unsupported: int(s.Unsupported),
		UnansweredNodes: s.UnansweredNodes, UnsupportedNodes: s.UnsupportedNodes,
	}
	for _, g := range s.Refusals {
		out.Groups = append(out.Groups, rollout.PreflightGroup{Verdict: string(g.Verdict), Reason: g.Reason, Message: g.Message, Nodes: int(g.Nodes), Examples: g.Examples})
	}
	return out
}

// The limits of a refusal in the API, in characters.
const (
	maxRefusalReason  = 64
	maxRefusalMessage = 1024
)

// PreflightResultFor converts a result for a status.
func PreflightResultFor(r *rollout.PreflightResult) v1alpha1.PreflightResult {
	out := v1alpha1.PreflightResult{
		StartTime: metav1.NewTime(r.Started), Accepted: int32(r.Accepted), Refused: int32(r.Refused), Blocked: int32(r.Blocked),
		Unknown: int32(r.Unknown), Unanswered: int32(r.Unanswered), Unsupported: int32(r.Unsupported),
		UnansweredNodes: r.UnansweredNodes, UnsupportedNodes: r.UnsupportedNodes,
	}
	if !r.Ended.IsZero() {
		out.EndTime = new(metav1.NewTime(r.Ended))
	}
	for _, g := range r.Groups {
		out.Refusals = append(out.Refusals, v1alpha1.PreflightRefusal{
			Verdict: v1alpha1.PreflightVerdict(g.Verdict), Reason: Cut(g.Reason, maxRefusalReason), Message: Cut(g.Message, maxRefusalMessage),
			Nodes: int32(g.Nodes), Examples: g.Examples,
		})
	}
	return out
}

// PreflightTemplate is the configuration of a NodeConfigPreflight, and the nodes that it selects. If Err is not nil, one of them
// is invalid.
type PreflightTemplate struct {
	Content Content
	Nodes   labels.Selector
	Err     error
}

// PreflightTemplateOf returns the configuration of a NodeConfigPreflight, and the nodes that it selects.
func PreflightTemplateOf(o *v1alpha1.NodeConfigPreflight) (t PreflightTemplate) {
	if o.Generation > 1 {
		t.Err = fmt.Errorf("the spec was changed after the preflight was created: create another one")
		return t
	}
	s := &o.Spec
	if t.Nodes, _, t.Err = selectors(&v1alpha1.NodeConfigRolloutSpec{NodeSelector: s.NodeSelector, AllNodes: s.AllNodes}); t.Err != nil {
		return t
	}
	if t.Content, t.Err = ContentOf(v1alpha1.RolloutTemplate{Kubelet: s.Template.Kubelet, KubeletDropIn: s.Template.KubeletDropIn}, nil); t.Err != nil {
		return t
	}
	_, t.Err = t.Content.TrialTerms(s.Trial)
	return t
}
