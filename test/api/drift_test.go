// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"context"
	"path/filepath"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// mayGet asks, as a kubelet does, whether a user may get a subresource of a
// Node.
func mayGet(ctx context.Context, user, group, node, subresource string) (bool, error) {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user, Groups: []string{group, "system:authenticated"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Version: "v1", Resource: "nodes", Subresource: subresource, Name: node},
	}}
	answer, err := kubernetes.NewForConfigOrDie(cluster.AdminConfig()).AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}

	return answer.Status.Allowed, nil
}

func TestOnlyConfigDriftLetsNodesReadTheConfigzOfKubelets(t *testing.T) {
	const node, nodes = "system:node:drift", "system:nodes"
	if may, err := mayGet(t.Context(), node, nodes, "drift", "configz"); err != nil || may {
		t.Fatalf("without config/drift, a node may read /configz: %v, error %v", may, err)
	}

	manifests := filepath.Join(root, "config/drift")
	mustKubectl(t, "apply", "-k", manifests)
	t.Cleanup(func() {
		out, err := kubectl(context.Background(), "delete", "-k", manifests)
		assert.That(t, err == nil, "%v %v", out, err)
	})
	assert.NoError(t, wait.PollUntilContextTimeout(t.Context(), pollInterval, timeout, true, func(ctx context.Context) (bool, error) {
		return mayGet(ctx, node, nodes, "drift", "configz")
	}), "config/drift does not let a node read the /configz of its kubelet")
	for _, r := range []struct {
		user, group, node, subresource string
		want                           bool
	}{
		{node, nodes, "other", "configz", true}, // RBAC cannot limit it to the node's own: docs/security.md says so
		{node, nodes, "drift", "proxy", false},
		{node, nodes, "drift", "pods", false},
		{node, nodes, "drift", "metrics", false},
		{"jane", "people", "drift", "configz", false},
	} {
		if may, err := mayGet(t.Context(), r.user, r.group, r.node, r.subresource); err != nil || may != r.want {
			t.Errorf("%s may get nodes/%s of %s: %v, error %v; want %v", r.user, r.subresource, r.node, may, err, r.want)
		}
	}
}
