// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"math"
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
		"a number that no rollout has":   {fresh, []*corev1.ConfigMap{left("1000001", time.Hour), left("9223372036854775807", time.Hour)}, nil, 0},
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
