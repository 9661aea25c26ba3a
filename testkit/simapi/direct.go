// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package simapi

import (
	"encoding/json"
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/types"
)

// The methods below are calls without a network, for what is simulated besides
// the clients: kubelets, people and other controllers. Resources are named like
// nodes; namespace is empty for cluster-scoped ones.

func decodeInto(raw []byte, into any) error { return json.Unmarshal(raw, into) }

func contentOf(v any) map[string]any {
	content, err := decode(encode(v))
	if err != nil {
		panic(fmt.Sprintf("simapi: %v", err)) // it was just encoded
	}

	return content
}

// Create creates an object, with its status, and decodes the result into v
// unless v is a map.
func (s *Server) Create(resource, namespace string, v any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, failed := s.create("", s.kind(resource), namespace, contentOf(v))
	if failed != nil {
		return failed
	}
	if _, ok := v.(map[string]any); ok {
		return nil
	}

	return decodeInto(o.raw, v)
}

// Get decodes an object into v, and reports whether it exists.
func (s *Server) Get(resource, namespace, name string, v any) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, failed := s.get(s.kind(resource), key{namespace, name})
	if failed != nil {
		return false
	}
	if err := decodeInto(o.raw, v); err != nil {
		panic(fmt.Sprintf("simapi: decode %s %s: %v", resource, name, err))
	}

	return true
}

// Names returns the names of all objects of a resource in a namespace, sorted.
func (s *Server) Names(resource, namespace string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.kind(resource)
	x, failed := s.selectionOf(target{kind: k, at: key{namespace: namespace}}, nil)
	if failed != nil {
		panic(failed)
	}

	var names []string
	for _, o := range s.list(x, 0) {
		names = append(names, o.key.name)
	}

	return names
}

// Patch applies a patch to an object, also to its status.
func (s *Server) Patch(resource, namespace, name string, kind types.PatchType, patch any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.kind(resource)
	was, failed := s.get(k, key{namespace, name})
	if failed == nil {
		var content map[string]any
		if content, failed = k.patched(was.content, string(kind), encode(patch)); failed == nil {
			_, failed = s.update("", k, was, content, "")
		}
	}

	if failed != nil {
		return failed
	}

	return nil
}

// Delete deletes an object, and reports whether it existed.
func (s *Server) Delete(resource, namespace, name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.kind(resource)
	was, failed := s.get(k, key{namespace, name})
	if failed == nil {
		s.remove("", k, was)
	}

	return failed == nil
}

// IsNotFound reports whether an error of a call says that the object does not
// exist.
func IsNotFound(err error) bool {
	failed, ok := err.(*statusError)
	return ok && failed.code == http.StatusNotFound
}

// Watches returns the number of open watches.
func (s *Server) Watches() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.watches)
}
