// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// applied applies the rollout with another template, as a GitOps controller
// does: by server-side apply, with all fields that its repository has.
func (r *rollout) applied(fields string) {
	r.t.Helper()
	object := fmt.Sprintf(`{"apiVersion":"evenkeel.dev/v1alpha1","kind":"NodeConfigRollout","metadata":{"name":%[1]q},"spec":{
		"nodeSelector":{"matchLabels":{"pool":%[1]q}},"strategy":{"maxUnavailable":"100%%","steps":[{"nodes":"100%%"}]},
		"template":{"kubelet":{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration",%[2]s}}}}`, r.name, fields)
	o := &v1alpha1.NodeConfigRollout{ObjectMeta: metav1.ObjectMeta{Name: r.name}}
	r.do(kube.Patch(r.t.Context(), o, client.RawPatch(types.ApplyPatchType, []byte(object)), client.FieldOwner("gitops"), client.ForceOwnership))
}

func TestAPinSurvivesAGitOpsControllerThatRestoresTheTemplate(t *testing.T) {
	t.Parallel()
	s := play(t, "pinned", 2)
	r := s.roll("maxPods: 101", `strategy: {maxUnavailable: 100%, steps: [{nodes: 100%}]}`)
	r.applied(`"maxPods":101`)
	first := r.complete(1)
	r.applied(`"maxPods":102`)
	second := r.complete(2)

	s.plugin(0, "rollout", "undo", r.name)
	assert.Equal(t, r.complete(3), first, "revision 3")
	const holds = "; spec.pin holds this revision in place of the template (revision 2)"
	r.applied(`"maxPods":102`) // what the repository has
	st := r.looked()
	assert.That(t, st.UpdateRevision.ConfigMapRef == first && strings.Contains(st.Message, holds),
		"revision %+v: %s", st.UpdateRevision, st.Message)
	s.same("run the first revision", s.those(runs, first), s.fleet.Names())
	out := s.plugin(0, "rollout", "plan", r.name)
	assert.That(t, strings.Contains(out, "2 of 2 nodes updated"), "the plan is\n%s", out)

	r.applied(`"maxPods":103`) // another template is the target
	third := r.complete(4)
	st = r.looked()
	assert.That(t, third != first && third != second && !strings.Contains(st.Message, holds),
		"revision %+v: %s", st.UpdateRevision, st.Message)
	r.applied(`"maxPods":102`) // reverted to what was undone
	assert.Equal(t, r.complete(5), first, "revision 5")

	s.do(kube.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: first.Namespace, Name: first.Name}}))
	st = r.await(that("the pinned revision is gone", func(st *status) bool {
		reason, _ := degraded(st)
		return reason == "RevisionGone"
	}))
	assert.That(t, st.Phase == v1alpha1.RolloutInvalid && strings.Contains(st.Message, "there is no ConfigMap "+first.Name),
		"%s: %s", st.Phase, st.Message)
	s.same("still run the first revision", s.those(runs, first), s.fleet.Names())

	s.plugin(0, "rollout", "unpin", r.name, "--yes")
	assert.Equal(t, r.complete(6), second, "the content of revision 6 is the template's")
	s.same("run the second revision", s.those(runs, second), s.fleet.Names())
}

// health returns what GitOps controllers make of an object: kstatus and Argo
// CD.
func (s *scenario) health(kind, name string) (kstatus, argo string) {
	s.t.Helper()
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	s.do(kube.Get(s.t.Context(), client.ObjectKey{Name: name}, o))
	data, err := o.MarshalJSON()
	s.do(err)
	judge := exec.CommandContext(s.t.Context(), filepath.Join(root, "bin/tools/object-health"), filepath.Join(root, "config/gitops/argocd/health.lua"))
	judge.Stdin = bytes.NewReader(data)
	var said struct {
		Kstatus, Argo struct{ Status, Message string }
	}
	out, err := judge.CombinedOutput()
	if err == nil {
		err = json.Unmarshal(out, &said)
	}

	assert.Must(s.t, err == nil, "%v: %s", err, out)

	return said.Kstatus.Status, said.Argo.Status
}

// judged waits until both judge an object so.
func (s *scenario) judged(kind, name, kstatus, argo string) {
	s.t.Helper()
	s.until(fmt.Sprintf("%s %s is %s and %s", kind, name, kstatus, argo), func() (string, bool) {
		k, a := s.health(kind, name)
		return k + ", " + a, k == kstatus && a == argo
	})
}

func TestGitOpsControllersSeeRolloutsAndNodesAsTheyAre(t *testing.T) {
	t.Parallel()
	s := play(t, "judged", 3, faulty("crashloop,field=maxPods:103"))
	r := s.roll("maxPods: 101", `
strategy: {maxUnavailable: 100%, steps: [{nodes: 1}, {pause: {}}, {nodes: 100%}]}
failurePolicy: {maxFailures: 1}
`)
	rollout := func(kstatus, argo string) {
		t.Helper()
		s.judged("NodeConfigRollout", r.name, kstatus, argo)
	}
	rollout("InProgress", "Progressing")
	r.await(at(1, v1alpha1.RolloutAwaitingApproval))
	rollout("InProgress", "Suspended")
	r.approve(1, 2)
	on := func() string {
		given := s.those(gives, r.object().Status.UpdateRevision.ConfigMapRef)
		assert.Must(t, len(given) != 0, "no node has it")
		return given[0]
	}
	r.complete(1)
	rollout("Current", "Healthy")
	s.judged("NodeConfig", on(), "Current", "Healthy")

	r.edit(func(s *v1alpha1.NodeConfigRolloutSpec) { s.Frozen = true })
	rollout("InProgress", "Suspended")
	r.edit(func(s *v1alpha1.NodeConfigRolloutSpec) { // with a trial that still runs when it is judged
		s.Trial = &v1alpha1.TrialTerms{ConfigTrialDuration: &metav1.Duration{Duration: time.Hour}}
	})
	r.push("maxPods: 102")
	rollout("InProgress", "Suspended")
	r.edit(func(s *v1alpha1.NodeConfigRolloutSpec) { s.Frozen = false })
	r.await(that("a node is on trial", func(st *status) bool { return st.Nodes.Trial > 0 }))
	s.judged("NodeConfig", on(), "InProgress", "Progressing")
	r.edit(func(s *v1alpha1.NodeConfigRolloutSpec) { s.Trial = nil })
	r.push("maxPods: 104")
	r.await(at(3, v1alpha1.RolloutAwaitingApproval))
	r.edit(func(s *v1alpha1.NodeConfigRolloutSpec) { s.Paused = true })
	rollout("InProgress", "Suspended")
	r.edit(func(s *v1alpha1.NodeConfigRolloutSpec) { s.Paused = false })

	r.push("maxPods: 103")
	r.await(at(4, v1alpha1.RolloutHalted))
	rollout("Failed", "Degraded")
	s.judged("NodeConfig", on(), "Failed", "Degraded")

	r.edit(func(s *v1alpha1.NodeConfigRolloutSpec) {
		s.Template = v1alpha1.RolloutTemplate{ConfigMapRef: &v1alpha1.TemplateConfigMap{Namespace: v1alpha1.SystemNamespace, Name: "there-is-none"}}
	})
	r.await(at(4, v1alpha1.RolloutInvalid))
	rollout("Failed", "Degraded")
}
