// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package localcluster

import (
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/testkit/must"
)

// Client returns an administrator's client for these kinds. It has no limit of
// requests: polling in tests is bounded by deadlines.
func (c *Cluster) Client(kinds ...func(*runtime.Scheme) error) (_ client.WithWatch, err error) {
	defer must.Catch(&err)

	scheme := runtime.NewScheme()
	for _, add := range kinds {
		must.OK(add(scheme))
	}

	config := c.AdminConfig()
	config.QPS = -1

	return client.NewWithWatch(config, client.Options{Scheme: scheme})
}
