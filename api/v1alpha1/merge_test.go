// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"path/filepath"
	"slices"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// settings are the objects of specs whose fields are independent of each other, so that each field can have another owner.
var settings = []string{
	"nodeconfigs spec", "nodeconfigs spec.trial",
	"nodeconfigpreflights spec", "nodeconfigpreflights spec.trial",
	"nodeconfigrollouts spec", "nodeconfigrollouts spec.trial", "nodeconfigrollouts spec.failurePolicy", "nodeconfigrollouts spec.rollback",
	"nodeconfigrollouts spec.strategy", "nodeconfigrollouts spec.strategy.drainOptions", "nodeconfigrollouts spec.strategy.gates[]",
}

// Two appliers of one configuration must conflict: a field by field merge would give nodes a configuration that nobody wrote.
func TestEachObjectOfASpecIsOneValueOrIndependentSettings(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "config/api/crd/*.yaml"))
	assert.Must(t, err == nil && len(files) == 3, "%d CRDs, error %v", len(files), err)
	var seen []string
	for _, file := range files {
		var crd apiextensionsv1.CustomResourceDefinition
		assert.NoError(t, yaml.UnmarshalStrict([]byte(read(t, file)), &crd))
		for _, version := range crd.Spec.Versions {
			mergedObjects(t, crd.Spec.Names.Plural+" spec", version.Schema.OpenAPIV3Schema.Properties["spec"], &seen)
		}
	}
	for _, path := range settings {
		assert.That(t, slices.Contains(seen, path), "%s is not merged: remove it from the list", path)
	}
}

// mergedObjects lists the objects at and below path that are merged field by field, and reports those that must not be.
func mergedObjects(t *testing.T, path string, s apiextensionsv1.JSONSchemaProps, seen *[]string) {
	t.Helper()
	switch {
	case s.XMapType != nil && *s.XMapType == "atomic":
	case s.Type == "array":
		assert.That(t, s.XListType != nil, "%s needs listType: atomic, set or map", path)
		if s.XListType != nil && *s.XListType == "map" {
			mergedObjects(t, path+"[]", *s.Items.Schema, seen)
		}
	case s.Type == "object":
		*seen = append(*seen, path)
		free := s.XPreserveUnknownFields != nil || s.AdditionalProperties != nil
		assert.That(t, slices.Contains(settings, path) && !free, "%s is merged field by field: mark it with +structType=atomic or +mapType=atomic", path)
		for name, field := range s.Properties {
			mergedObjects(t, path+"."+name, field, seen)
		}
	}
}
