package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of all of evenkeel's types.
const GroupName = "evenkeel.dev"

// SystemNamespace is the one namespace whose ConfigMaps nodes may read unless an administrator opens others.
const SystemNamespace = "evenkeel-system"

// ControllerLease is the Lease, by default in SystemNamespace, of the controller that works. Its label LabelVersion is the version of who
// holds it, or held it last.
const (
	ControllerLease = "evenkeel-controller"
	LabelVersion    = "evenkeel.dev/version"
)

var (
	// GroupVersion is the group and version of this package.
	GroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}

	// SchemeBuilder collects what AddToScheme adds.
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme makes a scheme know this package's types.
	AddToScheme = SchemeBuilder.AddToScheme
)

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &NodeConfig{}, &NodeConfigList{}, &NodeConfigRollout{}, &NodeConfigRolloutList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
