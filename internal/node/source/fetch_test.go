// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestReferenceToMissingObjectIsInvalid(t *testing.T) {
	node, name := newName("node"), newName("cm")
	assign(t, node, map[string]any{"configMapRef": map[string]any{"namespace": v1alpha1.SystemNamespace, "name": name, "uid": "6d1e"}})
	s := startSource(t, newClient(t, nodeKubeconfig(t, node)), node, &disk{})
	a := awaitAnswer(t, s, "the verdict", kind(trial.Invalid))
	assert.Equal(t, a.Cause, "referenced ConfigMap evenkeel-system/"+name+" not found")
	cm := createConfigMap(t, v1alpha1.SystemNamespace, name, false, map[string]string{"kubelet": kubelet110})
	a = awaitAnswer(t, s, "the object that came after", cause(trial.Invalid, "names another object"))
	assert.Equal(t, a.Cause, "invalid NodeConfigSource, uid 6d1e names another object than ConfigMap evenkeel-system/"+name+", whose uid is "+string(cm.UID))
}

func TestCheckpointedUIDUnderAnotherNameIsInvalidWithoutRequest(t *testing.T) {
	node, cm, other := newName("node"), newConfigMap(t), newConfigMap(t)
	raw := asAdmin(t, request{verb: "GET", gv: coreV1, namespace: other.Namespace, resource: "configmaps", name: other.Name})
	ref := refTo(cm)
	ref["configMapRef"].(map[string]any)["uid"] = other.UID
	assign(t, node, ref)
	p := newProxy(t, node)
	s := startSource(t, newClient(t, p.Kubeconfig), node, &disk{checkpoints: map[string][]byte{string(other.UID): raw}})
	awaitAnswer(t, s, "the verdict", cause(trial.Invalid,
		"uid "+string(other.UID)+" names another object: ConfigMap evenkeel-system/"+other.Name+", not evenkeel-system/"+cm.Name))
	assert.Equal(t, p.count("configmaps"), 0, "requests for ConfigMaps")
}

func TestAssignedSHA256MustMatchPayload(t *testing.T) {
	node, cm := newName("node"), newConfigMap(t)
	ref := refTo(cm)
	ref["configMapRef"].(map[string]any)["sha256"] = strings.Repeat("0", 64)
	assign(t, node, ref)
	s := startSource(t, newClient(t, nodeKubeconfig(t, node)), node, &disk{})
	digest := payload.Digest("kubelet", []byte(kubelet110))
	awaitAnswer(t, s, "the verdict", cause(trial.Invalid, "its sha256 is "+digest+", not 0000"))
	ref["configMapRef"].(map[string]any)["sha256"] = digest
	assign(t, node, ref)
	awaitAnswer(t, s, "the right digest", kind(trial.Assigned))
}

func TestChangedContentOfRecordedUIDIsInvalidUntilRestored(t *testing.T) {
	node, cm := newName("node"), newConfigMap(t)
	recorded := payload.Digest("kubelet", []byte(kubelet110))
	edited := strings.Replace(kubelet110, "110", "120", 1)
	editConfigMap(t, cm, map[string]any{"data": map[string]string{"kubelet": edited}})
	assign(t, node, refTo(cm))
	s := startSource(t, newClient(t, nodeKubeconfig(t, node)), node, &disk{payloads: map[string]string{string(cm.UID): recorded}})
	a := awaitAnswer(t, s, "the verdict", kind(trial.Invalid))
	want := "ConfigMap evenkeel-system/" + cm.Name + " (UID: " + string(cm.UID) + ") was changed: this node recorded payload " + recorded +
		" for that UID, but now it is " + payload.Digest("kubelet", []byte(edited)) + "; create a new ConfigMap to change it"
	assert.That(t, a.Cause == want && a.Reason == v1alpha1.ReasonObjectChanged, "cause %q, reason %q, want %q", a.Cause, a.Reason, want)
	editConfigMap(t, cm, map[string]any{"data": map[string]string{"kubelet": kubelet110}})
	a = awaitAnswer(t, s, "the content to be back", kind(trial.Assigned))
	assert.That(t, a.Reason == "" && a.Payload.SHA256 == recorded, "answer %+v, want the payload on record", a)
}

func TestUndecodablePayloadIsAssigned(t *testing.T) {
	node := newName("node")
	cm := createConfigMap(t, v1alpha1.SystemNamespace, newName("cm"), false, map[string]string{"kubelet": "{{"})
	assign(t, node, refTo(cm))
	s := startSource(t, newClient(t, nodeKubeconfig(t, node)), node, &disk{})
	a := awaitAnswer(t, s, "the answer", kind(trial.Assigned))
	var refused *payload.Error
	assert.That(t, errors.As(a.PayloadErr, &refused) && strings.HasPrefix(refused.Message, "ConfigMap "+cm.Namespace+"/"+cm.Name+": "),
		"payload error %v, want one that names the ConfigMap", a.PayloadErr)
	assert.That(t, a.ConfigMap != nil && a.Payload.SHA256 == "", "answer %+v, want the object and no payload", a)
}

func TestForbiddenNamespaceIsInvalidUntilGranted(t *testing.T) {
	node, namespace := newName("node"), newName("closed")
	asAdmin(t, request{verb: "POST", gv: coreV1, resource: "namespaces", body: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": namespace}}})
	cm := createConfigMap(t, namespace, "cm", false, map[string]string{"kubelet": kubelet110})
	assign(t, node, refTo(cm))
	s := startSource(t, newClient(t, nodeKubeconfig(t, node)), node, &disk{})
	a := awaitAnswer(t, s, "the refusal", func(a Answer) bool { return a.Config.Revision != "" })
	want := "ConfigMap " + namespace + "/cm cannot be read: forbidden to this node (403): grant the group system:nodes get, list and watch on configmaps in namespace " + namespace
	assert.That(t, a.Kind == trial.Invalid && a.Cause == want, "answer %+v, want Invalid: %q", a, want)
	allow(t, namespace, "Group", "system:nodes")
	awaitAnswer(t, s, "the grant", kind(trial.Assigned))
}

func TestNewestAssignmentWinsDuringRetries(t *testing.T) {
	node, bad, good := newName("node"), newConfigMap(t), newConfigMap(t)
	p := newProxy(t, node)
	p.fail(of("/configmaps/"+bad.Name, 503))
	assign(t, node, refTo(bad))
	s := startSource(t, newClient(t, p.Kubeconfig), node, &disk{})
	awaitAnswer(t, s, "the failure", cause(trial.Unanswered, "ConfigMap evenkeel-system/"+bad.Name+" cannot be read: the API server failed (503): made up; retrying"))
	await(t, "a retry", func() int { return p.count("/configmaps/" + bad.Name) }, func(n int) bool { return n >= 2 })
	assign(t, node, refTo(good))
	awaitAnswer(t, s, "the newest", func(a Answer) bool { return a.Kind == trial.Assigned && string(a.Config.UID) == string(good.UID) })

	p.fail(of("/configmaps/"+bad.Name, hang))
	assign(t, node, refTo(bad))
	await(t, "a download that hangs", func() int { return p.count("/configmaps/" + bad.Name) }, func(n int) bool { return n >= 3 })
	assign(t, node, map[string]any{"local": map[string]any{}})
	awaitAnswer(t, s, "nil", kind(trial.Nil))
}

func TestEditAndDeletionOfAssignedObjectAreOnlyNotices(t *testing.T) {
	_, cm, _, s := assigned(t)
	first := s.Current()
	notice := func(want string) {
		t.Helper()
		a := awaitAnswer(t, s, "the notice "+want, func(a Answer) bool { return a.Notice == want })
		assert.That(t, a.Kind == trial.Assigned && a.Payload.SHA256 == first.Payload.SHA256 && string(a.ConfigMap) == string(first.ConfigMap), "with the notice came %+v, want the same payload as before", a)
	}
	object := "ConfigMap evenkeel-system/" + cm.Name
	edit := func(data map[string]any) { editConfigMap(t, cm, map[string]any{"data": data}) }

	editConfigMap(t, cm, map[string]any{"metadata": map[string]any{"labels": map[string]string{"a": "b"}}})
	edit(map[string]any{"kubelet": "edited"})
	notice(object + " was edited after this node adopted it; the node keeps the checkpointed content: create a new ConfigMap to change it")
	edit(map[string]any{"kubelet": kubelet110})
	notice("")
	edit(map[string]any{"other": "key"})
	notice(object + " was edited after this node adopted it; the node keeps the checkpointed content: create a new ConfigMap to change it")
	deleteConfigMap(t, cm)
	notice(object + " was deleted after this node adopted it; the node keeps the checkpointed content")
	again := createConfigMap(t, cm.Namespace, cm.Name, false, map[string]string{"kubelet": kubelet110})
	notice(object + " was replaced by an object with uid " + string(again.UID) + "; the node keeps the checkpointed content: assign the new uid to use it")
}

func TestImmutableObjectIsNotWatched(t *testing.T) {
	node := newName("node")
	cm := createConfigMap(t, v1alpha1.SystemNamespace, newName("cm"), true, map[string]string{"kubelet": kubelet110})
	p := newProxy(t, node)
	assign(t, node, refTo(cm))
	records := &disk{checkpoints: map[string][]byte{}}
	s := startSource(t, newClient(t, p.Kubeconfig), node, records)
	a := awaitAnswer(t, s, "the assignment", kind(trial.Assigned))
	records.put(string(cm.UID), a.ConfigMap)
	q := newProxy(t, node)
	again := startSource(t, newClient(t, q.Kubeconfig), node, records)
	awaitAnswer(t, again, "the checkpoint", kind(trial.Assigned))
	deleteConfigMap(t, cm)
	// Later answers follow the deletion.
	assign(t, node, map[string]any{"local": map[string]any{}})
	awaitAnswer(t, s, "nil", kind(trial.Nil))
	awaitAnswer(t, again, "nil", kind(trial.Nil))
	n, m := p.count("configmaps", "watch"), q.count("configmaps")
	assert.That(t, n == 0 && m == 0, "%d watches after the download, %d requests with the checkpoint, want none", n, m)
}

func TestSameComparesAnswers(t *testing.T) {
	a := Answer{Intent: trial.Intent{Kind: trial.Assigned}, Payload: payload.Payload{SHA256: "a"}, PayloadErr: errors.New("no")}
	b := a
	b.PayloadErr = errors.New("no")
	assert.That(t, same(a, b), "equal answers differ")
	for name, edit := range map[string]func(*Answer){
		"kind":    func(a *Answer) { a.Kind = trial.Nil },
		"payload": func(a *Answer) { a.Payload.SHA256 = "b" },
		"error":   func(a *Answer) { a.PayloadErr = nil },
		"object":  func(a *Answer) { a.ConfigMap = json.RawMessage("{}") },
		"notice":  func(a *Answer) { a.Notice = "edited" },
		"revoked": func(a *Answer) { a.Revoked = &[]types.UID{} },
	} {
		c := a
		edit(&c)
		assert.That(t, !same(a, c), "answers with different %s are equal", name)
	}
}

// An API server that has just started refuses what it accepts a moment later:
// the start of the node waits for that.
func TestFirstWaitsForTheEndOfARefusal(t *testing.T) {
	for _, status := range []int{401, 403} {
		node, cm := newName("node"), newConfigMap(t)
		assign(t, node, refTo(cm))
		p := newProxy(t, node)
		p.fail(of("/configmaps/", status))
		s := startSource(t, newClient(t, p.Kubeconfig), node, &disk{})
		awaitAnswer(t, s, "the refusal", kind(trial.Invalid))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		assert.Equal(t, s.First(ctx).Kind, trial.Invalid, "what is known when nothing better came in time")
		p.fail(nil)
		assert.Equal(t, s.First(t.Context()).Kind, trial.Assigned, status)
	}
}

// by is an assignment by a controller: an attempt at a revision, in its term.
func by(ref map[string]any, attempt, term int64) map[string]any {
	r := map[string]any{"name": "workers", "revision": 1, "attempt": attempt, "assignedAt": "2030-01-01T00:00:00Z"}
	if term != 0 {
		r["term"] = term
	}

	return map[string]any{"configMapRef": ref["configMapRef"], "rolloutRef": r}
}

func TestStaleAssignmentIsInvalid(t *testing.T) {
	for name, test := range map[string]struct {
		annotations   map[string]any
		attempt, term int64
		adopted       int64 // the attempt that the node has adopted; 0: none
		kept          bool  // the node has a checkpoint
		want          string
	}{
		"no term anywhere":      {nil, 1, 0, 0, true, ""},
		"the leader's term":     {map[string]any{v1alpha1.AnnotationTerm: "3"}, 1, 3, 0, true, ""},
		"a newer one":           {map[string]any{v1alpha1.AnnotationTerm: "3"}, 1, 4, 0, false, ""},
		"a former one":          {map[string]any{v1alpha1.AnnotationTerm: "4"}, 1, 3, 0, false, "ConfigMap evenkeel-system/NAME was assigned by a controller that is no longer the leader (term 3, now 4); the leader assigns it again if it still applies"},
		"a former one, kept":    {map[string]any{v1alpha1.AnnotationTerm: "4"}, 1, 3, 0, true, "(term 3, now 4)"},
		"a former one, a retry": {map[string]any{v1alpha1.AnnotationTerm: "4"}, 2, 3, 1, true, "(term 3, now 4)"},
		"an old controller's":   {map[string]any{v1alpha1.AnnotationTerm: "4"}, 1, 0, 0, true, ""},
		"an invalid term":       {map[string]any{v1alpha1.AnnotationTerm: "99999999999999999999"}, 1, 3, 0, true, ""},
		"stopped":               {map[string]any{v1alpha1.AnnotationStopped: "Aborted", v1alpha1.AnnotationStoppedAttempt: "1"}, 1, 3, 0, true, "ConfigMap evenkeel-system/NAME is a stopped revision of rollout workers (Aborted)"},
		"stopped by an old one": {map[string]any{v1alpha1.AnnotationStopped: "Aborted"}, 2, 0, 0, false, "is a stopped revision of rollout workers (Aborted)"},
		"stopped, and retried":  {map[string]any{v1alpha1.AnnotationStopped: "Aborted", v1alpha1.AnnotationStoppedAttempt: "1"}, 2, 3, 0, true, ""},
		"adopted before":        {map[string]any{v1alpha1.AnnotationTerm: "4", v1alpha1.AnnotationStopped: "Aborted"}, 1, 3, 1, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			node, cm := newName("node"), newConfigMap(t)
			raw := asAdmin(t, request{verb: "GET", gv: coreV1, namespace: cm.Namespace, resource: "configmaps", name: cm.Name})
			if test.annotations != nil {
				editConfigMap(t, cm, map[string]any{"metadata": map[string]any{"annotations": test.annotations}})
			}

			assign(t, node, by(refTo(cm), test.attempt, test.term))
			d := &disk{checkpoints: map[string][]byte{}, adopted: map[string]int64{}}
			if test.kept {
				d.checkpoints[string(cm.UID)] = raw
			}
			if test.adopted != 0 {
				d.adopted[string(cm.UID)] = test.adopted
			}

			p := newProxy(t, node)
			s := startSource(t, newClient(t, p.Kubeconfig), node, d)
			if test.want == "" {
				a := awaitAnswer(t, s, "the assignment", kind(trial.Assigned))
				assert.That(t, a.Reason == "" && (a.ConfigMap == nil) == test.kept, "answer %+v", a)
			} else if a := awaitAnswer(t, s, "the refusal", cause(trial.Invalid, strings.ReplaceAll(test.want, "NAME", cm.Name))); a.Reason != v1alpha1.ReasonStaleAssignment || a.ConfigMap != nil && test.kept {
				t.Errorf("answer %+v", a)
			}

			asked := p.count("configmaps/") > 0
			assert.That(t, asked != (test.adopted >= test.attempt), "%d requests for the ConfigMap", p.count("configmaps/"))
		})
	}
}

func TestRolloutAssignmentUsesCheckpointOfDeletedObject(t *testing.T) {
	for name, kept := range map[string]bool{"on disk": true, "not on disk": false} {
		node, cm := newName("node"), newConfigMap(t)
		d := &disk{checkpoints: map[string][]byte{}}
		if kept {
			d.checkpoints[string(cm.UID)] = asAdmin(t, request{verb: "GET", gv: coreV1, namespace: cm.Namespace, resource: "configmaps", name: cm.Name})
		}

		deleteConfigMap(t, cm)
		assign(t, node, by(refTo(cm), 1, 3))
		s := startSource(t, newClient(t, nodeKubeconfig(t, node)), node, d)
		if !kept {
			awaitAnswer(t, s, "the refusal", cause(trial.Invalid, "not found"))
			continue
		}

		a := awaitAnswer(t, s, "the assignment", kind(trial.Assigned))
		assert.That(t, a.Payload.SHA256 != "" && strings.Contains(a.Notice, "was deleted"), "%s: answer %+v", name, a)
	}
}

func TestStaleAssignmentIsAcceptedWhenAssignedAgain(t *testing.T) {
	node, cm := newName("node"), newConfigMap(t)
	editConfigMap(t, cm, map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1alpha1.AnnotationTerm: "4"}}})
	assign(t, node, by(refTo(cm), 1, 3))
	s := startSource(t, newClient(t, nodeKubeconfig(t, node)), node, &disk{})
	awaitAnswer(t, s, "the refusal", kind(trial.Invalid))
	assign(t, node, by(refTo(cm), 1, 4))
	awaitAnswer(t, s, "the assignment", kind(trial.Assigned))

	editConfigMap(t, cm, map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1alpha1.AnnotationStopped: "Aborted"}}})
	assign(t, node, by(refTo(cm), 2, 4))
	awaitAnswer(t, s, "the refusal", kind(trial.Invalid))
	editConfigMap(t, cm, map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1alpha1.AnnotationStopped: nil}}})
	awaitAnswer(t, s, "the retry", kind(trial.Assigned))

	// An assignment by a person applies, whatever a rollout did with the
	// revision.
	editConfigMap(t, cm, map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1alpha1.AnnotationStopped: "Aborted"}}})
	assign(t, node, by(refTo(cm), 3, 4))
	awaitAnswer(t, s, "the refusal", kind(trial.Invalid))
	assign(t, node, refTo(cm))
	awaitAnswer(t, s, "a person's", kind(trial.Assigned))
}

func TestOnlyAdoptedAssignmentIsAnsweredWithoutAPI(t *testing.T) {
	node, cm := newName("node"), newConfigMap(t)
	raw := asAdmin(t, request{verb: "GET", gv: coreV1, namespace: cm.Namespace, resource: "configmaps", name: cm.Name})
	assign(t, node, by(refTo(cm), 1, 3))
	p := newProxy(t, node)
	p.fail(of("/configmaps/", 503))
	d := &disk{checkpoints: map[string][]byte{string(cm.UID): raw}, adopted: map[string]int64{}}
	s := startSource(t, newClient(t, p.Kubeconfig), node, d)
	awaitAnswer(t, s, "that it cannot be told", cause(trial.Unanswered, "ConfigMap evenkeel-system/"+cm.Name+" cannot be read"))
	d.mu.Lock()
	d.adopted[string(cm.UID)] = 1
	d.mu.Unlock()
	s.Refresh()
	awaitAnswer(t, s, "what was adopted", kind(trial.Assigned))
}

var (
	rbacV1 = schema.GroupVersion{Group: "rbac.authorization.k8s.io", Version: "v1"}
	crdV1  = schema.GroupVersion{Group: "apiextensions.k8s.io", Version: "v1"}
)

// sources are specs, and their classification by validate.
var sources = []struct {
	name   string
	source string // JSON
	kind   trial.IntentKind
	cause  string
}{
	{"absent", `null`, trial.Unassigned, ""},
	{"local", `{"local":{}}`, trial.Nil, ""},
	{"local by a rollout", `{"local":{},"rolloutRef":{"name":"a"}}`, trial.Nil, ""},
	{"a reference", `{"configMapRef":{"namespace":"a","name":"b.c","uid":"d-e"}}`, trial.Assigned, ""},
	{"a reference with a digest", `{"configMapRef":{"namespace":"a","name":"b","uid":"c","sha256":"` + strings.Repeat("a", 64) + `"}}`, trial.Assigned, ""},
	{"no subfield", `{}`, trial.Invalid, "invalid NodeConfigSource, exactly one subfield must be non-nil, but all were nil"},
	{"only a rollout", `{"rolloutRef":{"name":"a"}}`, trial.Invalid, "invalid NodeConfigSource, exactly one subfield must be non-nil, but all were nil"},
	{"two subfields", `{"local":{},"configMapRef":{"namespace":"a","name":"b","uid":"c"}}`, trial.Invalid, "invalid NodeConfigSource, exactly one subfield must be non-nil, but 2 were set: local and configMapRef"},
	{"no namespace", `{"configMapRef":{"name":"b","uid":"c"}}`, trial.Invalid, "invalid NodeConfigSource, configMapRef.namespace must be non-empty"},
	{"no name", `{"configMapRef":{"namespace":"a","uid":"c"}}`, trial.Invalid, "invalid NodeConfigSource, configMapRef.name must be non-empty"},
	{"no uid", `{"configMapRef":{"namespace":"a","name":"b"}}`, trial.Invalid, "invalid NodeConfigSource, configMapRef.uid must be non-empty"},
	{"a path as namespace", `{"configMapRef":{"namespace":"../a","name":"b","uid":"c"}}`, trial.Invalid, `invalid NodeConfigSource, configMapRef.namespace must be a DNS label of lower-case letters, digits and dashes, but is "../a"`},
	{"a path as name", `{"configMapRef":{"namespace":"a","name":"../b","uid":"c"}}`, trial.Invalid, `invalid NodeConfigSource, configMapRef.name must be a DNS name of lower-case letters, digits, dashes and dots, but is "../b"`},
	{"two dots as name", `{"configMapRef":{"namespace":"a","name":"..","uid":"c"}}`, trial.Invalid, `invalid NodeConfigSource, configMapRef.name must be a DNS name of lower-case letters, digits, dashes and dots, but is ".."`},
	{"a path as uid", `{"configMapRef":{"namespace":"a","name":"b","uid":"../../etc"}}`, trial.Invalid, `invalid NodeConfigSource, configMapRef.uid must be letters, digits, dots, dashes and underscores, beginning with a letter or digit, but is "../../etc"`},
	{"an absolute path as uid", `{"configMapRef":{"namespace":"a","name":"b","uid":"/etc"}}`, trial.Invalid, `invalid NodeConfigSource, configMapRef.uid must be letters, digits, dots, dashes and underscores, beginning with a letter or digit, but is "/etc"`},
	{"half a digest", `{"configMapRef":{"namespace":"a","name":"b","uid":"c","sha256":"abc"}}`, trial.Invalid, `invalid NodeConfigSource, configMapRef.sha256 must be 64 lower-case hexadecimal digits, but is "abc"`},
}

// An older CRD may accept what the present one refuses, so a source classifies
// whatever it sees.
func TestSpecIsClassifiedByTheProposalsRules(t *testing.T) {
	for _, c := range sources {
		nc := &v1alpha1.NodeConfig{}
		assert.NoError(t, json.Unmarshal([]byte(`{"spec":{"configSource":`+c.source+`}}`), nc))
		kind, cause := validate(nc.Spec.ConfigSource)
		assert.That(t, kind == c.kind && cause == c.cause, "%s: got %v, %q, want %v, %q", c.name, kind, cause, c.kind, c.cause)
		s := NewNodeConfigSource(admin, "node", &disk{}, quiet())
		s.see(nc, nil)
		a, known := s.compose()
		assert.That(t, known != (c.kind == trial.Assigned) && (!known || a.Kind == c.kind && (c.cause == "" || a.Cause == c.cause)),
			"%s: the answer is %+v, %t", c.name, a, known)
	}
}

func TestLongNamesAreInvalid(t *testing.T) {
	long := strings.Repeat("a", 600)
	for _, ref := range []v1alpha1.ConfigMapReference{
		{Namespace: long, Name: "b", UID: "c"}, {Namespace: "a", Name: long, UID: "c"}, {Namespace: "a", Name: "b", UID: types.UID(long)},
	} {
		kind, cause := validate(&v1alpha1.NodeConfigSource{ConfigMapRef: &ref})
		assert.That(t, kind == trial.Invalid && len(cause) <= 700, "%+v: got %v, %q", ref, kind, cause)
	}
}
