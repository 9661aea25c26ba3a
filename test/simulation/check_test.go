// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/node/checkpoint"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/simapi"
)

// checks are what the checks of a history remember. Its mutex is taken while
// the server or a machine is locked.
type checks struct {
	mu       sync.Mutex
	stats    stats
	healthy  map[string]time.Duration // by machine and payload: how long kubelets were healthy with it
	crashed  map[string]bool          // by machine and content
	adopted  map[string]string        // by machine: the UID that was last adopted
	ran      map[string]string        // by machine: the payload with which its kubelet was last started
	assigned map[string][]assigned    // by node: what the API assigned
	stopped  map[string]time.Time     // by UID of a revision: since when it is stopped
	configs  map[string]*nodeConfig
	rollouts map[string]*rolloutView
	nodes    map[string]time.Time        // when the Node was created
	terms    map[string]int64            // by UID of a revision: the newest term of a controller
	bad      map[string]map[string]int64 // by machine, then by version and payload: the attempt at which it was recorded as bad
	contents map[string]int64            // by UID of a ConfigMap
	pods     map[string]time.Time        // by node and name: since when a pod is active
	answered map[string]bool             // by node and UID of the request: preflight answers
	drained  map[string]time.Time        // by node: when the taint of a drain was removed; zero: it is there
	crowd    map[string]int              // by node: how many Nodes there were when a plan began its drain
	left     []time.Time                 // when Nodes were deleted
	draining map[string]bool             // by policy.DrainID and node: what statuses of rollouts have named
	payloads map[string]int64            // the content of a payload, by its digest
	good     map[string]knownGood        // by machine
	tries    map[string]int              // by machine, version, revision and attempt: how often it was adopted
}

// assigned is what the spec of a NodeConfig named for some time; a zero end
// means that it still does.
type assigned struct {
	uid       string // of a ConfigMap
	takenBack bool   // without a source, because a rollout took it back
	from, to  time.Time
}

// nodeConfig is the newest NodeConfig of a node.
type nodeConfig struct {
	*v1alpha1.NodeConfig
	undone time.Time // since when the node has not proven what it is assigned; zero: it has
	given  time.Time // when it was assigned its payload
	by     string    // which client did that
	runs   bool      // it runs what it is assigned, and has passed the trial: the assignment costs no restart
}

// rolloutView is the newest version of a rollout, and the budgets of the last
// minute.
type rolloutView struct {
	*v1alpha1.NodeConfigRollout
	created time.Time
	paced   time.Time // since when it has its windows
	halted  time.Time // since when the target is stopped; zero: it is not
	budgets []budget
}

type budget struct {
	until time.Time // zero: it holds
	value intstr.IntOrString
}

func (c *checks) init() {
	c.healthy, c.crashed, c.adopted, c.ran = map[string]time.Duration{}, map[string]bool{}, map[string]string{}, map[string]string{}
	c.assigned, c.stopped, c.configs = map[string][]assigned{}, map[string]time.Time{}, map[string]*nodeConfig{}
	c.rollouts, c.nodes = map[string]*rolloutView{}, map[string]time.Time{}
	c.terms, c.bad, c.tries = map[string]int64{}, map[string]map[string]int64{}, map[string]int{}
	c.payloads, c.good = map[string]int64{}, map[string]knownGood{}
	c.contents, c.answered = map[string]int64{}, map[string]bool{}
	c.pods, c.drained, c.crowd, c.draining = map[string]time.Time{}, map[string]time.Time{}, map[string]int{}, map[string]bool{}
}

// The tolerances of the checks.
const (
	// lookBack is how long ago something may have been true that an agent acts
	// on: it reads, then validates.
	lookBack = 2 * time.Minute
	// longestGap is how long a node may be without a kubelet while its agent
	// runs.
	longestGap = 40 * time.Second
	// mostTries is how often a node may adopt the same assignment. Power cuts
	// and outages can make it go back and try again.
	mostTries = 4
	// stopTakes is how long assignments that were sent before a stop may take.
	stopTakes = 30 * time.Second
	// planTakes is how far apart assignments of one plan are at most: a
	// controller knows of those that it made in this time.
	planTakes = 2 * time.Second
	// drainTakes is how long after its plan the taint of a drain may appear:
	// the status of the rollout is written first.
	drainTakes = 10 * time.Second
)

// noteHealthy is called when a kubelet has ended.
func (w *world) noteHealthy(m *machine, p *process) {
	with(&w.checks.mu, func() { w.checks.healthy[m.name+"/"+p.sha256] += p.healthyFor })
}

// crashedOnce reports whether a content has crashed on a machine before, and
// notes that it will.
func (w *world) crashedOnce(node string, content int64) bool {
	w.checks.mu.Lock()
	defer w.checks.mu.Unlock()
	at := fmt.Sprint(node, content)
	was := w.checks.crashed[at]
	w.checks.crashed[at] = true

	return was
}

// checkStart checks what a node starts. again says that the same agent ran it
// already when its kubelet ended.
func (w *world) checkStart(m *machine, a *agentProcess, p *process, again bool) {
	view, err := checkpoint.ReadOnly(a.disk, stateDir, m.version())
	if err != nil {
		return // the disk has crashed, or is empty: then local runs
	}

	st, fault := view.State, m.faultAt()
	w.checks.mu.Lock()
	defer w.checks.mu.Unlock()
	w.checks.stats.count(starts, 1)
	version := view.Version
	was := w.checks.noteBad(m.name, version, st)
	w.checkVerdicts(m, fault, was, version, st.Bad)
	w.checkForgotten(m, st)
	ran := w.checks.ran[m.name]
	w.checks.ran[m.name] = p.sha256
	if p.sha256 == "" {
		return
	}

	w.book.must(!w.behaviourOf(p.content, m.name).reject, "invariant 1: %s starts %s, which its dry run rejects", m.name, p)
	for _, bad := range st.Bad {
		w.book.must(bad.SHA256 != p.sha256, "invariant 1: %s starts %s, which is listed as bad: %s", m.name, p, bad)
	}

	// The disk may hold a part of a change that it rejected: the agent goes on
	// with what it runs. It did not choose this at its start.
	kept := again && a.disk.Failing()
	w.book.must(p.sha256 == st.Current.SHA256 || p.sha256 == st.LastKnownGood.SHA256 || kept,
		"invariant 4: %s starts %s, which is neither current nor last-known-good", m.name, p)
	w.checkLastKnownGood(m, a, st)
	first := !a.hasStarted
	a.hasStarted = true
	attempt, bad := was[version+p.sha256]
	w.book.must(!bad || st.Current.SHA256 != p.sha256 || st.Current.Rollout.Attempt > attempt || st.Current.Rollout.Name == "",
		"invariant 1: %s starts %s, which it recorded as bad in attempt %d", m.name, p, attempt)
	if st.Current.SHA256 == p.sha256 && w.checks.adopted[m.name] != st.Current.Revision {
		w.checks.adopted[m.name] = st.Current.Revision
		if p.sha256 == ran {
			return // the ConfigMap was created again, and this start is another one of what it ran
		}

		w.checks.stats.count(adoptions, 1)
		w.checkAdoption(m, p, st)
		if !first {
			w.checkPods(m, p, st)
		}

		at := fmt.Sprint(m.name, version, st.Current.Revision, st.Current.Rollout)
		w.checks.tries[at]++
		w.book.must(w.checks.tries[at] <= mostTries, "%s has adopted %s %d times", m.name, p, w.checks.tries[at])
	}
}

// noteBad notes what a machine has recorded as bad, and returns what it had
// recorded before. The caller holds mu.
func (c *checks) noteBad(machine, version string, st trial.State) (was map[string]int64) {
	was = c.bad[machine]
	now := map[string]int64{}
	maps.Copy(now, was)
	maps.DeleteFunc(now, func(at string, _ int64) bool { return strings.HasPrefix(at, version) })
	for _, bad := range st.Bad {
		if !bad.Provisional {
			now[version+bad.SHA256] = max(now[version+bad.SHA256], bad.Attempt)
		}
	}

	c.bad[machine] = now

	return was
}

// forget forgets what a machine has recorded: another one has its name.
func (c *checks) forget(machine string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.bad, machine)
	delete(c.good, machine)
}

// checkLastKnownGood checks that last-known-good was healthy for a whole trial.
// The caller holds mu.
func (w *world) checkLastKnownGood(m *machine, a *agentProcess, st trial.State) {
	good := st.LastKnownGood
	if good.IsLocal() {
		return
	}

	shortest := a.limits.TrialDuration
	for i := range m.flags + 1 {
		limits, _ := w.flagsOf(i)
		shortest = min(shortest, limits.TrialDuration)
	}

	got := w.checks.healthy[m.name+"/"+good.SHA256]
	w.book.must(got >= shortest, "invariant 2: %s has %s as last-known-good, which was healthy for %s of %s", m.name, good.Name, got, shortest)
}

// checkAdoption checks that a node may adopt its new current configuration. The
// caller holds mu.
func (w *world) checkAdoption(m *machine, p *process, st trial.State) {
	now, current := time.Now(), st.Current.Config
	if st.LastKnownGood.Same(current) {
		return // it went back, or was assigned what it ran already, without a start
	}

	since := w.checks.stopped[string(current.UID)]
	w.book.must(since.IsZero() || now.Sub(since) <= lookBack,
		"%s adopts %s (%s), which was stopped %s ago", m.name, p, current.Name, now.Sub(since))
	w.book.must(slices.ContainsFunc(w.checks.assigned[m.name], func(x assigned) bool {
		// A power cut can lie between the adoption and the start.
		return x.uid == string(current.UID) && (x.to.IsZero() || min(now.Sub(x.to), st.Current.Since.Sub(x.to)) < lookBack)
	}), "%s adopts %s (%s), which it is not assigned", m.name, p, current.Name)
}

// checkPods checks that the adoption of a configuration costs no pod that was
// there before. The first start of an agent is no adoption: an agent before it
// decided, and pods may have come since. The caller holds mu.
func (w *world) checkPods(m *machine, p *process, st trial.State) {
	if st.LastKnownGood.Same(st.Current.Config) {
		return // it went back
	}

	pods := 0
	for name, since := range w.checks.pods {
		if strings.HasPrefix(name, m.name+"/") && time.Now().After(since.Add(30*time.Second)) {
			pods++
		}
	}

	w.book.must(pods <= p.maxPods, "invariant 9: %s adopts %s, which allows %d pods, and has %d", m.name, p, p.maxPods, pods)
}

// observe is called with each change in the API, while the server is locked.
func (w *world) observe(c simapi.Change) {
	if c.Kind == "leases" {
		return
	}

	w.book.change(c)
	w.checks.mu.Lock()
	defer w.checks.mu.Unlock()
	if c.Is != nil {
		w.checks.stats.count(changes, 1)
	}

	switch c.Kind {
	case "configmaps":
		w.observeRevision(c)
	case "pods":
		at := c.Namespace + "/" + c.Name
		if c.Is == nil || c.Was != nil {
			delete(w.checks.pods, at) // it is gone or, if it has changed, has failed
		} else {
			w.checks.pods[at] = time.Now()
		}

		w.podChanged(c)
	case "nodes":
		w.checkDrains(c)
		if c.Is == nil {
			delete(w.checks.nodes, c.Name)
			w.checks.left = append(w.checks.left, time.Now())
		} else if c.Was == nil {
			w.checks.nodes[c.Name] = time.Now()
		}
	case "nodeconfigrollouts":
		w.observeRollout(c)
	case "nodeconfigs":
		w.observeConfig(c)
	}
}

func (w *world) observeRevision(c simapi.Change) {
	var cm corev1.ConfigMap
	m := w.machineNamed(strings.TrimPrefix(c.Name, "kubelet-"))
	if c.Is == nil {
		if m != nil {
			w.checks.unassign(m.name)
		}

		return
	}

	decode(c.Is, &cm)
	uid := string(cm.UID)
	if m != nil && c.Was == nil {
		w.checks.assigned[m.name] = append(w.checks.assigned[m.name], assigned{uid: uid, from: time.Now()})
	}

	if p, err := payload.FromConfigMap(&cm); err == nil {
		w.checks.payloads[p.SHA256] = contentOf(p.Fields)
		if c.Was == nil {
			w.checks.contents[uid] = contentOf(p.Fields)
		}
	}

	w.checks.terms[uid] = max(w.checks.terms[uid], v1alpha1.TermOf(cm.Annotations))
	if _, stopped := cm.Annotations[v1alpha1.AnnotationStopped]; !stopped {
		delete(w.checks.stopped, uid)
	} else if w.checks.stopped[uid].IsZero() {
		w.checks.stopped[uid] = time.Now()
	}
}

func (w *world) observeRollout(c simapi.Change) {
	was := w.checks.rollouts[c.Name]
	if c.Is == nil {
		delete(w.checks.rollouts, c.Name)
		return
	}

	now := &rolloutView{NodeConfigRollout: &v1alpha1.NodeConfigRollout{}, created: time.Now()}
	decode(c.Is, now.NodeConfigRollout)
	if was != nil {
		now.created, now.budgets, now.paced = was.created, was.budgets, was.paced
	}
	if was == nil || !reflect.DeepEqual(was.Spec.Strategy.Windows, now.Spec.Strategy.Windows) {
		now.paced = time.Now()
	}

	w.noteDraining(now.NodeConfigRollout)
	if now.Status.Halt != nil {
		now.halted = time.Now()
		if was != nil && !was.halted.IsZero() && was.Status.UpdateRevision.Number == now.Status.UpdateRevision.Number {
			now.halted = was.halted
		}
	}

	value := *now.Spec.Strategy.MaxUnavailable
	if n := len(now.budgets); n == 0 || now.budgets[n-1].value != value {
		if n > 0 {
			now.budgets[n-1].until = time.Now()
		}

		now.budgets = append(now.budgets, budget{value: value})
	}

	w.checks.rollouts[c.Name] = now
}

func (w *world) observeConfig(c simapi.Change) {
	was := w.checks.configs[c.Name]
	now := time.Now()
	own := w.machineNamed(c.Name).ownConfigMap // then the spec of the NodeConfig has no effect
	if c.Is == nil {
		delete(w.checks.configs, c.Name)
		if !own {
			w.checks.unassign(c.Name)
			w.checks.assigned[c.Name] = append(w.checks.assigned[c.Name], assigned{from: now}) // as if the source was removed
		}

		return
	}

	is := &nodeConfig{NodeConfig: &v1alpha1.NodeConfig{}}
	decode(c.Is, is.NodeConfig)
	uid := ""
	if s := is.Spec.ConfigSource; s != nil && s.ConfigMapRef != nil {
		uid = string(s.ConfigMapRef.UID)
	}

	next := assigned{uid: uid, takenBack: takenBack(is.NodeConfig), from: now}
	if history := w.checks.assigned[c.Name]; !own && (len(history) == 0 || history[len(history)-1].uid != uid || history[len(history)-1].takenBack != next.takenBack) {
		w.checks.unassign(c.Name)
		w.checks.assigned[c.Name] = append(w.checks.assigned[c.Name], next)
	}

	if !proven(is.NodeConfig) {
		is.undone = now
		if was != nil && (!was.undone.IsZero() || was.Generation != is.Generation && payloadOf(was) == payloadOf(is)) {
			is.undone = was.undone // the node continues with the same payload
		}
	}

	is.given, is.by = now, c.By
	if was != nil && (was.Generation == is.Generation || payloadOf(was) == payloadOf(is)) {
		is.given, is.by = was.given, was.by
	}

	// The status says nothing about an assignment in between that the agent has
	// not answered: it may have adopted that.
	known := was == nil || was.Generation == is.Generation || was.Status.ObservedGeneration == was.Generation || was.runs && payloadOf(was) == payloadOf(is)
	is.runs = known && runsProven(is.NodeConfig)
	w.checks.configs[c.Name] = is
	if was != nil {
		w.checkPreflight(was.NodeConfig, is.NodeConfig)
	}
	if (was == nil || was.Generation != is.Generation) && !w.writesLate(c.By) {
		w.checkBudget(was, is, was != nil && renewed(was, is))
	}
}

// unassign ends what a node is assigned. The caller holds mu.
func (c *checks) unassign(node string) {
	if history := c.assigned[node]; len(history) > 0 && history[len(history)-1].to.IsZero() {
		history[len(history)-1].to = time.Now()
	}
}

// checkPreflight checks a new answer to a preflight request, and that requests
// and answers change nothing else. The caller holds mu.
func (w *world) checkPreflight(was, is *v1alpha1.NodeConfig) {
	text := is.Annotations[v1alpha1.AnnotationPreflight]
	w.book.must(text == was.Annotations[v1alpha1.AnnotationPreflight] || is.Generation == was.Generation,
		"invariant 10: a preflight request changes the generation of NodeConfig %s", is.Name)
	answer := is.Status.Preflight
	if answer == nil || w.checks.answered[is.Name+"/"+answer.UID] {
		return // the agent may write an answer again that it gave before
	}

	w.checks.answered[is.Name+"/"+answer.UID] = true
	var request v1alpha1.PreflightRequest
	if json.Unmarshal([]byte(text), &request) != nil || request.UID != answer.UID {
		return // another request has come
	}

	content, known := w.checks.contents[string(request.ConfigMapRef.UID)]
	rejected := known && w.behaviourOf(content, is.Name).reject
	switch {
	case answer.Verdict == v1alpha1.PreflightAccepted:
		w.checks.stats.count(preflights, 1)
		w.book.must(!rejected, "%s would accept content %d, which its dry run rejects", is.Name, content)
	case rejected && answer.Verdict == v1alpha1.PreflightUnknown && answer.Reason == v1alpha1.ReasonCouldNotValidate:
		w.book.fail("%s cannot say whether it would accept content %d, which its dry run rejects: %s", is.Name, content, answer.Message)
	case rejected && answer.Verdict == v1alpha1.PreflightRefused && answer.Reason != v1alpha1.ReasonValidationFailed:
		w.book.fail("%s refuses content %d, which its dry run rejects, for another reason: %s %s", is.Name, content, answer.Reason, answer.Message)
	}
}
