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
	"github.com/evenkeel/evenkeel/internal/rollout"
	"github.com/evenkeel/evenkeel/internal/startprobe"
)

// agentImage is the value of --start-probe without an image.
const agentImage = "agent"

// probeInterval is the time between two looks at the pod of a start probe.
const probeInterval = time.Second

// probe starts and stops a pod on the node as soon as its kubelet runs the configuration, and prints the result.
func (a *app) probe(ctx context.Context, c client.Client, o assignOptions, stored *v1alpha1.NodeConfig,
	source *v1alpha1.NodeConfigSource) error {
	image := o.startProbe
	if image == agentImage {
		image = ""
	}
	p := startprobe.Probe{Namespace: v1alpha1.SystemNamespace, Node: o.node, Config: stored, For: "assign", Image: image,
		Key: fmt.Sprintf("%s/%d/%d", source.Content().UID, stored.Generation, time.Now().UnixNano())}
	report, began, ahead := rollout.ProbeReport{}, time.Time{}, clockOffset(stored, time.Now())
	for report.Result == "" {
		nc := &v1alpha1.NodeConfig{}
		if err := c.Get(ctx, client.ObjectKey{Name: o.node}, nc); err != nil && !fleet.Passing(err) {
			return fmt.Errorf("read NodeConfig %s: %w", o.node, err)
		}
		switch t := nc.Status.Trial; {
		case nc.Generation > stored.Generation, !began.IsZero() && nc.Status.Active.Digest() != source.Content().SHA256 && nc.Name != "":
			return nil // the node went back, or was assigned something else: awaitNode says so
		case t == nil || t.HealthySeconds > 0: // the kubelet has started
			if began.IsZero() {
				began = time.Now()
			}
			report = startprobe.Pass(ctx, c, p, report, time.Now().Add(ahead))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("interrupted; the trial continues, and the pod of the start probe ends by itself")
		case <-time.After(probeInterval):
		}
	}
	switch report.Result {
	case rollout.ProbePassed:
		fmt.Fprintf(a.Out, "node %s started and stopped a pod within %s\n", o.node, time.Since(began).Round(time.Second))
	case rollout.ProbeFailed:
		return &command.Exit{Code: command.ExitError, Err: fmt.Errorf("node %s: %s; if the pods of the node are refused as well, the node rolls "+
			"back by itself: kubectl evenkeel node %[1]s", o.node, report.Message)}
	default:
		fmt.Fprintf(a.ErrOut, "note: no result of the start probe: %s\n", report.Message)
	}
	return nil
}

// clockOffset returns how far the API server's clock is ahead of now, when an object that was just written was returned; 0 if the object
// does not say when it was written.
func clockOffset(written client.Object, now time.Time) time.Duration {
	var last time.Time
	for _, f := range written.GetManagedFields() {
		if f.Time != nil && f.Time.After(last) {
			last = f.Time.Time
		}
	}
	if last.IsZero() {
		return 0
	}
	return last.Sub(now)
}
