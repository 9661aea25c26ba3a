// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/testkit/bed"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
	"github.com/evenkeel/evenkeel/testkit/must"
)

const (
	outage    = 25 * time.Second // every back-off reaches its maximum
	outages   = 3
	maxBehind = 5 * time.Second // of the controller behind the readiness of the API server
)

// outages measures the time until the controller has read everything again after an outage of the API server; until then it
// decides nothing. The floor is the time until the API server is ready.
func (b *bench) outages(ctx context.Context, nodes int) (err error) {
	defer must.Catch(&err)

	w, err := b.up(ctx)
	defer func() { err = errors.Join(err, w.down()) }()
	if err != nil {
		return err
	}
	must.OK(w.populate(ctx, 0, nodes))
	c, ready := must.Get2(w.startProbed(ctx))
	defer func() { err = errors.Join(err, c.stop()) }()
	var floors, behind []time.Duration
	for range outages {
		must.OK(w.cluster.StopAPIServer())
		must.OK(bed.Pause(ctx, outage))
		if ready() == nil {
			return errors.New("the controller says that it is ready, with the API server away")
		}
		begin := time.Now()
		must.OK(w.cluster.StartAPIServer(ctx))
		floor := time.Since(begin)
		must.OK(eventually(ctx, 2*time.Minute, 50*time.Millisecond, ready, c.Done))
		floors, behind = append(floors, floor), append(behind, time.Since(begin)-floor)
	}
	most := slices.Max(behind)
	floor := floors[slices.Index(behind, most)]
	b.limited(figure{What: "controller: sees all nodes again, after the API server is ready", Value: most.Seconds(),
		Text: fmt.Sprintf("%s (%.2f x)", seconds(most), float64(floor+most)/float64(floor)), Limit: seconds(maxBehind), Over: most > maxBehind}, seconds(floor))
	note("", "the most of %d outages of %s; the floor is the API server's start", outages, outage)
	return nil
}

// startProbed starts a controller, and returns it when it has seen everything, with a function that asks whether it is ready. It has no
// lease: a controller that loses its lease is restarted by its Deployment, which is not measured.
func (w *world) startProbed(ctx context.Context) (c *child, ready func() error, err error) {
	defer must.Catch(&err)

	probes := must.Get(localcluster.FreeAddress())
	c, _, err = w.controller(ctx, "--health-probe-bind-address="+probes, "--leader-elect=false")
	return c, func() error { return probe(ctx, probes) }, err
}

// probe asks a controller whether it is ready.
func probe(ctx context.Context, address string) error {
	return localcluster.Probe(ctx, "http://"+address+"/readyz")
}
