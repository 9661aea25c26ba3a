package fleet_test

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet/policy"
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
	content, err := policy.ContentOf(clash, nil)
	s.do(err)
	clashName := policy.RevisionName(r.as, content.SHA256)
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
			"ConfigMap kube-system/secret cannot be read", "forbidden", "grant the controller's ServiceAccount get, list and watch on it"}},
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
		assert.That(t, u.Number == 1 && u.ConfigMapRef == good, "%s: the revision is %+v", c.what, u)
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

func TestASelectorWithoutNodesIsReportedAndServesLaterNodes(t *testing.T) {
	t.Parallel()
	s := play(t, "nobody", 1)
	r := s.roll("maxPods: 101", `
nodeSelector: {matchLabels: {nobody: has-this}}
strategy: {maxUnavailable: 100%, steps: [{nodes: 100%}]}
`)
	st := r.await(that("there are no nodes", func(st *status) bool { return st.Phase == v1alpha1.RolloutNoNodes }))
	want := "the selector matches no node: compare spec.nodeSelector with kubectl get nodes --show-labels"
	assert.That(t, st.Message == want, "it says %q, not %q", st.Message, want)
	s.label("nobody", "has-this", s.node(0))
	r.await(at(1, v1alpha1.RolloutComplete), updated(1))
}

// answers writes what an agent of an older version would have: neither its version, nor where it takes its source from.
func (s *scenario) answers(nc *v1alpha1.NodeConfig) {
	s.t.Helper()
	now := metav1.Now()
	st := &nc.Status
	*st = v1alpha1.NodeConfigStatus{ObservedGeneration: nc.Generation, Conditions: []metav1.Condition{{
		Type: v1alpha1.ConditionConfigOK, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAllChecksPassed, LastTransitionTime: now,
	}}}
	if source := nc.Spec.ConfigSource; source != nil && source.ConfigMapRef != nil {
		ref := source.ConfigMapRef
		runs := v1alpha1.ConfigRevision{Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID, SHA256: ref.SHA256}
		st.Active, st.LastKnownGood = &runs, &v1alpha1.LastKnownGoodConfig{ConfigRevision: runs, Since: &now}
	}
	s.do(kube.Status().Update(s.t.Context(), nc))
}

func TestAnAgentOfAnOlderVersionIsServed(t *testing.T) {
	t.Parallel()
	s := play(t, "oldagent", 3, faulty("silent,node=oldagent-2"))
	old := s.node(2)
	r := s.roll("maxPods: 101", `strategy: {maxUnavailable: 100%, steps: [{nodes: 100%}]}`)
	r.await(updated(2), that("it has not said anything", func(st *status) bool { return st.Nodes.Stale == 1 }))
	s.answers(s.nodeConfig(old))
	s.until("it is assigned the revision", func() (string, bool) { return "not yet", s.nodeConfig(old).Spec.ConfigSource != nil })
	s.answers(s.nodeConfig(old))
	st := r.await(at(1, v1alpha1.RolloutComplete), updated(3))
	assert.That(t, st.Nodes.Stale == 0 && st.Nodes.Failed == 0, "the counts are %+v", st.Nodes)
}

// patch changes an object of any kind.
func (s *scenario) patch(gvk schema.GroupVersionKind, namespace, name, patch string) {
	s.t.Helper()
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(gvk)
	o.SetNamespace(namespace)
	o.SetName(name)
	s.do(kube.Patch(s.t.Context(), o, client.RawPatch(types.JSONPatchType, []byte(patch))))
}

// deploy applies the manifests of a directory again.
func (s *scenario) deploy(dir string) {
	s.t.Helper()
	s.do(cluster.Apply(s.t.Context(), filepath.Join(root, dir)))
}

func TestAControllerWithoutPermissionForRevisionsReportsIt(t *testing.T) { // it is everybody's right that is gone
	s := play(t, "norights", 2)
	defer s.deploy("config/controller")
	s.patch(schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role"}, v1alpha1.SystemNamespace, "evenkeel-controller",
		`[{"op":"replace","path":"/rules/0/verbs","value":["get","list","watch"]}]`)
	r := s.roll("maxPods: 101", `strategy: {maxUnavailable: 100%, steps: [{nodes: 100%}]}`)
	r.invalid("cannot create ConfigMap evenkeel-system/norights-", "forbidden", "kubectl apply -f install.yaml")
	s.same("are assigned anything", s.those(func(nc *v1alpha1.NodeConfig) bool { return nc.Spec.ConfigSource != nil }), nil)
	s.deploy("config/controller")
	r.looked()
	r.await(at(1, v1alpha1.RolloutComplete), updated(2))
}

const olderCRD = "the API server's CRD is older than this controller: kubectl apply -f install.yaml (unknown field"

const crdSchema = "/spec/versions/0/schema/openAPIV3Schema/properties"

var crd = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

func TestAnOutdatedCRDOfNodeConfigsIsReported(t *testing.T) { // it is everybody's
	s := play(t, "oldcrd", 2)
	defer s.deploy("config/api")
	r := s.roll("maxPods: 101", `strategy: {maxUnavailable: 1, steps: [{nodes: 100%}]}`)
	r.complete(1)
	s.patch(crd, "", "nodeconfigs.evenkeel.dev", `[{"op":"remove","path":"`+crdSchema+`/spec/properties/configSource/properties/rolloutRef/properties/previous"}]`)
	s.until("the API server has taken it up", func() (string, bool) {
		nc := s.nodeConfig(s.node(0))
		nc.Spec.ConfigSource.RolloutRef.Previous = &v1alpha1.PreviousSource{
			ConfigMapRef: *nc.Spec.ConfigSource.ConfigMapRef, Rollout: r.as, Revision: 1, Attempt: 1,
		}
		s.do(kube.Update(t.Context(), nc, client.DryRunAll))
		return "it keeps the field", nc.Spec.ConfigSource.RolloutRef.Previous == nil
	})
	r.push("maxPods: 102")
	r.told("WriteFailed", "cannot patch nodeconfigs.evenkeel.dev/v1alpha1: "+olderCRD)
	for name, nc := range s.nodeConfigs() {
		assert.That(t, nc.Generation == 2, "%s was written to: %+v", name, nc.Spec)
	}
	s.deploy("config/api")
	r.await(at(2, v1alpha1.RolloutComplete), updated(2))
	// While the CRD is replaced, agents cannot see their NodeConfigs, and say so: that they answer none is no flight.
	blind := func(nc *v1alpha1.NodeConfig) bool {
		return nc.Status.ObservedGeneration == 0 && nc.Status.LastKnownGood != nil
	}
	if most := s.most(func(nc *v1alpha1.NodeConfig) bool { return unproven(nc) && !blind(nc) }); most != 1 {
		t.Errorf("%d nodes were in flight at once, of a budget of 1", most)
	}
}

func TestAnOutdatedCRDOfRolloutsIsReportedAndNothingIsAssigned(t *testing.T) { // it is everybody's
	s := play(t, "oldrollouts", 2)
	defer s.deploy("config/api")
	s.patch(crd, "", "nodeconfigrollouts.evenkeel.dev", `[{"op":"remove","path":"`+crdSchema+`/status/properties/startTime"}]`)
	r := s.roll("maxPods: 101", `strategy: {maxUnavailable: 100%, steps: [{nodes: 100%}]}`)
	s.until("the controller says what is wrong", func() (string, bool) {
		said := shared.said(r.as)
		return said, strings.Contains(said, "cannot patch nodeconfigrollouts.evenkeel.dev/v1alpha1 status: "+olderCRD)
	})
	s.until("the controller is not ready", func() (string, bool) {
		answer, err := http.Get(shared.probes + "/readyz")
		s.do(err)
		answer.Body.Close()
		return answer.Status, answer.StatusCode != http.StatusOK
	})
	s.same("are assigned anything", s.those(func(nc *v1alpha1.NodeConfig) bool { return nc.Spec.ConfigSource != nil }), nil)
	s.deploy("config/api")
	r.await(at(1, v1alpha1.RolloutComplete), updated(2))
}
