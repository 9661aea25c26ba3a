// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/operator/dashboard"
	planner "github.com/evenkeel/evenkeel/internal/rollout"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// elsewhere is a namespace for revisions that is not the usual one.
const elsewhere = "evenkeel-elsewhere"

// openElsewhere makes that namespace, with the rights that the controller and nodes have in the usual one.
func openElsewhere(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	do := func(err error) {
		t.Helper()
		assert.NoError(t, err)
	}
	do(kube.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: elsewhere}}))
	rbac := kubernetes.NewForConfigOrDie(cluster.AdminConfig()).RbacV1()
	for _, name := range []string{"evenkeel-controller", "evenkeel-node"} {
		role, err := rbac.Roles(v1alpha1.SystemNamespace).Get(ctx, name, metav1.GetOptions{})
		do(err)
		binding, err := rbac.RoleBindings(v1alpha1.SystemNamespace).Get(ctx, name, metav1.GetOptions{})
		do(err)
		there := metav1.ObjectMeta{Namespace: elsewhere, Name: name}
		_, err = rbac.Roles(elsewhere).Create(ctx, &rbacv1.Role{ObjectMeta: there, Rules: role.Rules}, metav1.CreateOptions{})
		do(err)
		_, err = rbac.RoleBindings(elsewhere).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: there, RoleRef: binding.RoleRef, Subjects: binding.Subjects}, metav1.CreateOptions{})
		do(err)
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
	Batches []struct {
		Nodes []string `json:"nodes"`
	} `json:"batches"`
}

func (s *scenario) plan(args ...string) (p plan) {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), root+"/bin/kubectl-evenkeel", append([]string{"--kubeconfig=" + cluster.AdminKubeconfig(), "rollout", "plan", "-o", "json"}, args...)...)
	out, err := cmd.Output()
	assert.Must(s.t, err == nil, "%v: %s; run make build", err, out)
	s.do(json.Unmarshal(out, &p))
	return p
}

// page returns the numbers of the states in which the page shows nodes, by name.
func (s *scenario) page() map[string]int {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), within)
	defer cancel()
	server, err := dashboard.Listen(ctx, dashboard.Options{Clusters: []dashboard.Cluster{{Config: cluster.AdminConfig()}}, Version: "test", Log: io.Discard})
	s.do(err)
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx) }()
	defer func() {
		cancel()
		s.do(<-done)
	}()
	address, token, _ := strings.Cut(server.URL(), "#")
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"api/clusters/0/feed", nil)
	s.do(err)
	request.Header.Set("Authorization", "Bearer "+token)
	answer, err := http.DefaultClient.Do(request)
	s.do(err)
	defer answer.Body.Close()
	states := map[string]int{}
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, is := strings.CutPrefix(lines.Text(), "data: ")
		if !is {
			continue
		}
		var m struct {
			Nodes [][]any `json:"nodes"`
			Rest  *struct {
				Ready bool `json:"ready"`
			} `json:"rest"`
		}
		s.do(json.Unmarshal([]byte(data), &m))
		for _, n := range m.Nodes {
			if name := fmt.Sprint(n[0]); s.owns(name) {
				states[name] = 0
				if len(n) > 5 { // zeros at the end are omitted
					states[name] = int(n[5].(float64))
				}
			}
		}
		if m.Rest != nil && m.Rest.Ready {
			return states
		}
	}
	s.t.Fatalf("the page ended: %v", lines.Err())
	return nil
}

// TestThePlanShownIsTheControllersWithOtherTimesInAnotherNamespace: a node whose agent does not answer is silent after
// --agent-timeout, and a revision is in --namespace. The command line and the page must use both.
func TestThePlanShownIsTheControllersWithOtherTimesInAnotherNamespace(t *testing.T) { // not parallel: it stops the shared controller
	s := play(t, "settings", 4)
	alone(t)
	openElsewhere(t)
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
	const fine, stale = 1 + int(planner.Updated), 1 + int(planner.Stale) // as the page numbers them
	s.until("the page shows which node is silent", func() (string, bool) {
		states := s.page()
		return fmt.Sprint(states), states[silent] == stale && states[s.node(0)] == fine && states[s.node(1)] == fine && states[s.node(2)] == fine
	})

	next := r.object()
	next.Spec.Template = s.template("maxPods: 103")
	data, err := yaml.Marshal(map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "NodeConfigRollout", "metadata": map[string]any{"name": s.name}, "spec": next.Spec,
	})
	s.do(err)
	file := filepath.Join(t.TempDir(), "next.yaml")
	s.do(os.WriteFile(file, data, 0o600))
	p = s.plan("-f", file)
	var planned []string
	for _, b := range p.Batches {
		planned = append(planned, b.Nodes...)
	}
	slices.Sort(planned)
	assert.That(t, p.Revision == 3 && p.New && len(p.Batches) >= 2 && len(p.Batches[0].Nodes) == 1, "the plan of the next one is %+v", p)
	r.push("maxPods: 103")
	third := r.complete(3)
	// The plan takes every node for healthy from now on; the silent one is not.
	planned = slices.DeleteFunc(planned, func(name string) bool { return name == silent })
	s.same("are given the third revision, as planned", s.everGiven(third), planned)
	assert.That(t, third.Namespace == elsewhere, "the third revision is %+v", third)
	s.do(client.IgnoreNotFound(kube.Delete(t.Context(), r.object())))
	s.do(kube.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: elsewhere}}))
}
