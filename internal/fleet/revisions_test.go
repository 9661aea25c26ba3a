// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/rollout"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestARevisionIsIdentifiedByUIDAndSHA256(t *testing.T) {
	is := v1alpha1.ConfigMapReference{Name: "workers-1", UID: "u1", SHA256: "s1"}
	for name, test := range map[string]struct {
		recorded v1alpha1.ConfigMapReference
		uid      types.UID
		sha256   string
		want     bool
	}{
		"it":                                 {is, "u1", "s1", true},
		"another object of its content":      {is, "u2", "s1", false},
		"another content in its object":      {is, "u1", "s2", false},
		"recorded without a UID":             {v1alpha1.ConfigMapReference{SHA256: "s1"}, "", "s1", false},
		"recorded without a sha256":          {v1alpha1.ConfigMapReference{UID: "u1"}, "u1", "", false},
		"a ConfigMap that holds no payload ": {is, "u1", "", false},
	} {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{UID: test.uid, Annotations: map[string]string{AnnotationDigest: test.sha256}}}
		assert.Equal(t, Holds(cm, &test.recorded), test.want, name)
	}
}

func TestOnlyTheStatusNamesRevisions(t *testing.T) {
	at := func(number int64, name string, uid types.UID, sha string) *v1alpha1.RolloutRevision {
		return &v1alpha1.RolloutRevision{Number: number, ConfigMapRef: v1alpha1.ConfigMapReference{Name: name, UID: uid, SHA256: sha}}
	}
	st := &v1alpha1.NodeConfigRolloutStatus{
		UpdateRevision: at(5, "w-a", "ua", "sa"), CurrentRevision: at(4, "w-b", "ub", "sb"),
		History: []v1alpha1.RolloutOutcome{
			{Revision: 4, ConfigMap: "w-b", UID: "other", SHA256: "other"}, // what is said first counts
			{Revision: 3, ConfigMap: "w-c", UID: "uc", SHA256: "sc"},
			{Revision: 2, ConfigMap: "w-d", UID: "ud"}, // half of it
		},
	}
	want := []v1alpha1.RolloutRevision{*at(5, "w-a", "ua", "sa"), *at(4, "w-b", "ub", "sb"), *at(3, "w-c", "uc", "sc")}
	assert.NoDiff(t, cmp.Diff(want, RecordedIn(st)))
	assert.Equal(t, Numbered(st, 3), want[2].ConfigMapRef, "revision 3")
	assert.Equal(t, Numbered(st, 2), v1alpha1.ConfigMapReference{}, "revision 2")
}

func labelled(number string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1alpha1.LabelRevision: number}}}
}

func TestOnlyCanonicalNumbersAreAccepted(t *testing.T) {
	for label, want := range map[string]int64{
		"1": 1, "42": 42, "1000000000": v1alpha1.MaxNumber,
		"1000000001": 0, "9223372036854775807": 0, "9223372036854775808": 0, "99999999999999999999": 0, "-1": 0, "-9223372036854775808": 0,
		"0": 0, "007": 0, "+1": 0, "1e3": 0, "0x1": 0, "1_000": 0, "": 0, "x": 0, " 1": 0, "１": 0,
	} {
		got := NumberOf(labelled(label))
		assert.That(t, got == want, "%q is %d, want %d", label, got, want)
	}
}

func TestLabelsDoNotChooseTheNextNumber(t *testing.T) {
	made := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	left := func(number string, age time.Duration) *corev1.ConfigMap {
		cm := held("content of "+number, number, "u")
		cm.CreationTimestamp = metav1.NewTime(made.Add(-age))
		return cm
	}
	fresh := &v1alpha1.NodeConfigRollout{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(made)}}
	mutable := left("800", time.Hour)
	mutable.Immutable = nil
	old := fresh.DeepCopy()
	old.Status.UpdateRevision = &v1alpha1.RolloutRevision{Number: 3}
	old.Status.History = []v1alpha1.RolloutOutcome{{Revision: 4}}
	for name, test := range map[string]struct {
		rollout *v1alpha1.NodeConfigRollout
		cms     []*corev1.ConfigMap
		given   []int64
		want    int64
	}{
		"nothing there":                  {fresh, nil, nil, 0},
		"what an earlier rollout left":   {fresh, []*corev1.ConfigMap{left("7", time.Hour), left("2", time.Hour)}, nil, 7},
		"what nodes were given":          {fresh, nil, []int64{3, 9}, 9},
		"made after the rollout was":     {fresh, []*corev1.ConfigMap{left("7", 0), left("8", -time.Hour)}, nil, 0},
		"what is not immutable":          {fresh, []*corev1.ConfigMap{mutable}, nil, 0},
		"a number that no rollout has":   {fresh, []*corev1.ConfigMap{left("1000001", time.Hour), left("9223372036854775807", time.Hour)}, nil, 0},
		"forged numbers on nodes":        {fresh, nil, []int64{3, 1<<63 - 1, maxInheritedNumber + 1}, 3},
		"a status, and planted numbers":  {old, []*corev1.ConfigMap{left("900", time.Hour)}, []int64{900}, 4},
		"the status of an older version": {old, nil, nil, 4},
	} {
		assert.Equal(t, highestNumber(test.rollout, byName(test.cms...), test.given), test.want, name)
	}
}

func TestTheDigestIsComputedFromTheContent(t *testing.T) {
	const text = "kind: KubeletConfiguration\n"
	for name, test := range map[string]struct {
		cm   corev1.ConfigMap
		want string
	}{
		"a payload": {corev1.ConfigMap{Data: map[string]string{"kubelet": text}}, payload.Digest("kubelet", []byte(text))},
		"a drop-in": {corev1.ConfigMap{Data: map[string]string{"kubelet-dropin": text}}, payload.Digest("kubelet-dropin", []byte(text))},
		"nothing":   {corev1.ConfigMap{}, ""},
		"two":       {corev1.ConfigMap{Data: map[string]string{"kubelet": text, "kubelet-dropin": text}}, ""},
		"another":   {corev1.ConfigMap{Data: map[string]string{"kubelet.yaml": text}}, ""},
		"binary":    {corev1.ConfigMap{Data: map[string]string{"kubelet": text}, BinaryData: map[string][]byte{"x": nil}}, ""},
	} {
		assert.Equal(t, PayloadDigest(&test.cm), test.want, name)
	}
}

func TestAnObservationIsReadAsWritten(t *testing.T) {
	for _, m := range []rollout.Observation{
		{Rollout: "workers", Revision: 3, Attempt: 2, HealthySince: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)},
		{Rollout: "workers", Revision: 3, Attempt: 1, Failed: 2, Joined: true},
		{Rollout: "workers", Revision: 3, Attempt: 1, Blocked: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC), Offers: 2, Reason: "NeedsDrain", Message: "in words"},
	} {
		text := assert.Value(ObservationText(m))(t)
		nc := &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationObserved: text}}}
		got := ObservationOf(nc)
		assert.That(t, got == m, "%s is read as %+v, was %+v", text, got, m)
	}

	for _, text := range []string{"", "x", "[]", `{"revision":"3"}`} {
		nc := &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationObserved: text}}}
		got := ObservationOf(nc)
		assert.That(t, got == (rollout.Observation{}), "%q is read as %+v", text, got)
	}
}

func TestAReportedTrialLengthIsLimited(t *testing.T) {
	for seconds, want := range map[int64]time.Duration{-5: 0, 0: 0, 600: 10 * time.Minute, 604800: MaxTrialLength, 604801: MaxTrialLength, 9000000000: MaxTrialLength, math.MaxInt64: MaxTrialLength} {
		nc := &v1alpha1.NodeConfig{Status: v1alpha1.NodeConfigStatus{DefaultTrialSeconds: &seconds}}
		assert.Equal(t, NodeOf(&corev1.Node{}, nc).DefaultTrial, want, seconds, "seconds by default")
		assert.Equal(t, TrialLength(&v1alpha1.Trial{DurationSeconds: seconds}), want, seconds, "seconds")
	}
}

func TestAPreviousSourceWithoutDigestIsIgnored(t *testing.T) {
	for name, test := range map[string]struct {
		ref  v1alpha1.ConfigMapReference
		want bool
	}{
		"bound":            {v1alpha1.ConfigMapReference{Namespace: "n", Name: "c", UID: "u", SHA256: "s"}, true},
		"without a sha256": {v1alpha1.ConfigMapReference{Namespace: "n", Name: "c", UID: "u"}, false},
		"without a UID":    {v1alpha1.ConfigMapReference{Namespace: "n", Name: "c", SHA256: "s"}, false},
	} {
		s := sourceOf(&v1alpha1.NodeConfigSource{
			ConfigMapRef: &v1alpha1.ConfigMapReference{Namespace: "n", Name: "now", UID: "now", SHA256: "now"},
			RolloutRef:   &v1alpha1.RolloutReference{Name: "workers", Revision: 2, Attempt: 1, Previous: &v1alpha1.PreviousSource{ConfigMapRef: test.ref, Rollout: "workers", Revision: 1, Attempt: 1}},
		})
		assert.Equal(t, s.RolloutRef.Previous != nil, test.want, name)
	}
}

func TestTheLastOutcomeOfAContentSaysWhetherItFailed(t *testing.T) {
	entry := func(revision int64, sha256, outcome, reason string, failed int32) v1alpha1.RolloutOutcome {
		return v1alpha1.RolloutOutcome{Revision: revision, SHA256: sha256, Outcome: outcome, Reason: reason, Failed: failed, Message: reason + ": w-7 CrashLooped"}
	}
	stopped := entry(3, "a", v1alpha1.OutcomeHalted, v1alpha1.HaltTooManyFailures, 1)
	const words = "revision 3 was stopped (TooManyFailures: w-7 CrashLooped)"
	marked := held("kind: KubeletConfiguration", "3", "u1")
	marked.Annotations[v1alpha1.AnnotationStopped] = "Aborted: an operator stopped it"
	for name, tt := range map[string]struct {
		history []v1alpha1.RolloutOutcome // newest first
		have    *corev1.ConfigMap
		want    string
	}{
		"nothing":                                {nil, nil, ""},
		"it was stopped":                         {[]v1alpha1.RolloutOutcome{stopped}, nil, words},
		"another was stopped":                    {[]v1alpha1.RolloutOutcome{entry(4, "b", v1alpha1.OutcomeHalted, v1alpha1.HaltAborted, 0)}, nil, ""},
		"stopped, and tried again with success":  {[]v1alpha1.RolloutOutcome{entry(5, "a", v1alpha1.OutcomeSucceeded, "", 0), stopped}, nil, ""},
		"success, and stopped later":             {[]v1alpha1.RolloutOutcome{stopped, entry(1, "a", v1alpha1.OutcomeSucceeded, "", 0)}, nil, words},
		"stopped, and replaced without a result": {[]v1alpha1.RolloutOutcome{entry(5, "a", v1alpha1.OutcomeSuperseded, "", 0), stopped}, nil, words},
		"by an outage":                           {[]v1alpha1.RolloutOutcome{entry(3, "a", v1alpha1.OutcomeHalted, v1alpha1.HaltInconclusive, 1)}, nil, ""},
		"replaced after a failure": {[]v1alpha1.RolloutOutcome{entry(3, "a", v1alpha1.OutcomeSuperseded, "replaced by revision 4; failed", 2)}, nil,
			"revision 3 failed on 2 of its nodes (replaced by revision 4; failed: w-7 CrashLooped)"},
		"the target itself":  {[]v1alpha1.RolloutOutcome{entry(7, "a", v1alpha1.OutcomeHalted, v1alpha1.HaltAborted, 0)}, nil, ""},
		"beyond the history": {nil, marked, "revision 3 was stopped (Aborted: an operator stopped it)"},
	} {
		assert.Equal(t, FailureOf(&v1alpha1.NodeConfigRolloutStatus{History: tt.history}, tt.have, 7, "a"), tt.want, name)
	}
}

// An undo to a revision that nobody has seen succeed must wait for the
// approvals of the steps.
func TestOnlyAnUndoToARevisionThatSucceededPassesThePauses(t *testing.T) {
	content := held("kind: KubeletConfiguration", "3", "u1")
	sha256 := PayloadDigest(content)
	entry := func(outcome, reason string) v1alpha1.RolloutOutcome {
		return v1alpha1.RolloutOutcome{Revision: 3, SHA256: sha256, Outcome: outcome, Reason: reason}
	}
	succeeded := entry(v1alpha1.OutcomeSucceeded, "")
	for name, tt := range map[string]struct {
		history []v1alpha1.RolloutOutcome // newest first
		current *v1alpha1.RolloutRevision
		pinned  bool
		want    bool
	}{
		"it succeeded":               {[]v1alpha1.RolloutOutcome{succeeded}, nil, true, true},
		"beyond the history":         {nil, &v1alpha1.RolloutRevision{Number: 3, ConfigMapRef: v1alpha1.ConfigMapReference{SHA256: sha256}}, true, true},
		"replaced in the next undo":  {[]v1alpha1.RolloutOutcome{entry(v1alpha1.OutcomeSuperseded, ""), succeeded}, nil, true, true},
		"replaced at its first step": {[]v1alpha1.RolloutOutcome{entry(v1alpha1.OutcomeSuperseded, "")}, nil, true, false},
		"aborted after its success":  {[]v1alpha1.RolloutOutcome{entry(v1alpha1.OutcomeHalted, v1alpha1.HaltAborted), succeeded}, nil, true, false},
		"nothing is known":           {nil, nil, true, false},
		"no undo":                    {[]v1alpha1.RolloutOutcome{succeeded}, nil, false, false},
	} {
		r := &v1alpha1.NodeConfigRollout{Status: v1alpha1.NodeConfigRolloutStatus{History: tt.history, CurrentRevision: tt.current}}
		r.Spec.AllNodes, r.Spec.Pin = true, &v1alpha1.RolloutPin{SHA256: sha256, Instead: "other"}
		p := Build(Objects{Rollout: r, Template: Template{Content: payload.Payload{SHA256: sha256}, Pinned: tt.pinned}, Settings: DefaultSettings})
		assert.That(t, p.Invalid == "" && p.PassPauses == tt.want, "%s: it passes the pauses: %t, invalid %q", name, p.PassPauses, p.Invalid)
	}
}

func TestStoppedRevisionsExcludeInconclusiveOnes(t *testing.T) {
	outcome := func(name, outcome, reason, message string) v1alpha1.RolloutOutcome {
		return v1alpha1.RolloutOutcome{ConfigMap: name, Outcome: outcome, Reason: reason, Message: message}
	}
	status := v1alpha1.NodeConfigRolloutStatus{}
	status.History = []v1alpha1.RolloutOutcome{
		outcome("failed", v1alpha1.OutcomeRolledBack, v1alpha1.HaltTooManyFailures, "Inconclusive: not this"),
		outcome("aborted", v1alpha1.OutcomeHalted, v1alpha1.HaltAborted, ""),
		outcome("outage", v1alpha1.OutcomeHalted, v1alpha1.HaltInconclusive, "TooManyFailures: not this"),
		outcome("unclear", v1alpha1.OutcomeHalted, "", ""),
		outcome("superseded", v1alpha1.OutcomeSuperseded, "", "revision 9 took its place"),
		outcome("target", v1alpha1.OutcomeHalted, v1alpha1.HaltAborted, ""),
	}
	want := []string{"aborted", "failed", "unclear"}
	got := stopped(&status, nil, "target")
	assert.That(t, slices.Equal(got, want), "got %v, want %v", got, want)
}

// A revision that succeeded and was aborted later is nothing to return to.
func TestAnUndoPassesOverARevisionThatFailedAfterItsSuccess(t *testing.T) {
	revision := func(number int64, sha256 string) *v1alpha1.RolloutRevision {
		return &v1alpha1.RolloutRevision{Number: number, ConfigMapRef: v1alpha1.ConfigMapReference{Name: "workers-" + sha256, SHA256: sha256}}
	}
	entry := func(number int64, sha256, outcome, reason string) v1alpha1.RolloutOutcome {
		return v1alpha1.RolloutOutcome{Revision: number, ConfigMap: "workers-" + sha256, SHA256: sha256, Outcome: outcome, Reason: reason, Message: reason}
	}
	r := &v1alpha1.NodeConfigRollout{Status: v1alpha1.NodeConfigRolloutStatus{
		UpdateRevision: revision(3, "c"), CurrentRevision: revision(2, "b"),
		History: []v1alpha1.RolloutOutcome{
			entry(2, "b", v1alpha1.OutcomeRolledBack, v1alpha1.HaltAborted), entry(1, "a", v1alpha1.OutcomeSucceeded, ""),
		},
	}}
	assert.Equal(t, PreviousRevision(&r.Status), 1, "after the abort it returns")
	r.Status.History[0].Outcome = v1alpha1.OutcomeSucceeded
	assert.Equal(t, PreviousRevision(&r.Status), 2, "after a success it returns")
	r.Status.History[1].Revision, r.Status.History[0] = 0, entry(2, "b", v1alpha1.OutcomeHalted, v1alpha1.HaltTooManyFailures)
	r.Status.History = r.Status.History[:1]
	assert.Equal(t, PreviousRevision(&r.Status), 0, "without any it returns")
}

// TestForgedTaintsDrainNothingForEver gives a Node the taint of a drain with
// numbers and times that no controller writes.
func TestForgedTaintsDrainNothingForEver(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))}}
	for value, want := range map[string]struct {
		rollout string
		since   time.Time
	}{
		"1.1.1777636800." + DrainID("u"):                   {DrainID("u"), now},
		"1.1.7258118400." + DrainID("u"):                   {DrainID("u"), now.Add(-time.Hour)},
		"9223372036854775807.1.1777636800." + DrainID("u"): {unknownDrain, time.Time{}},
		"1.1000000001.1777636800." + DrainID("u"):          {unknownDrain, time.Time{}},
	} {
		node.Spec.Taints = []corev1.Taint{{Key: v1alpha1.TaintDraining, Value: value, Effect: corev1.TaintEffectNoSchedule}}
		n := NodeOf(node, nil)
		IgnoreLater(&n, now.Add(MaxAhead))
		assert.That(t, n.Drain.Rollout == want.rollout && n.Drain.Since.Equal(want.since), "%s is %+v", value, n.Drain)
	}
}
