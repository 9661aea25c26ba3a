// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/trial"
)

// withheld replaces what a kubelet, a guard or a decoder says about a ConfigMap
// outside of evenkeel's namespace. Whoever writes a NodeConfig may not be
// allowed to read that ConfigMap, so that no report names its keys or values.
const withheld = "the details are only in this node's log, because the ConfigMap is outside of namespace " + v1alpha1.SystemNamespace

// isForeign reports whether a NodeConfig made the node read a configuration of
// this namespace from outside of evenkeel's.
func (a *Agent) isForeign(namespace string) bool {
	return a.o.Remote == v1alpha1.RemoteConfigNodeConfig && namespace != "" && namespace != v1alpha1.SystemNamespace
}

// readsForeign reports whether one of the node's configurations is foreign.
func (a *Agent) readsForeign() bool {
	s := a.state
	configs := []trial.Config{a.assignment.config, s.Current.Config, s.LastKnownGood.Config, s.Run.Config}
	return slices.ContainsFunc(configs, func(c trial.Config) bool { return a.isForeign(c.Namespace) })
}

// published returns a decision's status as others may see it. The reason and
// the effect always stay, and so does the cause if the configuration was not
// read.
func (a *Agent) published(st trial.Status) trial.Status {
	st.Bad = slices.Clone(st.Bad)
	for i, b := range st.Bad {
		if b.Detail != "" && a.isForeign(b.Namespace) {
			st.Bad[i].Detail = withheld
		}
	}

	unread := slices.Contains([]string{v1alpha1.ReasonSyncFailed, v1alpha1.ReasonObjectChanged, v1alpha1.ReasonStaleAssignment},
		st.Condition.Reason)
	if a.readsForeign() && st.PodStarts.Refused != "" {
		st.PodStarts.Refused = withheld
	}

	if a.readsForeign() && !unread && st.Error != "" {
		st.Error = st.Condition.Reason + ": " + withheld
		if st.Condition.Status != metav1.ConditionTrue {
			st.Condition.Cause = st.Error
		}
	}

	return st
}

// nodeConfigStatus adds a decision's status and the limits of the kubelet to a
// status that has the other fields.
func nodeConfigStatus(st trial.Status, limits []component.Limit, out v1alpha1.NodeConfigStatus) v1alpha1.NodeConfigStatus {
	out.Error, out.Trial = st.Error, st.Trial
	out.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionConfigOK, Status: st.Condition.Status, Reason: st.Condition.Reason,
		Message: st.Condition.Message + ": " + st.Condition.Cause,
	}}
	out.Conditions = append(out.Conditions, readiness(st)...)
	if len(limits) > 0 {
		var words []string
		for _, limit := range limits {
			words = append(words, limit.Message)
		}

		out.Conditions = append(out.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionKubeletLimited, Status: metav1.ConditionTrue, Reason: limits[0].Reason, Message: strings.Join(words, "; "),
		})
	}

	if p := st.PodStarts; p.Starts != "" {
		out.Conditions = append(out.Conditions, podsStarted(p))
	}
	if out.Drift != nil { // the last one: see source.Reporter, which adds it to a status that has none
		out.Conditions = append(out.Conditions, drifted(out.Drift, st.Active))
	}

	for i := range out.Conditions {
		out.Conditions[i].ObservedGeneration = out.ObservedGeneration
	}
	if a := st.Assigned; a != nil {
		out.Assigned = a.ConfigRevision.DeepCopy()
	}
	if !st.Active.IsLocal() {
		out.Active = st.Active.ConfigRevision.DeepCopy()
	}
	if good := st.LastKnownGood; !good.IsLocal() {
		out.LastKnownGood = &v1alpha1.LastKnownGoodConfig{ConfigRevision: good.ConfigRevision, Since: new(metav1.NewTime(good.Since))}
	}

	for _, b := range st.Bad {
		out.BadConfigs = append(out.BadConfigs, v1alpha1.BadConfig{
			UID: b.UID, Revision: b.Revision, Namespace: b.Namespace, Name: b.Name, Time: new(metav1.NewTime(b.Time)),
			Reason: b.String(), Provisional: b.Provisional,
		})
	}

	return out
}

// podsStarted returns the condition that says whether pods were started with
// the active configuration.
func podsStarted(p trial.Promotion) metav1.Condition {
	status := map[string]metav1.ConditionStatus{
		v1alpha1.PodsStartObserved: metav1.ConditionTrue, v1alpha1.PodsStartUnknown: metav1.ConditionUnknown,
	}
	return metav1.Condition{
		Type: v1alpha1.ConditionPodsStarted, Status: cmp.Or(status[p.Starts], metav1.ConditionFalse), Reason: p.Starts, Message: p.Words(),
	}
}

// readiness returns the conditions for tools that wait for objects of any kind:
// Ready, and Reconciling or Stalled where one of them is True. While ConfigOK
// is Unknown, the agent tries again by itself.
func readiness(st trial.Status) []metav1.Condition {
	ready := metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: st.Condition.Reason, Message: st.Condition.Cause,
	}
	other := ready
	other.Status = metav1.ConditionTrue
	switch {
	case st.Condition.Status == metav1.ConditionFalse:
		other.Type = v1alpha1.ConditionStalled
	case st.Condition.Status == metav1.ConditionUnknown:
		other.Type = v1alpha1.ConditionReconciling
	case st.Trial != nil:
		other.Type = v1alpha1.ConditionReconciling
		ready.Reason, ready.Message = "OnTrial", "the configuration runs on trial"
		other.Reason, other.Message = ready.Reason, ready.Message
	default:
		ready.Status = metav1.ConditionTrue
		return []metav1.Condition{ready}
	}

	return []metav1.Condition{ready, other}
}

// configured returns the condition evenkeel.dev/Configured of the Node, which
// says whether an assigned configuration runs.
func configured(st trial.Status, generation int64) metav1.Condition {
	c := metav1.Condition{Status: st.Condition.Status, Reason: st.Condition.Reason, Message: st.Condition.Cause}
	if st.Assigned == nil {
		c = metav1.Condition{Status: metav1.ConditionUnknown, Reason: "NothingAssigned", Message: "no configuration is assigned"}
	}
	if generation > 0 {
		c.Message += fmt.Sprintf(" (NodeConfig generation %d)", generation)
	}

	return c
}
