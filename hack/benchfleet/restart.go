// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/testkit/bed"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// calmBefore is how long the load at rest is measured before the restart.
const calmBefore = 30 * time.Second

// restarts measures the load on an API server that has just started, with the agents of all nodes, and how long it takes until all
// of them watch their NodeConfig again and the controller sees everything.
func (b *bench) restarts(ctx context.Context, f *fleet) (err error) {
	defer must.Catch(&err)

	must.Get(f.roll(ctx, usual, 0))
	c, ready := must.Get2(f.startProbed(ctx))
	defer func() { err = errors.Join(err, c.stop()) }()
	must.OK(f.quiet(ctx))
	rest := must.Get(f.load(ctx, calmBefore))
	b.keep("at rest: requests per second", "%s", rest)
	must.OK(f.cluster.StopAPIServer())
	must.OK(bed.Pause(ctx, outage))
	delete(f.servers, "kube-apiserver") // the next one begins at 0
	before := must.Get(f.spent(f.hollow, c))
	begin := time.Now()
	must.OK(f.cluster.StartAPIServer(ctx))
	f.servers = f.cluster.ServerPIDs()
	started := time.Since(begin)
	r := must.Get(f.recover(ctx, begin, ready))
	used := must.Get(f.spent(f.hollow, c))
	b.keep("API server: ready after", "%s", seconds(started))
	b.keep("agents watch again after (50%, 95%, 99%, all)", "%s", r.agents())
	b.keep("controller sees everything after", "%s", seconds(r.controller))
	b.keep("requests until then", "%s", counted(r.requests))
	b.keep("requests in the busiest second", "%s", counted(r.busiest))
	b.keep("requests that the API server refused (429)", "%.0f", r.refused)
	for name := range used {
		used[name] -= before[name]
	}
	b.keep("CPU until then", "API server %s (%.2f of a processor), etcd %s, agents %s, controller %s", seconds(used["kube-apiserver"]),
		used["kube-apiserver"].Seconds()/r.took.Seconds(), seconds(used["etcd"]), seconds(used["evenkeel-hollow"]), seconds(used["evenkeel-controller"]))
	after := must.Get(f.load(ctx, calmBefore))
	b.keep("after that: requests per second", "%s", after)
	return b.reportMemory(f)
}

// recovery is the time after a restart of the API server.
type recovery struct {
	watching   map[int]time.Duration // after which so many percent of the agents watch again
	controller time.Duration
	took       time.Duration // until everything has recovered
	requests   map[string]float64
	busiest    map[string]float64 // in one second
	refused    float64
}

func (r *recovery) agents() string {
	var parts []string
	for _, percent := range recoveredShares {
		parts = append(parts, seconds(r.watching[percent]))
	}
	return strings.Join(parts, ", ")
}

// recoveredShares are percentages of agents.
var recoveredShares = []int{50, 95, 99, 100}

// recover samples the API server's metrics every second until all agents watch their NodeConfigs, and the controller is ready.
func (f *fleet) recover(ctx context.Context, begin time.Time, ready func() error) (*recovery, error) {
	r := &recovery{watching: map[int]time.Duration{}, requests: map[string]float64{}, busiest: map[string]float64{}}
	others := 2.0 // this program and the controller watch all NodeConfigs
	last := begin
	err := eventually(ctx, 10*time.Minute, time.Second, func() (err error) {
		defer must.Catch(&err)

		if r.controller == 0 && ready() == nil {
			r.controller = time.Since(begin)
		}
		s := must.Get(f.serverMetrics(ctx))
		now := time.Now()
		r.took = now.Sub(begin)
		requests := s.requests()
		second := now.Sub(last).Seconds()
		rate := map[string]float64{}
		for kind, n := range requests {
			rate[kind] = (n - r.requests[kind]) / second
		}
		if total(rate) > total(r.busiest) && last != begin {
			r.busiest = rate
		}
		r.requests, r.refused, last = requests, s.refused(), now
		watching := s.watches("nodeconfigs") - others
		for _, percent := range recoveredShares {
			if r.watching[percent] == 0 && watching*100 >= float64(f.nodes*percent) {
				r.watching[percent] = r.took
			}
		}
		switch {
		case r.watching[100] == 0:
			return fmt.Errorf("%.0f of %s watch their NodeConfig", watching, printable.Count(f.nodes, "agent"))
		case r.controller == 0:
			return errors.New("the controller is not ready")
		}
		return nil
	}, nil)
	return r, err
}

// load is the API server's load in a period.
type load struct {
	rate map[string]float64 // requests per second
	cpu  float64            // of the API server, in processors
}

func (l load) String() string {
	return fmt.Sprintf("%s; API server: %.2f of a processor", counted(l.rate), l.cpu)
}

// load measures the API server for a time.
func (f *fleet) load(ctx context.Context, d time.Duration) (l load, err error) {
	defer must.Catch(&err)

	first := must.Get(f.serverMetrics(ctx))
	before := must.Get(f.spent())
	begin := time.Now()
	must.OK(bed.Pause(ctx, d))
	took := time.Since(begin).Seconds()
	after := must.Get(f.spent())
	last := must.Get(f.serverMetrics(ctx))
	l.rate = map[string]float64{}
	was := first.requests()
	for kind, n := range last.requests() {
		l.rate[kind] = (n - was[kind]) / took
	}
	l.cpu = (after["kube-apiserver"] - before["kube-apiserver"]).Seconds() / took
	return l, nil
}

func total(counts map[string]float64) (sum float64) {
	for _, n := range counts {
		sum += n
	}
	return sum
}

// counted prints the sum of counts and the most frequent kinds.
func counted(counts map[string]float64) string {
	kinds := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		if counts[a] != counts[b] {
			return int(min(1, max(-1, (counts[b]-counts[a])*1e6)))
		}
		return strings.Compare(a, b)
	})
	text := fmt.Sprintf("%.1f", total(counts))
	for i, kind := range kinds {
		if n := counts[kind]; i < 6 && n >= 0.05 {
			text += fmt.Sprintf(", %.1f %s", n, kind)
		}
	}
	return text
}
