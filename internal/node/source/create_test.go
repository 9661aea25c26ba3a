// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestEmptyNodeConfigIsCreatedOnce(t *testing.T) {
	name := newName("announced")
	client := newClient(t, nodeKubeconfig(t, name))
	for range 2 { // the second one finds it
		EnsureNodeConfig(t.Context(), client, name, quiet())
		nc := &v1alpha1.NodeConfig{}
		assert.NoError(t, assert.Err(admin.do(t.Context(), request{verb: "GET", gv: v1alpha1.GroupVersion, resource: "nodeconfigs", name: name}, nc)))
		assert.That(t, nc.Spec.ConfigSource == nil && nc.Generation == 1, "spec is %+v at generation %d, want an empty one at 1", nc.Spec, nc.Generation)
	}
}

func TestCreationOfNodeConfigEndsWithItsContext(t *testing.T) {
	client := newClient(t, filepath.Join(t.TempDir(), "none"))
	stop := background(t, func(ctx context.Context) { EnsureNodeConfig(ctx, client, "nobody", quiet()) })
	stop()
}

func TestCreatedNodeConfigHasEmptySpec(t *testing.T) {
	body, err := json.Marshal(newNodeConfig("worker-1").body)
	want := `{"apiVersion":"evenkeel.dev/v1alpha1","kind":"NodeConfig","metadata":{"name":"worker-1"},"spec":{}}`
	assert.That(t, err == nil && string(body) == want, "it creates %s, error %v, want %s", body, err, want)
}
