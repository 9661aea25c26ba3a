// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
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
	"github.com/evenkeel/evenkeel/internal/controller"
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
}

// Budgets of rollouts.
const (
	unlimited = "100%"
	usual     = "10%" // at most usualNodes
	// usualNodes is what an API server on two processors can serve within some
	// seconds. A trial of 2 s does not spread the load as one of 10 minutes
	// does: with 500 nodes, some requests are refused.
	usualNodes = 200
)

// afterStart is a little longer than the time after which an agent writes its
// status once more.
const afterStart = 35 * time.Second

// phase is a change of the whole fleet.
type phase struct {
	settled time.Duration   // from the start until the last node had finished its trial
	healthy []time.Duration // of each node, from its assignment to a healthy kubelet
	used    cpuTime
	counts  map[auditlog.Key]int // writes, without those that were refused
	refused map[auditlog.Key]int
	now     int64 // of the controller, in bytes, in the end
	most    int64 // and the maximum
	started time.Duration
	idle    cpuTime // at rest, after the change
}

// rollout measures a rollout with the usual budget, the same change by hand,
// and a preflight.
func (b *bench) rollout(ctx context.Context, f *fleet) {
	must.OK(bed.Pause(ctx, afterStart))
	f.quiet(ctx)
	rolled := f.roll(ctx, usual, b.idle)
	b.report(ctx, f, rolled)
	hand := f.byHand(ctx, f.usualBudget())
	b.usage("by hand", f.nodes, hand)
	b.ratio("a rollout", rolled, hand, maxRatio)
	b.preflight(ctx, f)
}

// atOnce measures a rollout to all nodes at once, and the same change by hand.
// Each has a new cluster: nodes that are late with one change would disturb the
// next.
func (b *bench) atOnce(ctx context.Context) {
	var hand, rolled phase
	b.withFleet(ctx, func(ctx context.Context, f *fleet) {
		f.roll(ctx, usual, 0)
		hand = f.byHand(ctx, f.nodes)
	})
	b.withFleet(ctx, func(ctx context.Context, f *fleet) {
		f.roll(ctx, usual, 0)
		rolled = f.roll(ctx, unlimited, 0)
	})
	b.usage("by hand, all at once", b.nodes, hand)
	b.usage("a rollout to all at once", b.nodes, rolled)
	b.ratio("a rollout to all at once", rolled, hand, maxCrowd)
}

// ratio prints the time of a rollout as a multiple of that of the same change
// by hand.
func (b *bench) ratio(what string, rolled, hand phase, most float64) {
	ratio := rolled.settled.Seconds() / hand.settled.Seconds()
	b.limited(what+": time, over patching by hand", fmt.Sprintf("%.2f x", ratio), fmt.Sprintf("%.1f x", most), ratio > most)
}

// kubelet returns a payload that no node has had yet.
func (f *fleet) kubelet() string {
	f.changes++
	return fmt.Sprintf(`{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration","maxPods":%d}`, 110+f.changes)
}

// handMade creates a ConfigMap with a payload.
func (f *fleet) handMade(ctx context.Context) v1alpha1.ConfigMapReference {
	data := f.kubelet()
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: fmt.Sprintf("by-hand-%d", f.changes)},
		Immutable:  new(true), Data: map[string]string{"kubelet": data},
	}
	must.OK(f.admin.Create(ctx, cm))

	return v1alpha1.ConfigMapReference{Namespace: cm.Namespace, Name: cm.Name, UID: cm.UID, SHA256: payload.Digest("kubelet", []byte(data))}
}

// byHand assigns a payload to every node, to at most so many at a time, and
// waits for the agents' reports.
func (f *fleet) byHand(ctx context.Context, most int) phase {
	ref := f.handMade(ctx)
	before := f.spent(f.hollow)
	begin := time.Now()
	printed := begin
	nodes := f.known()
	waiting := slices.Collect(maps.Keys(nodes))
	var failed error
	eventually(ctx, time.Duration(f.nodes)*nodeTimeout+10*time.Minute, 200*time.Millisecond, nil, func() {
		done := f.count(func(s seen) bool { return s.has(ref.Name) })
		n := max(0, min(most-(f.nodes-len(waiting)-done), len(waiting))) // a node can leave its state for a moment
		failed = must.Try(func() {
			forEach(ctx, n, func(i int) { f.assign(ctx, waiting[i], nodes[waiting[i]], ref) })
		})
		if failed != nil || done == f.nodes {
			return
		}

		waiting = waiting[n:]
		if time.Since(printed) > time.Minute {
			printed = time.Now()
			note("", "%d nodes are done by hand after %s", done, seconds(time.Since(begin)))
		}

		must.OK(fmt.Errorf("%d of %s are done", done, printable.Count(f.nodes, "node")))
	})
	must.OK(failed)

	return f.end(ctx, begin, before, f.hollow)
}

// forEach does something for many nodes, with as many patches at a time as the
// controller has.
func forEach(ctx context.Context, nodes int, do func(i int)) {
	errs := make([]error, nodes)
	workqueue.ParallelizeUntil(ctx, controller.DefaultWriters, nodes, func(i int) {
		errs[i] = must.Try(func() { do(i) })
	})
	must.OK(cmp.Or(ctx.Err(), cmp.Or(errs...)))
}

// assign makes the controller's write. It repeats a request that an overloaded
// API server did not carry out.
func (f *fleet) assign(ctx context.Context, name string, known seen, ref v1alpha1.ConfigMapReference) {
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
		if err == nil {
			return
		}
		if !overloaded(err) || bed.Pause(ctx, time.Second) != nil {
			must.OK(err)
		}

		// The API server may have carried out a request that it did not answer.
		if f.admin.Get(ctx, client.ObjectKeyFromObject(nc), nc) == nil && nc.Generation > known.generation {
			return
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
func (f *fleet) newRollout(budget string) *v1alpha1.NodeConfigRollout {
	most, everything := intstr.FromString(budget), intstr.FromString("100%")
	if budget == usual {
		most = intstr.FromInt(f.usualBudget())
	}

	data := f.kubelet()

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

// roll rolls a configuration out in one step, with a new controller, and then
// measures the idle controller.
func (f *fleet) roll(ctx context.Context, budget string, idle time.Duration) (p phase) {
	f.withController(ctx, nil, func(c *child, started time.Duration) {
		o := f.newRollout(budget)
		before := f.spent(f.hollow, c)
		begin := time.Now()
		must.OK(f.admin.Create(ctx, o))
		eventually(ctx, 10*time.Minute+time.Duration(f.nodes)*nodeTimeout, 250*time.Millisecond, c.Done, func() {
			must.OK(f.admin.Get(ctx, client.ObjectKeyFromObject(o), o))
			must.That(o.Status.Phase == v1alpha1.RolloutComplete && int(o.Status.Nodes.Updated) == f.nodes,
				"the rollout is %s, %d updated: %s", o.Status.Phase, o.Status.Nodes.Updated, o.Status.Message)
		})
		p = f.end(ctx, begin, before, f.hollow, c)
		p.started = started
		before = f.spent(f.hollow, c)
		must.OK(bed.Pause(ctx, idle))
		p.idle = since(before, f.spent(f.hollow, c))
		p.now, p.most = must.Get2(figures.Memory(c.Pid()))
		must.OK(f.admin.Delete(ctx, o))
	})
	return p
}

// end waits until all nodes have finished, and stores the measurements.
func (f *fleet) end(ctx context.Context, begin time.Time, before cpuTime, children ...*child) phase {
	p := phase{settled: time.Since(begin)}
	f.quiet(ctx)
	end := time.Now()
	p.used = since(before, f.spent(children...))
	p.counts = f.audit.Count(begin, end, written)
	p.healthy = untilHealthy(f.audit.Requests, begin)
	p.refused = f.audit.Count(begin, end, func(r *auditlog.Request) bool { return r.Write() && !written(r) })

	return p
}

// written reports whether a request is a write that the API server did not
// refuse because of its load: such a request changes nothing.
func written(r *auditlog.Request) bool { return r.Write() && r.Code != http.StatusTooManyRequests }

// since returns what was used after the first of two measurements.
func since(before, after cpuTime) cpuTime {
	for name := range after {
		after[name] -= before[name]
	}

	return after
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
