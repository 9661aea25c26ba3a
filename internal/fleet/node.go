// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fleet converts objects of the API to what rollout.Plan wants: Build
// makes its input of a rollout, its revisions and the controller's settings,
// and NodeOf that of a Node and its NodeConfig. Feed watches the objects of a
// kind.
//
// The controller, the CLI and the dashboard call the same functions, so that
// their plans are equal. The package must not decide, write, or describe:
// internal/operator/describe does that.
package fleet

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/rollout"
)

// MaxTrialLength limits the trial length that a node reports: a payload cannot
// ask for more.
const MaxTrialLength = 168 * time.Hour

// TrialLength returns the length of the trial that a node reports.
func TrialLength(t *v1alpha1.Trial) time.Duration { return limitTrial(t.DurationSeconds) }

func limitTrial(seconds int64) time.Duration {
	return time.Duration(min(max(seconds, 0), int64(MaxTrialLength/time.Second))) * time.Second
}

// LabelControlPlane is the label of control planes, whatever its value is.
const LabelControlPlane = "node-role.kubernetes.io/control-plane"

// NodeOf returns what is observed about a node, without the fields that depend
// on the rollout (Domain, Canary, Last, Owner) and without what the caller
// observes, such as WentNotReady. It contains no time that a node wrote. The
// NodeConfig may be nil.
func NodeOf(node *corev1.Node, nc *v1alpha1.NodeConfig) rollout.Node {
	info := node.Status.NodeInfo
	n := rollout.Node{
		Name: node.Name, Created: node.CreationTimestamp.Time,
		MachineKind: info.Architecture + " " + info.OperatingSystem + " " + info.KubeletVersion + " " +
			node.Labels[corev1.LabelInstanceTypeStable],
	}
	n.Ready, n.Drain = IsReady(node), DrainOf(node)
	_, n.ControlPlane = node.Labels[LabelControlPlane]
	n.Known = slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == v1alpha1.ConditionConfigOK && c.Status == corev1.ConditionTrue
	})
	if nc == nil {
		return n
	}

	st := &nc.Status
	n.HasConfig, n.Generation, n.Observed, n.Revoked = true, nc.Generation, st.ObservedGeneration, nc.Spec.Revoked
	n.Reported = HasReported(nc)
	if st.RemoteConfig != "" && st.RemoteConfig != v1alpha1.RemoteConfigNodeConfig {
		n.OtherSource = st.RemoteConfig
	}

	n.Source = sourceOf(nc.Spec.ConfigSource)
	if n.Observation = ObservationOf(nc); n.Observation.Rollout == "" && nc.Annotations[v1alpha1.AnnotationObserved] != "" {
		ignore(&n, "the annotation "+v1alpha1.AnnotationObserved)
	}
	if s := nc.Spec.ConfigSource; s != nil && s.RolloutRef != nil && n.Source.By().Name == "" {
		ignore(&n, "its rolloutRef")
	}

	n.Preflight = preflightOf(nc)
	n.Idle = st.WorkloadPods != nil && *st.WorkloadPods == 0
	n.Disrupts = disrupts(node, st)
	n.Active = st.Active
	if s := st.DefaultTrialSeconds; s != nil {
		n.DefaultTrial = limitTrial(*s)
	}
	if l := st.LastKnownGood; l != nil {
		n.LastKnownGood = &l.ConfigRevision
	}
	if t := st.Trial; t != nil {
		n.InTrial, n.TrialHealthy, n.TrialLength = true, t.HealthySeconds > 0, TrialLength(t)
	}
	if c := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionConfigOK); c != nil {
		n.OK, n.Reason, n.Error = c.Status, c.Reason, cmp.Or(st.Error, c.Message)
	}
	if c := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionPodsStarted); c != nil {
		n.PodStarts, n.PodsRefused = c.Reason, c.Message
	}

	for _, b := range st.BadConfigs {
		n.Provisional = n.Provisional || b.Provisional && b.UID == n.Source.Content().UID
	}

	return n
}

// ReadyCondition returns the condition Ready of a Node; nil if it has none.
func ReadyCondition(node *corev1.Node) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady {
			return c
		}
	}

	return nil
}

// sourceOf returns a source, without what no controller can have written: a
// reference with other numbers counts as a person's, and a previous source
// without UID and sha256 may have another content now.
func sourceOf(s *v1alpha1.NodeConfigSource) *v1alpha1.NodeConfigSource {
	if s == nil || s.RolloutRef == nil {
		return s
	}

	r, p := s.RolloutRef, s.RolloutRef.Previous
	ours := numbered(r.Revision, r.Attempt) && r.Term <= v1alpha1.MaxTerm
	known := p == nil || p.ConfigMapRef.UID != "" && p.ConfigMapRef.SHA256 != "" && numbered(p.Revision, p.Attempt)
	switch {
	case !ours:
		return &v1alpha1.NodeConfigSource{Local: s.Local, ConfigMapRef: s.ConfigMapRef}
	case !known:
		s = s.DeepCopy()
		s.RolloutRef.Previous = nil
	}

	return s
}

// RecordedInStatus returns the newest time that the controller recorded in a
// rollout's status.
func RecordedInStatus(st *v1alpha1.NodeConfigRolloutStatus) time.Time {
	newest := rollout.Latest(rollout.TimeOf(st.StartTime), rollout.TimeOf(st.AttemptTime), rollout.TimeOf(st.StepTime),
		rollout.TimeOf(st.ProgressTime))
	if h := st.Halt; h != nil {
		newest = rollout.Latest(newest, h.Time.Time)
	}
	if p := st.Preflight; p != nil {
		newest = rollout.Latest(newest, p.StartTime.Time, rollout.TimeOf(p.EndTime))
	}

	for i := range st.Gates {
		newest = rollout.Latest(newest, rollout.TimeOf(st.Gates[i].Time))
	}

	for i := range st.DrainingNodes {
		newest = rollout.Latest(newest, st.DrainingNodes[i].Since.Time)
	}

	return newest
}

// RecordedOnNode returns the newest time that the controller recorded on a node
// for a rollout. Call IgnoreLater before.
func RecordedOnNode(name string, n *rollout.Node) time.Time {
	var newest time.Time
	if by := n.Source.By(); by.Name == name {
		newest = by.AssignedAt.Time
	}

	if n.Observation.Rollout == name {
		o := &n.Observation
		newest = rollout.Latest(newest, o.HealthySince, o.Maintenance.Since, o.Maintenance.Ended)
	}

	return newest
}

// Pair is a node and its NodeConfig. Either may be nil, not both.
type Pair struct {
	Node       *corev1.Node
	Config     *v1alpha1.NodeConfig
	NodeUnread bool // Node is nil because the user may not read it
}

// Restart is what a node reports about the cost of a restart of its kubelet.
type Restart struct {
	Kubelet     string // the version
	PodsUnready *int64 // pods that lose Ready until their next probe; nil: not known
}

// Restart returns what the node reports about the cost of a restart.
func (p Pair) Restart() Restart {
	var r Restart
	if p.Node != nil {
		r.Kubelet = p.Node.Status.NodeInfo.KubeletVersion
	}

	if p.Config != nil {
		st := &p.Config.Status
		r.Kubelet, r.PodsUnready = cmp.Or(st.ComponentVersion, r.Kubelet), st.PodsUnreadyOnRestart
	}

	return r
}

// HasReported reports whether an agent has ever written the status.
func HasReported(nc *v1alpha1.NodeConfig) bool {
	return nc.Status.AgentVersion != "" || len(nc.Status.Conditions) > 0
}

// IsReady reports whether a Node is Ready.
func IsReady(node *corev1.Node) bool {
	c := ReadyCondition(node)
	return c != nil && c.Status == corev1.ConditionTrue
}

// ObservationOf returns the observation in a NodeConfig's annotation; zero if
// there is none, or if no controller can have written it.
func ObservationOf(nc *v1alpha1.NodeConfig) rollout.Observation {
	var o rollout.Observation
	err := json.Unmarshal([]byte(nc.Annotations[v1alpha1.AnnotationObserved]), &o)
	if err != nil || !numbered(o.Revision, o.Attempt, o.Failed, int64(o.Offers)) || o.Maintenance.Total < 0 {
		return rollout.Observation{}
	}

	return o
}

// ObservationText returns an observation as the annotation stores it.
func ObservationText(o rollout.Observation) (string, error) {
	o.HealthySince, o.Blocked = o.HealthySince.UTC(), o.Blocked.UTC()
	o.Maintenance.Since, o.Maintenance.Ended = o.Maintenance.Since.UTC(), o.Maintenance.Ended.UTC()
	text, err := json.Marshal(o)
	if err != nil {
		return "", fmt.Errorf("encode an observation: %w", err)
	}

	return string(text), nil
}

// numbered reports whether a controller can have counted to all of these
// numbers.
func numbered(numbers ...int64) bool {
	return slices.Min(numbers) >= 0 && slices.Max(numbers) <= v1alpha1.MaxNumber
}

// MaxAhead is by how much a time that a controller recorded may be ahead of
// another controller's clock.
const MaxAhead = time.Minute

// IgnoreLater removes from a node the records that are later than a time: no
// controller has written them. What is timed by the record then counts from the
// creation of the Node, or from when the controller began to observe the fleet.
func IgnoreLater(n *rollout.Node, latest time.Time) {
	o := &n.Observation
	if rollout.Latest(o.HealthySince, o.Blocked, o.Maintenance.Since, o.Maintenance.Ended).After(latest) {
		n.Observation = rollout.Observation{}
		ignore(n, "the annotation "+v1alpha1.AnnotationObserved)
	}

	if n.Source.By().AssignedAt.After(latest) {
		n.Source = n.Source.DeepCopy()
		n.Source.RolloutRef.AssignedAt = metav1.NewTime(n.Created)
		ignore(n, "the time of its rolloutRef")
	}

	if n.Drain.Since.After(latest) {
		n.Drain.Since = n.Created
		ignore(n, "the time of its taint "+v1alpha1.TaintDraining)
	}
}

// ignore notes a record that cannot be the controller's.
func ignore(n *rollout.Node, what string) {
	n.Ignored = strings.TrimPrefix(n.Ignored+" and "+what, " and ")
}
