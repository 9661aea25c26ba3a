package source

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/internal/payload"
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
	if a := s.First(ctx); a.Kind != trial.Unassigned && (a.Kind != trial.Unanswered || !strings.Contains(a.Cause, "was not found; creating it")) {
		t.Errorf("first answer %+v, want a missing NodeConfig, without a wait", a)
	}
	a := awaitAnswer(t, s, "the new NodeConfig", kind(trial.Unassigned))
	nc := getNodeConfig(t, node)
	if a.Kind != trial.Unassigned || a.Generation != 1 || a.NodeConfigUID != nc.UID || a.Revoked == nil || len(*a.Revoked) != 0 {
		t.Errorf("answer %+v, want Unassigned by generation 1 of %s", a, nc.UID)
	}
}

func TestAssignmentIsDownloadedOnce(t *testing.T) {
	node, cm := newName("node"), newConfigMap(t)
	p := newProxy(t, node)
	assign(t, node, refTo(cm))
	s := startSource(t, newClient(t, p.Kubeconfig), node, &disk{})
	a := awaitAnswer(t, s, "the assignment", kind(trial.Assigned))
	if a.Payload.SHA256 != payload.Digest("kubelet", []byte(kubelet110)) || a.PayloadErr != nil || a.Notice != "" {
		t.Errorf("answer %+v, want the payload of %s", a, cm.Name)
	}
	if a.Config.Revision != string(cm.UID) || a.Config.Payload != a.Payload.SHA256 || !strings.Contains(string(a.ConfigMap), string(cm.UID)) {
		t.Errorf("answer refers to %+v and has %d bytes of ConfigMap, want all of %s", a.Config, len(a.ConfigMap), cm.UID)
	}
	if n := p.count("GET", "/configmaps/"); n != 1 {
		t.Errorf("%d downloads, want 1", n)
	}
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
	if want := (trial.RequestedTerms{Duration: 20 * time.Minute, AllowPodLoss: true}); a.Config.RequestedTerms != want {
		t.Errorf("asked %+v, want %+v", a.Config.RequestedTerms, want)
	}
	// Other terms do not change the configuration.
	both["trial"] = map[string]any{"crashLoopThreshold": 0}
	setSpec(t, node, both)
	b := awaitAnswer(t, s, "the other terms", func(b Answer) bool { return b.Config.RequestedTerms == trial.RequestedTerms{Starts: 1} })
	if b.Kind != trial.Assigned || b.Config.Revision != a.Config.Revision {
		t.Errorf("with other terms: %+v", b)
	}
	both["configSource"] = refTo(own)
	setSpec(t, node, both)
	c := awaitAnswer(t, s, "the refusal", cause(trial.Invalid, "spec.trial and the payload (trial.crashLoopThreshold) both have trial settings: remove one of them"))
	if c.Config.Revision != string(own.UID) || c.Config.RequestedTerms != (trial.RequestedTerms{}) || c.Generation == 0 || c.Revoked == nil {
		t.Errorf("answer %+v, want a refusal", c)
	}
	delete(both, "trial")
	setSpec(t, node, both)
	awaitAnswer(t, s, "the payload's own", func(b Answer) bool {
		return b.Kind == trial.Assigned && b.Config.RequestedTerms == trial.RequestedTerms{Starts: 2}
	})
}

func TestVerifiedCheckpointIsNotDownloaded(t *testing.T) {
	node, cm := newName("node"), newConfigMap(t)
	raw := asAdmin(t, request{verb: "GET", gv: coreV1, namespace: cm.Namespace, resource: "configmaps", name: cm.Name})
	p := newProxy(t, node)
	assign(t, node, refTo(cm))
	s := startSource(t, newClient(t, p.Kubeconfig), node, &disk{checkpoints: map[string][]byte{string(cm.UID): raw}})
	a := awaitAnswer(t, s, "the assignment", kind(trial.Assigned))
	if a.ConfigMap != nil || a.Payload.SHA256 == "" {
		t.Errorf("answer %+v, want the payload of the checkpoint and nothing to write", a)
	}
	await(t, "a watch of the object", func() int { return p.count("/configmaps", "watch") }, func(n int) bool { return n == 1 })
	if n := p.count("GET", "/configmaps/"); n != 0 {
		t.Errorf("%d downloads, want none", n)
	}
}

func TestUnreadableCheckpointIsDownloadedAgain(t *testing.T) {
	node, cm := newName("node"), newConfigMap(t)
	assign(t, node, refTo(cm))
	s := startSource(t, newClient(t, nodeKubeconfig(t, node)), node, &disk{checkpoints: map[string][]byte{string(cm.UID): []byte("{")}})
	if a := awaitAnswer(t, s, "the assignment", kind(trial.Assigned)); a.ConfigMap == nil {
		t.Error("nothing was downloaded")
	}
}

func TestAnswerIsNilOnlyForExplicitLocal(t *testing.T) {
	node, cm := newName("node"), newConfigMap(t)
	assign(t, node, refTo(cm))
	s := startSource(t, newClient(t, nodeKubeconfig(t, node)), node, &disk{})
	assigned := awaitAnswer(t, s, "the assignment", kind(trial.Assigned))
	if by := assigned.Config.AssignedBy; by == "" || by != string(assigned.NodeConfigUID) {
		t.Errorf("assigned by %q, want the NodeConfig %s", by, assigned.NodeConfigUID)
	}
	setSpec(t, node, map[string]any{})
	a := awaitAnswer(t, s, "the removal of the source", kind(trial.Unassigned))
	if a.Generation != 2 || a.Config != (trial.Config{AssignedBy: string(assigned.NodeConfigUID)}) || a.TakenBack != (trial.RolloutRef{}) {
		t.Errorf("answer %+v, want generation 2, the object and nothing else", a)
	}
	setSpec(t, node, map[string]any{"takenBack": map[string]any{"rollout": "workers", "revision": 3, "attempt": 2, "assignedAt": "2030-01-02T03:04:05Z"}})
	a = awaitAnswer(t, s, "the mark", func(a Answer) bool { return a.TakenBack.Name != "" })
	if want := (trial.RolloutRef{Name: "workers", Revision: 3, Attempt: 2, AssignedAt: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)}); a.Kind != trial.Unassigned || a.TakenBack != want {
		t.Errorf("answer %+v, want %+v taken back", a, want)
	}

	other := newName("node")
	assign(t, other, map[string]any{"local": map[string]any{}})
	s = startSource(t, newClient(t, nodeKubeconfig(t, other)), other, &disk{})
	if a := awaitAnswer(t, s, "local: {}", kind(trial.Nil)); a.Generation != 1 {
		t.Errorf("nil at generation %d, want 1", a.Generation)
	}
}

func TestRevokedIsNilUntilNodeConfigIsKnown(t *testing.T) {
	node := newName("node")
	setSpec(t, node, map[string]any{"revoked": []string{"a", "b"}})
	p := newProxy(t, node)
	p.fail(all(503))
	s := startSource(t, newClient(t, p.Kubeconfig), node, &disk{})
	if a := awaitAnswer(t, s, "the failure", cause(trial.Unanswered, "503")); a.Revoked != nil {
		t.Errorf("revoked is %v without an answer, want it unknown", *a.Revoked)
	}
	p.fail(nil)
	a := awaitAnswer(t, s, "the answer", kind(trial.Unassigned))
	if got := strings.Join(*a.Revoked, " "); got != "a b" {
		t.Errorf("revoked is %q, want a and b", got)
	}
}

func TestDeletedNodeConfigIsUnansweredAndItsSuccessorAssignsNothing(t *testing.T) {
	node, cm := newName("node"), newConfigMap(t)
	assign(t, node, refTo(cm))
	s := NewNodeConfigSource(newClient(t, nodeKubeconfig(t, node)), node, &disk{}, quiet())
	answers := make(chan Answer, 100)
	background(t, s.Run)
	background(t, func(ctx context.Context) {
		for {
			select {
			case <-s.Changed():
				answers <- s.Current()
			case <-ctx.Done():
				return
			}
		}
	})
	first := awaitAnswer(t, s, "the assignment", kind(trial.Assigned))
	deleteNodeConfig(t, node)
	last := awaitAnswer(t, s, "the new object", kind(trial.Unassigned))
	if last.NodeConfigUID == first.NodeConfigUID {
		t.Error("the answer names the object that was deleted")
	}
	for len(answers) > 0 {
		if a := <-answers; a.Kind == trial.Nil || a.Kind == trial.Invalid {
			t.Errorf("answer %+v during the outage", a)
		}
	}
	assign(t, node, refTo(cm))
	awaitAnswer(t, s, "the assignment again", kind(trial.Assigned))
}

func TestDeletedNodeConfigThatCannotBeCreatedIsUnansweredWithCause(t *testing.T) {
	node, cm := newName("node"), newConfigMap(t)
	assign(t, node, refTo(cm))
	p := newProxy(t, node)
	s := startSource(t, newClient(t, p.Kubeconfig), node, &disk{})
	awaitAnswer(t, s, "the assignment", kind(trial.Assigned))
	p.fail(all(403))
	deleteNodeConfig(t, node)
	a := awaitAnswer(t, s, "the refusal", cause(trial.Unanswered, "NodeConfig "+node+" was deleted, and cannot be created: made up"))
	if a.Revoked != nil || a.Generation != 0 || a.Config.Revision != "" {
		t.Errorf("an answer without an object knows %+v", a)
	}
	p.fail(nil)
	awaitAnswer(t, s, "the new object", kind(trial.Unassigned))
}

func TestRepeatedlyDeletedNodeConfigIsCreatedWithBackoff(t *testing.T) {
	pace := creationBackoff{}
	if d := pace.next(); d != 0 {
		t.Errorf("the first creation waits %v", d)
	}
	previous := time.Duration(0)
	for range 4 {
		d := pace.next()
		if d <= previous/2 || d < 400*time.Millisecond {
			t.Errorf("waits %v after %v", d, previous)
		}
		previous = d
	}
	pace.last = time.Now().Add(-6 * time.Minute)
	if d := pace.next(); d != 0 {
		t.Errorf("after quiet minutes a creation waits %v", d)
	}
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
	if a.Kind != trial.Assigned || a.Config.Rollout.Attempt != 2 || a.Generation != 2 {
		t.Errorf("answer %+v, want the same payload, assigned by revision 4", a)
	}
	if n := p.count("GET", "/configmaps/"); n != 1 {
		t.Errorf("%d downloads, want 1", n)
	}
}

func TestFirstEndsWithItsContext(t *testing.T) {
	node := newName("node")
	p := newProxy(t, node)
	p.fail(all(hang))
	s := startSource(t, newClient(t, p.Kubeconfig), node, &disk{})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	a := s.First(ctx) // the API server never answers
	if a.Kind != trial.Unanswered || !strings.Contains(a.Cause, "NodeConfig "+node+" cannot be read: no answer") {
		t.Errorf("answer %+v, want none yet", a)
	}
}

func TestFirstReturnsWhenTheConnectionIsRefused(t *testing.T) {
	path := t.TempDir() + "/kubeconfig"
	writeKubeconfig(t, path, "http://127.0.0.1:1")
	s := startSource(t, newClient(t, path), "n", &disk{})
	a := s.First(t.Context()) // returns without the end of its context
	if want := "NodeConfig n cannot be read: the API server refuses connections (dial tcp 127.0.0.1:1: connect: connection refused); retrying"; a.Kind != trial.Unanswered || a.Cause != want {
		t.Errorf("answer %+v, want %q", a, want)
	}
}

func TestLostCheckpointIsDownloadedAgain(t *testing.T) {
	node, cm := newName("node"), newConfigMap(t)
	raw := asAdmin(t, request{verb: "GET", gv: coreV1, namespace: cm.Namespace, resource: "configmaps", name: cm.Name})
	assign(t, node, refTo(cm))
	records := &disk{checkpoints: map[string][]byte{string(cm.UID): raw}}
	s := startSource(t, newClient(t, nodeKubeconfig(t, node)), node, records)
	if a := awaitAnswer(t, s, "the assignment", kind(trial.Assigned)); a.ConfigMap != nil {
		t.Fatalf("answer %+v, want nothing to write", a)
	}
	records.mu.Lock()
	delete(records.checkpoints, string(cm.UID))
	records.mu.Unlock()
	s.Refresh()
	awaitAnswer(t, s, "the download", func(a Answer) bool { return a.Kind == trial.Assigned && a.ConfigMap != nil })
}
