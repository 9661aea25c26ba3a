// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/payload"
)

// Holds reports whether a ConfigMap, nil if there is none, is the one with this
// UID and this payload. Only the controller writes a status; anyone who may
// create ConfigMaps can choose their labels and annotations.
func Holds(cm *corev1.ConfigMap, ref *v1alpha1.ConfigMapReference) bool {
	return cm != nil && ref.UID != "" && ref.SHA256 != "" && ref.UID == cm.UID && ref.SHA256 == PayloadDigest(cm)
}

// RecordedIn returns the revisions that a status names by UID and sha256,
// newest first, one of each number. Those of the history have no namespace.
func RecordedIn(st *v1alpha1.NodeConfigRolloutStatus) []v1alpha1.RolloutRevision {
	var out []v1alpha1.RolloutRevision
	add := func(r v1alpha1.RolloutRevision) {
		known := slices.ContainsFunc(out, func(o v1alpha1.RolloutRevision) bool { return o.Number == r.Number })
		if r.ConfigMapRef.UID != "" && r.ConfigMapRef.SHA256 != "" && !known {
			out = append(out, r)
		}
	}
	for _, v := range []*v1alpha1.RolloutRevision{st.UpdateRevision, st.CurrentRevision} {
		if v != nil {
			add(*v)
		}
	}

	for _, h := range st.History {
		add(v1alpha1.RolloutRevision{Number: h.Revision,
			ConfigMapRef: v1alpha1.ConfigMapReference{Name: h.ConfigMap, UID: h.UID, SHA256: h.SHA256}})
	}

	slices.SortStableFunc(out, func(a, b v1alpha1.RolloutRevision) int { return cmp.Compare(b.Number, a.Number) })

	return out
}

// Numbered returns the ConfigMap of the revision with a number that a status
// names; zero if there is none.
func Numbered(st *v1alpha1.NodeConfigRolloutStatus, number int64) v1alpha1.ConfigMapReference {
	for _, r := range RecordedIn(st) {
		if r.Number == number {
			return r.ConfigMapRef
		}
	}

	return v1alpha1.ConfigMapReference{}
}

// NumberOf returns the number in a ConfigMap's label; 0 if the controller
// cannot have written the label.
func NumberOf(cm *corev1.ConfigMap) int64 {
	label := cm.Labels[v1alpha1.LabelRevision]
	n, err := strconv.ParseInt(label, 10, 64)
	if err != nil || n < 1 || n > v1alpha1.MaxNumber || strconv.FormatInt(n, 10) != label {
		return 0
	}

	return n
}

// PayloadDigest returns the sha256 of the payload in a ConfigMap, which may be
// stripped; empty if the ConfigMap does not hold exactly one payload.
func PayloadDigest(cm *corev1.ConfigMap) string {
	if kept, stripped := cm.Annotations[AnnotationDigest]; stripped {
		return kept
	}
	if len(cm.Data) != 1 || len(cm.BinaryData) != 0 {
		return ""
	}

	for _, key := range []string{payload.KeyKubelet, payload.KeyKubeletDropin} {
		if data, ok := cm.Data[key]; ok {
			return payload.Digest(key, []byte(data))
		}
	}

	return ""
}

// Immutable reports whether a ConfigMap is immutable.
func Immutable(cm *corev1.ConfigMap) bool { return cm.Immutable != nil && *cm.Immutable }

// IsRevision reports whether a ConfigMap looks like one that the controller
// created: it is immutable, and its name matches its content. Anyone could
// create it: only a ConfigMap that a status names is a revision.
func IsRevision(cm *corev1.ConfigMap) bool {
	sha256 := PayloadDigest(cm)
	return sha256 != "" && cm.Name == RevisionName(cm.Labels[v1alpha1.LabelRollout], sha256) && Immutable(cm)
}

// maxInheritedNumber is the highest number that is accepted from a ConfigMap or
// a node that an earlier rollout of the same name left.
const maxInheritedNumber = 1_000_000

// highestNumber returns the highest revision number that a rollout has used,
// according to its status. Before it has a status, the number comes from
// ConfigMaps and nodes that an earlier rollout of the same name left; assigned
// are the numbers on nodes. A ConfigMap counts only if it looks like a revision
// and is older than the rollout, by the API server's time.
func highestNumber(r *v1alpha1.NodeConfigRollout, labelled map[string]*corev1.ConfigMap, assigned []int64) int64 {
	st := &r.Status
	var highest int64
	for _, v := range []*v1alpha1.RolloutRevision{st.UpdateRevision, st.CurrentRevision} {
		if v != nil {
			highest = max(highest, v.Number)
		}
	}

	for _, h := range st.History {
		highest = max(highest, h.Revision)
	}
	if highest > 0 {
		return highest
	}

	for _, cm := range labelled {
		if n := NumberOf(cm); n <= maxInheritedNumber && cm.CreationTimestamp.Time.Before(r.CreationTimestamp.Time) && IsRevision(cm) {
			highest = max(highest, n)
		}
	}

	assigned = slices.DeleteFunc(slices.Clone(assigned), func(n int64) bool { return n > maxInheritedNumber })

	return max(highest, slices.Max(append(assigned, 0)))
}
