package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Labels of the ConfigMaps that hold a rollout's revisions. They serve to find them. What a revision is, the rollout's
// status says, by UID and sha256.
const (
	// LabelRollout is the name of the rollout that made the ConfigMap.
	LabelRollout = "evenkeel.dev/rollout"
	// LabelRevision is the revision's number. A content that becomes the target anew takes the next one.
	LabelRevision = "evenkeel.dev/revision"
)

// AnnotationObserved of a NodeConfig is what the controller has observed of the node's assignment: since when the node is
// fine, or that it had failed before a retry. Written by evenkeel-controller alone.
const AnnotationObserved = "evenkeel.dev/observed"

// Bounds of a NodeConfigRollout, texts in characters, as its CRD has them. Who writes a status must keep to them.
const (
	MaxSteps             = 30
	MaxFailedNodes       = 10
	MaxHistory           = 50
	MaxRetryNodes        = 1000
	MaxRolloutNameLength = 63
	MaxRolloutMessage    = 4096
	MaxOutcomeMessage    = 1024
	MaxFailedMessage     = 1024
)

// NodeConfigRollout is one kubelet configuration for all the nodes that a selector matches, and how it reaches them. It
// is desired state, not a job: nodes that join later get it too. The spec is written by a person, the status by
// evenkeel-controller alone.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=ncr
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name=Revision,type=integer,JSONPath=`.status.updateRevision.number`,description="Revision that is being rolled out, or that is complete"
// +kubebuilder:printcolumn:name=Status,type=string,JSONPath=`.status.phase`,description="What the rollout does now"
// +kubebuilder:printcolumn:name=Step,type=string,JSONPath=`.status.stepsDone`,description="Steps that are done, of all"
// +kubebuilder:printcolumn:name=Updated,type=string,JSONPath=`.status.updated`,description="Nodes that run the revision and have proven it, of those that belong to the rollout"
// +kubebuilder:printcolumn:name=Failed,type=integer,JSONPath=`.status.nodes.failed`,description="Nodes on which the revision failed"
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name=Message,type=string,priority=1,JSONPath=`.status.message`,description="The same as a sentence, and what to do next"
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63 && !self.metadata.name.contains('.')",message="metadata.name must have at most 63 characters and no dots, because revisions are labelled with it: choose another name"
type NodeConfigRollout struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what shall be. Written by a person.
	// +required
	Spec NodeConfigRolloutSpec `json:"spec"`

	// status is how far it is. Written by evenkeel-controller alone.
	// +optional
	Status NodeConfigRolloutStatus `json:"status,omitempty"`
}

// NodeConfigRolloutList is a list of NodeConfigRollouts.
//
// +kubebuilder:object:root=true
type NodeConfigRolloutList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeConfigRollout `json:"items"`
}

// NodeConfigRolloutSpec is what shall be on which nodes, and how fast.
//
// +kubebuilder:validation:XValidation:rule="(has(self.allNodes) && self.allNodes) || (has(self.nodeSelector) && ((has(self.nodeSelector.matchLabels) && size(self.nodeSelector.matchLabels) > 0) || (has(self.nodeSelector.matchExpressions) && size(self.nodeSelector.matchExpressions) > 0)))",message="nodeSelector is empty and would select every node: give it labels, or set allNodes: true if every node is meant",fieldPath=".nodeSelector"
// +kubebuilder:validation:XValidation:rule="!(has(self.allNodes) && self.allNodes) || !has(self.nodeSelector) || ((!has(self.nodeSelector.matchLabels) || size(self.nodeSelector.matchLabels) == 0) && (!has(self.nodeSelector.matchExpressions) || size(self.nodeSelector.matchExpressions) == 0))",message="allNodes: true and a nodeSelector contradict each other: remove one",fieldPath=".allNodes"
// +kubebuilder:validation:XValidation:rule="!has(self.soakSeconds) || !has(self.progressDeadlineSeconds) || self.soakSeconds < self.progressDeadlineSeconds",message="progressDeadlineSeconds must be longer than soakSeconds, or nodes that soak would look stuck: raise the one or lower the other",fieldPath=".progressDeadlineSeconds"
type NodeConfigRolloutSpec struct {
	// nodeSelector selects nodes by their labels. An empty one is refused unless
	// allNodes is true.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && size(e.values) > 0 : e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || size(e.values) == 0))",message="matchExpressions: operators are In and NotIn, with values, and Exists and DoesNotExist, without"
	NodeSelector metav1.LabelSelector `json:"nodeSelector,omitempty"`

	// allNodes must be true for an empty nodeSelector: every node is meant.
	// +optional
	AllNodes bool `json:"allNodes,omitempty"`

	// priority decides who has a node that several rollouts select: the higher
	// one, then the older one, then the first by name. A node in flight is not
	// taken from the rollout that it is in flight for.
	// +optional
	Priority int32 `json:"priority,omitempty"`

	// template is the configuration: exactly one of kubelet, kubeletDropIn and
	// configMapRef. A new content is a new revision.
	// +required
	Template RolloutTemplate `json:"template"`

	// trial is what is asked of each node's trial, in spec.trial of its
	// NodeConfig. A change makes no new revision and applies to nodes that are
	// given one later. Nodes that are given an older revision than the target
	// are given no terms. Terms given both here and in the template are refused.
	// +optional
	Trial *TrialTerms `json:"trial,omitempty"`

	// paused stops new assignments. Nodes in flight go on, nodes that join are
	// served, and a rollback is finished.
	// +optional
	Paused bool `json:"paused,omitempty"`

	// frozen stops everything, rollback and nodes that join included.
	// +optional
	Frozen bool `json:"frozen,omitempty"`

	// newNodes is what a node gets that joins before this revision has
	// succeeded: LastSucceeded, the newest revision that has, or Target, this
	// one.
	// +optional
	// +kubebuilder:default=LastSucceeded
	NewNodes NewNodes `json:"newNodes,omitempty"`

	// strategy is the order and the pace.
	// +optional
	// +kubebuilder:default={}
	Strategy RolloutStrategy `json:"strategy,omitempty"`

	// soakSeconds is how long a node must be fine after its own trial has passed
	// before it counts as updated. It must be shorter than
	// progressDeadlineSeconds.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=604800
	SoakSeconds int32 `json:"soakSeconds,omitempty"`

	// nodeTimeoutSeconds is how long a node may take from its assignment to the
	// end of its trial, beyond the length of the trial itself. A node that takes
	// longer has failed. At least 10.
	// +optional
	// +kubebuilder:default=900
	// +kubebuilder:validation:XValidation:rule="self >= 10",message="must be at least 10: a node needs that long to try the configuration, restart its kubelet and renew its Lease"
	// +kubebuilder:validation:Maximum=604800
	NodeTimeoutSeconds int32 `json:"nodeTimeoutSeconds,omitempty"`

	// progressDeadlineSeconds is how long nothing may move before the rollout
	// says that it is stuck. It stands still while the rollout waits for a
	// person or for time to pass. At least 10, and more than soakSeconds.
	// +optional
	// +kubebuilder:default=3600
	// +kubebuilder:validation:XValidation:rule="self >= 10",message="must be at least 10: no node is quicker"
	// +kubebuilder:validation:Maximum=31536000
	ProgressDeadlineSeconds int32 `json:"progressDeadlineSeconds,omitempty"`

	// failurePolicy is when to stop, and what to do then.
	// +optional
	// +kubebuilder:default={}
	FailurePolicy FailurePolicy `json:"failurePolicy,omitempty"`

	// rollback is the pace of going back.
	// +optional
	// +kubebuilder:default={}
	Rollback RollbackStrategy `json:"rollback,omitempty"`

	// revisionHistoryLimit is how many revisions are kept that no node names,
	// and how many outcomes in status.history.
	// +optional
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=50
	RevisionHistoryLimit *int32 `json:"revisionHistoryLimit,omitempty"`

	// approval lets a revision pass a step, and every step before it.
	// +optional
	Approval *RolloutApproval `json:"approval,omitempty"`

	// abort stops a revision for good.
	// +optional
	Abort *RolloutAbort `json:"abort,omitempty"`

	// retry has nodes on which a revision failed try it again, and lifts its
	// stop.
	// +optional
	Retry *RolloutRetry `json:"retry,omitempty"`
}

// NewNodes is what nodes get that join while a revision is being rolled out.
// +kubebuilder:validation:Enum=LastSucceeded;Target
type NewNodes string

const (
	// NewNodesLastSucceeded: the newest revision that has succeeded; where none has, they wait like the others.
	NewNodesLastSucceeded NewNodes = "LastSucceeded"
	// NewNodesTarget: the revision that is being rolled out.
	NewNodesTarget NewNodes = "Target"
)

// RolloutTemplate is a configuration. Exactly one of its fields must be set.
//
// +kubebuilder:validation:XValidation:rule="(has(self.kubelet) ? 1 : 0) + (has(self.kubeletDropIn) ? 1 : 0) + (has(self.configMapRef) ? 1 : 0) == 1",messageExpression="'template must have exactly one of kubelet, kubeletDropIn and configMapRef, but ' + (has(self.kubelet) || has(self.kubeletDropIn) || has(self.configMapRef) ? 'has more: remove all but one' : 'has none')"
type RolloutTemplate struct {
	// kubelet is a whole KubeletConfiguration, with the apiVersion
	// kubelet.config.k8s.io/v1beta1 (upstream) or evenkeel.dev/v1alpha1
	// (grouped).
	// +optional
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:EmbeddedResource
	// +kubebuilder:validation:XValidation:rule="!has(self.kind) || self.kind == 'KubeletConfiguration'",message="kind must be KubeletConfiguration"
	// +kubebuilder:validation:XValidation:rule="!has(self.apiVersion) || self.apiVersion == 'kubelet.config.k8s.io/v1beta1' || self.apiVersion == 'evenkeel.dev/v1alpha1'",message="apiVersion must be kubelet.config.k8s.io/v1beta1 (upstream), or evenkeel.dev/v1alpha1 (grouped)"
	Kubelet *runtime.RawExtension `json:"kubelet,omitempty"`

	// kubeletDropIn is a partial one, laid over each node's local configuration
	// by the kubelet (1.30 and later).
	// +optional
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:EmbeddedResource
	// +kubebuilder:validation:XValidation:rule="!has(self.kind) || self.kind == 'KubeletConfiguration'",message="kind must be KubeletConfiguration"
	// +kubebuilder:validation:XValidation:rule="!has(self.apiVersion) || self.apiVersion == 'kubelet.config.k8s.io/v1beta1' || self.apiVersion == 'evenkeel.dev/v1alpha1'",message="apiVersion must be kubelet.config.k8s.io/v1beta1 (upstream), or evenkeel.dev/v1alpha1 (grouped)"
	KubeletDropIn *runtime.RawExtension `json:"kubeletDropIn,omitempty"`

	// configMapRef names a ConfigMap that somebody edits, with one of the keys
	// kubelet and kubelet-dropin. Each of its contents becomes a revision.
	// +optional
	ConfigMapRef *TemplateConfigMap `json:"configMapRef,omitempty"`
}

// TemplateConfigMap names a ConfigMap.
type TemplateConfigMap struct {
	// namespace of the ConfigMap: evenkeel-system, unless the controller was
	// given the right to read another.
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",messageExpression="self == '' ? 'namespace must be non-empty' : 'namespace must be a DNS label: lower-case letters, digits and dashes'"
	Namespace string `json:"namespace"`

	// name of the ConfigMap.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",messageExpression="self == '' ? 'name must be non-empty' : 'name must be a DNS name: lower-case letters, digits, dashes and dots'"
	Name string `json:"name"`
}

// RolloutStrategy is the order and the pace of a rollout.
//
// +kubebuilder:validation:XValidation:rule="(has(self.topologyKey) && size(self.topologyKey) > 0) || (!has(self.maxUnavailablePerDomain) && !has(self.maxDomainsInFlight))",message="maxUnavailablePerDomain and maxDomainsInFlight need a topologyKey, such as topology.kubernetes.io/zone"
type RolloutStrategy struct {
	// maxUnavailable is how many nodes may be in flight, soaking, failed or gone
	// NotReady at a time: a number, or a percentage of the rollout's nodes,
	// rounded down and at least 1. 0 stops the rollout.
	// +optional
	// +kubebuilder:default="10%"
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self <= 1000000 : self.matches('^(0|[1-9][0-9]?|100)%$')",message="must be a number from 0 to 1000000, without quotes, or a percentage from 0% to 100%"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`

	// maxJoining is how many nodes that joined may be in flight at a time: a
	// number, or a percentage of the rollout's nodes, rounded down and at least
	// 1. A node without workload pods does not wait for the others in the first
	// ten minutes after its Node was created, unless the revision has failed on
	// one that joined. 0 lets only those join. Absent: as maxUnavailable.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self <= 1000000 : self.matches('^(0|[1-9][0-9]?|100)%$')",message="must be a number from 0 to 1000000, without quotes, or a percentage from 0% to 100%"
	MaxJoining *intstr.IntOrString `json:"maxJoining,omitempty"`

	// topologyKey is the node label whose value is the node's domain.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self == '' || self.matches('^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$')",message="topologyKey must be the key of a node label, such as topology.kubernetes.io/zone"
	TopologyKey string `json:"topologyKey,omitempty"`

	// maxUnavailablePerDomain is the same as maxUnavailable for the nodes of one
	// domain.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self <= 1000000 : self.matches('^(0|[1-9][0-9]?|100)%$')",message="must be a number from 0 to 1000000, without quotes, or a percentage from 0% to 100%"
	MaxUnavailablePerDomain *intstr.IntOrString `json:"maxUnavailablePerDomain,omitempty"`

	// maxDomainsInFlight is in how many domains nodes may be in flight or
	// soaking at a time. Absent: in all.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxDomainsInFlight *int32 `json:"maxDomainsInFlight,omitempty"`

	// steps are gone through one after another, each with exactly one of nodes
	// and pause. After the last one all other nodes get it too. Absent: 1 node,
	// 10%, all.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=30
	Steps []RolloutStep `json:"steps,omitempty"`

	// canarySelector selects those among the rollout's nodes that go first.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && size(e.values) > 0 : e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || size(e.values) == 0))",message="matchExpressions: operators are In and NotIn, with values, and Exists and DoesNotExist, without"
	CanarySelector *metav1.LabelSelector `json:"canarySelector,omitempty"`
}

// RolloutStep is one step: so many nodes, or a pause.
//
// +kubebuilder:validation:XValidation:rule="has(self.nodes) != has(self.pause)",messageExpression="'a step must have exactly one of nodes and pause, but has ' + (has(self.nodes) ? 'both: make two steps of it' : 'neither')"
type RolloutStep struct {
	// nodes is how many nodes shall be updated when this step is done: a number,
	// or a percentage of the rollout's nodes, rounded up. Numbers never fall, and
	// neither do percentages.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 && self <= 1000000 : self == '100%' || (self.endsWith('%') && (size(self) == 2 ? '1%' <= self && self <= '9%' : size(self) == 3 && '10%' <= self && self <= '99%' && self.charAt(1) in ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9']))",message="must be a number from 1 to 1000000, without quotes, or a percentage from 1% to 100%"
	Nodes *intstr.IntOrString `json:"nodes,omitempty"`

	// pause waits: for its duration, or without one until somebody approves.
	// +optional
	Pause *RolloutPause `json:"pause,omitempty"`
}

// RolloutPause is a step that waits.
type RolloutPause struct {
	// duration such as 10m or 1h30m. Absent: until somebody approves.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}([.][0-9]{1,9})?(h|m|s|ms))+$') && duration(self) > duration('0s')",message="must be a duration of more than nothing in h, m and s, such as 10m or 1h30m; leave it out to wait for an approval"
	Duration *metav1.Duration `json:"duration,omitempty"`
}

// FailureAction is what a rollout does when it stops.
// +kubebuilder:validation:Enum=Pause;Rollback
type FailureAction string

const (
	// FailureActionPause: nothing moves on; nodes that run the revision keep it.
	FailureActionPause FailureAction = "Pause"
	// FailureActionRollback: nodes that have the revision go back to the last one that succeeded.
	FailureActionRollback FailureAction = "Rollback"
)

// FailurePolicy is when a rollout stops, and what it does then.
type FailurePolicy struct {
	// maxFailures is how many failed nodes stop the rollout: a number, or a
	// percentage of the rollout's nodes, rounded up.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 && self <= 1000000 : self.matches('^([1-9][0-9]?|100)%$')",message="must be a number from 1 to 1000000, without quotes, or a percentage from 1% to 100%"
	MaxFailures *intstr.IntOrString `json:"maxFailures,omitempty"`

	// action is Pause, or Rollback to the last revision that succeeded.
	// +optional
	// +kubebuilder:default=Pause
	Action FailureAction `json:"action,omitempty"`
}

// RollbackStrategy is the pace of going back.
type RollbackStrategy struct {
	// maxUnavailable is how many healthy nodes may be going back at a time: a
	// number, or a percentage of the rollout's nodes, rounded down and at least
	// 1. Nodes that are broken do not count.
	// +optional
	// +kubebuilder:default="25%"
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 && self <= 1000000 : self.matches('^([1-9][0-9]?|100)%$')",message="must be a number from 1 to 1000000, without quotes, or a percentage from 1% to 100%"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
}

// RolloutApproval lets a revision pass a step.
type RolloutApproval struct {
	// revision that is approved. For any other the approval means nothing.
	// +required
	// +kubebuilder:validation:Minimum=1
	Revision int64 `json:"revision"`

	// step that is passed, with every step before it, counted from 0.
	// +required
	// +kubebuilder:validation:Minimum=0
	Step int32 `json:"step"`
}

// RolloutAbort stops a revision for good.
type RolloutAbort struct {
	// revision to stop. For any other the abort means nothing.
	// +required
	// +kubebuilder:validation:Minimum=1
	Revision int64 `json:"revision"`

	// rollback takes the nodes that have it back to the last revision that
	// succeeded.
	// +optional
	Rollback bool `json:"rollback,omitempty"`
}

// RolloutRetry has nodes try a revision again.
type RolloutRetry struct {
	// revision to try again. For any other the retry means nothing.
	// +required
	// +kubebuilder:validation:Minimum=1
	Revision int64 `json:"revision"`

	// attempt counts the tries; the first one is 1, and a higher one than before
	// begins another.
	// +required
	// +kubebuilder:validation:XValidation:rule="self >= 2",message="must be at least 2, because the first attempt is 1: set it to status.attempt + 1"
	Attempt int64 `json:"attempt"`

	// nodes to try it on. Absent: all on which it failed.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Nodes []string `json:"nodes,omitempty"`
}
