// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/testkit/auditlog"
	"github.com/evenkeel/evenkeel/testkit/figures"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// asked has the measurements of a preflight of the whole fleet.
type asked struct {
	took     time.Duration // from its creation to the last answer
	requests int           // the controller's writes of NodeConfigs
	answers  int           // the agents' writes of statuses
	events   int
	unknown  int                  // agents that could not tell, such as for lack of an answer of the API server
	most     int64                // the controller's memory
	counts   map[auditlog.Key]int // all writes
}

// preflight asks all agents about a configuration that no node has had. The fleet is at rest, so that every write of a
// NodeConfig is a request or an answer.
func (f *fleet) preflight(ctx context.Context) (a asked, err error) {
	defer must.Catch(&err)

	c, _ := must.Get2(f.controller(ctx))
	defer func() { err = errors.Join(err, c.stop()) }()
	must.OK(f.quiet(ctx))
	o := &v1alpha1.NodeConfigPreflight{ObjectMeta: metav1.ObjectMeta{Name: "bench"}, Spec: v1alpha1.NodeConfigPreflightSpec{
		NodeSelection: v1alpha1.NodeSelection{AllNodes: true},
		Template:      v1alpha1.PreflightTemplate{Kubelet: &runtime.RawExtension{Raw: []byte(f.kubelet(""))}},
	}}
	begin := time.Now()
	must.OK(f.admin.Create(ctx, o))
	must.OK(eventually(ctx, 10*time.Minute+time.Duration(f.nodes)*nodeTimeout, 100*time.Millisecond, func() error {
		if err := f.admin.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		if o.Status.Phase != v1alpha1.PreflightComplete {
			return fmt.Errorf("the preflight is %s: %s", o.Status.Phase, o.Status.Message)
		}
		return nil
	}, c.Done))
	a.took = time.Since(begin)
	r := o.Status.Result
	if a.unknown = int(r.Unknown); int(r.Accepted)+a.unknown != f.nodes {
		return a, fmt.Errorf("%d of %s accept: %+v", r.Accepted, printable.Count(f.nodes, "node"), r)
	}
	must.OK(f.quiet(ctx))
	_, a.most = must.Get2(figures.Memory(c.Pid()))
	a.counts = f.audit.Count(begin, time.Now(), written)
	for k, n := range a.counts {
		switch {
		case k.Program == "evenkeel-controller" && k.Resource == "nodeconfigs":
			a.requests += n
		case k.Program == "evenkeel-agent" && k.Resource != "events":
			a.answers += n
		case k.Program == "evenkeel-agent":
			a.events += n
		}
	}
	return a, f.admin.Delete(ctx, o)
}

// reportPreflight prints and keeps the cost of a preflight.
func (b *bench) reportPreflight(f *fleet) {
	a := &f.asked
	n := float64(f.nodes)
	fmt.Println()
	for _, k := range sorted(a.counts) {
		note("  "+label(k), "%9d  %.3f per node", a.counts[k], float64(a.counts[k])/n)
	}
	per := float64(a.requests+a.answers) / n
	b.limited(figure{What: "preflight: API writes per node", Text: fmt.Sprintf("%.3f", per), Value: per, Limit: fmt.Sprint(maxAsked), Over: per > maxAsked}, "-")
	note("", "%.3f requests, %.3f answers, %.3f Events", float64(a.requests)/n, float64(a.answers)/n, float64(a.events)/n)
	b.limited(figure{What: "preflight: nodes that could not tell", Text: fmt.Sprint(a.unknown), Value: float64(a.unknown), Limit: "0", Over: a.unknown > 0}, "-")
	b.limitMemory("controller: most memory in a preflight (VmHWM)", a.most, f.nodes)
	b.limited(figure{What: "preflight: created to the last answer", Text: seconds(a.took), Value: a.took.Seconds(),
		Limit: seconds(maxAsking), Over: a.took > maxAsking && f.nodes <= memoryNodes}, "-")
}
