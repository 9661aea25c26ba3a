// Package v1alpha1 is evenkeel's API, group evenkeel.dev: what a cluster asks of a node and what the node answers.
//
// It holds types, their validation rules as markers, and the names of conditions and reasons. It must not know how a
// configuration is fetched, tried or run, and it imports apimachinery alone. The CRDs in config/api/crd and
// zz_generated.deepcopy.go are generated from it by `make generate`.
//
// +kubebuilder:object:generate=true
// +groupName=evenkeel.dev
package v1alpha1
