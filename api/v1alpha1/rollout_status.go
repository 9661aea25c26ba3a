// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// NodeConfigRolloutStatus is the progress of a rollout. Only evenkeel-controller writes it. Except for the first few
// failed nodes, it does not list nodes: their state is in their NodeConfigs.
type NodeConfigRolloutStatus struct {
	// observedGeneration is the metadata.generation that this status reports on.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// phase summarizes the conditions in one word.
	// +optional
	Phase RolloutPhase `json:"phase,omitempty"`

	// message describes the phase in a sentence, with the next action if a person
	// must act.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Message string `json:"message,omitempty"`

	// controller holds the settings from the controller's flags, which apply to
	// every rollout.
	// +optional
	Controller *RolloutController `json:"controller,omitempty"`

	// currentRevision is the newest revision that succeeded. Absent if no revision
	// has succeeded.
	// +optional
	CurrentRevision *RolloutRevision `json:"currentRevision,omitempty"`

	// updateRevision is the revision of the template, also called the target: the
	// one that nodes are being given.
	// +optional
	UpdateRevision *RolloutRevision `json:"updateRevision,omitempty"`

	// attempt is the number of the current attempt at updateRevision, counted from
	// 1.
	// +optional
	Attempt int64 `json:"attempt,omitempty"`

	// attemptTime is the time when the current attempt started.
	// +optional
	AttemptTime *metav1.Time `json:"attemptTime,omitempty"`

	// startTime is the time when updateRevision became the target.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`

	// step is the index of the current step, counted from 0. It equals the number
	// of steps when all steps are done.
	// +optional
	Step int32 `json:"step"`

	// stepTime is the time when the current step started.
	// +optional
	StepTime *metav1.Time `json:"stepTime,omitempty"`

	// progressTime is the time of the last progress. It keeps advancing while the
	// rollout waits for a person or at a timed pause.
	// +optional
	ProgressTime *metav1.Time `json:"progressTime,omitempty"`

	// nodes counts the selected nodes by state.
	// +optional
	Nodes RolloutCounts `json:"nodes,omitempty"`

	// failedNodes lists the first few nodes on which the revision failed, with
	// their reasons.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=10
	FailedNodes []FailedNode `json:"failedNodes,omitempty"`

	// drainingNodes lists the first few nodes that carry the taint
	// evenkeel.dev/draining because of this rollout. The controller removes the
	// taint when the node runs the revision, or when the drain is given up.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=10
	DrainingNodes []DrainingNode `json:"drainingNodes,omitempty"`

	// nextWindowTime is when nodes may be assigned the revision again. Absent if
	// they may now.
	// +optional
	NextWindowTime *metav1.Time `json:"nextWindowTime,omitempty"`

	// preflight counts the answers of the nodes that were asked about
	// updateRevision. Absent if they were not asked.
	// +optional
	Preflight *PreflightResult `json:"preflight,omitempty"`

	// gates holds the last evaluation of each gate.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=10
	Gates []GateStatus `json:"gates,omitempty"`

	// halt describes the stop of updateRevision. Absent if the revision was not
	// stopped. A stop stays until the template changes or the revision is retried.
	// +optional
	Halt *RolloutHalt `json:"halt,omitempty"`

	// history lists the outcomes of the newest revisions, newest first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	History []RolloutOutcome `json:"history,omitempty"`

	// conditions holds Progressing, Available, Degraded, Halted, Complete and
	// JoiningStopped. For tools that wait for objects of any kind, it holds Ready,
	// and Reconciling or Stalled where one of them is True.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Target returns the number of the revision that is being rolled out; 0 if there is none.
func (st *NodeConfigRolloutStatus) Target() int64 {
	if st.UpdateRevision == nil {
		return 0
	}
	return st.UpdateRevision.Number
}

// RolloutController holds the settings that evenkeel-controller's flags give to every rollout. Only evenkeel-controller
// writes it, so that other programs make the same plan.
type RolloutController struct {
	// namespace is the namespace of the revisions' ConfigMaps and of the
	// controller's Lease.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`

	// agentTimeout is how long an agent may take to adopt an assignment while
	// its Node is Ready.
	// +required
	AgentTimeout metav1.Duration `json:"agentTimeout"`

	// notReadyGrace is how long a node may be NotReady after an assignment before
	// the revision counts as failed on this node.
	// +required
	NotReadyGrace metav1.Duration `json:"notReadyGrace"`

	// drain reports whether the controller may list and evict pods, list
	// PodDisruptionBudgets and patch Nodes (config/drain). Absent if it has not
	// asked, because no rollout needs it.
	// +optional
	Drain *bool `json:"drain,omitempty"`

	// startProbe reports whether the controller makes start probes for this rollout:
	// it may create pods in its namespace, and there is an image. Absent if it has
	// not asked, because the rollout needs none.
	// +optional
	StartProbe *bool `json:"startProbe,omitempty"`

	// maintenance lists the keys of taints and the types of Node conditions,
	// besides those that evenkeel knows, with which others announce that they work
	// on a node.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:items:MaxLength=317
	Maintenance []string `json:"maintenance,omitempty"`
	// prometheusServers are the names of the Prometheus servers that gates can
	// name: those of the flag --prometheus-server.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MaxLength=63
	PrometheusServers []string `json:"prometheusServers,omitempty"`
}

// RolloutRevision is one content of a rollout's template.
type RolloutRevision struct {
	// number is the number of the revision, counted from 1.
	// +required
	Number int64 `json:"number"`

	// configMapRef names the immutable ConfigMap that holds the revision.
	// +required
	ConfigMapRef ConfigMapReference `json:"configMapRef"`
}

// RolloutPhase summarizes the state of a rollout.
type RolloutPhase string

// Phases of a rollout. If several apply, the status has the first one in this list.
const (
	RolloutInvalid          RolloutPhase = "Invalid"          // the template cannot be used; no node is assigned anything
	RolloutRollingBack      RolloutPhase = "RollingBack"      // stopped, and nodes are returning to other revisions
	RolloutRolledBack       RolloutPhase = "RolledBack"       // stopped, and the nodes that received the revision have returned
	RolloutHalted           RolloutPhase = "Halted"           // stopped
	RolloutFrozen           RolloutPhase = "Frozen"           // spec.frozen is true
	RolloutNoNodes          RolloutPhase = "NoNodes"          // the selector matches no node that this rollout may change
	RolloutComplete         RolloutPhase = "Complete"         // every node that can run the revision has proven it
	RolloutPaused           RolloutPhase = "Paused"           // spec.paused is true
	RolloutAwaitingApproval RolloutPhase = "AwaitingApproval" // at a pause without a duration
	RolloutWaiting          RolloutPhase = "Waiting"          // at a pause that ends by itself
	RolloutStuck            RolloutPhase = "Stuck"            // no progress for progressDeadlineSeconds
	RolloutProgressing      RolloutPhase = "Progressing"      // nodes are being updated, or could be
)

// Types of the conditions of a NodeConfigRollout.
const (
	ConditionProgressing    = "Progressing"    // nodes are being updated, or could be; the reason is the phase
	ConditionAvailable      = "Available"      // the number of unavailable nodes does not exceed maxUnavailable
	ConditionDegraded       = "Degraded"       // nodes failed, or something hinders the rollout
	ConditionHalted         = "Halted"         // the revision was stopped; the reason is that of the stop
	ConditionComplete       = "Complete"       // every node that can run the revision has proven it
	ConditionJoiningStopped = "JoiningStopped" // nodes that join are assigned nothing, because the revision failed on too many of them
)

// Types of conditions of NodeConfigRollouts and NodeConfigs for tools that wait for objects of any kind, as kstatus defines
// them. Of Reconciling and Stalled at most one exists, and is True.
const (
	ConditionReady       = "Ready"       // what is desired is in effect
	ConditionReconciling = "Reconciling" // it is being put into effect, without a person
	ConditionStalled     = "Stalled"     // it does not come into effect until a person does something
)

// Outcomes of a revision, in status.history.
const (
	OutcomeSucceeded  = "Succeeded"  // every node that could run the revision had proven it
	OutcomeHalted     = "Halted"     // the revision was stopped
	OutcomeRolledBack = "RolledBack" // the revision was stopped, and the nodes that received it have returned
	OutcomeSuperseded = "Superseded" // another revision became the target before any other outcome
)

// Reasons of a stop, in status.halt, in status.history and of the condition Halted.
const (
	// HaltTooManyFailures means that the number of failed nodes reached maxFailures, or that a node named by a retry failed
	// again.
	HaltTooManyFailures = "TooManyFailures"
	// HaltTimeouts means the same, and that all failures that count are timeouts: no node has judged the revision bad.
	HaltTimeouts = "Timeouts"
	// HaltInconclusive means that maxFailures nodes failed, but enough of them became NotReady together with nodes of the
	// same domain that do not have the revision. The revision is not held responsible: it is neither rolled back nor
	// revoked.
	HaltInconclusive = "Inconclusive"
	// HaltAborted means that a person stopped the revision with spec.abort.
	HaltAborted = "Aborted"
	// HaltGateFailed means that the value of a gate did not pass as often as the gate allows.
	HaltGateFailed = "GateFailed"
	// HaltPreflightRefused means that maxFailures nodes or more refused the revision before any node was assigned it.
	HaltPreflightRefused = "PreflightRefused"
)

// RolloutCounts counts nodes by state. All counts except selected, unavailable and rollingBack add up to selected.
type RolloutCounts struct {
	// selected is the number of nodes that the selector matches, in any state.
	// +required
	Selected int32 `json:"selected"`
	// members is the number of nodes that the rollout updates: the selected ones
	// without those of other rollouts, of persons, and of other sources.
	// +optional
	Members int32 `json:"members,omitempty"`
	// pending is the number of nodes to which the revision has not been assigned.
	// +required
	Pending int32 `json:"pending"`
	// assigned is the number of nodes to which the revision was assigned and whose
	// agents have not adopted it.
	// +required
	Assigned int32 `json:"assigned"`
	// trial is the number of nodes that run the revision on trial or have not
	// decided yet.
	// +required
	Trial int32 `json:"trial"`
	// soaking is the number of nodes that passed their trial less than soakSeconds
	// ago.
	// +required
	Soaking int32 `json:"soaking"`
	// updated is the number of nodes that have proven the revision.
	// +required
	Updated int32 `json:"updated"`
	// failed is the number of nodes on which the revision failed: it was bad
	// there, it changed protected fields, it took too long, or the node became
	// NotReady after the assignment.
	// +required
	Failed int32 `json:"failed"`
	// skipped is the number of nodes that cannot receive the revision now, because
	// they were NotReady before or opted out.
	// +required
	Skipped int32 `json:"skipped"`
	// stale is the number of nodes whose agent does not answer.
	// +required
	Stale int32 `json:"stale"`
	// conflicted is the number of nodes that belong to another rollout.
	// +required
	Conflicted int32 `json:"conflicted"`
	// manual is the number of nodes with a source that a person wrote.
	// +required
	Manual int32 `json:"manual"`
	// blocked is the number of nodes that refuse the revision because of their
	// pods (WouldEvictPods, RestartWouldEvictPods or NeedsDrain). They keep their
	// configuration and have not failed.
	// +optional
	Blocked int32 `json:"blocked,omitempty"`
	// draining is the number of nodes that are being drained for the revision.
	// +optional
	Draining int32 `json:"draining,omitempty"`
	// unavailable is the number of nodes that count against maxUnavailable.
	// +required
	Unavailable int32 `json:"unavailable"`
	// rollingBack is the number of nodes that are returning from a stopped
	// revision.
	// +required
	RollingBack int32 `json:"rollingBack"`
}

// FailedNode is a node on which the revision failed.
type FailedNode struct {
	// name is the name of the node.
	// +required
	Name string `json:"name"`
	// reason is the reason in one word: the reason of the node's ConfigOK
	// condition, or Timeout, or NodeNotReady.
	// +optional
	Reason string `json:"reason,omitempty"`
	// message is the explanation in the node's own words.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// DrainingNode is a node that carries the taint evenkeel.dev/draining.
type DrainingNode struct {
	// name is the name of the node.
	// +required
	Name string `json:"name"`
	// since is the time when the drain began.
	// +required
	Since metav1.Time `json:"since"`
	// message says what the drain waits for.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// PreflightResult counts the answers of nodes that were asked whether they would adopt a configuration.
type PreflightResult struct {
	// startTime is the time when the first node was asked.
	// +required
	StartTime metav1.Time `json:"startTime"`
	// endTime is the time when all nodes had answered or were too late. Absent
	// until then.
	// +optional
	EndTime *metav1.Time `json:"endTime,omitempty"`
	// accepted is the number of nodes that accept the revision.
	// +required
	Accepted int32 `json:"accepted"`
	// refused is the number of nodes that refuse it, except for their pods.
	// +required
	Refused int32 `json:"refused"`
	// blocked is the number of nodes that refuse it because of their pods.
	// +required
	Blocked int32 `json:"blocked"`
	// unknown is the number of nodes that cannot tell, such as a node whose
	// container runtime is down.
	// +optional
	Unknown int32 `json:"unknown,omitempty"`
	// unanswered is the number of nodes that have not answered, or that could not
	// be asked because they are NotReady or have no agent.
	// +required
	Unanswered int32 `json:"unanswered"`
	// groups are the groups of nodes with the same answer: first those that refuse
	// the configuration or cannot tell, then those for which it changes the same
	// fields; most nodes first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	Groups []PreflightGroup `json:"groups,omitempty"`
	// unansweredNodes names the first few nodes that have not answered.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	UnansweredNodes []string `json:"unansweredNodes,omitempty"`
}

// PreflightGroup is a group of nodes that refuse a configuration, or cannot tell, for the same reason, or for which it changes the
// same fields.
type PreflightGroup struct {
	// verdict is Accepted, Refused or Unknown.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Verdict PreflightVerdict `json:"verdict,omitempty"`
	// reason is the reason in one word, as in the condition ConfigOK. Absent if the
	// verdict is Accepted.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason,omitempty"`
	// message is the explanation of the first of these nodes, in its own words. If
	// the verdict is Accepted, it is what the configuration changes.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
	// nodes is the number of nodes.
	// +required
	Nodes int32 `json:"nodes"`
	// examples are the names of the first few of these nodes.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	Examples []string `json:"examples,omitempty"`
}

// GateState is the result of a gate's last evaluation.
type GateState string

// The results of an evaluation.
const (
	GatePassing GateState = "Passing" // the value meets the condition
	GateFailing GateState = "Failing" // the value does not meet the condition
	GateEmpty   GateState = "NoData"  // the result is empty or NaN
	GateError   GateState = "Error"   // the gate could not be evaluated
	GatePending GateState = "Pending" // the gate has not been evaluated
)

// GateStatus is the last evaluation of a gate.
type GateStatus struct {
	// name is the name of the gate.
	// +required
	Name string `json:"name"`
	// state is Passing, Failing, NoData, Error or Pending.
	// +required
	State GateState `json:"state"`
	// value is the value of the query, as a decimal number. Absent if there is
	// none.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Value string `json:"value,omitempty"`
	// time is the time of the evaluation.
	// +optional
	Time *metav1.Time `json:"time,omitempty"`
	// failures is the number of failed evaluations in a row.
	// +optional
	Failures int32 `json:"failures,omitempty"`
	// step is the step after which the gate passed last.
	// +optional
	Step int32 `json:"step,omitempty"`
	// message explains the state in a sentence.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// RolloutHalt is the stop of a revision.
type RolloutHalt struct {
	// attempt is the number of the stopped attempt. A higher attempt lifts the
	// stop.
	// +required
	Attempt int64 `json:"attempt"`
	// reason is TooManyFailures, Timeouts, Inconclusive, Aborted, GateFailed
	// or PreflightRefused.
	// +required
	Reason string `json:"reason"`
	// message explains the stop in a sentence.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Message string `json:"message,omitempty"`
	// time is the time of the stop.
	// +required
	Time metav1.Time `json:"time"`
	// rollback reports whether nodes are rolled back.
	// +optional
	Rollback bool `json:"rollback,omitempty"`
}

// RolloutOutcome is the outcome of a revision.
type RolloutOutcome struct {
	// revision is the number of the revision.
	// +required
	Revision int64 `json:"revision"`
	// configMap is the name of the revision's ConfigMap.
	// +optional
	ConfigMap string `json:"configMap,omitempty"`
	// uid is the metadata.uid of that ConfigMap. A ConfigMap with another UID is
	// not this revision.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=128
	UID types.UID `json:"uid,omitempty"`
	// sha256 is the digest of the revision's payload, as in configMapRef. A
	// ConfigMap with another payload is not this revision.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	SHA256 string `json:"sha256,omitempty"`
	// outcome is Succeeded, Halted, RolledBack or Superseded.
	// +required
	Outcome string `json:"outcome"`
	// reason is the reason of the stop if the outcome is Halted or RolledBack:
	// TooManyFailures, Timeouts, Inconclusive, Aborted, GateFailed or
	// PreflightRefused.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason,omitempty"`
	// message explains the outcome in a sentence.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
	// startTime is the time when the revision became the target.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// endTime is the time when the outcome was decided.
	// +optional
	EndTime *metav1.Time `json:"endTime,omitempty"`
	// updated is the number of nodes that had proven the revision at endTime.
	// +optional
	Updated int32 `json:"updated,omitempty"`
	// failed is the number of nodes on which the revision had failed at endTime.
	// +optional
	Failed int32 `json:"failed,omitempty"`
}
