package fleet_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// able waits until the agents of nodes report that they can answer.
func (s *scenario) able(nodes ...string) {
	s.t.Helper()
	s.until("the agents report the capability", func() (string, bool) {
		able := s.those(func(nc *v1alpha1.NodeConfig) bool {
			return slices.Contains(nc.Status.Capabilities, v1alpha1.CapabilityPreflight)
		})
		return fmt.Sprint(able), len(able) == len(nodes)
	})
}

func TestARevisionThatANodeRefusesIsAssignedToNone(t *testing.T) {
	t.Parallel()
	s := play(t, "asked", 5, faulty("reject,field=maxPods:8,node=asked-1"))
	s.able(s.nodes(0, 5)...)
	r := s.roll("maxPods: 8", `
strategy: {maxUnavailable: 100%, preflight: Require, steps: [{nodes: 100%}]}
`)
	st := r.await(at(1, v1alpha1.RolloutHalted))
	p := st.Preflight
	if p == nil || p.EndTime == nil || p.Accepted != 4 || p.Refused != 1 || len(p.Refusals) != 1 || p.Refusals[0].Reason != v1alpha1.ReasonValidationFailed || !slices.Equal(p.Refusals[0].Examples, []string{"asked-1"}) {
		t.Fatalf("status.preflight is %+v", p)
	}
	if h := st.Halt; h.Reason != v1alpha1.HaltPreflightRefused || h.Rollback || !strings.Contains(h.Message, "1 ValidationFailed (asked-1)") {
		t.Errorf("the stop is %+v", h)
	}
	s.same("were ever given the revision", s.everGiven(st.UpdateRevision.ConfigMapRef), nil)
	for name, nc := range s.nodeConfigs() {
		if nc.Generation != 1 {
			t.Errorf("the request has changed the generation of %s to %d", name, nc.Generation)
		}
	}

	r.push("maxPods: 9")
	st = r.await(at(2, v1alpha1.RolloutComplete), updated(5))
	if p := st.Preflight; p == nil || p.Revision != 2 || p.Accepted != 5 {
		t.Errorf("status.preflight is %+v", p)
	}
}

func TestASilentAgentDelaysAPreflightForALimitedTime(t *testing.T) {
	t.Parallel()
	s := play(t, "asked-silent", 6)
	s.able(s.nodes(0, 6)...)
	s.do(s.fleet.Silence(s.node(2)))
	r := s.roll("maxPods: 101", `
strategy: {maxUnavailable: 100%, preflight: Report, steps: [{nodes: 100%}]}
`)
	r.await(at(1, v1alpha1.RolloutWaiting), that("agents are asked", func(st *v1alpha1.NodeConfigRolloutStatus) bool {
		return st.Preflight != nil && st.Preflight.Accepted == 5
	}))
	st := r.await(at(1, v1alpha1.RolloutComplete), updated(5))
	p := st.Preflight
	if p == nil || p.EndTime == nil || p.Accepted != 5 || p.Unanswered != 1 || !slices.Equal(p.UnansweredNodes, []string{s.node(2)}) {
		t.Fatalf("status.preflight is %+v", p)
	}
	if took := p.EndTime.Sub(p.StartTime.Time); took < agentTimeout || took > 4*agentTimeout {
		t.Errorf("the preflight took %s, the silent agent has %s", took, agentTimeout)
	}
}

func TestAPreflightWithoutARolloutChangesNoNode(t *testing.T) {
	t.Parallel()
	s := play(t, "asked-alone", 4, faulty("reject,field=maxPods:8,node=asked-alone-3"))
	s.able(s.nodes(0, 4)...)
	o := &v1alpha1.NodeConfigPreflight{ObjectMeta: metav1.ObjectMeta{Name: s.name}, Spec: v1alpha1.NodeConfigPreflightSpec{
		NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{"pool": s.name}}, Template: v1alpha1.PreflightTemplate{Kubelet: s.template("maxPods: 8").Kubelet},
	}}
	s.do(kube.Create(t.Context(), o))
	t.Cleanup(func() {
		if err := kube.Delete(context.Background(), o); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	})
	s.until("the preflight is complete", func() (string, bool) {
		s.do(kube.Get(t.Context(), types.NamespacedName{Name: o.Name}, o))
		return o.Status.Message, o.Status.Phase == v1alpha1.PreflightComplete
	})
	r := o.Status.Result
	if r.Accepted != 3 || r.Refused != 1 || len(r.Refusals) != 1 || !slices.Equal(r.Refusals[0].Examples, []string{s.node(3)}) {
		t.Errorf("the result is %+v", r)
	}
	for name, nc := range s.nodeConfigs() {
		if nc.Generation != 1 || nc.Spec.ConfigSource != nil || nc.Status.Active != nil || len(nc.Status.BadConfigs) > 0 {
			t.Errorf("%s was changed: %+v, %+v", name, nc.Spec, nc.Status)
		}
	}
	s.do(kube.Delete(t.Context(), o))
	s.until("it is gone", func() (string, bool) {
		err := kube.Get(t.Context(), types.NamespacedName{Name: o.Name}, o)
		return fmt.Sprint(err), apierrors.IsNotFound(err)
	})
}
