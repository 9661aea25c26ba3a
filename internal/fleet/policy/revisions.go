package policy

import (
	"math"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/payload"
)

// Recorded is a revision that a rollout's status names. Only the controller writes there; labels and annotations of a
// ConfigMap are anybody's who may create one.
type Recorded struct {
	Number int64
	Name   string // of its ConfigMap
	UID    types.UID
	SHA256 string // of the payload
}

// Matches reports whether a ConfigMap with this UID and this payload is the revision.
func (r Recorded) Matches(uid types.UID, sha256 string) bool {
	return r.UID != "" && r.SHA256 != "" && r.UID == uid && r.SHA256 == sha256
}

// Is reports whether a ConfigMap, nil if there is none, is the revision.
func (r Recorded) Is(cm *corev1.ConfigMap) bool {
	return cm != nil && r.Matches(cm.UID, PayloadDigest(cm))
}

// RecordedOf returns a revision that a status names.
func RecordedOf(v *v1alpha1.RolloutRevision) Recorded {
	return Recorded{v.Number, v.ConfigMapRef.Name, v.ConfigMapRef.UID, v.ConfigMapRef.SHA256}
}

// RecordedIn returns the revisions that a status names by UID and sha256, newest first, one of each number.
func RecordedIn(st *v1alpha1.NodeConfigRolloutStatus) []Recorded {
	var out []Recorded
	add := func(r Recorded) {
		known := slices.ContainsFunc(out, func(o Recorded) bool { return o.Number == r.Number })
		if r.UID != "" && r.SHA256 != "" && !known {
			out = append(out, r)
		}
	}
	for _, v := range []*v1alpha1.RolloutRevision{st.UpdateRevision, st.CurrentRevision} {
		if v != nil {
			add(RecordedOf(v))
		}
	}
	for _, h := range st.History {
		r := Recorded{h.Revision, h.ConfigMap, h.UID, h.SHA256}
		for _, v := range []*v1alpha1.RolloutRevision{st.UpdateRevision, st.CurrentRevision} {
			// An earlier version recorded the name alone. A content that came back has its ConfigMap still.
			if v != nil && r.UID == "" && r.SHA256 == "" && r.Name == v.ConfigMapRef.Name {
				r.UID, r.SHA256 = v.ConfigMapRef.UID, v.ConfigMapRef.SHA256
			}
		}
		add(r)
	}
	slices.SortStableFunc(out, func(a, b Recorded) int { return int(min(1, max(-1, b.Number-a.Number))) })
	return out
}

// Numbered returns the revision of a number that a status names; false if it names none.
func Numbered(st *v1alpha1.NodeConfigRolloutStatus, number int64) (Recorded, bool) {
	all := RecordedIn(st)
	if i := slices.IndexFunc(all, func(r Recorded) bool { return r.Number == number }); i >= 0 {
		return all[i], true
	}
	return Recorded{}, false
}

// NumberOf returns the number that a ConfigMap's label claims; 0 if the label is none that the controller writes.
func NumberOf(cm *corev1.ConfigMap) int64 {
	label := cm.Labels[v1alpha1.LabelRevision]
	n, err := strconv.ParseInt(label, 10, 64)
	if err != nil || n < 1 || n == math.MaxInt64 || strconv.FormatInt(n, 10) != label {
		return 0
	}
	return n
}

// PayloadDigest returns the sha256 of the payload of a ConfigMap, which may be stripped; empty if it holds none, or more than
// one thing.
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

// Immutable reports whether nobody can change what a ConfigMap holds.
func Immutable(cm *corev1.ConfigMap) bool { return cm.Immutable != nil && *cm.Immutable }

// IsRevision reports whether a ConfigMap looks like one that the controller has made: it cannot be changed, and has the name
// of what it holds. Anybody could make such a one; only what a status names is a revision.
func IsRevision(cm *corev1.ConfigMap) bool {
	sha256 := PayloadDigest(cm)
	return sha256 != "" && cm.Name == RevisionName(cm.Labels[v1alpha1.LabelRollout], sha256) && Immutable(cm)
}

// mostLeft is the highest number that is believed of a ConfigMap that an earlier rollout of the same name left.
const maxInheritedNumber = 1_000_000

// highestNumber returns the highest number that a rollout has used: as its status says; before it has a status, as the
// ConfigMaps and the nodes say that an earlier rollout of its name left. assigned are the numbers that nodes were assigned.
// A ConfigMap counts only if it looks like a revision and is older than the rollout: that time is the API server's.
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
	return max(highest, slices.Max(append(assigned, 0)))
}
