// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/rollout"
	"github.com/evenkeel/evenkeel/testkit/figures"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// plans measures rollout.Plan. The floor is one iteration over all nodes.
func (b *bench) plans(ctx context.Context) {
	const runs, count = 15, planNodes
	epoch := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	target := v1alpha1.RolloutRevision{Number: 2, ConfigMapRef: v1alpha1.ConfigMapReference{Namespace: "evenkeel-system", Name: "workers-0123456789ab", UID: "target", SHA256: "0123456789abcdef"}}
	good := v1alpha1.RolloutRevision{Number: 1, ConfigMapRef: v1alpha1.ConfigMapReference{Namespace: "evenkeel-system", Name: "workers-ba9876543210", UID: "good", SHA256: "fedcba9876543210"}}
	all := intstr.FromString("100%")
	going := rollout.Input{
		Claim: rollout.Claim{Name: "workers", Created: epoch}, Now: epoch.Add(time.Hour), Target: target, LastSucceeded: good,
		Controller: v1alpha1.RolloutController{AgentTimeout: metav1.Duration{Duration: time.Minute}, NotReadyGrace: metav1.Duration{Duration: 30 * time.Second}},
		Spec: v1alpha1.NodeConfigRolloutSpec{
			NodeTimeoutSeconds: 900, ProgressDeadlineSeconds: 3600,
			Strategy:      v1alpha1.RolloutStrategy{MaxUnavailable: &all, Steps: []v1alpha1.RolloutStep{{Nodes: &all}}},
			FailurePolicy: v1alpha1.FailurePolicy{MaxFailures: new(intstr.FromInt32(1))},
			Rollback:      v1alpha1.RollbackStrategy{MaxUnavailable: new(intstr.FromString("25%"))},
		},
	}
	on := func(r v1alpha1.RolloutRevision) []rollout.Node {
		nodes := make([]rollout.Node, count)
		for i := range nodes {
			nodes[i] = rollout.Node{
				Name: fmt.Sprintf("node-%06d.example.com", i), Created: epoch.Add(-time.Hour), Domain: fmt.Sprintf("zone-%d", i%3),
				MachineKind: "amd64 linux v1.36.3 large", Ready: true,
				HasConfig: true, Generation: 2, Observed: 2, Reported: true, OK: "True", Reason: "AllChecksPassed",
				Source: &v1alpha1.NodeConfigSource{
					ConfigMapRef: &r.ConfigMapRef, RolloutRef: &v1alpha1.RolloutReference{Name: "workers", Revision: r.Number, Attempt: 1, AssignedAt: metav1.NewTime(epoch)},
				},
				Active:        &v1alpha1.ConfigRevision{UID: r.ConfigMapRef.UID, SHA256: r.ConfigMapRef.SHA256},
				LastKnownGood: &v1alpha1.ConfigRevision{UID: r.ConfigMapRef.UID, SHA256: r.ConfigMapRef.SHA256},
			}
		}

		return nodes
	}
	pending, done := on(good), on(target)
	first, at := going, new(metav1.NewTime(epoch))
	going.Status = v1alpha1.NodeConfigRolloutStatus{
		UpdateRevision: &v1alpha1.RolloutRevision{Number: 2}, Attempt: 1, StartTime: at, StepTime: at, ProgressTime: at, Phase: v1alpha1.RolloutProgressing,
	}
	complete, halted := going, going
	complete.Status.Step, complete.Status.CurrentRevision, complete.Status.Nodes.Updated = 1, complete.Status.UpdateRevision, int32(count)
	halted.Spec.FailurePolicy.Action = v1alpha1.FailureActionRollback
	halted.Status.Halt = &v1alpha1.RolloutHalt{Attempt: 1, Reason: v1alpha1.HaltTooManyFailures, Time: *at, Rollback: true}
	seen := 0
	floor := measure(runs, func() {
		for i := range pending {
			if n := &pending[i]; n.Ready && n.Observed == n.Generation && n.LastKnownGood.SHA256 == target.ConfigMapRef.SHA256 {
				seen++
			}
		}
	})
	for _, c := range []struct {
		what  string
		in    rollout.Input
		nodes []rollout.Node
		moves int
	}{
		{"the first (all pending, all allowed)", first, pending, 1000},
		{"steady (all updated)", complete, done, 0},
		{"after a halt (25 % go back)", halted, done, count / 4},
	} {
		must.OK(ctx.Err())
		moves := 0
		took := measure(runs, func() { moves = len(rollout.Plan(c.in, c.nodes).Moves) })
		must.That(moves == c.moves, "the plan %s has %d moves, want %d: it is not what was to be measured", c.what, moves, c.moves)
		text := fmt.Sprintf("%s (%.0f x one pass)", tenths(took), took.Seconds()/floor.Seconds())
		b.limited("Plan: "+c.what, text, tenths(maxPlan), took > maxPlan)
	}
}

func measure(runs int, do func()) time.Duration {
	var took []time.Duration
	for range runs {
		begin := time.Now()
		do()
		took = append(took, time.Since(begin))
	}

	return figures.Median(took)
}

func tenths(d time.Duration) string { return fmt.Sprintf("%.1f ms", d.Seconds()*1000) }
