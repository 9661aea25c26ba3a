// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestTheCacheKeepsWhatOnlyThePageShows(t *testing.T) {
	value := v1alpha1.ResolvedValue{Path: "maxPods", Value: "40", From: "10 per CPU"}
	nc := &v1alpha1.NodeConfig{Status: v1alpha1.NodeConfigStatus{
		ComponentVersion: "v1.37.2", ResolvedValues: []v1alpha1.ResolvedValue{value}, OverriddenFields: []string{"maxPods"},
		BadConfigs: []v1alpha1.BadConfig{{UID: "u1", Reason: "it crashed", Revision: "r"}},
	}}
	stripNodeConfig(nc)
	want := v1alpha1.NodeConfigStatus{
		ComponentVersion: "v1.37.2", ResolvedValues: []v1alpha1.ResolvedValue{value}, BadConfigs: []v1alpha1.BadConfig{{UID: "u1", Reason: "it crashed"}},
	}
	assert.NoDiff(t, cmp.Diff(want, nc.Status))
}
