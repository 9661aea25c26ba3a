// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// invalid waits until the rollout is Invalid, with these words in its message.
func (r *rollout) invalid(words ...string) {
	r.t.Helper()
	st := r.await(that("it is invalid", func(st *status) bool { return st.Phase == v1alpha1.RolloutInvalid }))
	x := condition(st, v1alpha1.ConditionDegraded)
	assert.That(r.t, x.Status == "True" && x.Reason == "TemplateInvalid", "Degraded is %+v", x)
	for _, w := range words {
		assert.That(r.t, strings.Contains(st.Message, w), "it does not say %q but: %s", w, st.Message)
	}
}

func TestAnInvalidTemplateIsReportedAndChangesNothing(t *testing.T) {
	t.Parallel()
	s := play(t, "badinput", 3)
	r := s.roll("maxPods: 101", `strategy: {maxUnavailable: 100%, steps: [{nodes: 100%}]}`)
	good := r.complete(1)
	before := s.nodeConfigs()
	clash := s.template("maxPods: 104")
	content, err := fleet.ContentOf(clash, nil)
	s.do(err)
	clashName := fleet.RevisionName(r.as, content.SHA256)
	s.do(kube.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: clashName}}))
	s.do(kube.Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: "badinput-typo"}, Data: map[string]string{"kublet": "maxPods: 3\n"},
	}))
	ref := func(namespace, name string) v1alpha1.RolloutTemplate {
		return v1alpha1.RolloutTemplate{ConfigMapRef: &v1alpha1.TemplateConfigMap{Namespace: namespace, Name: name}}
	}
	for _, c := range []struct {
		what     string
		template v1alpha1.RolloutTemplate
		words    []string
	}{
		{"a relative path", s.template("resolvConf: resolv.conf"), []string{
			`spec.template.kubelet: `, `resolvConf is the relative path "resolv.conf"`, "nothing changes until the template is corrected"}},
		{"more than a ConfigMap can hold", s.template("kubeletCgroups: /" + strings.Repeat("a", 1<<20)), []string{
			"spec.template.kubelet: ", "nothing changes until the template is corrected"}},
		{"what is nested so deep that it would grow to gigabytes", s.template("registerWithTaints: " + strings.Repeat("[", 9000) + strings.Repeat("]", 9000)), []string{
			"spec.template.kubelet: nested more than 50 levels deep", "nothing changes until the template is corrected"}},
		{"a ConfigMap that is not there", ref("evenkeel-system", "badinput-nowhere"), []string{
			"ConfigMap evenkeel-system/badinput-nowhere does not exist: create it, or name another one; nothing changes until then"}},
		{"a ConfigMap without the key", ref("evenkeel-system", "badinput-typo"), []string{
			"ConfigMap evenkeel-system/badinput-typo", `"kublet"`, "nothing changes until the template is corrected"}},
		{"a ConfigMap of another namespace", ref("kube-system", "secret"), []string{
			"ConfigMap kube-system/secret cannot be read", "system:serviceaccount:evenkeel-system:evenkeel-controller", "forbidden",
			"grant the controller's ServiceAccount get, list and watch on it"}},
		{"a name that somebody else's ConfigMap has", clash, []string{
			"ConfigMap evenkeel-system/" + clashName + " exists", "it is not a revision of this rollout; delete it, or give the rollout another name"}},
	} {
		r.edit(func(spec *v1alpha1.NodeConfigRolloutSpec) { spec.Template = c.template })
		r.until(c.what+" makes it invalid", func() (string, bool) {
			st := r.object().Status
			return st.Message, st.ObservedGeneration == r.object().Generation && st.Phase == v1alpha1.RolloutInvalid
		})
		r.invalid(c.words...)
		st := r.looked()
		u := st.UpdateRevision
		assert.That(t, u.Number == 1 && u.ConfigMapRef == good && st.History[0].Outcome == v1alpha1.OutcomeSucceeded,
			"%s: the revision is %+v, the history %+v", c.what, u, st.History)
		out := s.plugin(2, "rollout", "status", r.as)
		assert.That(t, strings.Contains(out, c.words[0]), "%s: rollout status does not say %q but:\n%s", c.what, c.words[0], out)
	}

	for name, was := range before {
		is := s.nodeConfig(name)
		assert.That(t, is.Generation == was.Generation, "%s was written to: %+v", name, is.Spec)
	}

	s.removeConfigMap(clashName)
	r.looked() // the controller checks for the obstacle only at intervals; this makes it check now
	s.same("run the second revision", s.running(r.complete(2)), s.nodes(0, 3))
}
