// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/testkit/auditlog"
	"github.com/evenkeel/evenkeel/testkit/bed"
	"github.com/evenkeel/evenkeel/testkit/figures"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// fleet is a world with agents, and its measurements.
type fleet struct {
	*world
	*view
	hollow  *child
	nodes   int
	changes int // number of changes so far; each has another payload

	hands, rollouts []phase    // all at once
	paced           phase      // a rollout with the usual budget
	idle            idlePeriod // after that
	pacedHand       phase      // by hand, with as many nodes in flight
	asked           asked
}

// Budgets of rollouts.
const (
	unlimited = "100%"
	usual     = "10%" // at most usualNodes
	// usualNodes is what an API server on two processors can serve within some seconds. A trial of 2 s does not spread the load as one of
	// 10 minutes does: with 500 nodes, some requests are refused.
	usualNodes = 200
)

// afterStart is a little longer than the time after which an agent writes its status once more.
const afterStart = 35 * time.Second

// phase is a change of the whole fleet.
type phase struct {
	first   time.Duration   // from the start to the answer to the first patch
	written time.Duration   // and to the last one
	settled time.Duration   // until the last node had finished its trial
	healthy []time.Duration // of each node, from its assignment to a healthy kubelet
	used    cpuTime
	counts  map[auditlog.Key]int // writes, without those that were refused
	refused map[auditlog.Key]int
	now     int64 // of the controller, in bytes, in the end
	most    int64 // and the maximum
	started time.Duration
}

// idlePeriod has the measurements of a period without changes.
type idlePeriod struct {
	used     cpuTime // by each program
	requests map[auditlog.Key]int
	took     time.Duration
}

// rollouts alternates rounds of patching without a controller and of unlimited rollouts, and then rolls out 10% at a time,
// patches as many at a time by hand, and asks all nodes.
func (b *bench) rollouts(ctx context.Context, f *fleet, rounds int) (err error) {
	defer must.Catch(&err)

	if rounds > 0 {
		// Every round begins with nodes that have proven a ConfigMap.
		first := must.Get(f.byHand(ctx, f.nodes))
		note("first change of all nodes, not measured", "%s", seconds(first.settled))
	} else if err := cmp.Or(bed.Pause(ctx, afterStart), f.quiet(ctx)); err != nil {
		return err
	}
	for round := range rounds {
		order := []func(context.Context) error{f.measureHand, f.measureRollout}
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, measure := range order {
			must.OK(measure(ctx))
		}
	}
	f.paced = must.Get(f.roll(ctx, usual, b.idle))
	must.OK(b.report(ctx, f))
	must.OK(b.record()) // with many nodes, each of these takes an hour
	f.pacedHand = must.Get(f.byHand(ctx, f.usualBudget()))
	b.reportFloor(f)
	must.OK(b.record())
	if f.asked, err = f.preflight(ctx); err != nil {
		return fmt.Errorf("preflight: %w", err)
	}
	b.reportPreflight(f)
	return nil
}

func (f *fleet) measureHand(ctx context.Context) error {
	p, err := f.byHand(ctx, f.nodes)
	f.hands = append(f.hands, p)
	return err
}

func (f *fleet) measureRollout(ctx context.Context) error {
	p, err := f.roll(ctx, unlimited, 0)
	f.rollouts = append(f.rollouts, p)
	return err
}

// kubelet returns a payload that no node has had yet, with more fields: JSON without braces, or nothing.
func (f *fleet) kubelet(more string) string {
	f.changes++
	if more != "" {
		more = "," + more
	}
	return fmt.Sprintf(`{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration","maxPods":%d%s}`, 110+f.changes, more)
}

// handMade creates a ConfigMap with a payload.
func (f *fleet) handMade(ctx context.Context) (v1alpha1.ConfigMapReference, error) {
	data := f.kubelet("")
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: fmt.Sprintf("by-hand-%d", f.changes)},
		Immutable:  new(true), Data: map[string]string{"kubelet": data},
	}
	err := f.admin.Create(ctx, cm)
	return v1alpha1.ConfigMapReference{Namespace: cm.Namespace, Name: cm.Name, UID: cm.UID, SHA256: payload.Digest("kubelet", []byte(data))}, err
}

// byHand assigns a payload to every node, to at most so many at a time, and waits for the agents' reports.
func (f *fleet) byHand(ctx context.Context, most int) (_ phase, err error) {
	defer must.Catch(&err)

	ref := must.Get(f.handMade(ctx))
	before := must.Get(f.spent(f.hollow))
	begin := time.Now()
	printed := begin
	nodes := f.known()
	waiting := slices.Collect(maps.Keys(nodes))
	var failed error
	err = eventually(ctx, time.Duration(f.nodes)*nodeTimeout+10*time.Minute, 200*time.Millisecond, func() error {
		done := f.count(func(s seen) bool { return s.has(ref.Name) })
		n := max(0, min(most-(f.nodes-len(waiting)-done), len(waiting))) // a node can leave its state for a moment
		if failed = f.assignAll(ctx, ref, nodes, waiting[:n]); failed != nil || done == f.nodes {
			return nil
		}
		waiting = waiting[n:]
		if time.Since(printed) > time.Minute {
			printed = time.Now()
			note("", "%d nodes are done by hand after %s", done, seconds(time.Since(begin)))
		}
		return fmt.Errorf("%d of %s are done", done, printable.Count(f.nodes, "node"))
	}, nil)
	must.OK(cmp.Or(failed, err))
	return f.end(ctx, begin, before, "benchfleet", nil)
}

// assignAll assigns a ConfigMap to nodes.
func (f *fleet) assignAll(ctx context.Context, ref v1alpha1.ConfigMapReference, nodes map[string]seen, names []string) error {
	errs := make([]error, len(names))
	workqueue.ParallelizeUntil(ctx, patchers, len(names), func(i int) { errs[i] = f.assign(ctx, names[i], nodes[names[i]], ref) })
	return cmp.Or(ctx.Err(), cmp.Or(errs...))
}

// assign makes the controller's write. It repeats a request that an overloaded API server did not carry out.
func (f *fleet) assign(ctx context.Context, name string, known seen, ref v1alpha1.ConfigMapReference) (err error) {
	defer must.Catch(&err)

	by := &v1alpha1.RolloutReference{Name: ref.Name, Revision: int64(f.changes), Attempt: 1, AssignedAt: metav1.Now()}
	if s := known.spec.ConfigSource; s != nil {
		by.Previous = &v1alpha1.PreviousSource{ConfigMapRef: *s.ConfigMapRef, Rollout: s.RolloutRef.Name, Revision: s.RolloutRef.Revision, Attempt: 1}
	}
	patch := must.Get(json.Marshal([]map[string]any{
		{"op": "test", "path": "/metadata/uid", "value": known.uid},
		{"op": "test", "path": "/metadata/generation", "value": known.generation},
		{"op": "add", "path": "/spec", "value": v1alpha1.NodeConfigSpec{ConfigSource: &v1alpha1.NodeConfigSource{ConfigMapRef: &ref, RolloutRef: by}}},
	}))
	for {
		nc := &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: name}}
		err := f.hand.Patch(ctx, nc, client.RawPatch(types.JSONPatchType, patch))
		if err == nil || !overloaded(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(time.Second):
		}
		// The API server may have carried out a request that it did not answer.
		if f.admin.Get(ctx, client.ObjectKeyFromObject(nc), nc) == nil && nc.Generation > known.generation {
			return nil
		}
	}
}

// overloaded reports whether a request may succeed later.
func overloaded(err error) bool {
	return apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsServiceUnavailable(err) ||
		apierrors.IsInternalError(err)
}

// usualBudget is the number of nodes of the usual budget.
func (f *fleet) usualBudget() int { return min((f.nodes+9)/10, usualNodes) }

// newRollout returns a rollout of a new payload in one step.
func (f *fleet) newRollout(budget, more string) *v1alpha1.NodeConfigRollout {
	most, everything := intstr.FromString(budget), intstr.FromString("100%")
	if budget == usual {
		most = intstr.FromInt(f.usualBudget())
	}
	data := f.kubelet(more)
	return &v1alpha1.NodeConfigRollout{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("rollout-%d", f.changes)},
		Spec: v1alpha1.NodeConfigRolloutSpec{
			NodeSelection: v1alpha1.NodeSelection{AllNodes: true}, Template: v1alpha1.RolloutTemplate{Kubelet: &runtime.RawExtension{Raw: []byte(data)}},
			Strategy:           v1alpha1.RolloutStrategy{MaxUnavailable: &most, Steps: []v1alpha1.RolloutStep{{Nodes: &everything}}},
			FailurePolicy:      v1alpha1.FailurePolicy{MaxFailures: new(intstr.FromInt32(1))},
			NodeTimeoutSeconds: 3600, ProgressDeadlineSeconds: 7200,
		},
	}
}

// roll rolls a configuration out in one step, with a new controller, and then measures the idle controller.
func (f *fleet) roll(ctx context.Context, budget string, idle time.Duration) (p phase, err error) {
	defer must.Catch(&err)

	c, started := must.Get2(f.controller(ctx))
	defer func() { err = errors.Join(err, c.stop()) }()
	o := f.newRollout(budget, "")
	before := must.Get(f.spent(f.hollow, c))
	begin := time.Now()
	must.OK(f.admin.Create(ctx, o))
	must.OK(eventually(ctx, 10*time.Minute+time.Duration(f.nodes)*nodeTimeout, 250*time.Millisecond, func() error {
		if err := f.admin.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		if o.Status.Phase != v1alpha1.RolloutComplete || int(o.Status.Nodes.Updated) != f.nodes {
			return fmt.Errorf("the rollout is %s, %d updated: %s", o.Status.Phase, o.Status.Nodes.Updated, o.Status.Message)
		}
		return nil
	}, c.Done))
	p = must.Get(f.end(ctx, begin, before, "evenkeel-controller", c))
	p.started = started
	f.idle = must.Get(f.calm(ctx, idle, c))
	p.now, p.most = must.Get2(figures.Memory(c.Pid()))
	return p, f.admin.Delete(ctx, o)
}

// end waits until all nodes have finished, and stores the measurements.
func (f *fleet) end(ctx context.Context, begin time.Time, before cpuTime, writer string, c *child) (_ phase, err error) {
	defer must.Catch(&err)

	p := phase{settled: time.Since(begin)}
	must.OK(f.quiet(ctx))
	end := time.Now()
	children := []*child{f.hollow}
	if c != nil {
		children = append(children, c)
	}
	p.used = must.Get(f.spent(children...))
	for name := range p.used {
		p.used[name] -= before[name]
	}
	p.counts = f.audit.Count(begin, end, written)
	p.healthy = untilHealthy(f.audit.Requests, begin)
	p.refused = f.audit.Count(begin, end, func(r *auditlog.Request) bool { return r.Write() && !written(r) })
	f.audit.Count(begin, end, func(r *auditlog.Request) bool {
		if r.Program == writer && r.Verb == "patch" && r.Resource == "nodeconfigs" && r.Succeeded() {
			if p.written == 0 {
				p.first = r.Answered.Sub(begin)
			}
			p.written = max(p.written, r.Answered.Sub(begin))
		}
		return false
	})
	return p, nil
}

// written reports whether a request is a write that the API server did not refuse because of its load: such a request changes nothing.
func written(r *auditlog.Request) bool { return r.Write() && r.Code != http.StatusTooManyRequests }

// calm measures what everything costs while nothing happens.
func (f *fleet) calm(ctx context.Context, idle time.Duration, c *child) (_ idlePeriod, err error) {
	defer must.Catch(&err)

	before := must.Get(f.spent(f.hollow, c))
	begin := time.Now()
	must.OK(bed.Pause(ctx, idle))
	r := idlePeriod{took: time.Since(begin)}
	r.used = must.Get(f.spent(f.hollow, c))
	for name := range r.used {
		r.used[name] -= before[name]
	}
	must.OK(f.audit.Read())
	r.requests = f.audit.Count(begin, time.Now(), func(r *auditlog.Request) bool { return r.Program == "evenkeel-controller" && r.Verb != "watch" })
	return r, nil
}

// sorted returns the keys by count, the highest first.
func sorted(counts map[auditlog.Key]int) []auditlog.Key {
	return slices.SortedFunc(maps.Keys(counts), func(a, b auditlog.Key) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), strings.Compare(a.Program+a.Verb+a.Resource, b.Program+b.Verb+b.Resource))
	})
}

func label(k auditlog.Key) string {
	return strings.TrimPrefix(k.Program, "evenkeel-") + " " + k.Verb + " " + k.Resource
}
