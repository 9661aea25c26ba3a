// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package describe

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func object(uid types.UID) *v1alpha1.ConfigRevision {
	return &v1alpha1.ConfigRevision{Namespace: "evenkeel-system", Name: "cm-" + string(uid), UID: uid, SHA256: "sha-" + string(uid)}
}

func sourceOf(uid types.UID) *v1alpha1.NodeConfigSource {
	return &v1alpha1.NodeConfigSource{ConfigMapRef: &v1alpha1.ConfigMapReference{Namespace: "evenkeel-system", Name: "cm-" + string(uid), UID: uid}}
}

func TestTheOutcomeOfAnAssignmentIsWhatTheNodeSays(t *testing.T) {
	local := &v1alpha1.NodeConfigSource{Local: &v1alpha1.LocalSource{}}
	good := &v1alpha1.LastKnownGoodConfig{ConfigRevision: *object("old")}
	for _, tt := range []struct {
		name           string
		source         *v1alpha1.NodeConfigSource // what was written: new, unless said otherwise
		now            *v1alpha1.NodeConfigSource // what the spec has: the same, unless said otherwise
		status, reason string
		with           v1alpha1.NodeConfigStatus
		stage          Stage
		words          string
	}{
		{name: "no answer", with: v1alpha1.NodeConfigStatus{ObservedGeneration: 2, Active: object("new")}, status: "True", reason: "AllChecksPassed",
			stage: StageUnanswered, words: "has not answered yet"},
		{name: "no condition", with: v1alpha1.NodeConfigStatus{ObservedGeneration: 3}, stage: StageUnanswered, words: "has not reported a ConfigOK condition yet"},
		{name: "replaced", now: sourceOf("other"), status: "True", reason: "AllChecksPassed", stage: StageReplaced, words: "was assigned another configuration in the meantime"},
		{name: "removed", now: &v1alpha1.NodeConfigSource{Local: &v1alpha1.LocalSource{}}, status: "True", reason: "LocalInit", stage: StageReplaced},
		{name: "taken by a rollout", now: &v1alpha1.NodeConfigSource{ConfigMapRef: sourceOf("new").ConfigMapRef, RolloutRef: &v1alpha1.RolloutReference{Name: "w"}},
			stage: StageReplaced},
		{name: "the one before still runs", with: v1alpha1.NodeConfigStatus{Active: object("old"), LastKnownGood: good}, status: "True", reason: "AllChecksPassed",
			stage: StageUndecided, words: "has not applied the configuration yet: it runs ConfigMap evenkeel-system/cm-old"},
		{name: "on trial", with: v1alpha1.NodeConfigStatus{Active: object("new"), Trial: &v1alpha1.Trial{DurationSeconds: 600}}, status: "True", reason: "AllChecksPassed",
			stage: StageTrial, words: "runs ConfigMap evenkeel-system/cm-new on trial: the kubelet must stay healthy for 10m"},
		{name: "on trial, and has crashed", status: "True", reason: "AllChecksPassed", stage: StageTrial,
			with: v1alpha1.NodeConfigStatus{Active: object("new"), Trial: &v1alpha1.Trial{DurationSeconds: 600, Restarts: 2, CrashLoopThreshold: 3},
				Error: "the kubelet exited unexpectedly:\nexit status 1"},
			words: "; it has exited 2 times (more than 3 fail the trial): the kubelet exited unexpectedly: exit status 1"},
		{name: "past its trial, and not written down as good yet", with: v1alpha1.NodeConfigStatus{Active: object("new")}, status: "True", reason: "AllChecksPassed", stage: StageUndecided},
		{name: "proven", with: v1alpha1.NodeConfigStatus{Active: object("new"), LastKnownGood: &v1alpha1.LastKnownGoodConfig{ConfigRevision: *object("new")}},
			status: "True", reason: "AllChecksPassed", stage: StageProven, words: "runs ConfigMap evenkeel-system/cm-new, which has passed its trial and is its last-known-good configuration"},
		{name: "the same content was proven", status: "True", reason: "AllChecksPassed", stage: StageProven,
			with: v1alpha1.NodeConfigStatus{Active: object("new"), LastKnownGood: &v1alpha1.LastKnownGoodConfig{ConfigRevision: v1alpha1.ConfigRevision{UID: "x", SHA256: "sha-new"}}}},
		{name: "local", source: local, status: "True", reason: "LocalInit",
			stage: StageProven, words: "runs its local configuration"},
		{name: "local, not adopted", source: local, with: v1alpha1.NodeConfigStatus{Active: object("old")}, status: "True", reason: "AllChecksPassed", stage: StageUndecided},
		{name: "local is invalid", source: local, with: v1alpha1.NodeConfigStatus{Active: object("old"), Error: "bad"}, status: "False", reason: "LocalInvalid",
			stage: StageStuck, words: "must be repaired by a person (LocalInvalid): bad; it runs ConfigMap evenkeel-system/cm-old"},
		{name: "rejected", with: v1alpha1.NodeConfigStatus{Error: `unknown field "maxPodz"`}, status: "False", reason: "ValidationFailed", stage: StageRefused,
			words: `refused the configuration (ValidationFailed): unknown field "maxPodz"; its kubelet was not stopped: it runs its local configuration`},
		{name: "a guard", with: v1alpha1.NodeConfigStatus{Error: "too many pods"}, status: "False", reason: "WouldEvictPods", stage: StageRefused, words: "refused the configuration (WouldEvictPods): too many pods"},
		{name: "rolled back", with: v1alpha1.NodeConfigStatus{Active: object("old"), Error: "4 starts"}, status: "False", reason: "CrashLooped", stage: StageRolledBack,
			words: "rolled back to ConfigMap evenkeel-system/cm-old (CrashLooped): 4 starts"},
		{name: "rolled back, for now", with: v1alpha1.NodeConfigStatus{BadConfigs: []v1alpha1.BadConfig{{UID: "new", Provisional: true}}}, status: "False", reason: "CrashLooped", stage: StageUndecided},
		{name: "ended", with: v1alpha1.NodeConfigStatus{Active: object("old"), LastKnownGood: good}, status: "True", reason: "AssignmentEnded",
			stage: StageProven, words: "runs ConfigMap evenkeel-system/cm-old again: the assignment has ended"},
		{name: "ended, and it cannot return", with: v1alpha1.NodeConfigStatus{Active: object("new"), Error: "unknown field"}, status: "False", reason: "AssignmentEnded",
			stage: StageStuck, words: "must be repaired by a person (AssignmentEnded): unknown field; it runs ConfigMap evenkeel-system/cm-new"},
		{name: "a dead end", status: "False", reason: "DeadEnd", stage: StageStuck, words: "must be repaired by a person (DeadEnd)"},
		{name: "cannot tell", status: "Unknown", reason: "SyncFailed", stage: StageUndecided, words: "has no final verdict yet (SyncFailed): the message; it runs its local configuration"},
		{name: "a reason of another version", status: "False", reason: "Moody", stage: StageRefused, words: "refused the configuration (Moody)"},
	} {
		source := sourceOf("new")
		if tt.source != nil {
			source = tt.source
		}

		nc := &v1alpha1.NodeConfig{Status: tt.with}
		nc.Name, nc.Generation, nc.Spec.ConfigSource = "worker-1", 4, source
		if tt.now != nil {
			nc.Spec.ConfigSource = tt.now
		}
		if nc.Status.ObservedGeneration == 0 {
			nc.Status.ObservedGeneration = 3
		}
		if tt.status != "" {
			nc.Status.Conditions = []metav1.Condition{{
				Type: v1alpha1.ConditionConfigOK, Status: metav1.ConditionStatus(tt.status), Reason: tt.reason, Message: "the message",
			}}
		}

		o := OutcomeOf(nc, source, 3)
		assert.That(t, o.Stage == tt.stage && strings.Contains(o.Words, tt.words),
			"%s: stage %d, %q, want %d and %q", tt.name, o.Stage, o.Words, tt.stage, tt.words)
	}
}
