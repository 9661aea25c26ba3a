// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// unclear is ConfigOK when the desired configuration is unknown.
func unclear(using, cause string) want {
	cause = "failed to sync, desired config unclear, cause: " + cause
	return want{"Unknown", "SyncFailed", using, cause, cause}
}

func using(cm *corev1.ConfigMap) string { return fmt.Sprintf("using current (UID: %s)", cm.UID) }

func (n *node) assignRef(ref v1alpha1.ConfigMapReference) {
	n.t.Helper()
	assert.NoError(n.t, n.Assign(n.t.Context(), &v1alpha1.NodeConfigSource{ConfigMapRef: &ref}))
}
