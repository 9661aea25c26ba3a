// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

const kubelet120 = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 120\n"

// ownOf returns the ConfigMap of a node, in the namespace that all nodes may
// read.
func ownOf(t *testing.T, node string) NodeConfigMap {
	t.Helper()
	return assert.Value(NodeConfigMapOf(v1alpha1.SystemNamespace, node))(t)
}

func createOwn(t *testing.T, node, kubelet string) *corev1.ConfigMap {
	t.Helper()
	own := ownOf(t, node)
	return createConfigMap(t, own.Namespace, own.Name, false, map[string]string{"kubelet": kubelet})
}

func startOwn(t *testing.T, c *Client, own NodeConfigMap, records Checkpoints) *ConfigMapSource {
	t.Helper()
	s := NewConfigMapSource(c, own, records, quiet())
	background(t, s.Run)
	return s
}

// revisionOf returns the revision of an object with a payload.
func revisionOf(cm *corev1.ConfigMap, kubelet string) string {
	return string(cm.UID) + "-" + payload.Digest("kubelet", []byte(kubelet))[:12]
}

func revision(r string) func(Answer) bool {
	return func(a Answer) bool { return a.Kind == trial.Assigned && a.Config.Revision == r }
}

// sameOwn compares answers except for the fields from the NodeConfig.
func sameOwn(a, b Answer) bool {
	a.NodeConfigUID, a.Revoked, b.NodeConfigUID, b.Revoked = "", nil, "", nil
	return same(a, b)
}

// awaitEdit changes the content, and waits for the answer.
func awaitEdit(t *testing.T, s *ConfigMapSource, cm *corev1.ConfigMap, kubelet string) Answer {
	t.Helper()
	editConfigMap(t, cm, map[string]any{"data": map[string]any{"kubelet": kubelet}})
	return awaitAnswer(t, s, "the edit", revision(revisionOf(cm, kubelet)))
}

func TestConfigMapCreateEditDelete(t *testing.T) {
	node := newName("node")
	s := startOwn(t, newClient(t, nodeKubeconfig(t, node)), ownOf(t, node), &disk{})
	nothing := trial.Config{AssignedBy: "ConfigMap evenkeel-system/kubelet-" + node}
	a := s.First(t.Context())
	assert.That(t, a.Kind == trial.Unassigned && a.Config == nothing && a.Generation == 0,
		"without an object the first answer is %+v, want Unassigned, and the object", a)
	cm := createOwn(t, node, kubelet110)
	a = awaitAnswer(t, s, "the object", kind(trial.Assigned))
	want := trial.Config{
		Revision: revisionOf(cm, kubelet110), ConfigRevision: v1alpha1.ConfigRevision{Namespace: "evenkeel-system", Name: "kubelet-" + node, UID: cm.UID, SHA256: payload.Digest("kubelet", []byte(kubelet110))},
		AssignedBy: nothing.AssignedBy,
	}
	assert.NoDiff(t, cmp.Diff(want, a.Config), "the configuration")
	assert.That(t, string(a.Payload.Data) == kubelet110 && a.PayloadErr == nil && a.Generation == 0, "answer %+v, want the payload, and no generation", a)
	a = awaitEdit(t, s, cm, kubelet120)
	assert.That(t, string(a.Payload.Data) == kubelet120 && strings.Contains(string(a.ConfigMap), "maxPods: 120"),
		"answer %+v, want the edited object", a)
	a = awaitEdit(t, s, cm, kubelet110)
	assert.That(t, a.Config == want, "back to the first content it is %+v, want %+v", a.Config, want)

	deleteConfigMap(t, cm)
	a = awaitAnswer(t, s, "the deletion", kind(trial.Unassigned))
	assert.That(t, a.Config == nothing && a.ConfigMap == nil &&
		strings.Contains(a.Cause, " does not exist, and the configuration of this node"),
		"after the deletion %+v, want the object and nothing else", a)
	again := createOwn(t, node, kubelet110)
	a = awaitAnswer(t, s, "the new object", kind(trial.Assigned))
	assert.That(t, a.Config.Revision == revisionOf(again, kubelet110) && again.UID != cm.UID,
		"the same content in a new object is revision %s, want another than %s", a.Config.Revision, want.Revision)
}

func TestFirstWaitsForConfigMapWhoseCheckpointEqualsGet(t *testing.T) {
	node := newName("node")
	cm := createOwn(t, node, kubelet110)
	s := NewConfigMapSource(newClient(t, nodeKubeconfig(t, node)), ownOf(t, node), &disk{}, quiet())
	a := s.Current()
	cause := "ConfigMap evenkeel-system/kubelet-" + node + " cannot be read: no answer from the API server yet"
	assert.That(t, a.Kind == trial.Unanswered && a.Cause == cause, "before it runs the answer is %+v", a)
	background(t, s.Run)
	a = s.First(t.Context())
	assert.That(t, a.Config.Revision == revisionOf(cm, kubelet110), "the first answer is %+v", a)
	var got, want map[string]any
	assert.NoError(t, json.Unmarshal(a.ConfigMap, &got))
	raw := asAdmin(t, request{verb: "GET", gv: coreV1, namespace: cm.Namespace, resource: "configmaps", name: cm.Name})
	assert.NoError(t, json.Unmarshal(raw, &want))
	assert.NoDiff(t, cmp.Diff(want, got), "the checkpoint")
}

func TestConfigMapMetadataEditGivesNoNewAnswer(t *testing.T) {
	node := newName("node")
	cm := createOwn(t, node, kubelet110)
	records := &disk{checkpoints: map[string][]byte{}}
	s := startOwn(t, newClient(t, nodeKubeconfig(t, node)), ownOf(t, node), records)
	before := awaitAnswer(t, s, "the object, and a NodeConfig", func(a Answer) bool { return a.Kind == trial.Assigned && a.NodeConfigUID != "" })
	<-s.Changed()
	// The node now has a checkpoint, which must not change the answer.
	records.put(before.Config.Revision, before.ConfigMap)
	editConfigMap(t, cm, map[string]any{"metadata": map[string]any{"labels": map[string]string{"a": "b"}, "annotations": map[string]string{"c": "d"}}})
	await(t, "the edit to be seen", func() map[string]string { return seenObject(s).Labels }, func(l map[string]string) bool { return l["a"] == "b" })
	deleteConfigMap(t, cm)
	awaitAnswer(t, s, "the deletion", kind(trial.Unassigned))
	<-s.Changed()
	select {
	case <-s.Changed():
		t.Error("more answers than the first one and the deletion")
	default:
	}
}

// givenOwn returns a ConfigMap of a node that no API server has.
func givenOwn(t *testing.T) (NodeConfigMap, *corev1.ConfigMap) {
	t.Helper()
	own := ownOf(t, newName("node"))
	cm := &corev1.ConfigMap{Data: map[string]string{"kubelet": kubelet110}}
	cm.Namespace, cm.Name, cm.UID = own.Namespace, own.Name, "uid-1"

	return own, cm
}

func TestConfigMapWithUnrecordedPayloadIsInvalidUntilEdited(t *testing.T) {
	own, cm := givenOwn(t)
	digest := payload.Digest("kubelet", []byte(kubelet110))
	recorded := digest[:12] + strings.Repeat("0", 52)
	s := NewConfigMapSource(admin, own, &disk{payloads: map[string]string{revisionOf(cm, kubelet110): recorded}}, quiet())
	s.see(cm, nil)
	a, ok := s.compose()
	want := Answer{Intent: trial.Intent{
		Kind: trial.Invalid, Reason: v1alpha1.ReasonObjectChanged,
		Config: trial.Config{Revision: revisionOf(cm, kubelet110), ConfigRevision: v1alpha1.ConfigRevision{Namespace: own.Namespace, Name: own.Name, UID: "uid-1"}, AssignedBy: own.String()},
		Cause: own.String() + " (UID: uid-1) was changed: this node recorded payload " + recorded + " for revision uid-1-" + digest[:12] +
			", but now it is " + digest + "; change it again, for example by a comment",
	}}
	assert.That(t, ok && same(a, want), "answer %+v, want %+v", a, want)
	edited := cm.DeepCopy()
	edited.Data["kubelet"] = kubelet120
	s.see(edited, nil)
	a, _ = s.compose()
	assert.That(t, a.Kind == trial.Assigned && a.Reason == "" && string(a.Payload.Data) == kubelet120, "after an edit the answer is %+v", a)
}

// seenObject is an object that a source has read.
func seenObject(s *ConfigMapSource) *corev1.ConfigMap {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.view.object == nil {
		return &corev1.ConfigMap{}
	}

	return s.view.object
}

func TestConfigMapBeingDeletedStillCounts(t *testing.T) {
	node := newName("node")
	cm := createOwn(t, node, kubelet110)
	editConfigMap(t, cm, map[string]any{"metadata": map[string]any{"finalizers": []string{"example.com/later"}}})
	s := startOwn(t, newClient(t, nodeKubeconfig(t, node)), ownOf(t, node), &disk{})
	awaitAnswer(t, s, "the object", kind(trial.Assigned))
	seen := kinds(t, s)
	deleteConfigMap(t, cm)
	await(t, "the deletion to begin", func() bool { return seenObject(s).DeletionTimestamp != nil }, func(begun bool) bool { return begun })
	awaitEdit(t, s, cm, kubelet120)
	for _, k := range seen() {
		assert.That(t, k == trial.Assigned, "while it was being deleted the source was %v", k)
	}

	editConfigMap(t, cm, map[string]any{"metadata": map[string]any{"finalizers": nil}})
	awaitAnswer(t, s, "its end", kind(trial.Unassigned))
}

func TestConfigMapThatCannotBeDecodedIsARevisionToReject(t *testing.T) {
	node := newName("node")
	own := ownOf(t, node)
	object := "ConfigMap " + own.Namespace + "/" + own.Name + ": "
	cm := createConfigMap(t, own.Namespace, own.Name, false, nil)
	s := startOwn(t, newClient(t, nodeKubeconfig(t, node)), own, &disk{})
	revisions := map[string]string{}
	for _, c := range []struct {
		name  string
		patch map[string]any
		words string
	}{
		{"no key", nil, object + `it has neither the data key "kubelet" nor "kubelet-dropin"`},
		{"both keys", map[string]any{"data": map[string]any{"kubelet": kubelet110, "kubelet-dropin": kubelet110}},
			object + `it has both data keys "kubelet" and "kubelet-dropin"; exactly one is allowed`},
		{"bad YAML", map[string]any{"data": map[string]any{"kubelet": "{", "kubelet-dropin": nil}},
			object + `key "kubelet": neither JSON nor YAML: `},
		{"binary data besides", map[string]any{"data": map[string]any{"kubelet": kubelet110}, "binaryData": map[string]any{"more": "AAAA"}},
			object + `binaryData is not allowed ("more")`},
		{"other binary data", map[string]any{"binaryData": map[string]any{"more": "AAAB"}},
			object + `binaryData is not allowed ("more")`},
	} {
		if c.patch != nil {
			editConfigMap(t, cm, c.patch)
		}

		a := awaitAnswer(t, s, c.name, func(a Answer) bool { _, old := revisions[a.Config.Revision]; return a.Kind == trial.Assigned && !old })
		revisions[a.Config.Revision] = c.name
		assert.That(t, a.PayloadErr != nil && strings.HasPrefix(a.PayloadErr.Error(), c.words), "%s: the error is %v, want %q", c.name, a.PayloadErr, c.words)
		assert.That(t, strings.HasPrefix(a.Config.Revision, string(cm.UID)+"-") && len(a.Config.Revision) == len(cm.UID)+13 && a.Config.SHA256 == "" && a.ConfigMap != nil,
			"%s: it is %+v with %d bytes, want a revision of %s with an object and no payload", c.name, a.Config, len(a.ConfigMap), cm.UID)
	}

	editConfigMap(t, cm, map[string]any{"binaryData": nil})
	a := awaitAnswer(t, s, "the repair", revision(revisionOf(cm, kubelet110)))
	assert.That(t, a.PayloadErr == nil && a.Config.SHA256 != "" && revisions[a.Config.Revision] == "", "the repaired object is answered with %+v", a)
}

func TestInvalidConfigMapNameIsAnError(t *testing.T) {
	long := strings.Repeat("a", 245)
	own, err := NodeConfigMapOf("kube-system", long)
	assert.That(t, err == nil && own.Name == "kubelet-"+long && own.String() == "ConfigMap kube-system/kubelet-"+long,
		"the longest name is %+v, error %v", own, err)

	for _, c := range []struct{ namespace, node, want string }{
		{"kube-system", "", `node "": the name of the ConfigMap, kubelet-<node-name>, must be at most 253 lower-case letters, digits, dashes and dots`},
		{"kube-system", "-a", `node "-a": the name of the ConfigMap`},
		{"kube-system", "Node", `node "Node": the name of the ConfigMap`},
		{"kube-system", "a_b", `node "a_b": the name of the ConfigMap`},
		{"kube-system", "a/../b", `node "a/../b": the name of the ConfigMap`},
		{"kube-system", "a,metadata.name=b", `node "a,metadata.name=b": the name of the ConfigMap`},
		{"kube-system", long + "a", `node "` + long + `a": the name of the ConfigMap`},
		{"", "a", `namespace "": must be at most 63 lower-case letters, digits and dashes`},
		{"kube.system", "a", `namespace "kube.system": must be`},
		{strings.Repeat("a", 64), "a", `namespace "` + strings.Repeat("a", 64) + `": must be`},
	} {
		_, err := NodeConfigMapOf(c.namespace, c.node)
		assert.That(t, err != nil && strings.HasPrefix(err.Error(), c.want),
			"%q in %q: the error is %v, want %q", c.node, c.namespace, err, c.want)
	}
}

func TestConfigMapNeedsRole(t *testing.T) {
	node, namespace := newName("node"), newName("own")
	asAdmin(t, request{verb: "POST", gv: coreV1, resource: "namespaces", body: map[string]any{"metadata": map[string]any{"name": namespace}}})
	own := assert.Value(NodeConfigMapOf(namespace, node))(t)
	cm := createConfigMap(t, namespace, own.Name, false, map[string]string{"kubelet": kubelet110})
	p := newProxy(t, node)
	s := startOwn(t, newClient(t, p.Kubeconfig), own, &disk{})
	a := awaitAnswer(t, s, "the refusal", cause(trial.Invalid, "(403)"))
	want := fmt.Sprintf("ConfigMap %s/kubelet-%s cannot be read: forbidden to this node (403): allow user system:node:%s to get, list and watch it, "+
		"or apply config/configmap-source, which lets every node read that whole namespace", namespace, node, node)
	assert.That(t, a.Cause == want && a.Config.Revision == "", "answer %+v, want %q", a, want)
	allow(t, namespace, "User", "system:node:"+node, own.Name)
	awaitAnswer(t, s, "the object", revision(revisionOf(cm, kubelet110)))
	awaitEdit(t, s, cm, kubelet120)
	deleteConfigMap(t, cm)
	awaitAnswer(t, s, "the deletion", kind(trial.Unassigned))
	assert.Equal(t, p.count("GET", "/configmaps/"), 0, "requests besides the watch")
}

// allow grants a user or a group the right to read ConfigMaps: all of a
// namespace, or those with these names.
func allow(t *testing.T, namespace, kind, who string, names ...string) {
	t.Helper()
	metadata := map[string]any{"name": "reader"}
	asAdmin(t, request{verb: "POST", gv: rbacV1, namespace: namespace, resource: "roles", body: map[string]any{
		"metadata": metadata,
		"rules": []any{map[string]any{
			"apiGroups": []string{""}, "resources": []string{"configmaps"}, "resourceNames": names, "verbs": []string{"get", "list", "watch"},
		}},
	}})
	asAdmin(t, request{verb: "POST", gv: rbacV1, namespace: namespace, resource: "rolebindings", body: map[string]any{
		"metadata": metadata,
		"roleRef":  map[string]any{"apiGroup": rbacV1.Group, "kind": "Role", "name": "reader"},
		"subjects": []any{map[string]any{"apiGroup": rbacV1.Group, "kind": kind, "name": who}},
	}})
}

// ownBehindProxy starts a source for a node that has a ConfigMap of its own.
func ownBehindProxy(t *testing.T) (string, *corev1.ConfigMap, *proxy, *ConfigMapSource) {
	t.Helper()
	node := newName("node")
	cm := createOwn(t, node, kubelet110)
	p := newProxy(t, node)
	s := startOwn(t, newClient(t, p.Kubeconfig), ownOf(t, node), &disk{})
	awaitAnswer(t, s, "the object", kind(trial.Assigned))

	return node, cm, p, s
}

func TestConfigMapThatCannotBeReadChangesNothing(t *testing.T) {
	for status, words := range map[int]string{
		http.StatusUnauthorized:       "the API server does not accept this node's credentials (401): check whether the client certificate of its kubeconfig has expired",
		http.StatusNotFound:           "the server does not know ConfigMaps (404): check that the kubeconfig names an API server",
		http.StatusServiceUnavailable: "the API server failed (503): made up; retrying",
	} {
		node, _, p, s := ownBehindProxy(t)
		before := s.Current()
		p.fail(all(status))
		p.CloseConnections()
		refusal := trial.Unanswered
		if status == http.StatusUnauthorized {
			refusal = trial.Invalid
		}

		a := awaitAnswer(t, s, words, kind(refusal))
		want := "ConfigMap evenkeel-system/kubelet-" + node + " cannot be read: " + words
		assert.That(t, a.Cause == want && a.Config.Revision == "", "answer %+v, want %q", a, want)
		p.fail(nil)
		a = awaitAnswer(t, s, "the recovery", kind(trial.Assigned))
		assert.That(t, sameOwn(a, before), "after it %+v, before it %+v", a, before)
	}
}

func TestConfigMapChangesInAnOutageAreSeenAfterIt(t *testing.T) {
	_, cm, p, s := ownBehindProxy(t)
	outage := func(change func()) {
		p.fail(all(http.StatusServiceUnavailable))
		p.CloseConnections()
		awaitAnswer(t, s, "an outage", kind(trial.Unanswered))
		change()
		p.fail(nil)
	}
	outage(func() { editConfigMap(t, cm, map[string]any{"data": map[string]any{"kubelet": kubelet120}}) })
	awaitAnswer(t, s, "the edit", revision(revisionOf(cm, kubelet120)))
	outage(func() { deleteConfigMap(t, cm) })
	awaitAnswer(t, s, "the deletion", kind(trial.Unassigned))
}

func TestWatchObjectFailsOnOtherTypes(t *testing.T) {
	var failed []string
	f := watchObject(watcher{fail: func(err error) { failed = append(failed, err.Error()) }}, "kubelet-n",
		func(cm *corev1.ConfigMap) { t.Errorf("saw %+v", cm) })
	f.replace([]runtime.Object{&v1alpha1.NodeConfig{}})
	f.apply(watch.Modified, &v1alpha1.NodeConfig{})
	f.apply(watch.Deleted, &v1alpha1.NodeConfig{})
	words := "decode the answer: unexpected object of type *v1alpha1.NodeConfig"
	assert.NoDiff(t, cmp.Diff([]string{words, words, words}, failed), "the failures")
}

func TestCheckpointedConfigMapIsNotReturnedAgain(t *testing.T) {
	own, cm := givenOwn(t)
	other := cm.DeepCopy()
	other.UID = "uid-2"
	raw, stranger, has := encode(cm), encode(other), revisionOf(cm, kubelet110)
	for _, c := range []struct {
		name        string
		checkpoints map[string][]byte
		handedOver  bool
	}{
		{"the checkpoint of its content", map[string][]byte{has: raw}, false},
		{"nothing", nil, true},
		{"the checkpoint of an older content", map[string][]byte{revisionOf(cm, kubelet120): raw}, true},
		{"a checkpoint under its UID alone", map[string][]byte{string(cm.UID): raw}, true},
		{"a checkpoint that does not have the payload it is named after", map[string][]byte{has: []byte(strings.ReplaceAll(string(raw), "110", "120"))}, true},
		{"a checkpoint of another object", map[string][]byte{has: stranger}, true},
		{"a checkpoint that cannot be read", map[string][]byte{has: []byte("{")}, true},
		{"a checkpoint that cannot be decoded", map[string][]byte{has: []byte(`{"metadata":{"uid":"` + string(cm.UID) + `"}}`)}, true},
	} {
		s := NewConfigMapSource(admin, own, &disk{checkpoints: c.checkpoints}, quiet())
		s.see(cm, nil)
		a, _ := s.compose()
		assert.That(t, a.Kind == trial.Assigned && a.Config.Revision == has && string(a.Payload.Data) == kubelet110 &&
			(a.ConfigMap != nil) == c.handedOver,
			"on disk is %s: answer %+v, want %s with its payload, and an object to write: %t", c.name, a, has, c.handedOver)
	}
}

func TestConfigMapIsReturnedAgainIfItsCheckpointIsUnusable(t *testing.T) {
	node := newName("node")
	cm, p := createOwn(t, node, kubelet110), newProxy(t, node)
	raw := asAdmin(t, request{verb: "GET", gv: coreV1, namespace: cm.Namespace, resource: "configmaps", name: cm.Name})
	s := startOwn(t, newClient(t, p.Kubeconfig), ownOf(t, node), &disk{checkpoints: map[string][]byte{revisionOf(cm, kubelet110): raw}})
	a := awaitAnswer(t, s, "the object", kind(trial.Assigned))
	assert.Must(t, a.ConfigMap == nil, "answer %+v, want nothing to write", a)

	p.fail(all(http.StatusServiceUnavailable))
	p.CloseConnections()
	awaitAnswer(t, s, "an outage", kind(trial.Unanswered))
	s.Refresh()
	p.fail(nil)
	a = awaitAnswer(t, s, "the object again", kind(trial.Assigned))
	assert.That(t, strings.Contains(string(a.ConfigMap), "maxPods: 110") && a.Config.Revision == revisionOf(cm, kubelet110), "answer %+v, want the same revision, with its object", a)
}

func TestConfigMapSourceUsesOnlyRevokedOfNodeConfig(t *testing.T) {
	node, other := newName("node"), newConfigMap(t)
	s := startOwn(t, newClient(t, nodeKubeconfig(t, node)), ownOf(t, node), &disk{})
	cm := createOwn(t, node, kubelet110)
	first := awaitAnswer(t, s, "a NodeConfig that was created", func(a Answer) bool { return a.NodeConfigUID != "" && a.Kind == trial.Assigned })
	assert.That(t, first.NodeConfigUID == getNodeConfig(t, node).UID, "NodeConfig %s, want the existing one", first.NodeConfigUID)
	assign(t, node, refTo(other))
	patch(t, request{gv: v1alpha1.GroupVersion, resource: "nodeconfigs", name: node}, map[string]any{"spec": map[string]any{"revoked": []string{string(cm.UID)}}})
	a := awaitAnswer(t, s, "what is revoked", func(a Answer) bool { return a.Revoked != nil && len(*a.Revoked) == 1 })
	assert.That(t, (*a.Revoked)[0] == cm.UID && a.Config.Revision == revisionOf(cm, kubelet110) && a.Generation == 0, "answer %+v, want the node's own, revoked", a)
	deleteNodeConfig(t, node)
	a = awaitAnswer(t, s, "another NodeConfig", func(a Answer) bool { return a.NodeConfigUID != "" && a.NodeConfigUID != first.NodeConfigUID })
	assert.That(t, a.Kind == trial.Assigned && a.Config.Revision == revisionOf(cm, kubelet110) && a.Revoked != nil && len(*a.Revoked) == 0, "answer %+v, want the node's own, and nothing revoked", a)
}

func TestKubeadmsConfigMapIsNoNodesOwn(t *testing.T) {
	for node, refused := range map[string]bool{"config": true, "config-1.23": true, "config-1": false, "configs": false, "kubelet-config": false} {
		_, err := NodeConfigMapOf("kube-system", node)
		assert.That(t, (err != nil) == refused, "in kube-system, node %s: %v", node, err)
		assert.That(t, err == nil || strings.Contains(err.Error(), "ConfigMap kube-system/kubelet-"+node+" is kubeadm's, for all nodes"), "%v", err)
		_, err = NodeConfigMapOf("evenkeel-system", node)
		assert.OK(t, err, node)
	}
}
