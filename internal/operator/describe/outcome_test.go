// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package describe

import (
	"cmp"
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
	type status = v1alpha1.NodeConfigStatus
	local := &v1alpha1.NodeConfigSource{Local: &v1alpha1.LocalSource{}}
	rolloutsOwn := &v1alpha1.NodeConfigSource{ConfigMapRef: sourceOf("new").ConfigMapRef, RolloutRef: &v1alpha1.RolloutReference{Name: "w"}}
	old := &v1alpha1.LastKnownGoodConfig{ConfigRevision: *object("old")}
	proven := &v1alpha1.LastKnownGoodConfig{ConfigRevision: *object("new")}
	sameContent := &v1alpha1.LastKnownGoodConfig{ConfigRevision: v1alpha1.ConfigRevision{UID: "x", SHA256: "sha-new"}}
	crashed := &v1alpha1.Trial{DurationSeconds: 600, Restarts: 2, CrashLoopThreshold: 3}
	provisional := []v1alpha1.BadConfig{{UID: "new", Provisional: true}}
	for _, tt := range []struct {
		name      string
		source    *v1alpha1.NodeConfigSource // what was written: new, unless said otherwise
		now       *v1alpha1.NodeConfigSource // what the spec has: the same, unless said otherwise
		condition string                     // status and reason: True AllChecksPassed, unless said otherwise; "-": none
		with      status
		stage     Stage
		words     string
	}{
		{name: "no answer", with: status{ObservedGeneration: 2, Active: object("new")}, stage: StageUnanswered, words: "has not answered yet"},
		{name: "no condition", condition: "-", stage: StageUnanswered, words: "has not reported a ConfigOK condition yet"},
		{name: "replaced", now: sourceOf("other"), stage: StageReplaced, words: "was assigned another configuration in the meantime"},
		{name: "removed", now: local, condition: "True LocalInit", stage: StageReplaced},
		{name: "taken by a rollout", now: rolloutsOwn, condition: "-", stage: StageReplaced},
		{name: "the one before still runs", with: status{Active: object("old"), LastKnownGood: old}, stage: StageUndecided,
			words: "has not applied the configuration yet: it runs ConfigMap evenkeel-system/cm-old"},
		{name: "on trial", with: status{Active: object("new"), Trial: &v1alpha1.Trial{DurationSeconds: 600}}, stage: StageTrial,
			words: "runs ConfigMap evenkeel-system/cm-new on trial: the kubelet must stay healthy for 10m"},
		{name: "on trial, and has crashed", with: status{Active: object("new"), Trial: crashed, Error: "the kubelet exited unexpectedly:\nexit status 1"},
			stage: StageTrial, words: "; it has exited 2 times (more than 3 fail the trial): the kubelet exited unexpectedly: exit status 1"},
		{name: "past its trial, and not written down as good yet", with: status{Active: object("new")}, stage: StageUndecided},
		{name: "proven", with: status{Active: object("new"), LastKnownGood: proven}, stage: StageProven,
			words: "runs ConfigMap evenkeel-system/cm-new, which has passed its trial and is its last-known-good configuration"},
		{name: "the same content was proven", with: status{Active: object("new"), LastKnownGood: sameContent}, stage: StageProven},
		{name: "local", source: local, condition: "True LocalInit", stage: StageProven, words: "runs its local configuration"},
		{name: "local, not adopted", source: local, with: status{Active: object("old")}, stage: StageUndecided},
		{name: "local is invalid", source: local, condition: "False LocalInvalid", with: status{Active: object("old"), Error: "bad"},
			stage: StageStuck, words: "must be repaired by a person (LocalInvalid): bad; it runs ConfigMap evenkeel-system/cm-old"},
		{name: "rejected", condition: "False ValidationFailed", with: status{Error: `unknown field "maxPodz"`}, stage: StageRefused,
			words: `refused the configuration (ValidationFailed): unknown field "maxPodz"; its kubelet was not stopped: it runs its local configuration`},
		{name: "a guard", condition: "False WouldEvictPods", with: status{Error: "too many pods"}, stage: StageRefused, words: "refused the configuration (WouldEvictPods): too many pods"},
		{name: "rolled back", condition: "False CrashLooped", with: status{Active: object("old"), Error: "4 starts"}, stage: StageRolledBack,
			words: "rolled back to ConfigMap evenkeel-system/cm-old (CrashLooped): 4 starts"},
		{name: "rolled back, for now", condition: "False CrashLooped", with: status{BadConfigs: provisional}, stage: StageUndecided},
		{name: "ended", condition: "True AssignmentEnded", with: status{Active: object("old"), LastKnownGood: old}, stage: StageProven,
			words: "runs ConfigMap evenkeel-system/cm-old again: the assignment has ended"},
		{name: "ended, and it cannot return", condition: "False AssignmentEnded", with: status{Active: object("new"), Error: "unknown field"},
			stage: StageStuck, words: "must be repaired by a person (AssignmentEnded): unknown field; it runs ConfigMap evenkeel-system/cm-new"},
		{name: "a dead end", condition: "False DeadEnd", stage: StageStuck, words: "must be repaired by a person (DeadEnd)"},
		{name: "cannot tell", condition: "Unknown SyncFailed", stage: StageUndecided, words: "has no final verdict yet (SyncFailed): the message; it runs its local configuration"},
		{name: "a reason of another version", condition: "False Moody", stage: StageRefused, words: "refused the configuration (Moody)"},
	} {
		source := cmp.Or(tt.source, sourceOf("new"))
		nc := &v1alpha1.NodeConfig{Status: tt.with}
		nc.Name, nc.Generation, nc.Spec.ConfigSource = "worker-1", 4, cmp.Or(tt.now, source)
		nc.Status.ObservedGeneration = cmp.Or(nc.Status.ObservedGeneration, 3)
		if tt.condition != "-" {
			is, reason, _ := strings.Cut(cmp.Or(tt.condition, "True AllChecksPassed"), " ")
			nc.Status.Conditions = []metav1.Condition{{
				Type: v1alpha1.ConditionConfigOK, Status: metav1.ConditionStatus(is), Reason: reason, Message: "the message",
			}}
		}

		o := OutcomeOf(nc, source, 3)
		assert.That(t, o.Stage == tt.stage && strings.Contains(o.Words, tt.words),
			"%s: stage %d, %q, want %d and %q", tt.name, o.Stage, o.Words, tt.stage, tt.words)
	}
}
