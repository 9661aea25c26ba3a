// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/testkit/figures"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// preflight asks all agents about a configuration that no node has had. The
// fleet is at rest, so that every write of a NodeConfig is a request or an
// answer.
func (b *bench) preflight(ctx context.Context, f *fleet) {
	o := &v1alpha1.NodeConfigPreflight{ObjectMeta: metav1.ObjectMeta{Name: "bench"}, Spec: v1alpha1.NodeConfigPreflightSpec{
		NodeSelection: v1alpha1.NodeSelection{AllNodes: true},
		Template:      v1alpha1.PreflightTemplate{Kubelet: &runtime.RawExtension{Raw: []byte(f.kubelet())}},
	}}
	f.withController(ctx, nil, func(c *child, _ time.Duration) {
		f.quiet(ctx)
		begin := time.Now()
		must.OK(f.admin.Create(ctx, o))
		eventually(ctx, 10*time.Minute+time.Duration(f.nodes)*nodeTimeout, 100*time.Millisecond, c.Done, func() {
			must.OK(f.admin.Get(ctx, client.ObjectKeyFromObject(o), o))
			must.That(o.Status.Phase == v1alpha1.PreflightComplete, "the preflight is %s: %s", o.Status.Phase, o.Status.Message)
		})
		took := time.Since(begin)
		r := o.Status.Result
		must.That(int(r.Accepted+r.Unknown) == f.nodes, "%d of %s accept: %+v", r.Accepted, printable.Count(f.nodes, "node"), r)
		f.quiet(ctx)
		_, most := must.Get2(figures.Memory(c.Pid()))
		counts := f.audit.Count(begin, time.Now(), written)
		writes := 0
		for _, k := range sorted(counts) {
			note("  "+label(k), "%9d  %.3f per node", counts[k], float64(counts[k])/float64(f.nodes))
			if k.Program == "evenkeel-controller" && k.Resource == "nodeconfigs" || k.Program == "evenkeel-agent" && k.Resource != "events" {
				writes += counts[k]
			}
		}

		per := float64(writes) / float64(f.nodes)
		b.limited("preflight: API writes per node", fmt.Sprintf("%.3f", per), fmt.Sprint(maxAsked), per > maxAsked)
		b.limited("preflight: nodes that could not tell", fmt.Sprint(r.Unknown), "0", r.Unknown > 0)
		b.limitMemory("controller: most memory in a preflight (VmHWM)", most, f.nodes)
		b.limited("preflight: created to the last answer", seconds(took), seconds(maxAsking), took > maxAsking && f.nodes <= memoryNodes)
		must.OK(f.admin.Delete(ctx, o))
	})
}
