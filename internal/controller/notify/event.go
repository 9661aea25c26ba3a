// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
)

// Kind is what a notification is about.
type Kind string

// The kinds of notifications.
const (
	Halted      = Kind(v1alpha1.ConditionHalted)    // the revision was stopped
	RollingBack = Kind(v1alpha1.RolloutRollingBack) // nodes return from the stopped revision
	RolledBack  = Kind(v1alpha1.RolloutRolledBack)  // all nodes that had the stopped revision have returned
	Frozen      = Kind(v1alpha1.RolloutFrozen)      // no node moves, not even back
	// nodes refuse the revision because of their pods, and no other node is in
	// progress
	Blocked          = Kind("Blocked")
	AwaitingApproval = Kind(v1alpha1.RolloutAwaitingApproval) // at a pause that ends with an approval
	Complete         = Kind(v1alpha1.ConditionComplete)       // every node that can run the revision has proven it
	Degraded         = Kind(v1alpha1.ConditionDegraded)       // the condition Degraded is True, and the revision was not stopped
)

// typePrefix begins the type of each event.
const typePrefix = "dev.evenkeel.rollout."

// Event is a CloudEvent in the structured JSON format. It is made from a
// rollout's stored status alone, so that every controller makes the same event
// of the same state: receivers drop the second one by its ID.
type Event struct {
	SpecVersion     string    `json:"specversion"`
	ID              string    `json:"id"`
	Source          string    `json:"source"`
	Type            string    `json:"type"`
	Subject         string    `json:"subject"`
	Time            time.Time `json:"time"` // since when the state lasts
	DataContentType string    `json:"datacontenttype"`
	Data            Data      `json:"data"`
}

// Data is the state of a rollout.
type Data struct {
	Kind     Kind                   `json:"kind"`
	Rollout  string                 `json:"rollout"`
	UID      types.UID              `json:"uid"`
	Revision int64                  `json:"revision,omitempty"`
	Attempt  int64                  `json:"attempt,omitempty"`
	Phase    v1alpha1.RolloutPhase  `json:"phase"`
	Reason   string                 `json:"reason,omitempty"` // of the stop, or of the condition Degraded
	Message  string                 `json:"message"`
	Step     int32                  `json:"step"`
	Nodes    v1alpha1.RolloutCounts `json:"nodes"`
	// FailedNodes are the names of the first few failed nodes.
	FailedNodes []string `json:"failedNodes,omitempty"`
}

// EventsOf returns the events for the present state of a rollout. moving
// reports whether nodes are about to be moved, which the status does not say.
func EventsOf(r *v1alpha1.NodeConfigRollout, moving bool) []Event {
	st := &r.Status
	var out []Event
	add := func(kind Kind, reason, message string, since metav1.Time) {
		revision := st.Target()
		id := fmt.Sprintf("%s.%d.%d.%s", r.UID, revision, st.Attempt, kind)
		if kind == Degraded {
			id += "-" + reason
		}

		data := Data{
			Kind: kind, Rollout: r.Name, UID: r.UID, Revision: revision, Attempt: st.Attempt, Phase: st.Phase,
			Reason: reason, Message: message, Step: st.Step, Nodes: st.Nodes,
		}
		for _, n := range st.FailedNodes {
			data.FailedNodes = append(data.FailedNodes, n.Name)
		}

		out = append(out, Event{
			SpecVersion: "1.0", ID: fmt.Sprintf("%s.%d", id, since.Unix()), Source: "/apis/" + v1alpha1.GroupVersion.String() +
				"/nodeconfigrollouts/" + r.Name,
			Type: typePrefix + strings.ToLower(string(kind)), Subject: r.Name, Time: since.UTC(), DataContentType: "application/json", Data: data,
		})
	}
	condition := func(kind string) *metav1.Condition {
		if c := meta.FindStatusCondition(st.Conditions, kind); c != nil && c.Status == metav1.ConditionTrue {
			return c
		}

		return nil
	}
	// outcome returns when an outcome of the target was recorded, which does
	// not change any more.
	outcome := func(want string, otherwise metav1.Time) metav1.Time {
		for _, o := range st.History {
			if o.Revision == st.Target() && o.Outcome == want && o.EndTime != nil {
				return *o.EndTime
			}
		}

		return otherwise
	}
	if h := st.Halt; h != nil {
		add(Halted, h.Reason, st.Message, h.Time)
		switch describe.UrgencyOf(r).Reason {
		case describe.ReasonRollingBackFrozen:
			add(Frozen, h.Reason, st.Message, h.Time)
		case string(RollingBack):
			add(RollingBack, h.Reason, st.Message, h.Time)
		case string(RolledBack):
			add(RolledBack, h.Reason, st.Message, outcome(v1alpha1.OutcomeRolledBack, h.Time))
		}

		return out
	}

	n := &st.Nodes
	idle := n.Assigned+n.Trial+n.Soaking+n.Draining+n.RollingBack == 0 && !moving
	switch st.Phase {
	case v1alpha1.RolloutAwaitingApproval:
		if st.StepTime != nil {
			add(AwaitingApproval, "", st.Message, *st.StepTime)
		}
	case v1alpha1.RolloutComplete:
		if c := condition(v1alpha1.ConditionComplete); c != nil {
			add(Complete, "", st.Message, outcome(v1alpha1.OutcomeSucceeded, c.LastTransitionTime))
		}
	case v1alpha1.RolloutFrozen:
		var since metav1.Time // one of these conditions became False then, and none changes while the rollout is frozen
		for _, c := range st.Conditions {
			if (c.Type == v1alpha1.ConditionProgressing || c.Type == v1alpha1.ConditionComplete) && c.LastTransitionTime.After(since.Time) {
				since = c.LastTransitionTime
			}
		}

		add(Frozen, "", st.Message, since)
	case v1alpha1.RolloutProgressing, v1alpha1.RolloutStuck:
		if n.Blocked > 0 && idle && st.ProgressTime != nil {
			add(Blocked, "", st.Message, *st.ProgressTime)
		}
	}

	if c := condition(v1alpha1.ConditionDegraded); c != nil {
		add(Degraded, c.Reason, c.Message, c.LastTransitionTime)
	}

	return slices.Clip(out)
}

// encode returns an event as it is sent.
func (e Event) encode() ([]byte, error) { return json.Marshal(e) }
