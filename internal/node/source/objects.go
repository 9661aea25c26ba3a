// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

var (
	coreV1  = schema.GroupVersion{Version: "v1"}
	leaseV1 = schema.GroupVersion{Group: "coordination.k8s.io", Version: "v1"}
)

// The types below have only the fields that the agent reads: a hundred complete
// pods need more memory than the rest of the agent.

type node struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Unschedulable bool           `json:"unschedulable,omitempty"`
		Taints        []corev1.Taint `json:"taints,omitempty"`
	} `json:"spec"`
	Status struct {
		Conditions []nodeCondition `json:"conditions,omitempty"`
	} `json:"status"`
}

type nodeCondition struct {
	Type               string      `json:"type"`
	Status             string      `json:"status"`
	LastHeartbeatTime  metav1.Time `json:"lastHeartbeatTime,omitzero"`
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitzero"`
	Reason             string      `json:"reason,omitempty"`
	Message            string      `json:"message,omitempty"`
}

// UnmarshalJSON leaves out times that cannot be parsed: the API server accepts
// 9999-12-31T23:59:59-23:59, and shows it as a time of the year 10000.
func (c *nodeCondition) UnmarshalJSON(data []byte) error {
	type plain nodeCondition
	var text struct{ Type, Status, Reason, Message string }
	if err := json.Unmarshal(data, &text); err != nil || json.Unmarshal(data, (*plain)(c)) == nil {
		return err
	}

	*c = nodeCondition{Type: text.Type, Status: text.Status, Reason: text.Reason, Message: text.Message}

	return nil
}

type pod struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		RestartPolicy  string      `json:"restartPolicy,omitempty"`
		Containers     []container `json:"containers,omitempty"`
		InitContainers []container `json:"initContainers,omitempty"`
		Volumes        []volume    `json:"volumes,omitempty"`
	} `json:"spec"`
	Status struct {
		Phase      string         `json:"phase,omitempty"`
		Reason     string         `json:"reason,omitempty"`
		Message    string         `json:"message,omitempty"`
		Conditions []podCondition `json:"conditions,omitempty"`

		ContainerStatuses     []containerStatus `json:"containerStatuses,omitempty"`
		InitContainerStatuses []containerStatus `json:"initContainerStatuses,omitempty"`
	} `json:"status"`
}

type containerStatus struct {
	State struct {
		Waiting    *struct{}       `json:"waiting,omitempty"`
		Running    *containerStart `json:"running,omitempty"`
		Terminated *containerStart `json:"terminated,omitempty"`
	} `json:"state"`
	LastState struct {
		Terminated *containerStart `json:"terminated,omitempty"`
	} `json:"lastState"`
}

type containerStart struct {
	Reason    string `json:"reason,omitempty"`
	StartedAt string `json:"startedAt,omitempty"`
}

type container struct {
	ReadinessProbe *struct{} `json:"readinessProbe,omitempty"`
	StartupProbe   *struct{} `json:"startupProbe,omitempty"`
	RestartPolicy  string    `json:"restartPolicy,omitempty"`
	Resources      struct {
		Limits map[string]any `json:"limits,omitempty"`
	} `json:"resources"`
}

type volume struct {
	EmptyDir map[string]any `json:"emptyDir,omitempty"`
}

type podCondition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

type lease struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		RenewTime string `json:"renewTime,omitempty"`
	} `json:"spec"`
}

type list[T any] struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []T `json:"items"`
}

// Each object is decoded for one reader and never changed, so the copies may be
// shallow.

func (n *node) DeepCopyObject() runtime.Object    { c := *n; return &c }
func (p *pod) DeepCopyObject() runtime.Object     { c := *p; return &c }
func (l *list[T]) DeepCopyObject() runtime.Object { c := *l; return &c }
func (l *lease) DeepCopyObject() runtime.Object   { c := *l; return &c }

// codecs decodes the objects that the agent reads, and errors of the API
// server.
var codecs = func() serializer.CodecFactory {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(coreV1.WithKind("Node"), &node{})
	scheme.AddKnownTypeWithName(coreV1.WithKind("NodeList"), &list[node]{})
	scheme.AddKnownTypeWithName(coreV1.WithKind("Pod"), &pod{})
	scheme.AddKnownTypeWithName(coreV1.WithKind("PodList"), &list[pod]{})
	scheme.AddKnownTypes(coreV1, &corev1.ConfigMap{}, &corev1.ConfigMapList{})
	metav1.AddToGroupVersion(scheme, coreV1)
	scheme.AddKnownTypeWithName(leaseV1.WithKind("Lease"), &lease{})
	metav1.AddToGroupVersion(scheme, leaseV1)
	scheme.AddKnownTypes(v1alpha1.GroupVersion, &v1alpha1.NodeConfig{}, &v1alpha1.NodeConfigList{})
	metav1.AddToGroupVersion(scheme, v1alpha1.GroupVersion)

	return serializer.NewCodecFactory(scheme)
}()
