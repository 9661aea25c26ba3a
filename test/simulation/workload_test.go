// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"fmt"
	"maps"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/node/supervisor"
	"github.com/evenkeel/evenkeel/testkit/crashfs"
)

// kindOfAction is one kind of action, and how often it happens, relative to the
// others.
type kindOfAction struct {
	name   string
	weight int
	focus  int // some histories have three times as many of one focus
	do     func(x *act)
}

// The focuses.
const (
	people = iota
	processes
	network
	machines
)

// workload is filled by init, because actions lead to it again.
var workload []kindOfAction

func init() {
	workload = []kindOfAction{
		{"create", 1, people, (*act).create},
		{"push", 8, people, (*act).push},
		{"second rollout", 1, people, (*act).second},
		{"undo", 2, people, (*act).undo},
		{"edit", 3, people, (*act).edit},
		{"pause", 1, people, (*act).pause},
		{"abort", 1, people, (*act).abort},
		{"retry", 2, people, (*act).retry},
		{"assign", 1, people, (*act).assign},
		{"assign local", 1, people, (*act).assignLocal},
		{"write own ConfigMap", 2, people, (*act).writeOwn},
		{"delete own ConfigMap", 1, people, (*act).deleteOwn},
		{"delete rollout", 1, people, (*act).deleteRollout},
		{"delete NodeConfig", 1, people, (*act).deleteNodeConfig},
		{"delete revision", 1, people, (*act).deleteRevision},
		{"kill agent", 3, processes, func(x *act) { x.machine().kill(false, nil, between(x.r, time.Second, 5*time.Second)) }},
		{"crash agent at an operation", 4, processes, (*act).crashAtOperation},
		{"restart agent", 2, processes, func(x *act) { x.machine().stopAgent() }},
		{"upgrade agent", 1, processes, (*act).upgradeAgent},
		{"kill controller", 3, processes, func(x *act) { x.replica().kill(between(x.r, time.Second, 30*time.Second)) }},
		{"stop controller", 1, processes, func(x *act) { x.replica().terminate() }},
		{"upgrade controller", 1, processes, (*act).upgradeController},
		{"freeze controller", 2, processes, func(x *act) { x.replica().freeze(between(x.r, time.Second, 5*time.Minute)) }},
		{"freeze leader and abort", 2, processes, func(x *act) { x.freezeAnd(x.abort) }},
		{"freeze leader and push", 2, processes, func(x *act) { x.freezeAnd(x.push) }},
		{"delete Lease", 1, processes, func(x *act) { x.server.Delete("leases", v1alpha1.SystemNamespace, v1alpha1.ControllerLease) }},
		{"cut off machine", 3, network, (*act).cutMachine},
		{"cut off controller", 2, network, (*act).cutController},
		{"outage", 3, network, (*act).outage},
		{"power cut", 2, machines, func(x *act) {
			x.machine().kill(true, crashfs.Dice(x.r.Uint64()), between(x.r, 10*time.Second, 3*time.Minute))
		}},
		{"scale down", 1, machines, (*act).scaleDown},
		{"scale up", 2, machines, (*act).scaleUp},
		{"kubelet crashes", 1, machines, (*act).kubeletCrashes},
		{"kubelet hangs", 1, machines, (*act).kubeletHangs},
		{"upgrade kubelet", 1, machines, (*act).upgradeKubelet},
		{"disk full", 1, machines, (*act).diskFull},
		{"pods", 2, machines, (*act).pods},
	}
}

func (x *act) machine() *machine { return x.machines[x.r.IntN(len(x.machines))] }
func (x *act) replica() *replica { return x.replicas[x.r.IntN(len(x.replicas))] }

// content returns a new content; its last digit says what is wrong with it.
func (x *act) content() int64 { return int64(x.index+1)*10 + int64(x.r.IntN(10)) }

func template(content int64, more map[string]any) map[string]any {
	config := map[string]any{"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", contentField: content}
	maps.Copy(config, more)
	return map[string]any{"kubeletDropIn": config}
}

// maxPods returns a limit of pods for some contents, which matters to the pod
// guard.
func (x *act) maxPods() map[string]any {
	if chance(x.r, 0.2) {
		return map[string]any{"maxPods": 1 + x.r.IntN(6)}
	}

	return nil
}

func (x *act) strategy() map[string]any {
	s := map[string]any{"maxUnavailable": pick[any](x.r, 1, 1, 2, 3, "50%", "100%")}
	if chance(x.r, 0.5) {
		s["steps"] = []any{map[string]any{"nodes": 1}, map[string]any{"pause": map[string]any{"duration": "2m"}}, map[string]any{"nodes": "100%"}}
	}
	if chance(x.r, 0.3) {
		s["preflight"] = pick(x.r, v1alpha1.PreflightReport, v1alpha1.PreflightRequire)
	}
	if chance(x.r, 0.25) {
		maps.Copy(s, x.drains())
	}
	if chance(x.r, 0.15) {
		s["windows"] = x.windows()
	}

	return s
}

func (x *act) drains() map[string]any {
	return map[string]any{
		"drain": pick(x.r, v1alpha1.DrainWhenBlocked, v1alpha1.DrainAlways), "respectDisruptionBudgets": chance(x.r, 0.3),
		"drainOptions": map[string]any{"timeoutSeconds": 30 + x.r.IntN(300)},
	}
}

func (x *act) create() {
	if x.has("nodeconfigrollouts", "", "all") {
		return
	}

	for range x.r.IntN(4) {
		x.later(between(x.r, 0, 3*time.Minute), x.pods)
	}

	x.direct(x.server.Create("nodeconfigrollouts", "", map[string]any{
		"metadata": map[string]any{"name": "all"},
		"spec": map[string]any{
			"nodeSelector": map[string]any{"matchLabels": map[string]any{"pool": "all"}}, "template": template(x.content(), x.maxPods()), "strategy": x.strategy(),
			"soakSeconds": pick(x.r, 0, 0, 60), "newNodes": pick(x.r, "LastSucceeded", "Target"),
			"failurePolicy": map[string]any{"maxFailures": 1 + x.r.IntN(3), "action": pick(x.r, "Pause", "Rollback")},
		},
	}))
}

// second creates a rollout for one zone, which takes its nodes from the other
// one.
func (x *act) second() {
	if x.has("nodeconfigrollouts", "", "zone") {
		return
	}

	x.direct(x.server.Create("nodeconfigrollouts", "", map[string]any{
		"metadata": map[string]any{"name": "zone"},
		"spec": map[string]any{
			"nodeSelector": map[string]any{"matchLabels": map[string]any{corev1.LabelTopologyZone: "zone-0"}}, "priority": 1 + x.r.IntN(3),
			"template": template(x.content(), nil), "strategy": x.strategy(),
		},
	}))
}

// rollout returns one of the rollouts, nil if there is none.
func (x *act) rollout() *v1alpha1.NodeConfigRollout {
	names := x.server.Names("nodeconfigrollouts", "")
	if len(names) == 0 {
		return nil
	}

	o, _ := get[v1alpha1.NodeConfigRollout](x.world, "nodeconfigrollouts", "", names[x.r.IntN(len(names))])

	return &o
}

// patch changes the spec of a rollout.
func (x *act) patch(name string, spec map[string]any) {
	x.direct(x.server.Patch("nodeconfigrollouts", "", name, types.MergePatchType, map[string]any{"spec": spec}))
}

func (x *act) push() {
	if o := x.rollout(); o != nil {
		x.patch(o.Name, map[string]any{"template": template(x.content(), x.maxPods())})
	} else {
		x.create()
	}
}

// undo pins an earlier revision.
func (x *act) undo() {
	o := x.rollout()
	if o == nil || o.Status.UpdateRevision == nil || len(o.Status.History) == 0 {
		return
	}

	h := o.Status.History[x.r.IntN(len(o.Status.History))]
	if h.SHA256 != "" && h.SHA256 != o.Status.UpdateRevision.ConfigMapRef.SHA256 {
		x.patch(o.Name, map[string]any{"pin": map[string]any{"sha256": h.SHA256, "instead": o.Status.UpdateRevision.ConfigMapRef.SHA256}})
	}
}

func (x *act) edit() {
	if o := x.rollout(); o != nil {
		x.patch(o.Name, pick(x.r,
			map[string]any{"strategy": map[string]any{"maxUnavailable": pick[any](x.r, 1, 2, "100%")}},
			map[string]any{"strategy": map[string]any{"maxUnavailable": 0}},
			map[string]any{"failurePolicy": map[string]any{"maxFailures": 1 + x.r.IntN(4), "action": pick(x.r, "Pause", "Rollback")}},
			map[string]any{"soakSeconds": 60 * x.r.IntN(5)}, map[string]any{"priority": x.r.IntN(4)},
			map[string]any{"strategy": x.drains()}, map[string]any{"strategy": map[string]any{"drain": v1alpha1.DrainNever}},
			map[string]any{"strategy": map[string]any{"windows": pick[any](x.r, nil, x.windows())}},
			map[string]any{"strategy": map[string]any{"preflight": pick[any](x.r, nil, v1alpha1.PreflightReport, v1alpha1.PreflightRequire)}},
		))
	}
}

func (x *act) pause() {
	if o := x.rollout(); o != nil {
		field := pick(x.r, "paused", "frozen")
		x.patch(o.Name, map[string]any{field: true})
		x.later(between(x.r, time.Minute, 10*time.Minute), func() {
			if x.has("nodeconfigrollouts", "", o.Name) {
				x.patch(o.Name, map[string]any{field: false})
			}
		})
	}
}

// later does something later, before the active part of the history is over;
// nothing if it is over already.
func (x *act) later(after time.Duration, do func()) {
	left := time.Until(x.began.Add(x.plan.active - time.Duration(x.index+1)*time.Millisecond))
	if left > 0 {
		time.AfterFunc(min(after, left), do)
	}
}

func (x *act) abort() {
	if o := x.rollout(); o != nil && o.Status.UpdateRevision != nil {
		x.patch(o.Name, map[string]any{"abort": map[string]any{"revision": o.Status.UpdateRevision.Number, "rollback": chance(x.r, 0.7)}})
	}
}

// freezeAnd freezes the leader as it assigns a revision, and does something
// under the next leader. If that stops the revision, the assignment must not
// take effect when the old leader goes on. If there is another target then,
// nodes that reject the assignment must not use up the budget.
func (x *act) freezeAnd(do func()) {
	x.freezeAtAssignment(2*x.plan.lease+between(x.r, 3*time.Minute, 5*time.Minute), func() {
		x.later(x.plan.lease+between(x.r, 10*time.Second, time.Minute), do)
	})
	x.later(time.Second, x.push)
}

func (x *act) retry() {
	if o := x.rollout(); o != nil && o.Status.UpdateRevision != nil {
		x.patch(o.Name, map[string]any{"retry": map[string]any{"revision": o.Status.UpdateRevision.Number, "attempt": max(1, o.Status.Attempt) + 1}})
	}
}

// assign assigns a configuration to one node, as a person does.
func (x *act) assign() {
	m := x.machine()
	config := template(x.content(), x.maxPods())["kubeletDropIn"]
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("by-hand-%d", x.index)}, Immutable: new(true), Data: map[string]string{"kubelet-dropin": text(config)}}
	x.direct(x.server.Create("configmaps", v1alpha1.SystemNamespace, cm))
	x.source(m, map[string]any{"configMapRef": map[string]any{"namespace": v1alpha1.SystemNamespace, "name": cm.Name, "uid": cm.UID}})
	x.later(between(x.r, 5*time.Minute, 30*time.Minute), func() { x.source(m, nil) })
}

func (x *act) assignLocal() {
	m := x.machine()
	x.source(m, map[string]any{"local": map[string]any{}})
	x.later(between(x.r, 5*time.Minute, 30*time.Minute), func() { x.source(m, nil) })
}

// own returns the machine whose configuration comes from its own ConfigMap, nil
// if there is none, and the name of the ConfigMap.
func (w *world) own() (m *machine, name string) {
	if w.plan.own < 0 || w.plan.own >= len(w.machines) {
		return nil, ""
	}

	m = w.machines[w.plan.own]

	return m, "kubelet-" + m.name
}

func (x *act) writeOwn() {
	if m, name := x.own(); m != nil {
		x.setOwn(name, template(x.content(), x.maxPods())["kubeletDropIn"])
	}
}

// setOwn writes a configuration to a node's own ConfigMap.
func (w *world) setOwn(name string, config any) {
	data := map[string]any{"kubelet-dropin": text(config)}
	if w.has("configmaps", v1alpha1.SystemNamespace, name) {
		w.direct(w.server.Patch("configmaps", v1alpha1.SystemNamespace, name, types.MergePatchType, map[string]any{"data": data}))
		return
	}

	w.direct(w.server.Create("configmaps", v1alpha1.SystemNamespace, map[string]any{"metadata": map[string]any{"name": name}, "data": data}))
}

func (x *act) deleteOwn() {
	if m, name := x.own(); m != nil {
		x.server.Delete("configmaps", v1alpha1.SystemNamespace, name)
	}
}

// source replaces what a node is assigned.
func (w *world) source(m *machine, source any) {
	if !w.has("nodeconfigs", "", m.name) {
		return
	}

	none := []any{map[string]any{"op": "add", "path": "/spec", "value": map[string]any{}}}
	w.direct(w.server.Patch("nodeconfigs", "", m.name, types.JSONPatchType, none))
	if source != nil {
		w.direct(w.server.Patch("nodeconfigs", "", m.name, types.MergePatchType, map[string]any{"spec": map[string]any{"configSource": source}}))
	}
}

func (x *act) deleteRollout() {
	if o := x.rollout(); o != nil {
		x.server.Delete("nodeconfigrollouts", "", o.Name)
		x.later(between(x.r, time.Second, 10*time.Minute), x.create)
	}
}

func (x *act) deleteNodeConfig() { x.server.Delete("nodeconfigs", "", x.machine().name) }

func (x *act) deleteRevision() {
	if names := x.server.Names("configmaps", v1alpha1.SystemNamespace); len(names) > 0 {
		x.server.Delete("configmaps", v1alpha1.SystemNamespace, names[x.r.IntN(len(names))])
	}
}

func (x *act) crashAtOperation() {
	m := x.machine()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.agent != nil {
		m.disk.CrashAfter(x.r.IntN(60))
	}
}

func (x *act) upgradeAgent() {
	m := x.machine()
	with(&m.mu, func() { m.flags++ })
	m.stopAgent()
}

func (x *act) upgradeController() {
	r := x.replica()
	with(&r.mu, func() { r.upgrades++ })
	r.terminate()
}

func (x *act) cutMachine() {
	m := x.machine()
	m.cut(false)
	x.later(between(x.r, time.Second, 10*time.Minute), func() { m.cut(true) })
}

func (x *act) cutController() {
	r := x.replica()
	r.cut(false)
	x.later(between(x.r, time.Second, 3*time.Minute), func() { r.cut(true) })
}

// outage makes the API server fail for all.
func (x *act) outage() {
	o := pick(x.r, outageRefused, outageErrors, outageBusy, outageSilent)
	x.trouble.Store(int32(o))
	x.later(between(x.r, 5*time.Second, 6*time.Minute), func() { x.trouble.CompareAndSwap(int32(o), int32(outageNone)) })
}

func (x *act) scaleDown() {
	if m := x.machine(); m.switchOff() {
		x.server.Delete("nodes", "", m.name)
		x.server.Delete("leases", leaseNamespace, m.name)
		for _, name := range x.server.Names("pods", m.name) {
			x.server.Delete("pods", m.name, name)
		}
	}
}

func (x *act) scaleUp() {
	m := x.machine()
	m.mu.Lock()
	on := m.exists
	if !on && chance(x.r, 0.7) { // another machine with the name
		x.checks.forget(m.name)
		m.disk = newDisk()
	}

	m.mu.Unlock()
	if !on {
		m.switchOn()
	}
}

func (x *act) kubeletCrashes() {
	m := x.machine()
	if p := m.running(); p != nil {
		m.noteFault()
		m.endKubelet(p, supervisor.Exit{Code: pick(x.r, 0, 1, 2)})
	}
}

func (x *act) kubeletHangs() {
	m := x.machine()
	p := m.running()
	if p == nil || !p.Healthy() {
		return
	}

	m.noteFault()
	m.setHealthy(p, false)
	m.setHung(p, true)
	x.later(between(x.r, 10*time.Second, 5*time.Minute), func() {
		m.noteFault()
		m.setHung(p, false)
		m.setHealthy(p, true)
	})
}

func (x *act) upgradeKubelet() {
	m := x.machine()
	with(&m.mu, func() { m.kubelets = pick(x.r, "v1.35.1", "v1.36.3", "v1.37.2") })
	m.stopAgent()
}

func (x *act) diskFull() {
	m := x.machine()
	d := locked(&m.mu, func() *crashfs.FS { return m.disk })
	m.noteFault()
	d.FailFrom(1+x.r.IntN(20), syscall.ENOSPC, crashfs.NeedSpace...)
	x.later(between(x.r, time.Second, 15*time.Minute), func() {
		m.noteFault()
		d.Heal()
	})
}
