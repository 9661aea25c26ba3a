// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// What a source does not have. They are shared and never changed.
var (
	noReference RolloutReference
	noConfigMap ConfigMapReference
)

// By returns the assignment by a rollout; zero if there is no source, or a person wrote it. It is read only.
func (s *NodeConfigSource) By() *RolloutReference {
	if s == nil || s.RolloutRef == nil {
		return &noReference
	}
	return s.RolloutRef
}

// Content returns the ConfigMap; zero if there is no source, or it is local. It is read only.
func (s *NodeConfigSource) Content() *ConfigMapReference {
	if s == nil || s.ConfigMapRef == nil {
		return &noConfigMap
	}
	return s.ConfigMapRef
}

// Digest returns the sha256 of the payload; empty if r is nil, which means the local configuration.
func (r *ConfigRevision) Digest() string {
	if r == nil {
		return ""
	}
	return r.SHA256
}
