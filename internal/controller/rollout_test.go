package controller

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

func intOrString(s string) intstr.IntOrString { return intstr.Parse(s) }

func TestAFirstRolloutReachesAllItsNodes(t *testing.T) {
	world(t)
	names := []string{"a1", "a2", "a3"}
	addNodes(t, "pool=first", names...)
	agents(t, nil, names...)
	start(t, own())
	roll(t, "first", func(s *v1alpha1.NodeConfigRolloutSpec) {
		one, all := intOrString("1"), intOrString("100%")
		s.Strategy.MaxUnavailable = &one
		s.Strategy.Steps = []v1alpha1.RolloutStep{{Nodes: &one}, {Nodes: &all}}
	})
	r := awaitRollout(t, "first", completeAt(1))

	st := r.Status
	if st.Updated != "3/3" || st.StepsDone != "2/2" || st.Nodes.Updated != 3 || st.CurrentRevision == nil || *st.CurrentRevision != *st.UpdateRevision {
		t.Errorf("the status says %+v", st)
	}
	if len(st.History) != 1 || st.History[0].Outcome != "Succeeded" || st.History[0].Revision != 1 || st.History[0].Updated != 3 {
		t.Errorf("the history says %+v", st.History)
	}
	cm, ok := revisions(t, "first")["1"]
	if !ok || cm.Immutable == nil || !*cm.Immutable || len(cm.OwnerReferences) != 0 || len(cm.Finalizers) != 0 {
		t.Fatalf("revision 1 is %+v", cm.ObjectMeta)
	}
	ref := st.UpdateRevision.ConfigMapRef
	if ref.UID != cm.UID || ref.Name != cm.Name || cm.Name != RevisionName("first", ref.SHA256) || cm.Annotations[annotationSHA256] != ref.SHA256 {
		t.Errorf("the status names %+v, the ConfigMap is %+v", ref, cm.ObjectMeta)
	}
	for _, name := range names {
		nc := nodeConfig(t, name)
		if s := nc.Spec.ConfigSource; s == nil || *s.ConfigMapRef != ref || s.RolloutRef.Name != "first" || s.RolloutRef.Revision != 1 {
			t.Errorf("NodeConfig %s has %+v", name, s)
		}
	}
}
