// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

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
		t.Run(name, func(t *testing.T) {
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
				return
			}

			a := awaitAnswer(t, s, "the assignment", kind(trial.Assigned))
			assert.That(t, a.Payload.SHA256 != "" && strings.Contains(a.Notice, "was deleted"), "answer %+v", a)
		})
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
