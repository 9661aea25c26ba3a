// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"encoding/json"
	"errors"
	"os/exec"
	"reflect"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// elsewhere is a namespace for revisions that is not the usual one.
const elsewhere = "evenkeel-elsewhere"

// openElsewhere makes that namespace, with the rights that the controller and
// nodes have in the usual one.
func (s *scenario) openElsewhere() {
	s.t.Helper()
	ctx := s.t.Context()
	s.do(kube.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: elsewhere}}))
	for _, name := range []string{"evenkeel-controller", "evenkeel-node"} {
		role, binding := &rbacv1.Role{}, &rbacv1.RoleBinding{}
		key := types.NamespacedName{Namespace: v1alpha1.SystemNamespace, Name: name}
		s.do(errors.Join(kube.Get(ctx, key, role), kube.Get(ctx, key, binding)))
		there := metav1.ObjectMeta{Namespace: elsewhere, Name: name}
		s.do(kube.Create(ctx, &rbacv1.Role{ObjectMeta: there, Rules: role.Rules}))
		s.do(kube.Create(ctx, &rbacv1.RoleBinding{ObjectMeta: there, RoleRef: binding.RoleRef, Subjects: binding.Subjects}))
	}
}

// plan is what `rollout plan -o json` says.
type plan struct {
	Revision   int64                  `json:"revision"`
	New        bool                   `json:"new"`
	Phase      string                 `json:"phase"`
	Nodes      v1alpha1.RolloutCounts `json:"nodes"`
	PassedOver []struct {
		State string   `json:"state"`
		Nodes []string `json:"nodes"`
	} `json:"passedOver"`
}

func (s *scenario) plan(args ...string) (p plan) {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), root+"/bin/kubectl-evenkeel", append([]string{"--kubeconfig=" + cluster.AdminKubeconfig(), "rollout", "plan", "-o", "json"}, args...)...)
	out, err := cmd.Output()
	assert.Must(s.t, err == nil, "%v: %s; run make build", err, out)
	s.do(json.Unmarshal(out, &p))

	return p
}

// TestThePlanShownIsTheControllersWithOtherTimesInAnotherNamespace: a node
// whose agent does not answer is silent after --agent-timeout, and a revision
// is in --namespace. The command line must use both.
func TestThePlanShownIsTheControllersWithOtherTimesInAnotherNamespace(t *testing.T) { // not parallel: it stops the shared controller
	s := play(t, "settings", 4)
	alone(t)
	s.openElsewhere()
	s.controller("--leader-elect=false", "--namespace="+elsewhere, "--agent-timeout=2s", "--not-ready-grace=4s")
	r := s.roll("maxPods: 101", `strategy: {maxUnavailable: 4, steps: [{nodes: 1}, {nodes: 100%}]}`)
	first := r.await(at(1, v1alpha1.RolloutComplete), updated(4))
	want := v1alpha1.RolloutController{Namespace: elsewhere, AgentTimeout: metav1.Duration{Duration: 2 * time.Second}, NotReadyGrace: metav1.Duration{Duration: 4 * time.Second}}
	first.Controller.StartProbe = nil // another test speaks of it
	assert.Must(t, reflect.DeepEqual(*first.Controller, want) && first.UpdateRevision.ConfigMapRef.Namespace == elsewhere,
		"it publishes %+v, want %+v; the revision is %+v", first.Controller, want, first.UpdateRevision)

	silent := s.node(3)
	s.do(s.fleet.Silence(silent))
	r.push("maxPods: 102")
	st := r.await(at(2, v1alpha1.RolloutComplete), updated(3), that("one is silent", func(st *status) bool { return st.Nodes.Stale == 1 }))
	p := s.plan(s.name)
	assert.That(t, p.Revision == 2 && !p.New && p.Phase == string(st.Phase) && p.Nodes == st.Nodes,
		"the plan is %+v; the status has %s, %+v", p, st.Phase, st.Nodes)
	assert.That(t, len(p.PassedOver) == 1 && p.PassedOver[0].State == "Stale" && slices.Equal(p.PassedOver[0].Nodes, []string{silent}),
		"the plan passes over %+v, want %s, which is silent", p.PassedOver, silent)
}
