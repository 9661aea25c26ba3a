// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"slices"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// StripMeta removes the metadata that no plan needs, and replaces the labels.
func StripMeta(m *metav1.ObjectMeta, labels map[string]string) {
	*m = metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion, Generation: m.Generation,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp, Labels: labels,
	}
}

// maxAnnouncements is how many taints and how many conditions of a Node are
// kept that only a flag could make announcements of maintenance. A node can set
// any number of conditions on itself.
const maxAnnouncements = 32

// pressures are conditions of a Node that a configuration of its kubelet can
// cause.
var pressures = []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure}

// StripNode removes from a Node what NodeOf, MaintenanceOf, HasStartupTaint and
// selectors do not read.
func StripNode(n *corev1.Node) {
	StripMeta(&n.ObjectMeta, internKeys(n.Labels, n.Name))
	var taints []corev1.Taint
	others := 0
	for _, t := range n.Spec.Taints {
		kept := corev1.Taint{Key: intern(t.Key), Effect: intern(t.Effect)}
		switch {
		case t.Key == v1alpha1.TaintDraining:
			kept.Value = t.Value
		case isMaintenanceTaint(t.Key, nil):
		case others == maxAnnouncements:
			continue
		default:
			others++
		}

		taints = append(taints, kept)
	}

	n.Spec = corev1.NodeSpec{Taints: taints, Unschedulable: n.Spec.Unschedulable}
	info := n.Status.NodeInfo
	var conditions []corev1.NodeCondition
	others = 0
	for _, c := range n.Status.Conditions {
		kept := corev1.NodeCondition{Type: intern(c.Type), Status: intern(c.Status)}
		switch is := c.Status == corev1.ConditionTrue; {
		case c.Type == corev1.NodeReady, is && slices.Contains(pressures, c.Type):
			kept.LastTransitionTime = c.LastTransitionTime
		case isMaintenanceCondition(&c, nil):
		case is && others < maxAnnouncements:
			others++
		default:
			continue
		}

		conditions = append(conditions, kept)
	}

	n.Status = corev1.NodeStatus{Conditions: conditions, NodeInfo: corev1.NodeSystemInfo{
		KubeletVersion: intern(info.KubeletVersion), Architecture: intern(info.Architecture), OperatingSystem: intern(info.OperatingSystem),
	}}
}

// internKeys returns labels whose keys are shared with those of other nodes. A
// value that is the node's name shares its memory.
func internKeys(labels map[string]string, name string) map[string]string {
	if labels == nil {
		return nil
	}

	shared := make(map[string]string, len(labels))
	for key, value := range labels {
		if value == name {
			value = name
		}

		shared[intern(key)] = value
	}

	return shared
}

// intern returns one shared copy of a string that many nodes have in common.
func intern[T ~string](s T) T { return T(unique.Make(string(s)).Value()) }

// StripNodeConfig removes from a NodeConfig what neither NodeOf nor a decision
// about revisions reads.
func StripNodeConfig(nc *v1alpha1.NodeConfig) {
	var kept map[string]string
	for _, name := range []string{v1alpha1.AnnotationObserved, v1alpha1.AnnotationPreflight} {
		if value, is := nc.Annotations[name]; is {
			if kept == nil {
				kept = map[string]string{}
			}

			kept[name] = intern(value)
		}
	}

	StripMeta(&nc.ObjectMeta, nil)
	nc.Annotations = kept
	if s := nc.Spec.ConfigSource; s != nil {
		stripReference(s.ConfigMapRef)
		stripRolloutRef(s.RolloutRef)
	}

	st := &nc.Status
	stripRevisionOf(st.Assigned)
	stripRevisionOf(st.Active)
	if st.LastKnownGood != nil {
		stripRevisionOf(&st.LastKnownGood.ConfigRevision)
	}

	st.AgentVersion, st.ComponentVersion = intern(st.AgentVersion), ""
	st.OverriddenFields, st.ResolvedValues = nil, nil
	st.Error = printable.Cut(st.Error, v1alpha1.MaxFailedMessage)
	st.Conditions = slices.DeleteFunc(st.Conditions, func(c metav1.Condition) bool {
		return c.Type == v1alpha1.ConditionReady || c.Type == v1alpha1.ConditionReconciling || c.Type == v1alpha1.ConditionStalled ||
			c.Type == v1alpha1.ConditionPodsStarted && c.Status == metav1.ConditionTrue
	})
	for i := range st.Conditions {
		c := &st.Conditions[i]
		c.Type, c.Reason, c.Message = intern(c.Type), intern(c.Reason), intern(printable.Cut(c.Message, v1alpha1.MaxFailedMessage))
	}

	if p := st.Preflight; p != nil {
		p.UID, p.Reason, p.Message = intern(p.UID), intern(p.Reason), intern(printable.Cut(p.Message, v1alpha1.MaxFailedMessage))
	}

	for i, b := range st.BadConfigs {
		st.BadConfigs[i] = v1alpha1.BadConfig{UID: b.UID, Provisional: b.Provisional}
	}
}

func stripReference(ref *v1alpha1.ConfigMapReference) {
	if ref != nil {
		ref.Namespace, ref.Name, ref.UID, ref.SHA256 = intern(ref.Namespace), intern(ref.Name), intern(ref.UID), intern(ref.SHA256)
	}
}

func stripRolloutRef(r *v1alpha1.RolloutReference) {
	if r == nil {
		return
	}

	r.Name = intern(r.Name)
	if p := r.Previous; p != nil {
		p.Rollout = intern(p.Rollout)
		stripReference(&p.ConfigMapRef)
	}
}

// stripRevisionOf keeps only UID and digest.
func stripRevisionOf(r *v1alpha1.ConfigRevision) {
	if r != nil {
		*r = v1alpha1.ConfigRevision{UID: intern(r.UID), SHA256: intern(r.SHA256)}
	}
}

// StripRollout removes from a rollout the metadata that no plan needs.
func StripRollout(r *v1alpha1.NodeConfigRollout) { StripMeta(&r.ObjectMeta, nil) }

// AnnotationDigest is the annotation of a stripped ConfigMap with the digest of
// its payload. Its name is invalid in the API, so no stored object can have it.
const AnnotationDigest = "digest of what it holds"

// StripRevision replaces the content of a revision's ConfigMap by its digest.
// It may be called twice.
func StripRevision(cm *corev1.ConfigMap) {
	if _, done := cm.Annotations[AnnotationDigest]; done {
		return
	}

	kept := map[string]string{AnnotationDigest: PayloadDigest(cm)}
	for _, name := range []string{v1alpha1.AnnotationStopped, v1alpha1.AnnotationTerm} {
		if value, ok := cm.Annotations[name]; ok {
			kept[name] = value
		}
	}

	StripMeta(&cm.ObjectMeta, map[string]string{
		v1alpha1.LabelRollout: cm.Labels[v1alpha1.LabelRollout], v1alpha1.LabelRevision: cm.Labels[v1alpha1.LabelRevision],
	})
	cm.Annotations = kept
	cm.Data, cm.BinaryData = nil, nil
}
