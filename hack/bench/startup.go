// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/bed"
	"github.com/evenkeel/evenkeel/testkit/figures"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// startup is when something happened on a node that joined with the startup taint.
type startup struct{ registered, ready, assigned, changed, open time.Time }

// startups measures the time from the registration of a new node to the removal of its startup taint. The floor is the part of it
// that the change of the kubelet's configuration takes, from its assignment to the kubelet's health.
func startups(ctx context.Context, b *bed.Bed, runs int) (err error) {
	defer must.Catch(&err)

	controller := must.Get(b.Controller(ctx))
	defer func() { _ = controller.Stop(time.Minute) }()
	must.OK(b.ApplyConfig(ctx, "startup-taint"))
	must.OK(b.CreateRollout(ctx, "startup", "pool=startup", map[string]any{"maxPods": 130}))
	var totals, changes, readies []time.Duration
	for i := range runs {
		s := must.Get(join(ctx, b, fmt.Sprintf("startup-%d", i)))
		totals, changes = append(totals, s.open.Sub(s.registered)), append(changes, s.changed.Sub(s.assigned))
		readies = append(readies, s.ready.Sub(s.registered))
	}
	total, change := figures.Median(totals), figures.Median(changes)
	limit := change + 2*time.Second
	figures.PrintRow("new node: registration to removal of the startup taint", ms(total), ms(change), "floor+2 s = "+ms(limit), total <= limit)
	fmt.Printf("  of which a new node takes until it is Ready: %s\n", ms(figures.Median(readies)))
	return nil
}

// join starts a new node that has the startup taint, and removes it when it is open to pods.
func join(ctx context.Context, b *bed.Bed, name string) (s startup, err error) {
	defer must.Catch(&err)

	n := must.Get(bed.On(ctx, b.Cluster, name))
	a, err := n.Agent("--config-trial-duration=1h")
	if err != nil {
		return s, errors.Join(err, n.Node.Stop())
	}
	a.Kubelet = append(a.Kubelet, "--node-labels=pool=startup", "--register-with-taints="+v1alpha1.TaintUnconfigured+":NoSchedule")
	p := feelPulse(ctx, n.Node.HealthzPort())
	defer func() {
		p.end()
		err = errors.Join(err, a.Stop(time.Minute), n.Node.Stop(), n.Kube.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}))
	}()
	must.OK(a.Start())
	must.OK(bed.Eventually(ctx, time.Minute, func(ctx context.Context) (err error) {
		defer must.Catch(&err)

		node := must.Get(n.Kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{}))
		once(&s.registered, true)
		once(&s.ready, slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}))
		nc := must.Get(n.Get(ctx))
		once(&s.assigned, nc.Spec.ConfigSource != nil)
		if slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == v1alpha1.TaintUnconfigured }) {
			return errors.New("the node has the startup taint")
		}
		once(&s.open, true)
		return nil
	}))
	s.changed, _, err = p.next(ctx, s.assigned)
	return s, err
}

// once stores the time when something is true for the first time.
func once(t *time.Time, is bool) {
	if is && t.IsZero() {
		*t = time.Now()
	}
}
