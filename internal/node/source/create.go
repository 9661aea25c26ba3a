// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// EnsureNodeConfig creates an empty NodeConfig for a node that takes its configuration from elsewhere, so that the whole fleet
// is visible. It returns when the NodeConfig exists, or ctx ends.
func EnsureNodeConfig(ctx context.Context, client *Client, node string, log *slog.Logger) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := nodeConfigCreator{client: client, node: node, log: log, maxDelay: 5 * time.Minute, result: func(err error) {
		if err == nil {
			cancel()
			return
		}
		log.Debug("cannot create the NodeConfig of this node, retrying", "err", err)
	}}
	c.run(ctx, 0)
}

// nodeConfigCreator creates a node's NodeConfig, with an empty spec.
type nodeConfigCreator struct {
	client   *Client
	node     string
	log      *slog.Logger
	maxDelay time.Duration // between attempts
	result   func(error)   // called after each attempt; nil: the NodeConfig exists
}

// run tries after delay, and then until ctx ends: an existing NodeConfig may be deleted before the watch shows it.
func (c *nodeConfigCreator) run(ctx context.Context, delay time.Duration) {
	retry := newRetry(c.client, c.maxDelay)
	for ok := sleep(ctx, delay, retry.recovered, nil); ok; ok = retry.wait(ctx, nil, nil) {
		_, err := c.client.do(ctx, newNodeConfig(c.node), nil)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			c.log.Info("created the NodeConfig of this node")
		} else if apierrors.IsAlreadyExists(err) {
			err = nil
		}
		c.result(err)
	}
}

// newNodeConfig is the request that creates a NodeConfig that assigns nothing. It has an empty spec: without one a JSON patch
// cannot add spec.configSource.
func newNodeConfig(node string) request {
	return request{verb: "POST", gv: v1alpha1.GroupVersion, resource: "nodeconfigs", body: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(),
		"kind":       "NodeConfig",
		"metadata":   map[string]string{"name": node},
		"spec":       map[string]any{},
	}}
}

// creationBackoff limits how often a NodeConfig is created that someone deletes repeatedly.
type creationBackoff struct {
	last  time.Time
	retry wait.Backoff
}

// next returns the delay before the object is created again.
func (p *creationBackoff) next() time.Duration {
	quiet := p.last.IsZero() || time.Since(p.last) > 5*time.Minute
	p.last = time.Now()
	if quiet {
		p.retry = newBackoff(time.Minute)
		return 0
	}
	return p.retry.Step()
}
