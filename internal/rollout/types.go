// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// Claim identifies a rollout that selects a node. Holder orders claims.
type Claim struct {
	Name     string
	Priority int32
	Created  time.Time
}

// Content is a payload that was a revision of the rollout.
type Content struct {
	Number  int64
	Stopped bool // it failed or was aborted the last time
}

// Input is a rollout as Plan takes it: what the API says, and what only the
// caller knows.
type Input struct {
	Claim
	UID        types.UID
	Generation int64
	Spec       v1alpha1.NodeConfigRolloutSpec   // with all defaults
	Status     v1alpha1.NodeConfigRolloutStatus // Result.Next of the last plan; in a new process, the stored one
	Controller v1alpha1.RolloutController       // the settings for every rollout
	// Now never goes back, and is not before any time that was recorded for
	// this rollout.
	Now time.Time

	Target        v1alpha1.RolloutRevision // of the last valid template; zero: there is none
	Invalid       string                   // why the spec or the template is invalid; empty: they are valid
	PassPauses    bool                     // the Target is an undo to a revision that succeeded: it passes the pauses of the steps
	Replaced      string                   // what spec.pin holds Target in place of; empty: nothing
	PinGone       bool                     // Invalid, because the revision that spec.pin names is gone
	TargetFailed  string                   // how the content of Target failed as an earlier revision; empty: it did not
	LastSucceeded v1alpha1.RolloutRevision // the newest that succeeded, other than the target; zero: there is none
	// LastSucceededGone: its ConfigMap does not exist, so that rollback to it
	// is impossible.
	LastSucceededGone bool
	// Stopped are the names of the ConfigMaps of revisions that failed or were
	// aborted, of this rollout and of others. A node must never fall back to
	// them.
	Stopped []string
	// Contents are the contents of the revisions that the status names, by the
	// sha256 of the payload, with the newest number of each.
	Contents map[string]Content
	// Revisions are the UIDs of the ConfigMaps of this rollout's revisions;
	// nil: not known.
	Revisions []types.UID
	// Term is the number of the controller's leadership, higher for each
	// leader. 0: there is no election.
	Term    int64
	Outages Outages // that this leader knows
	DrainID string  // of this rollout, in the records of drains
	// Unwritten is why the controller cannot write what it decides, since
	// several attempts; empty: it can.
	Unwritten string

	ControlPlanes []Node // those of the cluster that the rollout does not select
	ReadsPods     bool   // the caller reads the static pods that the plan asks for

	RespectBudgets bool // a restart that makes pods unready is a disruption
	Budgets        Budgets

	Windows  []Window      // spec.strategy.windows
	Trial    time.Duration // how long a trial of the target takes
	AnyTrial bool          // nothing sets that length: Trial counts only if no node says which length it uses

	Measurements []Measurement // at most one for each gate; none where this process does not evaluate gates
	// GatesSince is that of the last Result. It is not in the status: after a
	// restart, gates are evaluated again.
	GatesSince time.Time

	PreflightRoom int // how many preflight requests of this rollout may be unanswered at the same time
}

// Node is all that is observed about one node. It contains no time that a node
// wrote: a node's clock does not affect any decision.
type Node struct {
	Name        string
	Created     time.Time // of the Node, by the API server's clock
	Domain      string    // value of the topology key's label
	MachineKind string    // architecture, OS, kubelet version and instance type, joined
	Canary      bool
	Last        bool   // updated last: the controller runs there
	Owner       string // another rollout that has the node; empty: this one has it

	ControlPlane bool // has the label of control planes
	// SettledAt is when the caller last saw that Unsettled became empty; zero:
	// never.
	SettledAt  time.Time
	StaticPods *StaticPods // nil: not known

	Ready bool
	// WentNotReady is when the caller last saw the node become NotReady, or
	// first saw it NotReady; zero: never. It stays when the node is Ready
	// again.
	WentNotReady time.Time
	Observation  Observation
	Ignored      string // records of the controller that it cannot have written; empty: none
	// Maintenance says that others work on the node, and where they say so;
	// empty: nobody does. MaintenanceSince is when the caller first saw it.
	Maintenance      string
	MaintenanceSince time.Time
	Drain            Drain
	DrainReport      *DrainReport // of the last eviction pass; nil: none is known
	ProbeReport      *ProbeReport // of the last pass over its start probe; nil: none is known
	Preflight        Preflight
	Disruptions      *Disruptions // nil: not known
	Startup          bool         // has the startup taint
	Known            bool         // an agent has written ConfigOK True on this Node

	// Of its NodeConfig.
	HasConfig   bool
	Generation  int64                      // of spec
	Observed    int64                      // status.observedGeneration
	Reported    bool                       // an agent has written a status
	OtherSource v1alpha1.RemoteConfig      // ConfigMap or Disabled, if the node does not use its NodeConfig
	Source      *v1alpha1.NodeConfigSource // never changed, but replaced, like all pointers here
	Revoked     []types.UID

	// Of its status.
	Active        *v1alpha1.ConfigRevision
	LastKnownGood *v1alpha1.ConfigRevision
	Idle          bool // had no workload pods at the agent's last write, which may be long ago; false if unknown
	Disrupts      bool // a restart of its kubelet makes pods unready
	InTrial       bool
	TrialHealthy  bool // the kubelet was healthy in the trial
	TrialLength   time.Duration
	DefaultTrial  time.Duration          // the length of a trial that nothing sets; 0: unknown
	OK            metav1.ConditionStatus // status of ConfigOK: True, False, Unknown or empty
	Reason        string                 // of ConfigOK
	Provisional   bool                   // the verdict on Source may still change
	Error         string
	PodStarts     string // reason of PodsStarted; empty: it is True, or not reported
	PodsRefused   string // of PodStarts
}

// State is the state of a node in the rollout.
type State uint8

// The states of nodes.
const (
	Pending State = iota
	Assigned
	Trial
	Soaking
	Updated
	Failed
	Skipped
	Stale
	Conflicted
	Manual
	Blocked  // its guards refuse the target because of its pods; the kubelet was not restarted
	Draining // its pods are being evicted
)

var stateNames = [...]string{"Pending", "Assigned", "Trial", "Soaking", "Updated", "Failed", "Skipped", "Stale", "Conflicted", "Manual",
	"Blocked", "Draining"}

func (s State) String() string { return stateNames[s] }

// NodeState is a node's state, and why it is in this state.
type NodeState struct {
	State   State
	Reason  string // of a failure, in CamelCase
	Message string
}

// MoveKind is the purpose of a move.
type MoveKind uint8

// The kinds of moves.
const (
	Assign   MoveKind = iota // the target
	Join                     // a revision for a new node
	TakeBack                 // an assignment that was not accepted returns to the previous source
	GoBack                   // a node is rolled back from a stopped revision
	Renew                    // the same assignment in the current leader's term
)

var moveNames = [...]string{"Assign", "Join", "TakeBack", "GoBack", "Renew"}

func (k MoveKind) String() string { return moveNames[k] }

// Move is one write of the complete spec of one NodeConfig.
type Move struct {
	Node    int // index into the nodes of the plan
	Kind    MoveKind
	Source  *v1alpha1.NodeConfigSource // nil: none
	Revoked []types.UID
}

// Counts are numbers of nodes. Members are those that this rollout may update:
// percentages refer to them. Unavailable nodes use up the Budget, which is
// maxUnavailable as a number.
type Counts struct {
	v1alpha1.RolloutCounts
	Budget int32
}

// Event is an Event of the rollout.
type Event struct {
	Warning         bool
	Reason, Message string
	// Assigned are the nodes that were assigned the target, if the Event is
	// about that: it is true only after the Moves. All other Events are true at
	// once.
	Assigned []string
}

// NodesAssigned returns the Event that nodes were assigned the target in a
// step.
func (in *Input) NodesAssigned(step int32, nodes []string) Event {
	return Event{
		Reason: "NodesAssigned", Assigned: nodes,
		Message: fmt.Sprintf("revision %d was assigned to %s (step %d/%d): %s",
			in.Target.Number, printable.Count(len(nodes), "node"), step, len(in.Spec.Strategy.Steps), joinNames(nodes)),
	}
}

// Observation is what a plan remembers about one node and its assignment. A
// node cannot change it. It is valid only for the source with the same Rollout,
// Revision and Attempt. It is stored as JSON.
type Observation struct {
	Rollout  string `json:"rollout"`
	Revision int64  `json:"revision"`
	Attempt  int64  `json:"attempt"`
	// when the node was first seen with the revision proven, Ready and ConfigOK
	// True; zero: it is not
	HealthySince time.Time `json:"fineSince,omitzero"`
	Failed       int64     `json:"failedInAttempt,omitempty"` // the attempt in which the node failed; 0: it has not
	Joined       bool      `json:"joined,omitempty"`          // the node got the source as a new node

	Maintenance Maintenance `json:"maintenance,omitzero"` // of the node, since the source was assigned

	Probe        ProbeResult `json:"startProbe,omitempty"`
	ProbeMessage string      `json:"startProbeMessage,omitempty"` // why; empty if it passed

	// RefusedBefore is the assignment, as revision/attempt, before which the
	// node already reported that it cannot start pods.
	RefusedBefore string `json:"podsRefusedBefore,omitempty"`
	// NotReadyBefore are the static pods of a control plane that were not Ready
	// when it was assigned the source, joined with commas.
	NotReadyBefore string `json:"staticPodsNotReadyBefore,omitempty"`

	// If the target was taken back from the node because the node refused it
	// for its pods. Revision and Attempt are then those of the rollout,
	// whatever the node's source is.
	Blocked time.Time `json:"blockedAt,omitzero"` // when it was taken back; zero: it was not
	Offers  int       `json:"offers,omitempty"`   // how often the target was offered
	Reason  string    `json:"reason,omitempty"`   // of the refusal, in CamelCase
	Message string    `json:"message,omitempty"`  // from the node
}

// Result is what Plan decides. First record Observations, then Next, then make
// the Moves in their order, then write the Taints, then evict. It is safe to do
// any of it twice.
type Result struct {
	Observations map[int]Observation // by index of the node; one without a Rollout removes the existing one
	Next         v1alpha1.NodeConfigRolloutStatus
	// since when the step has been done, in whole seconds: older measurements
	// do not let the rollout continue; zero: it is not
	GatesSince   time.Time
	Moves        []Move
	Taints       []Taint
	Probe        []int                 // indexes of nodes over whose start probes a pass is due
	DropProbe    []int                 // indexes of nodes whose start probes end without a result
	Evict        []int                 // indexes of nodes over which an eviction pass is due
	HandOver     string                // the leader's own node, if the leader has to hand over before it is drained
	Startup      map[int]StartupState  // by index of the nodes with the startup taint that this rollout has
	Ask          []int                 // indexes of nodes to ask about the target; asking twice has no effect
	NodeState    func(i int) NodeState // of a node
	States       []State               // of all
	Counts       Counts
	Events       []Event
	Measure      []string      // gates to evaluate now; the caller plans again with their Measurements
	Inspect      []int         // indexes of nodes whose Disruptions are to be read, with the Budgets; then the rollout is planned again
	ReadBudgets  bool          // the Budgets are to be read; then the rollout is planned again
	ReadStatic   []string      // names of control planes whose StaticPods are to be read; then the rollout is planned again
	RequeueAfter time.Duration // plan again after this time, even without a change; 0: not needed
}

// Stopped reports whether the target was stopped because it is bad: an
// inconclusive stop does not blame it.
func (r *Result) Stopped() bool {
	return r.Next.Halt != nil && r.Next.Halt.Reason != v1alpha1.HaltInconclusive
}
