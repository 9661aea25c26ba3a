// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package describe

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/internal/rollout"
)

// Row is a node in the output of `kubectl evenkeel nodes`.
type Row struct {
	Name             string    `json:"name"`
	Zone             string    `json:"zone,omitempty"`
	Assigned         string    `json:"assigned,omitempty"`
	Active           string    `json:"active,omitempty"`
	LastKnownGood    string    `json:"lastKnownGood,omitempty"`
	ConfigOK         RowStatus `json:"configOK"`
	Trial            *RowTrial `json:"trial,omitempty"`
	RemoteConfig     string    `json:"remoteConfig,omitempty"`
	RunMode          string    `json:"runMode,omitempty"`
	ComponentVersion string    `json:"componentVersion,omitempty"`
	// ResolvedValues are those of the active configuration that depend on the
	// machine.
	ResolvedValues []v1alpha1.ResolvedValue `json:"resolvedValues,omitempty"`
	AgentVersion   string                   `json:"agentVersion,omitempty"`
	Problems       []string                 `json:"problems,omitempty"`
	// Drift is nil if the agent reports no comparison.
	Drift *rowDrift `json:"drift,omitempty"`

	Standing
}

// RowStatus is the condition ConfigOK.
type RowStatus struct {
	Status  string       `json:"status,omitempty"`
	Reason  string       `json:"reason,omitempty"`
	Message string       `json:"message,omitempty"`
	Since   *metav1.Time `json:"since,omitempty"`
}

// RowTrial is the trial that a node is in, as last reported. The duration of an
// assignment that ends by itself is the time until then.
type RowTrial struct {
	v1alpha1.Trial
	ElapsedSeconds int64 `json:"elapsedSeconds"`
}

// local is the label of the local configuration.
const local = "local"

// RowOf summarizes a node. See StandingOf for s and agentTimeout.
func RowOf(p fleet.Pair, s *rollout.NodeState, agentTimeout time.Duration, now time.Time) Row {
	row := Row{Problems: problemsOf(p), Standing: StandingOf(p, s, agentTimeout, now)}
	if p.Node != nil {
		row.Name, row.Zone = p.Node.Name, p.Node.Labels[corev1.LabelTopologyZone]
		row.ComponentVersion = p.Node.Status.NodeInfo.KubeletVersion
	}

	nc := p.Config
	if nc == nil {
		return row
	}

	st := &nc.Status
	row.Name = nc.Name
	row.Assigned = assignedName(nc)
	if !fleet.HasReported(nc) {
		return row
	}

	row.Active, row.LastKnownGood = revisionLabel(nc, st.Active), local
	if l := st.LastKnownGood; l != nil {
		row.LastKnownGood = revisionLabel(nc, &l.ConfigRevision)
	}

	row.RemoteConfig, row.RunMode, row.AgentVersion = string(st.RemoteConfig), string(st.RunMode), st.AgentVersion
	row.ComponentVersion = cmp.Or(st.ComponentVersion, row.ComponentVersion)
	row.ResolvedValues = st.ResolvedValues
	if c := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionConfigOK); c != nil {
		row.ConfigOK = RowStatus{Status: string(c.Status), Reason: c.Reason, Message: c.Message, Since: &c.LastTransitionTime}
		if at := c.LastTransitionTime; at.IsZero() || at.After(now) {
			row.ConfigOK.Since = &metav1.Time{Time: now}
		}
	}

	row.Drift = driftOf(st)
	if t := st.Trial; t != nil {
		row.Trial = &RowTrial{Trial: *t}
		row.Trial.DurationSeconds = int64(fleet.TrialLength(t) / time.Second)
		if end := endOf(nc); end != nil {
			row.Trial.DurationSeconds = int64(end.Duration.Seconds())
		}
		if t.StartTime != nil {
			row.Trial.ElapsedSeconds = int64(max(0, now.Sub(t.StartTime.Time)).Seconds())
		}
	}

	return row
}

// endOf returns when the assignment that a node runs ends by itself; nil: it
// does not.
func endOf(nc *v1alpha1.NodeConfig) *v1alpha1.TemporaryAssignment {
	s, active := nc.Spec.ConfigSource, nc.Status.Active
	if s == nil || s.ConfigMapRef == nil || active == nil || active.UID != s.ConfigMapRef.UID || !takesFromNodeConfig(nc) {
		return nil
	}

	return s.Temporary
}

// assignedName returns the label of the assigned configuration: workers/4, the
// name of a ConfigMap, or local.
func assignedName(nc *v1alpha1.NodeConfig) string {
	if nc.Status.RemoteConfig == v1alpha1.RemoteConfigConfigMap {
		if assigned := nc.Status.Assigned; assigned != nil {
			return assigned.Name
		}

		return local
	}

	ref := nc.Spec.ConfigSource.Content()
	if ref.Name == "" || nc.Status.RemoteConfig == v1alpha1.RemoteConfigDisabled {
		return local
	}

	return refLabel(nc, ref.UID, ref.Name)
}

func revisionLabel(nc *v1alpha1.NodeConfig, r *v1alpha1.ConfigRevision) string {
	if r == nil {
		return local
	}

	return refLabel(nc, r.UID, r.Name)
}

// refLabel returns ROLLOUT/REVISION for a ConfigMap if the NodeConfig lists
// those, and otherwise its name.
func refLabel(nc *v1alpha1.NodeConfig, uid types.UID, name string) string {
	ref := nc.Spec.ConfigSource.By()
	switch {
	case ref.Name == "":
	case nc.Spec.ConfigSource.Content().UID == uid:
		return fmt.Sprintf("%s/%d", ref.Name, ref.Revision)
	case ref.Previous != nil && ref.Previous.ConfigMapRef.UID == uid:
		return fmt.Sprintf("%s/%d", ref.Previous.Rollout, ref.Previous.Revision)
	}

	return name
}

// problemsOf lists the problems of a node.
func problemsOf(p fleet.Pair) []string {
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	switch {
	case p.NodeUnread:
	case p.Node == nil:
		say("the Node does not exist")
	case !fleet.IsReady(p.Node):
		say("the Node is not Ready")
	}

	nc := p.Config
	switch {
	case nc == nil:
		say("no agent yet: no NodeConfig")
		return out
	case !fleet.HasReported(nc):
		say("no agent yet: nothing has written the status of its NodeConfig")
		return out
	}

	st := &nc.Status
	if c := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionConfigOK); c == nil || c.Status != metav1.ConditionTrue {
		say("ConfigOK is not True")
	} else if st.Error != "" {
		say("%s", st.Error)
	}

	if takesFromNodeConfig(nc) && st.ObservedGeneration != nc.Generation {
		say("the agent has not answered the newest spec")
	}

	if n := len(st.OverriddenFields); n > 0 {
		say("%s %s", printable.Count(n, "field"), printable.Verb(n, "has no effect: a command-line flag of the kubelet overrides it",
			"have no effect: command-line flags of the kubelet override them"))
	}

	return out
}

func takesFromNodeConfig(nc *v1alpha1.NodeConfig) bool {
	return nc.Status.RemoteConfig == "" || nc.Status.RemoteConfig == v1alpha1.RemoteConfigNodeConfig
}

// rowDrift says how the running kubelet of a node compares with what its agent
// started: the condition Drifted, and the details in status.drift.
type rowDrift struct {
	RowStatus
	v1alpha1.Drift
}

// driftOf returns nil if the agent has not reported a comparison: it is older,
// or has just started.
func driftOf(st *v1alpha1.NodeConfigStatus) *rowDrift {
	c := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionDrifted)
	if c == nil {
		return nil
	}

	d := &rowDrift{RowStatus: RowStatus{Status: string(c.Status), Reason: c.Reason, Message: c.Message, Since: &c.LastTransitionTime}}
	if st.Drift != nil {
		d.Drift = *st.Drift
	}

	return d
}

// Drifted reports whether something differs. It is false for nil.
func (d *rowDrift) Drifted() bool { return d != nil && d.Status == string(metav1.ConditionTrue) }

// Differs lists what differs, of each kind at most most names. Without details
// it returns the message of the condition.
func (d *rowDrift) Differs(most int) string {
	var out []string
	say := func(kind string, names []string) {
		if len(names) > 0 {
			out = append(out, kind+" "+printable.First(names, most, ", "))
		}
	}
	say("running:", d.Fields)
	say("file:", d.Files)
	if len(out) == 0 {
		return d.Message
	}

	return strings.Join(out, "; ")
}
