// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/node/source"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/internal/payload"
)

// simAPI is an API server as a node sees it.
type simAPI struct {
	w *world

	mu            sync.Mutex
	uid           types.UID // of the NodeConfig
	takenBack     *v1alpha1.TakenBackAssignment
	up            bool // else it refuses connections
	hangs         bool // it takes them and does not answer
	ref           *v1alpha1.NodeConfigSource
	object        *corev1.ConfigMap    // what ref names; nil: it is not found
	asked         trial.RequestedTerms // by the payload
	generation    int64
	revoked       []types.UID
	ready         bool
	pressure      []string
	unschedulable bool
	taints        []corev1.Taint
	pods          []source.Pod
	labels        map[string]string
	spec          corev1.PodSpec // of all pods
	unlistable    bool           // the pods, in Bound alone
	bounds        int            // calls of Bound
	snapshots     int
}

func (api *simAPI) set(change func(*simAPI)) {
	api.mu.Lock()
	change(api)
	api.mu.Unlock()
	if api.w.source != nil {
		api.w.source.look()
		api.w.nodes.look()
	}
}

// configMap is the ConfigMap of a configuration.
func configMap(uid string, c conf) *corev1.ConfigMap {
	key := payload.KeyKubelet
	if c.dropin {
		key = payload.KeyKubeletDropin
	}

	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "evenkeel-system", Name: c.name, UID: types.UID(uid), ResourceVersion: "7"},
		Data:       map[string]string{key: c.text()},
	}
}

// assign assigns a configuration with a UID, in the given attempt of a rollout
// if that is not 0.
func (w *world) assign(uid string, c conf, attempt ...int64) {
	w.knows(c)
	w.names[uid] = c.name
	w.assignObject(configMap(uid, c), attempt...)
}

func (w *world) assignObject(cm *corev1.ConfigMap, attempt ...int64) {
	if w.disk.Crashed() {
		return
	}

	w.api.set(func(api *simAPI) {
		api.object = cm
		api.ref = &v1alpha1.NodeConfigSource{ConfigMapRef: &v1alpha1.ConfigMapReference{Namespace: cm.Namespace, Name: cm.Name, UID: cm.UID}}
		if len(attempt) > 0 {
			api.ref.RolloutRef = &v1alpha1.RolloutReference{Name: "workers", Revision: 1, Attempt: attempt[0]}
		}

		api.generation++
	})
}

// assignLocal assigns local explicitly.
func (w *world) assignLocal() {
	if w.disk.Crashed() {
		return
	}

	w.api.set(func(api *simAPI) {
		api.ref, api.object = &v1alpha1.NodeConfigSource{Local: &v1alpha1.LocalSource{}}, nil
		api.generation++
	})
}

func (w *world) apiUp(up bool) { w.api.set(func(api *simAPI) { api.up = up }) }

// simSource finds the intended configuration like the real source: from the
// checkpoint if there is one, else by a download.
type simSource struct {
	ctx     context.Context
	api     *simAPI
	records *SavedConfigs
	changed chan struct{}
	firm    chan struct{}

	mu     sync.Mutex
	once   sync.Once
	agains int
	looks  int // an answer of the newest look alone counts
	answer source.Answer
	found  source.Answer // of the reference that is resolved
	about  v1alpha1.ConfigMapReference
}

func newSimSource(ctx context.Context, api *simAPI, records *SavedConfigs) *simSource {
	s := &simSource{ctx: ctx, api: api, records: records, changed: make(chan struct{}, 1), firm: make(chan struct{})}
	s.answer = source.Answer{Intent: trial.Intent{Cause: "no answer from the API server yet"}}
	go s.look()
	return s
}

// Refresh implements Source.
func (s *simSource) Refresh() {
	s.mu.Lock()
	s.about = v1alpha1.ConfigMapReference{}
	if s.agains++; s.agains > 1000 {
		panic("what is assigned is resolved again and again") // and no time passes, so that no test would end
	}

	s.mu.Unlock()
	go s.look()
}

// asked returns how often Refresh was called.
func (s *simSource) asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.agains
}

// look makes an answer from the state of the API.
func (s *simSource) look() {
	s.api.mu.Lock()
	up, hangs, ref, object, generation := s.api.up, s.api.hangs, s.api.ref, s.api.object, s.api.generation
	revoked, uid, taken := append([]types.UID{}, s.api.revoked...), s.api.uid, s.api.takenBack
	s.mu.Lock()
	if !hangs {
		s.looks++
	}

	look := s.looks
	s.mu.Unlock()
	s.api.mu.Unlock()
	if hangs {
		return
	}

	a := source.Answer{Intent: trial.Intent{Config: named(ref), TakenBack: taken}, Generation: generation, NodeConfigUID: uid, Revoked: &revoked}
	a.Config.AssignedBy = string(uid)
	switch {
	case !up:
		a = source.Answer{Intent: trial.Intent{Cause: "the API server refuses connections"}, Silent: true}
	case ref == nil:
		a.Kind, a.Cause = trial.Unassigned, "the NodeConfig assigns nothing"
	case ref.Local != nil:
		a.Kind = trial.Nil
	case ref.ConfigMapRef == nil:
		a.Kind, a.Cause = trial.Invalid, "exactly one subfield must be non-nil, but all were nil"
	case object == nil:
		a.Kind, a.Cause = trial.Invalid, "referenced ConfigMap not found"
	default:
		go s.resolve(look, a, *ref.ConfigMapRef, object)
		return
	}

	s.publish(look, a)
}

func (s *simSource) resolve(look int, a source.Answer, ref v1alpha1.ConfigMapReference, object *corev1.ConfigMap) {
	s.mu.Lock()
	found, known := s.found, s.about == ref && s.found.Kind == trial.Assigned
	s.mu.Unlock()
	if !known {
		found = s.fetch(ref, object)
	}

	a.Kind, a.Cause, a.Reason, a.ConfigMap = found.Kind, found.Cause, found.Reason, found.ConfigMap
	a.Payload, a.PayloadErr = found.Payload, found.PayloadErr
	a.Config.SHA256, a.Config.RequestedTerms = found.Payload.SHA256, s.api.asked
	a.Config.Dropin = found.Payload.Key == payload.KeyKubeletDropin
	if s.ctx.Err() == nil && s.publish(look, a) {
		s.mu.Lock()
		s.found, s.about = found, ref
		s.mu.Unlock()
	}
}

// named returns the configuration with that reference.
func named(ref *v1alpha1.NodeConfigSource) trial.Config {
	if ref == nil || ref.ConfigMapRef == nil {
		return trial.Config{}
	}

	cm := ref.ConfigMapRef
	c := trial.Config{Revision: string(cm.UID), ConfigRevision: v1alpha1.ConfigRevision{Namespace: cm.Namespace, Name: cm.Name, UID: cm.UID}}
	if r := ref.RolloutRef; r != nil {
		c.Rollout = v1alpha1.RolloutReference{Name: r.Name, Revision: r.Revision, Attempt: r.Attempt}
	}

	return c
}

func (s *simSource) fetch(ref v1alpha1.ConfigMapReference, object *corev1.ConfigMap) source.Answer {
	found := source.Answer{Intent: trial.Intent{Kind: trial.Assigned}}
	cm := &corev1.ConfigMap{}
	if raw, ok := s.records.Checkpoint(string(ref.UID)); !ok || json.Unmarshal(raw, cm) != nil {
		select {
		case <-s.ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}

		cm = object
		found.ConfigMap, _ = json.Marshal(cm) // an object can always be encoded
	}

	found.Payload, found.PayloadErr = payload.FromConfigMap(cm)
	if recorded := s.records.Payload(string(ref.UID)); recorded != "" && recorded != found.Payload.SHA256 {
		return source.Answer{Intent: trial.Intent{Kind: trial.Invalid, Reason: v1alpha1.ReasonObjectChanged, Cause: fmt.Sprintf("ConfigMap %s was changed", cm.Name)}}
	}

	return found
}

func (s *simSource) publish(look int, a source.Answer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if look != s.looks {
		return false
	}

	s.answer = a
	s.once.Do(func() { close(s.firm) })
	signal(s.changed)

	return true
}

func (s *simSource) First(ctx context.Context) source.Answer {
	select {
	case <-s.firm:
	case <-ctx.Done():
	}

	return s.Current()
}

func (s *simSource) Current() source.Answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answer
}

func (s *simSource) Changed() <-chan struct{} { return s.changed }

// simNodes is the state of the Node.
type simNodes struct {
	api     *simAPI
	changed chan struct{}

	guarded[watch]
}

// watch is whether the Node is watched, and how often that was requested.
type watch struct {
	on     bool
	starts int
}

func (n *simNodes) look() {
	if n.watching() {
		signal(n.changed)
	}
}

func (n *simNodes) Snapshot(ctx context.Context) source.NodeState {
	n.api.mu.Lock()
	n.api.snapshots++
	hangs := n.api.hangs
	n.api.mu.Unlock()
	if hangs {
		select {
		case <-ctx.Done():
		case <-time.After(45 * time.Second):
		}
	}

	return n.api.node()
}

func (api *simAPI) node() source.NodeState {
	renewed := api.w.kubelet.leaseRenewed()
	api.mu.Lock()
	defer api.mu.Unlock()
	if !api.up || api.hangs {
		return source.NodeState{Cause: "the API server does not answer"}
	}

	return source.NodeState{
		Labels: api.labels, Reachable: true, Complete: true, Exists: true, Ready: api.ready, Unschedulable: api.unschedulable, Taints: api.taints,
		Pressure: api.pressure, LeaseRenewed: renewed, Pods: slices.Clone(api.pods),
	}
}

func (n *simNodes) Bound(context.Context) (*corev1.Node, []*corev1.Pod, error) {
	api := n.api
	api.mu.Lock()
	defer api.mu.Unlock()
	api.bounds++
	if !api.up || api.hangs || api.unlistable {
		return nil, nil, errors.New("the API server does not answer")
	}

	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: api.labels}, Spec: corev1.NodeSpec{Unschedulable: api.unschedulable, Taints: api.taints}}
	node.Status.Capacity = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("16Gi")}
	node.Status.Allocatable = node.Status.Capacity.DeepCopy()
	node.Status.Allocatable[corev1.ResourcePods] = resource.MustParse("110")

	var pods []*corev1.Pod
	for _, p := range api.pods {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: p.UID, Namespace: p.Namespace, Name: p.Name}}
		if p.OwnerKind != "" {
			pod.OwnerReferences = []metav1.OwnerReference{{Kind: p.OwnerKind, Controller: new(true)}}
		}
		if p.Static {
			pod.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "static-" + p.Name}
		}

		pod.Status.Phase, pod.Spec = corev1.PodPhase(p.Phase), *api.spec.DeepCopy()
		pods = append(pods, pod)
	}

	return node, pods, nil
}

func (n *simNodes) Start(context.Context) {
	n.set(func(s *watch) { s.on, s.starts = true, s.starts+1 })
	signal(n.changed)
}

func (n *simNodes) Stop()          { n.set(func(s *watch) { s.on = false }) }
func (n *simNodes) watching() bool { return n.get().on }

func (n *simNodes) Current() source.NodeState {
	if !n.watching() {
		return source.NodeState{}
	}

	return n.api.node()
}

func (n *simNodes) Changed() <-chan struct{} { return n.changed }

// told is what the agent has reported.
type told struct {
	reports []source.Report // that differ from the one before
	events  []string
}

// simReporter keeps the reports.
type simReporter struct {
	guarded[told]
	onReport func(source.Report)
	takes    time.Duration // to write a report
	written  time.Time     // when the last one is written
	flushes  int
}

func (r *simReporter) Report(report source.Report) {
	if r.onReport != nil {
		r.onReport(report)
	}

	r.set(func(s *told) {
		if n := len(s.reports); n > 0 && plain(s.reports[n-1]) == plain(report) {
			s.reports[n-1] = report
			return
		}

		s.reports = append(s.reports, report)
		r.written = time.Now().Add(r.takes)
	})
}

// plain returns a report without the progress of the trial, as the real
// reporter compares reports.
func plain(report source.Report) string {
	if t := report.Status.Trial; t != nil {
		c := *t
		c.HealthySeconds, c.Restarts = 0, 0
		report.Status.Trial = &c
	}

	raw, _ := json.Marshal(report) // it can always be encoded

	return string(raw)
}

func (r *simReporter) Event(severity source.Severity, reason, message string) {
	r.set(func(s *told) { s.events = append(s.events, fmt.Sprintf("%s %s: %s", severity, reason, message)) })
}

func (r *simReporter) Flush(ctx context.Context) {
	var left time.Duration
	r.set(func(*told) { left, r.flushes = time.Until(r.written), r.flushes+1 })
	select {
	case <-ctx.Done():
	case <-time.After(left):
	}
}

// pending reports whether the last report is still being written.
func (r *simReporter) pending() (pending bool) {
	r.set(func(*told) { pending = time.Now().Before(r.written) })
	return pending
}

func (r *simReporter) last() (newest source.Report) {
	r.set(func(s *told) {
		if n := len(s.reports); n > 0 {
			newest = s.reports[n-1]
		}
	})
	return newest
}

func (r *simReporter) all() []source.Report { return slices.Clone(r.get().reports) }
func (r *simReporter) told() []string       { return r.get().events }

// initState is what the init system was told.
type initState struct {
	err      error // its answer
	ready    int
	stopping int
	covered  bool
	passes   int // of the agent: each calls Cover once
}

// simInit is the init system.
type simInit struct{ guarded[initState] }

func (i *simInit) say(change func(*initState)) error {
	i.set(change)
	return i.get().err
}

func (i *simInit) Ready() error        { return i.say(func(s *initState) { s.ready++ }) }
func (i *simInit) Stopping() error     { return i.say(func(s *initState) { s.stopping++ }) }
func (i *simInit) Status(string) error { return i.get().err }
func (i *simInit) Cover(on bool)       { i.set(func(s *initState) { s.covered, s.passes = on, s.passes+1 }) }
