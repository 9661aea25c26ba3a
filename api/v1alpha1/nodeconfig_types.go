// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Limits of a NodeConfig. The CRD and the admission policy evenkeel-node enforce the same numbers: the CRD counts
// characters, the policy counts bytes. Every writer of a status must respect them: the API server refuses the whole status
// for one entry or one byte too many.
//
// The limits of a status are wider than what an agent writes today, so that an agent of another release, which may allow
// longer texts, can report its largest status. internal/node/source has the limits of today's agent.
const (
	MaxRevoked               = 10
	MaxBadConfigs            = 10
	MaxConditions            = 8
	MaxOverriddenFields      = 100
	MaxOverriddenFieldLength = 512
	MaxErrorLength           = 8192 // of error, and of a condition's message
	MaxBadReasonLength       = 4096
	MaxIdentifierLength      = 253      // of every other string of a status without a shorter limit
	MaxTrialSeconds          = 31536000 // of trial.durationSeconds
	MaxNumber                = 1e9      // of a revision and of an attempt: nobody gets there by counting

	// MaxStatusBytes is the maximum size of a status that a node writes, in bytes of JSON. An escaped character counts as
	// the bytes of its escape sequence.
	MaxStatusBytes = 64 << 10
	// MinTemporary and MaxTemporary limit the duration of a temporary assignment.
	MinTemporary = time.Minute
	MaxTemporary = 168 * time.Hour

	// MaxStatusFieldsBytes is the maximum size of the entries that a node's writes add to metadata.managedFields, counted
	// in the same way.
	MaxStatusFieldsBytes = 16 << 10
)

// NodeConfig assigns a kubelet configuration to one node and reports the result. It has the name of the node. People
// and controllers write the spec, never the node. Only the node's evenkeel-agent writes the status. If a node has no
// NodeConfig, its agent creates one with an empty spec.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=nc
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name=Assigned,type=string,JSONPath=`.status.assigned.name`,description="ConfigMap that the agent understands to be assigned; empty means the local configuration"
// +kubebuilder:printcolumn:name=Active,type=string,JSONPath=`.status.active.name`,description="ConfigMap that the kubelet runs; empty means the local configuration"
// +kubebuilder:printcolumn:name=Last-Known-Good,type=string,JSONPath=`.status.lastKnownGood.name`,description="ConfigMap that the node falls back to when a trial fails; empty means the local configuration"
// +kubebuilder:printcolumn:name=ConfigOK,type=string,JSONPath=`.status.conditions[?(@.type=="ConfigOK")].status`,description="Whether the assigned configuration is in use and works"
// +kubebuilder:printcolumn:name=Trial,type=date,JSONPath=`.status.trial.startTime`,description="Time since the running trial started; empty means no trial"
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name=Reason,type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="ConfigOK")].reason`,description="Reason of ConfigOK"
// +kubebuilder:printcolumn:name=UID,type=string,priority=1,JSONPath=`.status.active.uid`,description="UID of the ConfigMap of the active configuration"
// +kubebuilder:printcolumn:name=Version,type=string,priority=1,JSONPath=`.status.componentVersion`,description="Version of the kubelet"
type NodeConfig struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the configuration that this node should run. Written by a person or
	// a controller; writes by a node are refused. Defaults to an empty spec, so
	// that a JSON patch can add to it.
	// +optional
	// +kubebuilder:default={}
	Spec NodeConfigSpec `json:"spec,omitempty"`

	// status is the node's report about the spec. Only the node's evenkeel-agent
	// writes it, through the status subresource. Other clients with the right to
	// write it should not do so.
	// Until an agent writes, observedGeneration is -1.
	// +optional
	// +kubebuilder:default:={"observedGeneration":-1}
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

// NodeConfigSpec is the configuration that a node should run. A spec without a configSource assigns nothing.
type NodeConfigSpec struct {
	// configSource is the source of the configuration. Exactly one of its fields
	// local and configMapRef must be set. `local: {}` selects the node's local
	// configuration and makes the node forget its last-known-good configuration.
	// Removing a source that the node took from this object has the same effect,
	// unless revoked lists the source or takenBack names it. Otherwise an absent
	// source changes nothing. Written by a person or a controller.
	// +optional
	// +structType=atomic
	ConfigSource *NodeConfigSource `json:"configSource,omitempty"`

	// takenBack names an assignment that a rollout withdrew from a node that had
	// no source before. A node that adopted this assignment returns to its
	// last-known-good configuration and forgets nothing. Ignored if configSource
	// is set. Written by the controller.
	// +optional
	// +structType=atomic
	TakenBack *TakenBackAssignment `json:"takenBack,omitempty"`

	// revoked lists the UIDs of ConfigMaps that this node must never run and never
	// fall back to. Written by a person or a controller.
	// +kubebuilder:validation:items:Type=string
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=10
	// +kubebuilder:validation:items:MaxLength=128
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^[A-Za-z0-9][A-Za-z0-9._-]*$')",messageExpression="self == '' ? 'uid must be non-empty' : 'uid must begin with a letter or digit and hold only letters, digits, dots, dashes and underscores'"
	Revoked []types.UID `json:"revoked,omitempty"`

	// trial holds the settings for the trial of configSource. A spec with trial
	// settings is refused if the payload has trial settings too. A change applies
	// to trials that start later. Written by a person or a controller.
	// +optional
	Trial *TrialTerms `json:"trial,omitempty"`
}

// TrialTerms are the settings of a node's trial of a configuration. They have the same names as in a payload in the
// grouped form, which can hold them too. The flags of the node's agent are the default for each absent setting.
type TrialTerms struct {
	// configTrialDuration is how long the kubelet must be healthy with the
	// configuration before the configuration becomes last-known-good, such as 30m.
	// At most 168h.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}([.][0-9]{1,9})?(h|m|s|ms))+$') && duration(self) > duration('0s') && duration(self) <= duration('168h')",message="must be a duration greater than 0 and at most 168h in h, m and s, such as 30m or 1h30m"
	ConfigTrialDuration *metav1.Duration `json:"configTrialDuration,omitempty"`

	// crashLoopThreshold is how many times the kubelet may be restarted during the
	// trial after it exited on its own. From 0 to 10.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10
	CrashLoopThreshold *int32 `json:"crashLoopThreshold,omitempty"`

	// allowPodLoss allows the node to adopt a configuration with which the
	// kubelet terminates running pods. Defaults to false.
	// +optional
	AllowPodLoss bool `json:"allowPodLoss,omitempty"`
}

// TakenBackAssignment is an assignment that a rollout withdrew. It covers everything that rollouts assigned until then.
type TakenBackAssignment struct {
	// rollout is the name of the rollout that withdrew its assignment. Written by
	// the controller.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Rollout string `json:"rollout"`

	// revision is the number of that rollout's revision. Written by the
	// controller.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000000
	Revision int64 `json:"revision"`

	// attempt is the number of the attempt at that revision. Written by the
	// controller.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000000
	Attempt int64 `json:"attempt"`

	// assignedAt is the time when the withdrawn assignment was made. Written by
	// the controller.
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Format=date-time
	// +kubebuilder:validation:Pattern=`^(19[7-9]|2[0-9]{2})[0-9]-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,9})?Z$`
	AssignedAt metav1.Time `json:"assignedAt"`
}

// NodeConfigSource is the source of a configuration. Exactly one of local and configMapRef must be set. rolloutRef may
// accompany either of them and is not a source.
//
// +kubebuilder:validation:XValidation:rule="has(self.local) != has(self.configMapRef)",messageExpression="'invalid NodeConfigSource, exactly one subfield must be non-nil, but ' + (has(self.local) ? '2 were set: local and configMapRef' : 'all were nil')"
// +kubebuilder:validation:XValidation:rule="!has(self.temporary) || has(self.configMapRef) && !has(self.rolloutRef)",message="temporary needs configMapRef, and no rolloutRef: only what a person assigns can end by itself",fieldPath=".temporary"
type NodeConfigSource struct {
	// local selects the node's local configuration. It is written as `local: {}`.
	// Written by a person or a controller.
	// +optional
	Local *LocalSource `json:"local,omitempty"`

	// configMapRef names the ConfigMap that holds the configuration. Written by a
	// person or a controller.
	// +optional
	ConfigMapRef *ConfigMapReference `json:"configMapRef,omitempty"`

	// rolloutRef identifies the rollout that assigned this source. Absent if a
	// person assigned it. Written by the controller.
	// +optional
	RolloutRef *RolloutReference `json:"rolloutRef,omitempty"`

	// temporary makes the assignment of configMapRef end by itself. The node then
	// returns to last-known-good, and keeps that until the source changes. The
	// configuration stays on trial until the end and never becomes
	// last-known-good. Written by a person.
	// +optional
	Temporary *TemporaryAssignment `json:"temporary,omitempty"`
}

// TemporaryAssignment is when an assignment ends by itself.
type TemporaryAssignment struct {
	// duration is how long the node runs the configuration, such as 15m. The
	// node's agent measures it from the adoption, without the time in which no
	// agent runs. From 1m to 168h.
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}([.][0-9]{1,9})?(h|m|s|ms))+$') && duration(self) >= duration('1m') && duration(self) <= duration('168h')",message="must be a duration from 1m to 168h in h, m and s, such as 15m or 1h30m"
	Duration metav1.Duration `json:"duration"`

	// requestedAt identifies the request. With another time, a node on which the
	// assignment has ended runs the configuration again.
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Format=date-time
	RequestedAt metav1.Time `json:"requestedAt"`
}

// LocalSource selects the node's local configuration. It has no fields.
type LocalSource struct{}

// ConfigMapReference names one ConfigMap. The UID, namespace and name must identify the same object: an object that was
// deleted and recreated under the same name is a different object.
type ConfigMapReference struct {
	// namespace is the namespace of the ConfigMap. Nodes must have the right to
	// read ConfigMaps in it; they have this right in evenkeel-system. Written by a
	// person or a controller.
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",messageExpression="self == '' ? 'namespace must be non-empty' : 'namespace must be a DNS label: lower-case letters, digits and dashes'"
	Namespace string `json:"namespace"`

	// name is the name of the ConfigMap. Written by a person or a controller.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",messageExpression="self == '' ? 'name must be non-empty' : 'name must be a DNS name: lower-case letters, digits, dashes and dots'"
	Name string `json:"name"`

	// uid is the metadata.uid of the ConfigMap. Written by a person or a
	// controller.
	// +kubebuilder:validation:Type=string
	// +required
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9][A-Za-z0-9._-]*$')",messageExpression="self == '' ? 'uid must be non-empty' : 'uid must begin with a letter or digit and hold only letters, digits, dots, dashes and underscores'"
	UID types.UID `json:"uid"`

	// sha256 is the digest of the payload, computed over the data key, a newline
	// and the bytes of the value. It has 64 lower-case hexadecimal digits. If it
	// is set, a ConfigMap with a different payload is refused. Written by a person
	// or a controller.
	// +optional
	SHA256 Digest `json:"sha256,omitempty"`
}

// Digest is the SHA-256 digest of a payload.
//
// +kubebuilder:validation:MaxLength=64
// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9a-f]{64}$')",message="must be 64 lower-case hexadecimal digits"
type Digest = string

// RolloutReference identifies the rollout, revision and attempt that assigned a source, so that the node's answer to
// this assignment can be distinguished from its answer to an earlier one.
type RolloutReference struct {
	// name is the name of the rollout. Written by the controller, like every field
	// of this type.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",messageExpression="self == '' ? 'name must be non-empty' : 'name must be a DNS name: lower-case letters, digits, dashes and dots'"
	Name string `json:"name"`

	// revision is the number of the rollout's revision, counted from 1. Written by
	// the controller.
	// +required
	// +kubebuilder:validation:Minimum=1
	Revision int64 `json:"revision"`

	// attempt is the number of the attempt at this revision, counted from 1. A
	// node that recorded the configuration as bad tries it again when this number
	// is higher than the recorded one. Written by the controller.
	// +required
	// +kubebuilder:validation:Minimum=1
	Attempt int64 `json:"attempt"`

	// assignedAt is the time when the controller assigned the source. Written by
	// the controller.
	// +required
	AssignedAt metav1.Time `json:"assignedAt"`

	// term is the term of the controller that assigned the source: a number that
	// increases with each leader election. An agent ignores an assignment whose
	// term is lower than the one on the revision's ConfigMap. Absent if the term
	// is not known. Written by the controller.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Term int64 `json:"term,omitempty"`

	// previous is the source that the node had when this revision was assigned.
	// Absent if it had none. The controller returns the node to this source if
	// there is no better one. Written by the controller.
	// +optional
	Previous *PreviousSource `json:"previous,omitempty"`
}

// PreviousSource is a source that a rollout assigned earlier.
type PreviousSource struct {
	// configMapRef names the ConfigMap. Written by the controller.
	// +required
	ConfigMapRef ConfigMapReference `json:"configMapRef"`

	// rollout is the name of the rollout that assigned the source. Written by the
	// controller.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",messageExpression="self == '' ? 'rollout must be non-empty' : 'rollout must be a DNS name: lower-case letters, digits, dashes and dots'"
	Rollout string `json:"rollout"`

	// revision is the number of that rollout's revision. Written by the
	// controller.
	// +required
	// +kubebuilder:validation:Minimum=1
	Revision int64 `json:"revision"`

	// attempt is the number of the attempt at that revision. Written by the
	// controller.
	// +required
	// +kubebuilder:validation:Minimum=1
	Attempt int64 `json:"attempt"`
}
