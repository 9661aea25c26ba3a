// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/operator/query"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/internal/rollout"
	"github.com/evenkeel/evenkeel/internal/startprobe"
)

// agentImage is the value of --start-probe without an image.
const agentImage = "agent"

// probeAndAwait follows a node after its source was written, with a start probe
// if one is wanted.
func (a *app) probeAndAwait(ctx context.Context, c client.WithWatch, o assignOptions, stored *v1alpha1.NodeConfig,
	source *v1alpha1.NodeConfigSource, already bool) error {
	if o.startProbe != "" {
		trial := o
		trial.until = untilTrial
		if err := a.awaitNode(ctx, c, trial, stored, source, already); err != nil {
			return err
		}
		if err := a.probe(ctx, c, o, stored, source); err != nil {
			return err
		}
	}

	return a.awaitNode(ctx, c, o, stored, source, already)
}

// probe starts and stops a pod on the node as soon as its kubelet runs the
// configuration, and prints the result.
func (a *app) probe(ctx context.Context, c client.Client, o assignOptions, stored *v1alpha1.NodeConfig,
	source *v1alpha1.NodeConfigSource) error {
	image := o.startProbe
	if image == agentImage {
		image = ""
	}

	p := startprobe.Probe{Namespace: v1alpha1.SystemNamespace, Node: o.node, Config: stored, For: "assign", Image: image,
		Key: fmt.Sprintf("%s/%d/%d", source.Content().UID, stored.Generation, time.Now().UnixNano())}
	report, began := rollout.ProbeReport{}, time.Time{}
	defer func() {
		if began.IsZero() || report.Result == rollout.ProbePassed || report.Result == rollout.ProbeFailed {
			return // the node's agent looks at a pod that cannot be started, which ends by itself
		}

		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), query.ObserveTimeout)
		defer cancel()
		if err := startprobe.Remove(ctx, c, p); err != nil {
			fmt.Fprintf(a.ErrOut, "note: the pod of the start probe ends by itself: %s\n", printable.Line(err.Error()))
		}
	}()
	for report.Result == "" {
		nc := &v1alpha1.NodeConfig{}
		err := c.Get(ctx, client.ObjectKey{Name: o.node}, nc)
		switch {
		case err != nil && !fleet.Passing(err) && ctx.Err() == nil:
			return fmt.Errorf("read NodeConfig %s: %w", o.node, err)
		case err != nil:
		case nc.Generation > stored.Generation, nc.Status.ObservedGeneration == nc.Generation && !runs(nc, source):
			return nil // the node went back, or was assigned something else: awaitNode says so
		case runs(nc, source) && (nc.Status.Trial == nil || nc.Status.Trial.HealthySeconds > 0): // the kubelet has started
			if began.IsZero() {
				began = time.Now()
			}

			report = startprobe.Pass(ctx, c, p, report, time.Now())
		}

		if report.Result != "" {
			break
		}

		select {
		case <-ctx.Done():
			return fmt.Errorf("interrupted; the trial continues")
		case <-time.After(startprobe.Interval(report, time.Now())):
		}
	}

	switch report.Result {
	case rollout.ProbePassed:
		fmt.Fprintf(a.Out, "node %s started and stopped a pod within %s\n", o.node, time.Since(began).Round(time.Second))
		return nil
	case rollout.ProbeFailed:
		return &command.Exit{Code: command.ExitError, Err: fmt.Errorf("node %s: %s; the node rolls back by itself if its trial still runs: "+
			"kubectl evenkeel node %[1]s", o.node, report.Message)}
	}

	return &command.Exit{Code: command.ExitTimeout, Err: fmt.Errorf("no result of the start probe on node %s: %s; the trial continues: "+
		"kubectl evenkeel node %[1]s", o.node, report.Message)}
}

// runs reports whether a node's kubelet runs a source.
func runs(nc *v1alpha1.NodeConfig, source *v1alpha1.NodeConfigSource) bool {
	return nc.Status.Active != nil && nc.Status.Active.UID == source.Content().UID
}
