package controller

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/rollout"
)

// specOf returns the spec that a move writes. A move back to no source sets takenBack: a node that accepted the assignment
// meanwhile must not mistake the empty source for a person's request.
func specOf(planned *rollout.Node, m rollout.Move) v1alpha1.NodeConfigSpec {
	var out v1alpha1.NodeConfigSpec
	for _, uid := range m.Revoked {
		out.Revoked = append(out.Revoked, types.UID(uid))
	}
	s := m.Source
	if s.Kind == rollout.SourceNone {
		if was := planned.Source; was.Rollout != "" {
			out.TakenBack = &v1alpha1.TakenBackAssignment{
				Rollout: was.Rollout, Revision: was.Revision, Attempt: was.Attempt, AssignedAt: metav1.NewTime(was.AssignedAt),
			}
		}
		return out
	}
	out.ConfigSource = &v1alpha1.NodeConfigSource{RolloutRef: &v1alpha1.RolloutReference{
		Name: s.Rollout, Revision: s.Revision, Attempt: s.Attempt, AssignedAt: metav1.NewTime(s.AssignedAt), Term: s.Term,
	}}
	if p := s.Previous; p != nil {
		out.ConfigSource.RolloutRef.Previous = &v1alpha1.PreviousSource{
			ConfigMapRef: refTo(*p), Rollout: p.Rollout, Revision: p.Revision, Attempt: p.Attempt,
		}
	}
	if s.Kind == rollout.SourceLocal {
		out.ConfigSource.Local = &v1alpha1.LocalSource{}
		return out
	}
	ref := refTo(s)
	out.ConfigSource.ConfigMapRef = &ref
	return out
}

func refTo(s rollout.Source) v1alpha1.ConfigMapReference {
	return v1alpha1.ConfigMapReference{Namespace: s.Namespace, Name: s.Name, UID: types.UID(s.UID), SHA256: s.SHA256}
}
