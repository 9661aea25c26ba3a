// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 defines the API types of the group evenkeel.dev: NodeConfig and NodeConfigRollout.
//
// It holds the types, their validation rules as markers, and the names of conditions, reasons, labels and annotations. It
// must not know how a configuration is fetched, tried or run, and it imports only apimachinery. `make generate` generates
// the CRDs in config/api/crd, docs/api.md and zz_generated.deepcopy.go from it.
//
// +kubebuilder:object:generate=true
// +groupName=evenkeel.dev
package v1alpha1
