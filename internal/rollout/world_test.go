// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// world is a fleet with agents that do what agents do, in a time of its own.
type world struct {
	in             Input
	nodes          []Node
	agents         map[string]*agent
	now            time.Time
	last           Result
	objects        int // ConfigMaps that were made
	healthy        map[string]healthRecord
	refused        map[string]refusal
	joinInProgress map[string]int64 // by node: the generation that was written because it had joined
	pauses         map[string]pauseRecord
	terms          map[types.UID]int64 // that ConfigMaps name, by UID
	asked          map[attempt]*asked
	requests       map[string]request // preflight requests that were made, by UID
	released       map[string]bool    // nodes that have lost the startup taint

	succeeded []v1alpha1.RolloutRevision // newest last

	metrics     map[string]Measurement    // by gate: what its query returns; none: its server does not answer
	answered    []answer                  // that the rollout gets with its next plan
	answers     []answer                  // that it got, oldest first
	disruptable map[string]int            // by PodDisruptionBudget: how many of its pods may be unready
	pods        map[string]map[string]int // by node and PodDisruptionBudget: pods with probes
	inspections int
	forbidden   bool // pods cannot be read
	unserved    bool // nor can PodDisruptionBudgets
}

// agent is the part of a node that no controller sees.
type agent struct {
	silent  bool
	back    time.Time         // until when it does not reach the API server
	does    map[string]string // how a payload ends here: reject, unsure, evict, drain, crash, hang, notready, starts-none, starts-fail; else well
	bad     map[string]int64  // attempts by payload
	adopted time.Time         // when the kubelet was restarted last for a change
	started time.Time         // when the kubelet was started last, zero: long ago

	away    bool        // as a control plane, at the last plan
	broken  []string    // static pods that are not Ready
	probe   ProbeResult // of start probes; empty: they pass, Waiting: no result
	pods    int         // that an eviction ends
	stays   string      // why they cannot be evicted now; empty: they can
	refused string      // why the node must not be drained
	ignored bool        // a pod stays that a drain leaves alone
}

// isEmpty reports whether a node is drained, as its agent sees it.
func (a *agent) isEmpty(n *Node) bool { return n.Drain.Rollout != "" && a.pods == 0 && !a.ignored }

const (
	trialLength = time.Minute
	unsureFor   = 3 * time.Minute
)

var epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func newWorld() *world {
	w := &world{
		now: epoch, agents: map[string]*agent{}, healthy: map[string]healthRecord{}, refused: map[string]refusal{}, joinInProgress: map[string]int64{},
		pauses: map[string]pauseRecord{}, terms: map[types.UID]int64{}, requests: map[string]request{}, asked: map[attempt]*asked{}, metrics: map[string]Measurement{}, released: map[string]bool{},
		disruptable: map[string]int{}, pods: map[string]map[string]int{},
	}
	w.in = Input{
		Claim: Claim{Name: "workers", Created: epoch}, UID: "workers", DrainID: "id-of-workers", PreflightRoom: MaxUnanswered, Trial: trialLength,
		Spec: v1alpha1.NodeConfigRolloutSpec{
			NodeTimeoutSeconds: 900, ProgressDeadlineSeconds: 3600,
			Strategy: v1alpha1.RolloutStrategy{
				MaxUnavailable: percent(10), DrainOptions: &v1alpha1.DrainOptions{TimeoutSeconds: 300},
				Steps: []v1alpha1.RolloutStep{{Nodes: number(1)}, {Nodes: percent(10)}, {Nodes: percent(100)}},
			},
			FailurePolicy: v1alpha1.FailurePolicy{MaxFailures: number(1)}, Rollback: v1alpha1.RollbackStrategy{MaxUnavailable: percent(25)},
		},
		Controller: v1alpha1.RolloutController{AgentTimeout: metav1.Duration{Duration: time.Minute}, NotReadyGrace: metav1.Duration{Duration: 30 * time.Second}},
	}

	return w
}

// add adds n nodes that have run their local configuration since before.
func (w *world) add(n, zones int) {
	for range n {
		i := len(w.agents) + 1
		name := fmt.Sprintf("n%d", i)
		w.agents[name] = &agent{does: map[string]string{}, bad: map[string]int64{}, pods: 2}
		w.nodes = append(w.nodes, Node{
			Name: name, Created: w.now.Add(-time.Hour), Domain: fmt.Sprintf("z%d", i%zones), MachineKind: "amd64",
			Ready: true, HasConfig: true, Generation: 1, Observed: 1, Reported: true, OK: "True",
		})
	}
}

// target makes a content the target; one that there was takes the next number,
// as the controller has it.
func (w *world) target(content string) {
	w.objects++
	uid := "uid-" + content
	if w.in.Target.ConfigMapRef.SHA256 == content {
		uid = fmt.Sprintf("%s-%d", uid, w.objects)
	}

	number := w.in.Target.Number + 1
	if w.in.Target.ConfigMapRef.SHA256 == content {
		number--
	}

	w.in.Target = revision(number, "workers-"+content, uid, content)
	w.in.LastSucceeded = v1alpha1.RolloutRevision{}
	for _, r := range w.succeeded {
		if r.ConfigMapRef.SHA256 != content {
			w.in.LastSucceeded = r
		}
	}
}

// each yields the elements of a slice, such as nodes, to read or change them.
func each[T any](all []T) iter.Seq2[int, *T] {
	return func(yield func(int, *T) bool) {
		for i := range all {
			if !yield(i, &all[i]) {
				return
			}
		}
	}
}

func (w *world) node(name string) *Node {
	i := slices.IndexFunc(w.nodes, func(n Node) bool { return n.Name == name })
	return &w.nodes[i]
}

// plan lets the rollout decide once, and writes what it decides.
func (w *world) plan() Result {
	w.in.Now = w.now
	r := w.decide()
	w.apply(r)
	w.probe(r)
	w.evaluate(r.Measure)

	return r
}

// apply keeps what a plan remembers, and writes what it decides.
func (w *world) apply(r Result) {
	for i, o := range r.Observations {
		w.nodes[i].Observation = o
	}

	w.in.Status, w.in.GatesSince = r.Next, r.GatesSince
	w.remember(r)
	w.ask(r)
	w.write(r.Moves)
	w.drain(r)
	w.last = r
}

// drain writes taints and evicts pods. The pods of a node end before the next
// pass, and others come when the node is open again.
func (w *world) drain(r Result) {
	for _, taint := range r.Taints {
		n := &w.nodes[taint.Node]
		n.Drain = taint.Drain
		if n.Drain.Rollout == "" {
			n.DrainReport, w.agents[n.Name].pods = nil, 2
		}
	}

	for _, i := range r.Evict {
		n := &w.nodes[i]
		a := w.agents[n.Name]
		report := &DrainReport{Time: w.now, Refused: a.refused}
		if a.pods > 0 {
			report.Left, report.Pods, report.Waiting = a.pods, []string{"default/web-" + n.Name}, a.stays
		}
		if a.ignored {
			report.Ignored = []string{"default/cache-" + n.Name}
		}
		if a.refused == "" && a.stays == "" {
			a.pods = 0
		}

		n.DrainReport = report
	}

	if r.HandOver != "" {
		for i := range w.nodes {
			w.nodes[i].DrainReport = nil // the next leader has made no pass
		}

		w.in.Term++
		for uid := range w.terms {
			w.terms[uid] = w.in.Term
		}
	}
}

// probe makes passes over start probes: the pod is Ready after one, and gone
// after the next.
func (w *world) probe(r Result) {
	for _, i := range r.Probe {
		n := &w.nodes[i]
		report := ProbeReport{Key: w.in.ProbeKey(n), Stopping: true, Message: "its pod was Ready, and stops"}
		switch result := w.agents[n.Name].probe; {
		case result == "Waiting":
			report.Stopping, report.Message = false, "its pod was created"
		case result != "":
			report.Result, report.Message = result, "the runtime's words"
		case n.ProbeReport != nil && n.ProbeReport.Stopping && n.ProbeReport.Key == report.Key:
			report = ProbeReport{Key: report.Key, Result: ProbePassed}
		}

		n.ProbeReport = &report
	}

	for _, i := range r.DropProbe {
		w.nodes[i].ProbeReport = nil
	}
}

// setNotReady makes a node NotReady, or Ready, as the controller sees it now.
func (w *world) setNotReady(n *Node, is bool) {
	if n.Ready && is {
		n.WentNotReady = w.now
	}

	n.Ready = !is
}

// setMaintenance lets others begin to work on a node, or end, as the controller
// sees it now.
func (w *world) setMaintenance(n *Node, what string) {
	switch {
	case what == "":
		n.MaintenanceSince = time.Time{}
	case n.Maintenance == "":
		n.MaintenanceSince = w.now
	}

	n.Maintenance = what
}

// forgetObservations lets another leader see all nodes for the first time.
func (w *world) forgetObservations() {
	for _, n := range each(w.nodes) {
		n.DrainReport, n.ProbeReport, n.WentNotReady = nil, nil, time.Time{}
		if !n.Ready {
			n.WentNotReady = w.now
		}
		if n.Maintenance != "" {
			n.MaintenanceSince = w.now
		}
	}
}

// remember keeps what the controller keeps of a result, besides Progress.
func (w *world) remember(r Result) {
	p := &w.in
	if r.Succeeded() {
		w.succeeded = slices.DeleteFunc(w.succeeded, func(r v1alpha1.RolloutRevision) bool { return r.ConfigMapRef.SHA256 == p.Target.ConfigMapRef.SHA256 })
		w.succeeded = append(w.succeeded, p.Target)
	}

	p.Stopped = slices.DeleteFunc(p.Stopped, func(name string) bool { return name == p.Target.ConfigMapRef.Name })
	stopped := r.Stopped()
	if stopped {
		p.Stopped = append(p.Stopped, p.Target.ConfigMapRef.Name)
	}

	p.Contents = maps.Clone(p.Contents)
	if p.Contents == nil {
		p.Contents = map[string]Content{}
	}

	p.Contents[p.Target.ConfigMapRef.SHA256] = Content{p.Target.Number, stopped}
}

func (w *world) write(moves []Move) {
	for _, m := range moves {
		if m.Source.Content().UID != "" {
			w.terms[m.Source.Content().UID] = w.in.Term
		}

		n := &w.nodes[m.Node]
		n.Source, n.Revoked = m.Source, m.Revoked
		n.Generation++
	}
}

// evaluate answers the queries of gates, before the next plan.
func (w *world) evaluate(gates []string) {
	p := &w.in
	for _, name := range gates {
		m, answers := w.metrics[name]
		if !answers {
			continue
		}

		g := &p.Spec.Strategy.Gates[slices.IndexFunc(p.Spec.Strategy.Gates, func(g v1alpha1.RolloutGate) bool { return g.Name == name })]
		m.Gate, m.Server, m.Query, m.Time = name, g.Prometheus.Server, g.Prometheus.Query, w.now.Truncate(time.Second)
		p.Measurements = append(slices.DeleteFunc(slices.Clone(p.Measurements), func(m Measurement) bool { return m.Gate == name }), m)
		w.noteAnswer(m)
	}
}

// restart lets another controller lead: it knows the status only, in which
// times are whole seconds.
func (w *world) restart() {
	st := &w.in.Status
	w.in.Measurements, w.answered, w.in.GatesSince = nil, nil, time.Time{}
	whole := func(t *metav1.Time) *metav1.Time { return apiTime(TimeOf(t).Truncate(time.Second)) }
	st.AttemptTime, st.StepTime, st.StartTime, st.ProgressTime = whole(st.AttemptTime), whole(st.StepTime), whole(st.StartTime), whole(st.ProgressTime)
	if st.Halt != nil {
		halt := *st.Halt
		halt.Time.Time = halt.Time.Truncate(time.Second)
		st.Halt = &halt
	}
}

// outage takes the API server away for a time. Each agent is back some time
// after that, and its trial pauses until then.
func (w *world) outage(length time.Duration, late func(*Node) time.Duration) {
	from := w.now
	w.now = w.now.Add(length)
	for _, n := range each(w.nodes) {
		a := w.agents[n.Name]
		away := from
		if a.back.After(away) { // not back from the outage before, of which all was added
			away = a.back
		}
		if a.back = w.now.Add(late(n)); n.InTrial {
			a.adopted = a.adopted.Add(a.back.Sub(away))
		}
	}

	w.in.Outages = w.in.Outages.Add(Outage{from, w.now})
}

// act lets every agent do what it has to do by now.
func (w *world) act() {
	for _, n := range each(w.nodes) {
		if a := w.agents[n.Name]; !a.silent && !w.now.Before(a.back) {
			if newest := w.terms[n.Source.Content().UID]; n.Observed != n.Generation && n.Source.By().Name != "" && n.Source.By().Term < newest && uidOf(n.Active) != n.Source.Content().UID {
				n.Observed = n.Generation
				a.setConfigOK(n, "Unknown", "StaleAssignment", "a former leader's")
				continue
			}

			a.act(n, w.now)
			a.judge(n, w.requests[n.Preflight.Asked])
		}
	}
}

func (a *agent) act(n *Node, now time.Time) {
	if n.Observed != n.Generation {
		n.Observed = n.Generation
		a.accept(n, now)
	} else if n.refuses() || n.Reason == "CouldNotValidate" { // it tries again and again
		a.accept(n, now)
	}

	if !n.InTrial || now.Before(a.adopted.Add(trialLength)) {
		n.TrialHealthy = n.InTrial
		if n.Active != nil && a.does[n.Active.Digest()] == "starts-fail" {
			a.setPodStarts(n) // pods can also be refused later
		}

		return
	}

	switch content := n.Active.Digest(); a.does[content] {
	case "hang":
	case "crash":
		n.Active, n.InTrial, a.started = n.LastKnownGood, false, now
		a.fail(n, content, "CrashLooped")
	default:
		n.LastKnownGood, n.InTrial = n.Active, false
		a.setPodStarts(n)
	}
}

// refusals are how agents refuse a content because of their pods, by what it
// does there.
var refusals = map[string]struct{ reason, message string }{
	"evict":      {"WouldEvictPods", "the kubelet would end 2 of the node's 130 pods"},
	"relabelled": {"RestartWouldEvictPods", "any restart of the kubelet would end 1 of the node's 9 pods"},
	"drain":      {"NeedsDrain", "cpu_manager_state"},
}

func (a *agent) accept(n *Node, now time.Time) {
	s := n.Source.Content()
	refusal, refuses := refusals[a.does[s.SHA256]]
	switch active := ref(string(s.UID), s.SHA256); {
	case !isConfigMap(n.Source):
		if n.Active != nil {
			a.started = now
		}

		n.Active, n.LastKnownGood, n.InTrial = nil, nil, false
	case slices.Contains(n.Revoked, s.UID):
		a.setConfigOK(n, "False", "Revoked", "revoked")
		return
	case a.bad[s.SHA256] >= n.Source.By().Attempt:
		a.setConfigOK(n, "False", "CrashLooped", "it is bad")
		return
	case a.does[s.SHA256] == "reject":
		a.fail(n, s.SHA256, "ValidationFailed")
		return
	case n.Active.Digest() == s.SHA256:
		n.Active = active
	case a.does[s.SHA256] == "unsure" && now.Before(n.Source.By().AssignedAt.Time.Add(unsureFor)):
		a.setConfigOK(n, "Unknown", "CouldNotValidate", "the dry run did not end")
		return
	case refuses && a.isEmpty(n):
		n.Active, n.InTrial, n.TrialLength, a.adopted = active, true, trialLength, now
	case refuses:
		a.setConfigOK(n, "False", refusal.reason, refusal.message)
		return
	case n.LastKnownGood.Digest() == s.SHA256:
		n.Active, n.LastKnownGood, n.InTrial, a.started = active, active, false, now
	default:
		n.Active, n.InTrial, n.TrialLength, a.adopted, a.started = active, true, trialLength, now, now
		if a.does[s.SHA256] == "notready" {
			n.Ready, n.WentNotReady = false, now
		}
	}

	a.setPodStarts(n)
	a.setConfigOK(n, "True", "AllChecksPassed", "")
}

// setPodStarts reports what the last trial of the active configuration showed:
// another assignment of the same content changes nothing.
func (a *agent) setPodStarts(n *Node) {
	if n.PodStarts = ""; n.Active != nil && !n.InTrial {
		n.PodStarts = map[string]string{"starts-none": v1alpha1.PodsStartUnknown, "starts-fail": v1alpha1.PodsStartFailed}[a.does[n.Active.Digest()]]
		n.PodsRefused = "pod shop/web: refused"
	}
}

func (a *agent) fail(n *Node, content, reason string) {
	a.bad[content] = n.Source.By().Attempt
	a.setConfigOK(n, "False", reason, content+" failed")
}

func (a *agent) setConfigOK(n *Node, status metav1.ConditionStatus, reason, words string) {
	n.OK, n.Reason, n.Error = status, reason, words
}

// run plans and acts until a condition holds, or for that long, and writes down
// what happened.
func (w *world) run(out *strings.Builder, most time.Duration, until string) {
	const tick = 10 * time.Second
	said := ""
	for end := w.now.Add(most); ; w.now = w.now.Add(tick) {
		w.act()
		r := w.plan()
		for _, line := range w.describe(r) {
			if line != said {
				fmt.Fprintf(out, "%6s  %s\n", w.now.Sub(epoch), line)
			}
			if strings.HasPrefix(line, string(r.Next.Phase)) {
				said = line
			}
		}

		if until != "" && string(r.Next.Phase) == until || !w.now.Before(end) {
			return
		}
	}
}

// describe is what is new in a result: events, moves, and how things are.
func (w *world) describe(r Result) []string {
	var out []string
	for _, e := range r.Events {
		out = append(out, "! "+e.Reason+": "+e.Message)
	}

	moves := map[MoveKind][]string{}
	for _, m := range r.Moves {
		to := cmp.Or(m.Source.Content().SHA256, "nothing")
		if len(m.Revoked) > 0 {
			to += " revoked=" + strings.Trim(strings.ReplaceAll(fmt.Sprint(m.Revoked), " ", ","), "[]")
		}

		moves[m.Kind] = append(moves[m.Kind], w.nodes[m.Node].Name+"->"+to)
	}

	names := func(nodes []int) (all []string) {
		for _, i := range nodes {
			all = append(all, w.nodes[i].Name)
		}

		return all
	}
	if len(r.Ask) > 0 {
		out = append(out, "? "+strings.Join(names(r.Ask), " "))
	}

	for _, k := range []MoveKind{TakeBack, GoBack, Join, Assign, Renew} {
		if len(moves[k]) > 0 {
			out = append(out, fmt.Sprintf("> %s %s", k, strings.Join(moves[k], " ")))
		}
	}

	others := map[string][]string{"Evict": names(r.Evict), "Probe": names(r.Probe), "DropProbe": names(r.DropProbe)}
	for _, taint := range r.Taints {
		verb := "Release"
		if taint.Drain.HandedOver {
			verb = "HandOver"
		} else if taint.Drain.Rollout != "" {
			verb = "Drain"
		}

		others[verb] = append(others[verb], w.nodes[taint.Node].Name)
	}

	for _, verb := range []string{"Drain", "HandOver", "Evict", "Probe", "DropProbe", "Release"} {
		if len(others[verb]) > 0 {
			out = append(out, fmt.Sprintf("> %s %s", verb, strings.Join(others[verb], " ")))
		}
	}

	return append(out, fmt.Sprintf("%s step %d/%d: %s", r.Next.Phase, r.Next.Step, len(w.in.Spec.Strategy.Steps), r.Next.Message))
}

func number(n int) *intstr.IntOrString { return new(intstr.FromInt(n)) }

func percent(n int) *intstr.IntOrString { return new(intstr.FromString(fmt.Sprint(n, "%"))) }

// Succeeded reports whether all nodes had proven the target once.
func (r *Result) Succeeded() bool { return hasSucceeded(&r.Next) }

// succeed notes that all nodes have proven the target once.
func (w *world) succeed() { w.in.Status.CurrentRevision = new(w.in.Target) }

func (in *Input) soak(d time.Duration) { in.Spec.SoakSeconds = int32(d / time.Second) }

func numberOf(st *v1alpha1.NodeConfigRolloutStatus) int64 {
	if st.UpdateRevision == nil {
		return 0
	}

	return st.UpdateRevision.Number
}

func hasSucceeded(st *v1alpha1.NodeConfigRolloutStatus) bool {
	return st.UpdateRevision != nil && st.CurrentRevision != nil && st.CurrentRevision.Number == st.UpdateRevision.Number
}

func ref(uid, sha256 string) *v1alpha1.ConfigRevision {
	return &v1alpha1.ConfigRevision{UID: types.UID(uid), SHA256: sha256}
}

func revision(number int64, name, uid, sha256 string) v1alpha1.RolloutRevision {
	return v1alpha1.RolloutRevision{Number: number, ConfigMapRef: v1alpha1.ConfigMapReference{Namespace: "ns", Name: name, UID: types.UID(uid), SHA256: sha256}}
}

// given is an assignment of a revision by a rollout, in the first attempt.
func given(rollout string, r v1alpha1.RolloutRevision, at time.Time) *v1alpha1.NodeConfigSource {
	return &v1alpha1.NodeConfigSource{
		ConfigMapRef: &r.ConfigMapRef, RolloutRef: &v1alpha1.RolloutReference{Name: rollout, Revision: r.Number, Attempt: 1, AssignedAt: metav1.NewTime(at)},
	}
}

// local is an assignment of the local configuration by the rollout.
func local(number int64, at time.Time) *v1alpha1.NodeConfigSource {
	return &v1alpha1.NodeConfigSource{
		Local: &v1alpha1.LocalSource{}, RolloutRef: &v1alpha1.RolloutReference{Name: "workers", Revision: number, Attempt: 1, AssignedAt: metav1.NewTime(at)},
	}
}

func uidOf(r *v1alpha1.ConfigRevision) types.UID {
	if r == nil {
		return ""
	}

	return r.UID
}
