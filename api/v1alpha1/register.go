// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of all evenkeel types.
const GroupName = "evenkeel.dev"

// SystemNamespace is the only namespace whose ConfigMaps nodes may read, unless an administrator grants others.
const SystemNamespace = "evenkeel-system"

// The Lease of the leading controller.
const (
	// ControllerLease is the name of the Lease. Its namespace is SystemNamespace by default.
	ControllerLease = "evenkeel-controller"
	// LabelVersion is the label of the Lease with the version of its current or last holder.
	LabelVersion = "evenkeel.dev/version"
)

var (
	// GroupVersion is the group and version of this package.
	GroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}

	// SchemeBuilder collects the functions that AddToScheme calls.
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme registers this package's types in a scheme.
	AddToScheme = SchemeBuilder.AddToScheme
)

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &NodeConfig{}, &NodeConfigList{}, &NodeConfigRollout{}, &NodeConfigRolloutList{},
		&NodeConfigPreflight{}, &NodeConfigPreflightList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
