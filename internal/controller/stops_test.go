// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestAStoppedRevisionIsAnnotatedBeyondTheHistoryLimit(t *testing.T) {
	world(t)
	addNodes(t, "pool=brand", "s1", "s2")
	worst := fleet.RevisionName("brand", contentOf(t, template(3)).SHA256)
	agents(t, func(cm string) bool { return cm == worst }, "s1", "s2")
	start(t, own())
	none := int32(0)
	roll(t, "brand", func(s *v1alpha1.NodeConfigRolloutSpec) {
		s.Template = template(3)
		s.RevisionHistoryLimit = &none
	})
	bad := awaitRollout(t, "brand", phase(v1alpha1.RolloutHalted)).Status.UpdateRevision.ConfigMapRef
	eventually(t, func() error {
		cm := revisions(t, "brand")["1"]
		return assert.Unless(strings.HasPrefix(cm.Annotations[v1alpha1.AnnotationStopped], "TooManyFailures: "),
			"the stopped revision bears %v", cm.Annotations)
	})
	failed := rolloutNamed(t, "brand").Status.FailedNodes[0].Name

	edit(t, "brand", use(50))
	awaitRollout(t, "brand", completeAt(2))
	nc := nodeConfig(t, failed)
	assert.That(t, slices.Contains(nc.Spec.Revoked, bad.UID) && nc.Spec.ConfigSource.RolloutRef.Previous == nil,
		"%s left the stopped revision, and revokes %v and has %+v before", failed, nc.Spec.Revoked, nc.Spec.ConfigSource.RolloutRef.Previous)
}

func TestARetryTriesTheNamedNodesAndRemovesTheStoppedAnnotation(t *testing.T) {
	world(t)
	addNodes(t, "pool=again", "t1", "t2")
	tried := 0
	agents(t, func(string) bool { tried++; return tried <= 2 }, "t1", "t2") // each of them fails once
	start(t, own())
	roll(t, "again", func(s *v1alpha1.NodeConfigRolloutSpec) {
		two := intOrString("2")
		s.FailurePolicy.MaxFailures = &two
	})
	awaitRollout(t, "again", phase(v1alpha1.RolloutHalted))
	retry := func(attempt int64, failed int32, nodes ...string) v1alpha1.NodeConfigRolloutStatus {
		t.Helper()
		edit(t, "again", func(s *v1alpha1.NodeConfigRolloutSpec) {
			s.Retry = &v1alpha1.RolloutRetry{Revision: 1, Attempt: attempt, Nodes: nodes}
		})

		return awaitRollout(t, "again", func(st status) error {
			if st.Attempt != attempt || st.Nodes.Failed != failed || st.Nodes.Updated != 2-failed || st.Halt != nil {
				return fmt.Errorf("attempt %d, stop %+v, want attempt %d with %d failed", st.Attempt, st.Halt, attempt, failed)
			}

			return completeAt(1)(st)
		}).Status
	}
	attempts := func() [2]int64 {
		return [2]int64{nodeConfig(t, "t1").Spec.ConfigSource.RolloutRef.Attempt, nodeConfig(t, "t2").Spec.ConfigSource.RolloutRef.Attempt}
	}
	st := retry(2, 1, "t1")
	assert.That(t, st.AttemptTime != nil, "the status has no time of attempt 2")
	assert.Equal(t, attempts(), [2]int64{2, 1}, "attempts after the retry of t1")
	cm := revisions(t, "again")["1"]
	assert.That(t, cm.Annotations[v1alpha1.AnnotationStopped] == "", "the revision bears %v", cm.Annotations)
	retry(3, 0)
	assert.Equal(t, attempts(), [2]int64{2, 3}, "attempts after the retry of all")
}

func TestAnAbortAfterSuccessRollsBackToTheRevisionBefore(t *testing.T) {
	pool(t, "late", "u1", "u2")
	start(t, own())
	roll(t, "late")
	first := awaitRollout(t, "late", completeAt(1)).Status.UpdateRevision.ConfigMapRef
	edit(t, "late", use(50))
	awaitRollout(t, "late", completeAt(2))
	edit(t, "late", func(s *v1alpha1.NodeConfigRolloutSpec) { s.Abort = &v1alpha1.RolloutAbort{Revision: 2, Rollback: true} })
	awaitRollout(t, "late", phase(v1alpha1.RolloutRolledBack))
	for _, name := range []string{"u1", "u2"} {
		s := nodeConfig(t, name).Spec.ConfigSource
		assert.That(t, s != nil && s.ConfigMapRef != nil && *s.ConfigMapRef == first, "%s has %+v", name, s)
	}
}

func TestForeignConfigMapsAreNotDeleted(t *testing.T) {
	world(t)
	c := start(t, own())
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: v1alpha1.SystemNamespace, Name: "precious", Labels: map[string]string{v1alpha1.LabelRollout: "nobody", v1alpha1.LabelRevision: "7"},
	}}
	assert.NoError(t, admin.Create(t.Context(), cm))
	t.Cleanup(func() { _ = admin.Delete(t.Context(), cm) })
	eventually(t, func() error {
		c.fleet.mu.Lock()
		defer c.fleet.mu.Unlock()
		return assert.Unless(c.fleet.revisions["nobody"]["precious"] != nil, "it has not been seen")
	})
	c.cleanUp(t.Context(), time.Now())
	assert.That(t, len(revisions(t, "nobody")) == 1, "it was deleted")
}
