package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// NodeConfigRolloutStatus is how far a rollout is. Every field is written by evenkeel-controller alone. It never lists
// nodes, but for a few that failed: NodeConfigs say how each node is.
type NodeConfigRolloutStatus struct {
	// observedGeneration is the metadata.generation that this status answers.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// phase sums the conditions up in one word.
	// +optional
	Phase RolloutPhase `json:"phase,omitempty"`

	// message is the same as a sentence, with what to do next if a person is
	// needed.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Message string `json:"message,omitempty"`

	// controller is what the controller's flags set for every rollout. Absent:
	// an older controller wrote this status.
	// +optional
	Controller *RolloutController `json:"controller,omitempty"`

	// currentRevision is the newest revision that has succeeded. Absent: none
	// has.
	// +optional
	CurrentRevision *RolloutRevision `json:"currentRevision,omitempty"`

	// updateRevision is the revision of the template: what nodes are being given.
	// +optional
	UpdateRevision *RolloutRevision `json:"updateRevision,omitempty"`

	// attempt at updateRevision, counted from 1.
	// +optional
	Attempt int64 `json:"attempt,omitempty"`

	// attemptTime is when that attempt began.
	// +optional
	AttemptTime *metav1.Time `json:"attemptTime,omitempty"`

	// startTime is when updateRevision became the target.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`

	// step is the step that the rollout is in, counted from 0; the number of
	// steps when all are done.
	// +optional
	Step int32 `json:"step"`

	// stepsDone is the same for people, such as 2/5.
	// +optional
	// +kubebuilder:validation:MaxLength=16
	StepsDone string `json:"stepsDone,omitempty"`

	// stepTime is when the step began.
	// +optional
	StepTime *metav1.Time `json:"stepTime,omitempty"`

	// progressTime is when something moved last. It moves on while the rollout
	// waits for a person or for time to pass.
	// +optional
	ProgressTime *metav1.Time `json:"progressTime,omitempty"`

	// updated is how many nodes have proven the revision, of those that belong
	// to the rollout, such as 812/5000.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Updated string `json:"updated,omitempty"`

	// nodes counts the selected nodes by their state.
	// +optional
	Nodes RolloutCounts `json:"nodes,omitempty"`

	// failedNodes are the first few nodes on which the revision failed, with
	// their reasons.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=10
	FailedNodes []FailedNode `json:"failedNodes,omitempty"`

	// halt is the stop of updateRevision; absent if it has not stopped. It stays
	// until the template changes or the revision is retried.
	// +optional
	Halt *RolloutHalt `json:"halt,omitempty"`

	// history are the outcomes of the newest revisions, newest first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	History []RolloutOutcome `json:"history,omitempty"`

	// conditions are Progressing, Available, Degraded, Halted, Complete and
	// JoiningStopped.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// RolloutController is what evenkeel-controller's flags set for every rollout. evenkeel-controller alone writes it, so that
// other programs plan as it does.
type RolloutController struct {
	// namespace of the revisions' ConfigMaps and of the controller's Lease.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`

	// agentTimeout is how long an agent has to take up an assignment while its
	// Node is Ready.
	// +required
	AgentTimeout metav1.Duration `json:"agentTimeout"`

	// notReadyGrace is how long a node may be NotReady after an assignment
	// before the revision has failed there.
	// +required
	NotReadyGrace metav1.Duration `json:"notReadyGrace"`
}

// RolloutRevision is one content of a rollout's template.
type RolloutRevision struct {
	// number of the revision, counted from 1.
	// +required
	Number int64 `json:"number"`

	// configMapRef is the immutable ConfigMap that holds it.
	// +required
	ConfigMapRef ConfigMapReference `json:"configMapRef"`
}

// RolloutPhase sums up what a rollout does.
type RolloutPhase string

// The phases. Where several fit, the first one here is said.
const (
	RolloutInvalid          RolloutPhase = "Invalid"          // the template cannot be used; nothing moves
	RolloutRollingBack      RolloutPhase = "RollingBack"      // stopped, and nodes are going back
	RolloutRolledBack       RolloutPhase = "RolledBack"       // stopped, and the nodes that were given the revision have gone back
	RolloutHalted           RolloutPhase = "Halted"           // stopped
	RolloutFrozen           RolloutPhase = "Frozen"           // spec.frozen
	RolloutNoNodes          RolloutPhase = "NoNodes"          // the selector matches no node that this rollout may touch
	RolloutComplete         RolloutPhase = "Complete"         // every node that can have it has proven it
	RolloutPaused           RolloutPhase = "Paused"           // spec.paused
	RolloutAwaitingApproval RolloutPhase = "AwaitingApproval" // at a pause without a duration
	RolloutWaiting          RolloutPhase = "Waiting"          // at a pause that ends by itself
	RolloutStuck            RolloutPhase = "Stuck"            // nothing has moved for progressDeadlineSeconds
	RolloutProgressing      RolloutPhase = "Progressing"      // nodes are moving, or could be
)

// Conditions of a NodeConfigRollout.
const (
	ConditionProgressing    = "Progressing"    // nodes are moving, or could be; its reason is the phase
	ConditionAvailable      = "Available"      // no more nodes are unavailable than maxUnavailable allows
	ConditionDegraded       = "Degraded"       // nodes failed, or something is in the way
	ConditionHalted         = "Halted"         // stopped; its reason is one of the reasons of a stop
	ConditionComplete       = "Complete"       // every node that can have the revision has proven it
	ConditionJoiningStopped = "JoiningStopped" // nodes that join are given nothing: the revision failed on too many of them
)

// Outcomes of a revision, in status.history.
const (
	OutcomeSucceeded  = "Succeeded"  // every node that could have the revision had proven it
	OutcomeHalted     = "Halted"     // the revision was stopped
	OutcomeRolledBack = "RolledBack" // the revision was stopped, and the nodes that were given it have gone back
	OutcomeSuperseded = "Superseded" // another revision became the target before any other outcome
)

// Reasons of a stop, in status.halt, in status.history and of the condition Halted.
const (
	// HaltTooManyFailures: the number of failed nodes reached maxFailures, or a node that a retry names failed again.
	HaltTooManyFailures = "TooManyFailures"
	// HaltInconclusive: that many nodes failed, but enough of them by going NotReady together with nodes of the same
	// domain that do not have the revision. The revision is not to blame: it is not rolled back, and not revoked.
	HaltInconclusive = "Inconclusive"
	// HaltAborted: a person stopped it, by spec.abort.
	HaltAborted = "Aborted"
)

// HaltReasons are all reasons of a stop.
var HaltReasons = []string{HaltTooManyFailures, HaltInconclusive, HaltAborted}

// RolloutCounts counts nodes by their state. All but selected, unavailable and rollingBack add up to selected.
type RolloutCounts struct {
	// selected nodes, whatever their state.
	Selected int32 `json:"selected"`
	// pending nodes have not been given the revision.
	Pending int32 `json:"pending"`
	// assigned nodes have been given it and have not taken it up.
	Assigned int32 `json:"assigned"`
	// trial nodes run it in their trial, or have not decided yet.
	Trial int32 `json:"trial"`
	// soaking nodes have passed their trial less than soakSeconds ago.
	Soaking int32 `json:"soaking"`
	// updated nodes have proven it.
	Updated int32 `json:"updated"`
	// failed nodes have not: it was bad there, changed protected fields, took
	// too long, or the node went NotReady after it was assigned.
	Failed int32 `json:"failed"`
	// skipped nodes cannot be given it now: NotReady before, or opted out.
	Skipped int32 `json:"skipped"`
	// stale nodes have an agent that does not answer.
	Stale int32 `json:"stale"`
	// conflicted nodes belong to another rollout.
	Conflicted int32 `json:"conflicted"`
	// manual nodes have a source that a person wrote.
	Manual int32 `json:"manual"`
	// blocked nodes refuse it because of their pods (WouldEvictPods or
	// NeedsDrain): they run on as before and have not failed.
	// +optional
	Blocked int32 `json:"blocked,omitempty"`
	// unavailable is what maxUnavailable is spent on.
	Unavailable int32 `json:"unavailable"`
	// rollingBack nodes are on their way back from a revision that was stopped.
	RollingBack int32 `json:"rollingBack"`
}

// FailedNode is a node on which the revision failed.
type FailedNode struct {
	// name of the node.
	// +required
	Name string `json:"name"`
	// reason in one word: of the node's ConfigOK, or Timeout, or NodeNotReady.
	// +optional
	Reason string `json:"reason,omitempty"`
	// message in the node's own words.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// RolloutHalt is a stop of a revision.
type RolloutHalt struct {
	// revision that was stopped.
	// +required
	Revision int64 `json:"revision"`
	// attempt at it that was stopped; a higher one lifts the stop.
	// +required
	Attempt int64 `json:"attempt"`
	// reason: TooManyFailures, Inconclusive or Aborted.
	// +required
	Reason string `json:"reason"`
	// message says more.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Message string `json:"message,omitempty"`
	// time of the stop.
	// +required
	Time metav1.Time `json:"time"`
	// rollback says that nodes are taken back.
	// +optional
	Rollback bool `json:"rollback,omitempty"`
}

// RolloutOutcome is what became of a revision.
type RolloutOutcome struct {
	// revision number.
	// +required
	Revision int64 `json:"revision"`
	// configMap is the name of the revision's ConfigMap.
	// +optional
	ConfigMap string `json:"configMap,omitempty"`
	// uid of that ConfigMap. Nothing else is taken for the revision. Absent: an
	// earlier version of the controller wrote this entry, and nothing proves
	// which ConfigMap it meant.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=128
	UID types.UID `json:"uid,omitempty"`
	// sha256 of the revision's payload, as in configMapRef. Nothing else is
	// taken for the revision.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	SHA256 string `json:"sha256,omitempty"`
	// outcome: Succeeded, Halted, RolledBack or Superseded.
	// +required
	Outcome string `json:"outcome"`
	// reason of the stop, if the outcome is Halted or RolledBack:
	// TooManyFailures, Inconclusive or Aborted. Absent with these outcomes: an
	// earlier version of the controller wrote this entry, and its message begins
	// with the reason.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason,omitempty"`
	// message says more.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
	// startTime is when it became the target.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// endTime is when the outcome was clear.
	// +optional
	EndTime *metav1.Time `json:"endTime,omitempty"`
	// updated is how many nodes had proven it then.
	// +optional
	Updated int32 `json:"updated,omitempty"`
	// failed is on how many it had failed then.
	// +optional
	Failed int32 `json:"failed,omitempty"`
}
