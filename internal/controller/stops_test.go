// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"

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
