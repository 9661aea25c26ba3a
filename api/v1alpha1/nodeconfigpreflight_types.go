// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// LabelPreflight is the label of a ConfigMap that holds the configuration of a NodeConfigPreflight. Its value is the UID of the
// NodeConfigPreflight.
const LabelPreflight = "evenkeel.dev/preflight"

// NodeConfigPreflight asks the agents of all nodes that a selector matches whether they would adopt a configuration. No node
// adopts it. A person creates it, and the controller deletes it some time after it is complete. Only evenkeel-controller
// writes the status.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=ncp
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name=Status,type=string,JSONPath=`.status.phase`,description="Phase of the preflight"
// +kubebuilder:printcolumn:name=Accepted,type=integer,JSONPath=`.status.result.accepted`,description="Nodes that would adopt the configuration"
// +kubebuilder:printcolumn:name=Refused,type=integer,JSONPath=`.status.result.refused`,description="Nodes that would not, except for their pods"
// +kubebuilder:printcolumn:name=Blocked,type=integer,JSONPath=`.status.result.blocked`,description="Nodes that would not because of their pods"
// +kubebuilder:printcolumn:name=Unanswered,type=integer,JSONPath=`.status.result.unanswered`,description="Nodes that have not answered"
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name=Message,type=string,priority=1,JSONPath=`.status.message`,description="Description of the phase"
type NodeConfigPreflight struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the configuration and the nodes to ask. Written by a person, once: a
	// change ends the preflight.
	// +required
	Spec NodeConfigPreflightSpec `json:"spec"`

	// status counts the answers. Only evenkeel-controller writes it.
	// +optional
	Status NodeConfigPreflightStatus `json:"status,omitempty"`
}

// NodeConfigPreflightList is a list of NodeConfigPreflights.
//
// +kubebuilder:object:root=true
type NodeConfigPreflightList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeConfigPreflight `json:"items"`
}

// NodeConfigPreflightSpec is a configuration, and the nodes that are asked about it.
type NodeConfigPreflightSpec struct {
	NodeSelection `json:",inline"`

	// template is the configuration. Exactly one of kubelet and kubeletDropIn must
	// be set.
	// +required
	// +structType=atomic
	Template PreflightTemplate `json:"template"`

	// trial holds the settings for the trial, such as allowPodLoss, which decides
	// whether nodes refuse the configuration because of their pods. Settings are
	// refused if the template has trial settings too.
	// +optional
	Trial *TrialTerms `json:"trial,omitempty"`

	// ttlSecondsAfterFinished is how long the object is kept after all nodes have
	// answered or were too late. Defaults to 3600.
	// +optional
	// +kubebuilder:default=3600
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=604800
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
}

// PreflightTemplate is a configuration. Exactly one of its fields must be set.
//
// +kubebuilder:validation:XValidation:rule="has(self.kubelet) != has(self.kubeletDropIn)",message="template must have exactly one of kubelet and kubeletDropIn"
type PreflightTemplate struct {
	// kubelet is a complete KubeletConfiguration, with the apiVersion
	// kubelet.config.k8s.io/v1beta1 (upstream) or evenkeel.dev/v1alpha1 (grouped).
	// +optional
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:EmbeddedResource
	// +kubebuilder:validation:XValidation:rule="!has(self.kind) || self.kind == 'KubeletConfiguration'",message="kind must be KubeletConfiguration"
	// +kubebuilder:validation:XValidation:rule="!has(self.apiVersion) || self.apiVersion == 'kubelet.config.k8s.io/v1beta1' || self.apiVersion == 'evenkeel.dev/v1alpha1'",message="apiVersion must be kubelet.config.k8s.io/v1beta1 (upstream), or evenkeel.dev/v1alpha1 (grouped)"
	Kubelet *runtime.RawExtension `json:"kubelet,omitempty"`

	// kubeletDropIn is a partial KubeletConfiguration. The kubelet
	// merges it into each node's local configuration.
	// +optional
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:EmbeddedResource
	// +kubebuilder:validation:XValidation:rule="!has(self.kind) || self.kind == 'KubeletConfiguration'",message="kind must be KubeletConfiguration"
	// +kubebuilder:validation:XValidation:rule="!has(self.apiVersion) || self.apiVersion == 'kubelet.config.k8s.io/v1beta1' || self.apiVersion == 'evenkeel.dev/v1alpha1'",message="apiVersion must be kubelet.config.k8s.io/v1beta1 (upstream), or evenkeel.dev/v1alpha1 (grouped)"
	KubeletDropIn *runtime.RawExtension `json:"kubeletDropIn,omitempty"`
}

// PreflightPhase is the phase of a NodeConfigPreflight.
type PreflightPhase string

// The phases of a NodeConfigPreflight.
const (
	PreflightWaiting  PreflightPhase = "Waiting"  // an earlier NodeConfigPreflight is asked first
	PreflightAsking   PreflightPhase = "Asking"   // agents are being asked
	PreflightComplete PreflightPhase = "Complete" // all agents have answered or were too late
	PreflightInvalid  PreflightPhase = "Invalid"  // the configuration or the selector is invalid; no node is asked
)

// NodeConfigPreflightStatus counts the answers of nodes.
type NodeConfigPreflightStatus struct {
	// phase is Waiting, Asking, Complete or Invalid.
	// +optional
	Phase PreflightPhase `json:"phase,omitempty"`
	// message describes the phase.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Message string `json:"message,omitempty"`
	// configMapRef is the ConfigMap with the configuration. It is deleted with this
	// object.
	// +optional
	ConfigMapRef *ConfigMapReference `json:"configMapRef,omitempty"`
	// result counts the answers. Absent until the first node is asked.
	// +optional
	Result *PreflightResult `json:"result,omitempty"`
}

// Ended returns when the preflight became Complete or Invalid; nil if it has not.
func (s *NodeConfigPreflightStatus) Ended() *metav1.Time {
	if s.Result == nil {
		return nil
	}
	return s.Result.EndTime
}
