package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Bounds of a NodeConfig, as its CRD and the admission policy evenkeel-node have them. The CRD bounds texts in
// characters, the policy the same texts in bytes. Who writes a status must keep to them: the API server refuses the whole
// status for one entry or one byte too many.
//
// The bounds of a status are wider than what an agent writes today, so that an agent of the version before, which cut its
// texts later, can report its largest status: internal/node/source has what an agent writes, test/skew the arithmetic.
const (
	MaxRevoked               = 10
	MaxBadConfigs            = 10
	MaxConditions            = 8
	MaxOverriddenFields      = 100
	MaxOverriddenFieldLength = 512
	MaxErrorLength           = 8192 // of error, and of a condition's message
	MaxBadReasonLength       = 4096
	MaxIdentifierLength      = 253      // of each other string of a status that has no shorter bound
	MaxTrialSeconds          = 31536000 // of trial.durationSeconds

	// MaxStatusBytes bounds a whole status that a node writes, in bytes of JSON. What JSON writes as an escape sequence
	// counts as that sequence.
	MaxStatusBytes = 64 << 10
	// MaxStatusFieldsBytes bounds the entries of metadata.managedFields that a node's writes leave, in the same way.
	MaxStatusFieldsBytes = 16 << 10
)

// NodeConfig says which configuration one node's kubelet shall run, and what
// came of it. Its name is the node's name. The spec is written by a person
// or a controller, never by the node; the status by the node's
// evenkeel-agent alone. The agent creates the object, with an empty spec,
// where there is none.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=nc
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name=Assigned,type=string,JSONPath=`.status.assigned.name`,description="ConfigMap that the agent has understood to be assigned; empty: local"
// +kubebuilder:printcolumn:name=Active,type=string,JSONPath=`.status.active.name`,description="ConfigMap that the kubelet runs; empty: local"
// +kubebuilder:printcolumn:name=Last-Known-Good,type=string,JSONPath=`.status.lastKnownGood.name`,description="ConfigMap that a failed trial falls back to; empty: local"
// +kubebuilder:printcolumn:name=ConfigOK,type=string,JSONPath=`.status.conditions[?(@.type=="ConfigOK")].status`,description="Whether the assigned configuration is in use and fine"
// +kubebuilder:printcolumn:name=Trial,type=date,JSONPath=`.status.trial.startTime`,description="How long ago the running trial began; empty: no trial"
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name=Reason,type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="ConfigOK")].reason`,description="Why ConfigOK is what it is"
// +kubebuilder:printcolumn:name=Revision,type=string,priority=1,JSONPath=`.status.active.revision`,description="Revision of the active configuration"
// +kubebuilder:printcolumn:name=Local,type=string,priority=1,JSONPath=`.status.local`,description="What local means on this node"
// +kubebuilder:printcolumn:name=Version,type=string,priority=1,JSONPath=`.status.componentVersion`,description="Version of the kubelet"
type NodeConfig struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the configuration that this node shall run. Written by a person or
	// a controller; a node is refused. An object without one has an empty spec,
	// so that a JSON patch can add to it.
	// +optional
	// +kubebuilder:default={}
	Spec NodeConfigSpec `json:"spec,omitempty"`

	// status is what the node makes of the spec. Written by the node's
	// evenkeel-agent alone: only the status subresource changes it, and whoever
	// else has the right to write that should not use it.
	// +optional
	Status NodeConfigStatus `json:"status,omitempty"`
}

// NodeConfigList is a list of NodeConfigs.
//
// +kubebuilder:object:root=true
type NodeConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeConfig `json:"items"`
}

// NodeConfigSpec is the configuration that a node shall run. One without a configSource assigns nothing.
type NodeConfigSpec struct {
	// configSource is where the configuration comes from; exactly one of its
	// local and configMapRef must be set. `local: {}` means the node's local
	// configuration, and makes the node forget its last-known-good. To remove a
	// source that the node took up from this object means the same, unless the
	// source is in revoked or takenBack names it. Otherwise an absent source
	// changes nothing. Written by a person or a controller.
	// +optional
	ConfigSource *NodeConfigSource `json:"configSource,omitempty"`

	// takenBack names the assignment that a rollout took back from a node that
	// had no source before. A node that had taken it up returns to its
	// last-known-good, and forgets nothing. It means nothing beside a
	// configSource. Written by the controller.
	// +optional
	TakenBack *TakenBackAssignment `json:"takenBack,omitempty"`

	// revoked lists UIDs of ConfigMaps that this node must never run and never
	// fall back to. Written by a person or a controller.
	// +kubebuilder:validation:items:Type=string
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=10
	// +kubebuilder:validation:items:MaxLength=128
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^[A-Za-z0-9][A-Za-z0-9._-]*$')",messageExpression="self == '' ? 'uid must be non-empty' : 'uid must begin with a letter or digit and hold only letters, digits, dots, dashes and underscores'"
	Revoked []types.UID `json:"revoked,omitempty"`

	// trial is what is asked of the trial of configSource. Terms given both here
	// and in the payload are refused. A change applies to trials that begin
	// later. Written by a person or a controller.
	// +optional
	Trial *TrialTerms `json:"trial,omitempty"`
}

// TrialTerms are what is asked of a node's trial of a configuration. They are called as in the payload of the grouped form,
// which can hold them too. What is absent is left to the flags of the node's agent.
type TrialTerms struct {
	// configTrialDuration is how long the kubelet must be healthy with the
	// configuration before the node calls it last-known-good, such as 30m; at
	// most 168h.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}([.][0-9]{1,9})?(h|m|s|ms))+$') && duration(self) > duration('0s') && duration(self) <= duration('168h')",message="must be a duration of more than nothing and at most 168h in h, m and s, such as 30m or 1h30m"
	ConfigTrialDuration *metav1.Duration `json:"configTrialDuration,omitempty"`

	// crashLoopThreshold is how often the kubelet may be started again during
	// the trial after it exited by itself.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10
	CrashLoopThreshold *int32 `json:"crashLoopThreshold,omitempty"`

	// allowPodLoss lets the node take up a configuration that makes the kubelet
	// end pods which run now.
	// +optional
	AllowPodLoss bool `json:"allowPodLoss,omitempty"`
}

// TakenBackAssignment is an assignment that a rollout took back. It covers everything that rollouts assigned up to then.
type TakenBackAssignment struct {
	// rollout that took its assignment back. It comes from the controller.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Rollout string `json:"rollout"`

	// revision of that rollout. It comes from the controller.
	// +required
	// +kubebuilder:validation:Minimum=1
	Revision int64 `json:"revision"`

	// attempt at that revision. It comes from the controller.
	// +required
	// +kubebuilder:validation:Minimum=1
	Attempt int64 `json:"attempt"`

	// assignedAt is when it had been assigned. It comes from the controller.
	// +required
	AssignedAt metav1.Time `json:"assignedAt"`
}

// NodeConfigSource is where a configuration comes from. Exactly one of local and configMapRef must be set; rolloutRef
// stands beside either and is no source.
//
// +kubebuilder:validation:XValidation:rule="has(self.local) != has(self.configMapRef)",messageExpression="'invalid NodeConfigSource, exactly one subfield must be non-nil, but ' + (has(self.local) ? '2 were set: local and configMapRef' : 'all were nil')"
type NodeConfigSource struct {
	// local, written `local: {}`, says explicitly that the node's local
	// configuration is meant. Written by a person or a controller.
	// +optional
	Local *LocalSource `json:"local,omitempty"`

	// configMapRef names the ConfigMap that holds the configuration. Written by
	// a person or a controller.
	// +optional
	ConfigMapRef *ConfigMapReference `json:"configMapRef,omitempty"`

	// rolloutRef says which rollout assigned this source. Written by the
	// controller; absent if a person assigned it.
	// +optional
	RolloutRef *RolloutReference `json:"rolloutRef,omitempty"`
}

// LocalSource means the node's local configuration. It has no fields.
type LocalSource struct{}

// ConfigMapReference names one ConfigMap. The UID and the namespace and name must mean the same object: an object
// that was deleted and created anew under its old name is another one.
type ConfigMapReference struct {
	// namespace of the ConfigMap. Nodes must have the right to read ConfigMaps
	// there; in evenkeel-system they have it. Written by a person or a
	// controller.
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",messageExpression="self == '' ? 'namespace must be non-empty' : 'namespace must be a DNS label: lower-case letters, digits and dashes'"
	Namespace string `json:"namespace"`

	// name of the ConfigMap. Written by a person or a controller.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",messageExpression="self == '' ? 'name must be non-empty' : 'name must be a DNS name: lower-case letters, digits, dashes and dots'"
	Name string `json:"name"`

	// uid of the ConfigMap, its metadata.uid. Written by a person or a
	// controller.
	// +kubebuilder:validation:Type=string
	// +required
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9][A-Za-z0-9._-]*$')",messageExpression="self == '' ? 'uid must be non-empty' : 'uid must begin with a letter or digit and hold only letters, digits, dots, dashes and underscores'"
	UID types.UID `json:"uid"`

	// sha256 of the payload: of the data key, a newline and the value's bytes,
	// as 64 lower-case hexadecimal digits. If it is given, a ConfigMap with
	// another payload is refused. Written by a person or a controller.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9a-f]{64}$')",message="sha256 must be 64 lower-case hexadecimal digits"
	SHA256 string `json:"sha256,omitempty"`
}

// RolloutReference says which rollout assigned a source, so that its answer can be told from an earlier one's.
type RolloutReference struct {
	// name of the rollout. It comes from the controller, like every field here.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",messageExpression="self == '' ? 'name must be non-empty' : 'name must be a DNS name: lower-case letters, digits, dashes and dots'"
	Name string `json:"name"`

	// revision of the rollout, counted from 1. It comes from the controller.
	// +required
	// +kubebuilder:validation:Minimum=1
	Revision int64 `json:"revision"`

	// attempt at this revision, counted from 1. A higher one than a node has on
	// record with a bad configuration makes the node try it again. It comes from
	// the controller.
	// +required
	// +kubebuilder:validation:Minimum=1
	Attempt int64 `json:"attempt"`

	// assignedAt is when the controller assigned it. It comes from the
	// controller.
	// +required
	AssignedAt metav1.Time `json:"assignedAt"`

	// term is the term of the controller that assigned it: a number that grows
	// with each leader. An agent does not take up what a leader of a lower term
	// assigned than the one that the revision's ConfigMap names. Absent: it is
	// not known. It comes from the controller.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Term int64 `json:"term,omitempty"`

	// previous is the source that the node had when it was given this revision;
	// absent: none. The controller goes back to it where there is no better
	// place to go. It comes from the controller.
	// +optional
	Previous *PreviousSource `json:"previous,omitempty"`
}

// PreviousSource is a source that a rollout assigned before.
type PreviousSource struct {
	// configMapRef names the ConfigMap. It comes from the controller.
	// +required
	ConfigMapRef ConfigMapReference `json:"configMapRef"`

	// rollout that assigned it. It comes from the controller.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",messageExpression="self == '' ? 'rollout must be non-empty' : 'rollout must be a DNS name: lower-case letters, digits, dashes and dots'"
	Rollout string `json:"rollout"`

	// revision of that rollout. It comes from the controller.
	// +required
	// +kubebuilder:validation:Minimum=1
	Revision int64 `json:"revision"`

	// attempt at that revision. It comes from the controller.
	// +required
	// +kubebuilder:validation:Minimum=1
	Attempt int64 `json:"attempt"`
}
