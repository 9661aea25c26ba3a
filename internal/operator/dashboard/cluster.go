// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/internal/operator/query"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// Cluster is a cluster to show.
type Cluster struct {
	Config *rest.Config
	// Context is its name on the page and in the page's links; empty: the page
	// shows the host of the API server.
	Context string
	// Named is whether the user named the context: the commands that the page
	// shows name it too then, because the current context can be another one.
	Named bool
}

// cluster is one cluster of the page.
type cluster struct {
	Cluster
	server *Server
	api    client.WithWatch
	cache  *cache
	feed   *feed
}

// newCluster returns a cluster that has not been read yet.
func (s *Server) newCluster(o Cluster) (*cluster, error) {
	o.Config = rest.CopyConfig(o.Config)
	api, err := query.Connect(o.Config, "kubectl-evenkeel/"+s.o.Version+" dashboard")
	if err != nil {
		return nil, err
	}

	return s.clusterOf(o, api), nil
}

// clusterOf returns a cluster that is read with a client.
func (s *Server) clusterOf(o Cluster, api client.WithWatch) *cluster {
	if o.Context == "" {
		o.Context = o.Config.Host
	}

	w := newCache(api)

	return &cluster{Cluster: o, server: s, api: api, cache: w, feed: newFeed(w)}
}

// run keeps the cluster current until ctx ends.
func (c *cluster) run(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { c.cache.watch(ctx) })
	all.Go(func() { c.feed.run(ctx) })
	all.Wait()
}

// probeTimeout is how long each cluster may take to answer at the start.
const probeTimeout = 15 * time.Second

// probe returns as soon as NodeConfigs and rollouts of one cluster can be
// listed. The error says why none can.
func probe(ctx context.Context, clusters []*cluster) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	results := make([]error, len(clusters))
	done := make(chan int, len(clusters))
	for i, c := range clusters {
		go func() {
			results[i] = c.probe(ctx)
			done <- i
		}()
	}

	for range clusters {
		if results[<-done] == nil {
			return nil
		}
	}

	if len(clusters) == 1 {
		return results[0]
	}

	for i, c := range clusters {
		results[i] = fmt.Errorf("context %q: %w", c.Context, results[i])
	}

	return errors.Join(results...)
}

// probe returns an error if NodeConfigs or rollouts cannot be listed.
func (c *cluster) probe(ctx context.Context) error {
	one := client.Limit(1)
	if err := c.api.List(ctx, &v1alpha1.NodeConfigList{}, one); err != nil {
		return fmt.Errorf("list NodeConfigs: %w", err)
	}
	if err := c.api.List(ctx, &v1alpha1.NodeConfigRolloutList{}, one); err != nil {
		return fmt.Errorf("list rollouts: %w", err)
	}

	return nil
}

// command returns the equivalent command of what the page does, for this
// cluster.
func (c *cluster) command(words ...string) string {
	all := append([]string{"kubectl evenkeel"}, words...)
	if c.Named {
		all = append(all, "--context "+printable.Shell(c.Context))
	}

	return printable.Line(strings.Join(all, " "))
}

// readTimeout is how long the API server may take for an answer: a browser has
// six connections to all clusters of the page.
const readTimeout = 20 * time.Second

// answer answers with the value or the error of a function, whose ctx ends
// after readTimeout. code is the HTTP status of errors that are none of the API
// and no refusal.
func (c *cluster) answer(code int, get func(ctx context.Context, r *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
		defer cancel()
		v, err := get(ctx, r)
		if err != nil {
			fail(w, code, describe.WithAdvice(err, c.server.o.Version))
			return
		}

		reply(w, v)
	}
}

// handler serves the API of the cluster; the paths are below /api/clusters/ID.
func (c *cluster) handler() http.Handler {
	api := http.NewServeMux()
	api.HandleFunc("GET /feed", c.stream)
	api.HandleFunc("GET /nodes/{name}", c.answer(http.StatusNotFound, c.node))
	api.HandleFunc("GET /rollouts/{name}", c.answer(http.StatusNotFound, c.rollout))
	api.HandleFunc("GET /rollouts/{name}/effect/{verb}", c.answer(http.StatusConflict, c.foresee))
	api.HandleFunc("GET /rollouts/{name}/log", c.answer(http.StatusNotFound, c.log))
	api.HandleFunc("POST /rollouts/{name}/{verb}", c.answer(http.StatusConflict, c.act))

	return api
}

// logf writes a line about a change to the log, with the cluster if there are
// several.
func (c *cluster) logf(format string, args ...any) {
	words := fmt.Sprintf(format, args...)
	if len(c.server.clusters) > 1 {
		words = fmt.Sprintf("context %s: %s", c.Context, words)
	}

	c.server.logging.Lock()
	defer c.server.logging.Unlock()
	fmt.Fprintln(c.server.o.Log, time.Now().Format(time.TimeOnly), printable.Line(words))
}
