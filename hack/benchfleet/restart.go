// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"

	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/testkit/bed"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
	"github.com/evenkeel/evenkeel/testkit/must"
)

const outage = 25 * time.Second // every back-off reaches its maximum

// restarts measures after what time the agents of all nodes watch their
// NodeConfig again, and the controller sees everything, when the API server
// comes back. The controller has no lease: a controller that loses its lease is
// restarted by its Deployment.
func (b *bench) restarts(ctx context.Context, f *fleet) {
	probes := must.Get(localcluster.FreeAddress())
	args := []string{"--health-probe-bind-address=" + probes, "--leader-elect=false"}
	f.withController(ctx, args, func(c *child, _ time.Duration) {
		f.quiet(ctx)
		must.OK(f.cluster.StopAPIServer())
		must.OK(bed.Pause(ctx, outage))
		begin := time.Now()
		must.OK(f.cluster.StartAPIServer(ctx))
		note("API server: ready after", "%s", seconds(time.Since(begin)))
		var sees, watch time.Duration
		const others = 2 // this program and the controller watch all NodeConfigs
		eventually(ctx, 10*time.Minute, time.Second, c.Done, func() {
			if sees == 0 && localcluster.Probe(ctx, "http://"+probes+"/readyz") == nil {
				sees = time.Since(begin)
			}

			raw := must.Get(f.kube.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx))
			watches := sum(raw, "apiserver_longrunning_requests", `resource="nodeconfigs"`, `verb="WATCH"`)
			if watch == 0 && int(watches)-others >= f.nodes {
				watch = time.Since(begin)
			}

			must.That(sees != 0 && watch != 0,
				"%.0f of %s watch their NodeConfig; the controller is ready after %s", watches-others, printable.Count(f.nodes, "agent"), sees)
		})
		note("all agents watch again after", "%s", seconds(watch))
		note("controller sees everything after", "%s", seconds(sees))
	})
}
