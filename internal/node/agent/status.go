package agent

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/trial"
)

// statusDetails are the parts of a status that are not part of the decision.
type statusDetails struct {
	generation       int64
	remote           v1alpha1.RemoteConfig
	runMode          v1alpha1.RunMode
	componentVersion string
	agentVersion     string
	overridden       []string
	limits           []component.Limit
	workloadPods     *int64
}

// nodeConfigStatus converts a decision's status to the API's.
func nodeConfigStatus(st trial.Status, f statusDetails) v1alpha1.NodeConfigStatus {
	out := v1alpha1.NodeConfigStatus{
		ObservedGeneration: f.generation,
		LastKnownGood:      lastKnownGood(st.LastKnownGood),
		Local:              v1alpha1.LocalConfigDefault,
		Error:              st.Error,
		RemoteConfig:       f.remote,
		RunMode:            f.runMode,
		ComponentVersion:   f.componentVersion,
		AgentVersion:       f.agentVersion,
		OverriddenFields:   f.overridden,
		WorkloadPods:       f.workloadPods,
		Conditions: []metav1.Condition{{
			Type:               v1alpha1.ConditionConfigOK,
			Status:             metav1.ConditionStatus(st.Condition.Status),
			ObservedGeneration: f.generation,
			Reason:             st.Condition.Reason,
			Message:            st.Condition.Message + ": " + st.Condition.Cause,
		}},
	}
	if len(f.limits) > 0 {
		var words []string
		for _, limit := range f.limits {
			words = append(words, limit.Message)
		}
		out.Conditions = append(out.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionKubeletLimited, Status: metav1.ConditionTrue, ObservedGeneration: f.generation,
			Reason: f.limits[0].Reason, Message: strings.Join(words, "; "),
		})
	}
	if st.Local == trial.Init {
		out.Local = v1alpha1.LocalConfigInit
	}
	if st.Assigned != nil {
		out.Assigned = &v1alpha1.AssignedConfig{ConfigRevision: revision(*st.Assigned), RolloutRef: rolloutRef(st.Assigned.Rollout)}
	}
	if !st.Active.IsLocal() {
		active := revision(st.Active)
		out.Active = &active
	}
	if p := st.Trial; p != nil {
		start := metav1.NewTime(p.StartTime)
		out.Trial = &v1alpha1.Trial{
			StartTime:          &start,
			HealthySeconds:     int64(p.Healthy / time.Second),
			DurationSeconds:    int64(p.Duration / time.Second),
			Restarts:           int64(p.Restarts),
			CrashLoopThreshold: int64(p.Threshold),
		}
	}
	for _, b := range st.Bad {
		when := metav1.NewTime(b.Time)
		out.BadConfigs = append(out.BadConfigs, v1alpha1.BadConfig{
			UID: types.UID(b.UID), Revision: b.Revision, Namespace: b.Namespace, Name: b.Name, Time: &when,
			Reason: b.String(), Provisional: b.Provisional,
		})
	}
	return out
}

func lastKnownGood(r trial.AdoptedConfig) *v1alpha1.LastKnownGoodConfig {
	if r.IsLocal() {
		return nil
	}
	since := metav1.NewTime(r.Since)
	return &v1alpha1.LastKnownGoodConfig{ConfigRevision: revision(r.Config), Since: &since}
}

func revision(c trial.Config) v1alpha1.ConfigRevision {
	return v1alpha1.ConfigRevision{Namespace: c.Namespace, Name: c.Name, UID: types.UID(c.UID), SHA256: c.Payload, Revision: c.Revision}
}

func rolloutRef(r trial.RolloutRef) *v1alpha1.RolloutReference {
	if r.Name == "" {
		return nil
	}
	return &v1alpha1.RolloutReference{Name: r.Name, Revision: r.Revision, Attempt: r.Attempt, AssignedAt: metav1.NewTime(r.AssignedAt)}
}
