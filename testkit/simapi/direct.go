// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package simapi

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/testkit/must"
)

// The methods below are calls without a network, for what is simulated besides
// the clients: kubelets, people and other controllers. Resources are named like
// nodes; namespace is empty for cluster-scoped ones.

// Create creates an object, with its status, and decodes the result into v
// unless v is a map.
func (s *Server) Create(resource, namespace string, v any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, err := s.create(write{}, s.kind(resource), namespace, contentOf(v))
	if err != nil {
		return err
	}
	if _, ok := v.(map[string]any); ok {
		return nil
	}

	return json.Unmarshal(o.raw, v)
}

// Get decodes an object into v, and reports whether it exists.
func (s *Server) Get(resource, namespace, name string, v any) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, err := s.get(s.kind(resource), key{namespace, name})
	if err != nil {
		return false
	}

	must.OK(json.Unmarshal(o.raw, v))

	return true
}

// Names returns the names of all objects of a resource in a namespace, sorted.
func (s *Server) Names(resource, namespace string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for _, o := range s.list(everything(s.kind(resource), namespace), 0) {
		names = append(names, o.key.name)
	}

	return names
}

// Patch applies a patch to an object, also to its status.
func (s *Server) Patch(resource, namespace, name string, kind types.PatchType, patch any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.kind(resource)
	was, err := s.get(k, key{namespace, name})
	if err != nil {
		return err
	}

	content, err := k.patched(was, string(kind), encode(patch))
	if err == nil {
		_, err = s.update(write{}, k, was, content, "")
	}

	return err
}

// Delete deletes an object, and reports whether it existed.
func (s *Server) Delete(resource, namespace, name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.kind(resource)
	was, err := s.get(k, key{namespace, name})
	if err == nil {
		s.remove("", k, was)
	}

	return err == nil
}

// Watches returns the number of open watches.
func (s *Server) Watches() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.watches)
}
