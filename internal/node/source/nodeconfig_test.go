// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func kind(k trial.IntentKind) func(Answer) bool {
	return func(a Answer) bool { return a.Kind == k }
}

func cause(k trial.IntentKind, words string) func(Answer) bool {
	return func(a Answer) bool { return a.Kind == k && strings.Contains(a.Cause, words) }
}

func TestCreatedNodeConfigAssignsNothing(t *testing.T) {
	node := newName("node")
	s := startSource(t, newClient(t, nodeKubeconfig(t, node)), node, &disk{})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	a := s.First(ctx)
	assert.That(t, a.Kind == trial.Unassigned || a.Kind == trial.Unanswered && strings.Contains(a.Cause, "was not found; creating it"),
		"first answer %+v, want a missing NodeConfig, without a wait", a)

	a = awaitAnswer(t, s, "the new NodeConfig", kind(trial.Unassigned))
	nc := getNodeConfig(t, node)
	assert.That(t, a.Kind == trial.Unassigned && a.Generation == 1 && a.NodeConfigUID == nc.UID && a.Revoked != nil && len(*a.Revoked) == 0, "answer %+v, want Unassigned by generation 1 of %s", a, nc.UID)
}

func TestAssignmentIsDownloadedOnce(t *testing.T) {
	_, cm, p, s := assigned(t)
	a := s.Current()
	assert.That(t, a.Payload.SHA256 == payload.Digest("kubelet", []byte(kubelet110)) && a.PayloadErr == nil && a.Notice == "", "answer %+v, want the payload of %s", a, cm.Name)
	assert.That(t, a.Config.Revision == string(cm.UID) && a.Config.SHA256 == a.Payload.SHA256 && strings.Contains(string(a.ConfigMap), string(cm.UID)),
		"answer refers to %+v and has %d bytes of ConfigMap, want all of %s", a.Config, len(a.ConfigMap), cm.UID)
	assert.Equal(t, p.count("GET", "/configmaps/"), 1, "downloads")
}

func TestTrialTermsComeFromSpecOrPayload(t *testing.T) {
	node, cm := newName("node"), newConfigMap(t)
	own := createConfigMap(t, "evenkeel-system", newName("own"), true, map[string]string{
		"kubelet": "apiVersion: evenkeel.dev/v1alpha1\nkind: KubeletConfiguration\ntrial: {crashLoopThreshold: 1}\n",
	})
	both := map[string]any{"configSource": refTo(cm), "trial": map[string]any{"configTrialDuration": "20m", "allowPodLoss": true}}
	setSpec(t, node, both)
	s := startSource(t, newClient(t, nodeKubeconfig(t, node)), node, &disk{})
	a := awaitAnswer(t, s, "the assignment", kind(trial.Assigned))
	want := (trial.RequestedTerms{Duration: metav1.Duration{Duration: 20 * time.Minute}, AllowPodLoss: true})
	assert.That(t, a.Config.RequestedTerms == want, "asked %+v, want %+v", a.Config.RequestedTerms, want)
	// Other terms do not change the configuration.
	both["trial"] = map[string]any{"crashLoopThreshold": 0}
	setSpec(t, node, both)
	b := awaitAnswer(t, s, "the other terms", func(b Answer) bool { return b.Config.RequestedTerms == trial.RequestedTerms{Starts: 1} })
	assert.That(t, b.Kind == trial.Assigned && b.Config.Revision == a.Config.Revision, "with other terms: %+v", b)
	both["configSource"] = refTo(own)
	setSpec(t, node, both)
	c := awaitAnswer(t, s, "the refusal", cause(trial.Invalid, "spec.trial and the payload (trial.crashLoopThreshold) both have trial settings: remove one of them"))
	assert.That(t, c.Config.Revision == string(own.UID) && c.Config.RequestedTerms == (trial.RequestedTerms{}) && c.Generation != 0 && c.Revoked != nil, "answer %+v, want a refusal", c)
	delete(both, "trial")
	setSpec(t, node, both)
	awaitAnswer(t, s, "the payload's own", func(b Answer) bool {
		return b.Kind == trial.Assigned && b.Config.RequestedTerms == trial.RequestedTerms{Starts: 2}
	})
}

func TestUnreadableCheckpointIsDownloadedAgain(t *testing.T) {
	node, cm := newName("node"), newConfigMap(t)
	assign(t, node, refTo(cm))
	s := startSource(t, newClient(t, nodeKubeconfig(t, node)), node, &disk{checkpoints: map[string][]byte{string(cm.UID): []byte("{")}})
	a := awaitAnswer(t, s, "the assignment", kind(trial.Assigned))
	assert.That(t, a.ConfigMap != nil, "nothing was downloaded")
}

func TestAnswerIsNilOnlyForExplicitLocal(t *testing.T) {
	node, _, _, s := assigned(t)
	object, by := s.Current().NodeConfigUID, s.Current().Config.AssignedBy
	assert.That(t, by != "" && by == string(object), "assigned by %q, want the NodeConfig %s", by, object)
	setSpec(t, node, map[string]any{})
	a := awaitAnswer(t, s, "the removal of the source", kind(trial.Unassigned))
	assert.That(t, a.Generation == 2 && a.Config == (trial.Config{AssignedBy: by}) && a.TakenBack == nil,
		"answer %+v, want generation 2, the object and nothing else", a)
	setSpec(t, node, map[string]any{"takenBack": map[string]any{"rollout": "workers", "revision": 3, "attempt": 2, "assignedAt": "2030-01-02T03:04:05Z"}})
	a = awaitAnswer(t, s, "the mark", func(a Answer) bool { return a.TakenBack != nil })
	want := (v1alpha1.TakenBackAssignment{Rollout: "workers", Revision: 3, Attempt: 2, AssignedAt: metav1.NewTime(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC))})
	assert.That(t, a.Kind == trial.Unassigned && *a.TakenBack == want, "answer %+v, want %+v taken back", a, want)

	other := newName("node")
	assign(t, other, map[string]any{"local": map[string]any{}})
	s = startSource(t, newClient(t, nodeKubeconfig(t, other)), other, &disk{})
	assert.Equal(t, awaitAnswer(t, s, "local: {}", kind(trial.Nil)).Generation, 1, "the generation")
}

func TestRevokedIsNilUntilNodeConfigIsKnown(t *testing.T) {
	node := newName("node")
	setSpec(t, node, map[string]any{"revoked": []string{"a", "b"}})
	p := newProxy(t, node)
	p.fail(all(503))
	s := startSource(t, newClient(t, p.Kubeconfig), node, &disk{})
	a := awaitAnswer(t, s, "the failure", cause(trial.Unanswered, "503"))
	assert.That(t, a.Revoked == nil, "without an answer it is known what is revoked")
	p.fail(nil)
	a = awaitAnswer(t, s, "the answer", kind(trial.Unassigned))
	assert.NoDiff(t, cmp.Diff([]types.UID{"a", "b"}, *a.Revoked), "revoked")
}

func TestDeletedNodeConfigIsUnansweredAndItsSuccessorAssignsNothing(t *testing.T) {
	node, cm, _, s := assigned(t)
	first, seen := s.Current(), kinds(t, s)
	deleteNodeConfig(t, node)
	last := awaitAnswer(t, s, "the new object", kind(trial.Unassigned))
	assert.That(t, last.NodeConfigUID != first.NodeConfigUID, "the answer names the object that was deleted")
	for _, k := range seen() {
		assert.That(t, k != trial.Nil && k != trial.Invalid, "meanwhile the source was %v", k)
	}

	assign(t, node, refTo(cm))
	awaitAnswer(t, s, "the assignment again", kind(trial.Assigned))
}

func TestDeletedNodeConfigThatCannotBeCreatedIsUnansweredWithCause(t *testing.T) {
	node, _, p, s := assigned(t)
	p.fail(all(403))
	deleteNodeConfig(t, node)
	a := awaitAnswer(t, s, "the refusal", cause(trial.Unanswered, "NodeConfig "+node+" was deleted, and cannot be created: made up"))
	assert.That(t, a.Revoked == nil && a.Generation == 0 && a.Config.Revision == "", "an answer without an object knows %+v", a)
	p.fail(nil)
	awaitAnswer(t, s, "the new object", kind(trial.Unassigned))
}

func TestRepeatedlyDeletedNodeConfigIsCreatedWithBackoff(t *testing.T) {
	pace := creationBackoff{}
	assert.Equal(t, pace.next(), 0, "the first creation waits")
	previous := time.Duration(0)
	for range 4 {
		d := pace.next()
		assert.That(t, d > previous/2 && d >= 400*time.Millisecond, "waits %v after %v", d, previous)
		previous = d
	}

	pace.last = time.Now().Add(-6 * time.Minute)
	assert.Equal(t, pace.next(), 0, "after quiet minutes a creation waits")
}

func TestEditWithSameAssignmentDownloadsNothing(t *testing.T) {
	node, cm := newName("node"), newConfigMap(t)
	p := newProxy(t, node)
	source := refTo(cm)
	given := map[string]any{"name": "workers", "revision": 3, "attempt": 2, "assignedAt": "2026-01-02T03:04:05Z"}
	source["rolloutRef"] = given
	assign(t, node, source)
	s := startSource(t, newClient(t, p.Kubeconfig), node, &disk{})
	awaitAnswer(t, s, "the assignment", kind(trial.Assigned))
	given["revision"] = 4 // its content was the target before
	assign(t, node, source)
	a := awaitAnswer(t, s, "the rollout", func(a Answer) bool { return a.Config.Rollout.Revision == 4 })
	assert.That(t, a.Kind == trial.Assigned && a.Config.Rollout.Attempt == 2 && a.Generation == 2, "answer %+v, want the same payload, assigned by revision 4", a)
	assert.Equal(t, p.count("GET", "/configmaps/"), 1, "downloads")
}

func TestFirstReturnsWhenTheConnectionIsRefused(t *testing.T) {
	path := t.TempDir() + "/kubeconfig"
	writeKubeconfig(t, path, "http://127.0.0.1:1")
	for object, s := range map[string]interface{ First(context.Context) Answer }{
		"NodeConfig n":                    startSource(t, newClient(t, path), "n", &disk{}),
		"ConfigMap kube-system/kubelet-n": startOwn(t, newClient(t, path), NodeConfigMap{"kube-system", "kubelet-n", "n"}, &disk{}),
	} {
		a := s.First(t.Context()) // returns without the end of its context
		assert.Equal(t, a.Kind, trial.Unanswered)
		assert.Equal(t, a.Cause, object+" cannot be read: the API server refuses connections (dial tcp 127.0.0.1:1: connect: connection refused); retrying")
	}
}

func TestLostCheckpointIsDownloadedAgain(t *testing.T) {
	node, cm := newName("node"), newConfigMap(t)
	raw := asAdmin(t, request{verb: "GET", gv: coreV1, namespace: cm.Namespace, resource: "configmaps", name: cm.Name})
	assign(t, node, refTo(cm))
	records := &disk{checkpoints: map[string][]byte{string(cm.UID): raw}}
	s := startSource(t, newClient(t, nodeKubeconfig(t, node)), node, records)
	assert.Must(t, awaitAnswer(t, s, "the assignment", kind(trial.Assigned)).ConfigMap == nil, "there is something to write")
	records.mu.Lock()
	delete(records.checkpoints, string(cm.UID))
	records.mu.Unlock()
	s.Refresh()
	awaitAnswer(t, s, "the download", func(a Answer) bool { return a.Kind == trial.Assigned && a.ConfigMap != nil })
}

func TestEmptyNodeConfigIsCreatedOnce(t *testing.T) {
	name := newName("announced")
	client := newClient(t, nodeKubeconfig(t, name))
	for range 2 { // the second one finds it
		EnsureNodeConfig(t.Context(), client, name, quiet())
		nc := getNodeConfig(t, name)
		assert.That(t, nc.Spec.ConfigSource == nil && nc.Generation == 1, "spec is %+v at generation %d, want an empty one at 1", nc.Spec, nc.Generation)
	}
}

func TestCreationOfNodeConfigEndsWithItsContext(t *testing.T) {
	client := newClient(t, filepath.Join(t.TempDir(), "none"))
	stop := background(t, func(ctx context.Context) { EnsureNodeConfig(ctx, client, "nobody", quiet()) })
	stop()
}
