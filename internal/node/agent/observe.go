package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/source"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/internal/payload"
)

// observe gathers everything a decision is made of. It decides nothing.
func (a *Agent) observe(ctx context.Context) trial.Observed {
	now := time.Now()
	o := trial.Observed{
		Now:    now,
		BootID: a.o.BootID,
		Limits: a.o.Limits,
		Local:  a.p.Kubelet.Local(),
		Child:  a.child(),
	}
	if a.disk.store != nil {
		o.LocalDigest = a.p.Kubelet.LocalDigest()
	}
	if !a.decided.IsZero() {
		o.Elapsed = now.Sub(a.decided) // monotonic
	}
	if a.disk.failure != "" && now.Before(a.disk.retryAt) {
		o.Storage = a.disk.failure
	}
	if local, ok := a.validations.get(""); ok && local.EffectiveOrAssumed() != nil {
		a.validations.local = local
	}
	o.Limits.APILossRollback = a.o.APILoss == "on" || a.o.APILoss == "auto" && a.p.Kubelet.RunsStaticPods(a.validations.local.EffectiveOrAssumed())
	if a.disk.store != nil && o.Storage == "" {
		o.Forget = a.requests()
	}
	switch {
	case a.disk.store == nil:
		o.Intent = trial.Intent{Kind: trial.Nil} // off: the state is empty and stays so
	case a.p.Source == nil:
		o.Intent = trial.Intent{Kind: trial.Unanswered, Cause: "the kubelet has no kubeconfig, so that there is no API to ask"}
	default:
		a.takeAnswer()
		o.Intent = a.intent()
		o.Revoked = a.assignment.answer.Revoked
	}
	o.Node = a.nodeState(ctx)
	if a.kubelet.process == nil || o.Intent.Kind == trial.Assigned && !a.runs(o.Intent.Config.Revision) {
		a.validations.stale(o.LocalDigest) // something may be started
	}
	o.Verdicts = a.verdicts(now, o.Intent)
	return o
}

func (a *Agent) child() trial.Child {
	if a.kubelet.exit != nil {
		return *a.kubelet.exit
	}
	if a.kubelet.process == nil {
		return trial.Child{}
	}
	return trial.Child{Alive: true, Healthy: a.kubelet.process.Healthy(), Waiting: a.kubelet.process.Waiting()}
}

// takeAnswer looks whether the source says something new.
func (a *Agent) takeAnswer() {
	answer := a.p.Source.Current()
	before, config := a.assignment.answer, answer.Config
	a.assignment.answer = answer
	if answer.Kind == before.Kind && config == a.assignment.config && answer.Generation == before.Generation &&
		answer.Cause == before.Cause && answer.Notice == before.Notice {
		return
	}
	a.log(config).Info("the source says", "intent", answer.Kind.String(), "generation", answer.Generation, "cause", answer.Cause, "notice", answer.Notice)
	local := answer.Kind == trial.Nil || a.state.RemovedBy(trial.Intent{Kind: answer.Kind, Config: config})
	if local && answer.Kind != before.Kind {
		a.validations.drop("") // the file may have been edited since the start
	}
	if config.Revision != a.assignment.config.Revision || config.Rollout.Attempt != a.assignment.config.Rollout.Attempt {
		a.assignment.since = time.Time{}
		if !a.runs(config.Revision) {
			a.validations.drop(config.Revision) // each assignment is judged as things are now
			if answer.Kind == trial.Assigned || local {
				a.assignment.since = time.Now()
			}
		}
		keep := []string{a.state.Current.Revision, a.state.LastKnownGood.Revision, config.Revision}
		a.validations.keep(keep...)
		maps.DeleteFunc(a.validations.unavailable, func(revision string, _ bool) bool { return !slices.Contains(keep, revision) })
	}
	a.assignment.config = config
}

// runs tells whether a revision was what was started last.
func (a *Agent) runs(revision string) bool {
	return a.state.Run.Started && a.state.Run.Config.Revision == revision
}

// intent is the answer, once what was downloaded has been checkpointed.
func (a *Agent) intent() trial.Intent {
	in := trial.Intent{Kind: a.assignment.answer.Kind, Cause: a.assignment.answer.Cause, Config: a.assignment.config, Notice: a.assignment.answer.Notice, TakenBack: a.assignment.answer.TakenBack}
	if a.assignment.answer.Changed {
		in.Reason = v1alpha1.ReasonObjectChanged
	}
	if a.assignment.answer.Stale {
		in.Reason = v1alpha1.ReasonStaleAssignment
	}
	if in.Kind != trial.Assigned {
		return in
	}
	c := &in.Config
	if a.assignment.answer.ConfigMap == nil {
		c.Checkpoint = a.p.Records.get(c.Revision).Checkpoint
		return in
	}
	if a.assignment.saved.Revision != c.Revision {
		if err := a.checkpoint(c.Revision); err != nil {
			return trial.Intent{Kind: trial.Unanswered, Config: *c, Cause: fmt.Sprintf("cannot checkpoint ConfigMap %s/%s: %v", c.Namespace, c.Name, err)}
		}
		if a.validations.unavailable[c.Revision] {
			delete(a.validations.unavailable, c.Revision) // healed
			a.validations.drop(c.Revision)
		}
	}
	c.Checkpoint = a.assignment.saved.Checkpoint
	return in
}

// checkpoint keeps what was downloaded.
func (a *Agent) checkpoint(revision string) error {
	sum, err := a.disk.store.Put(revision, a.assignment.answer.ConfigMap)
	if err == nil {
		a.assignment.saved = trial.Config{Revision: revision, Checkpoint: sum}
	}
	return err
}

// node is how the node is, as far as it matters now.
func (a *Agent) nodeState(ctx context.Context) trial.Node {
	var n trial.Node
	if a.p.Nodes != nil {
		s := a.node.view.now(a.p.Nodes)
		n.API = s.Reachable
		renewed := a.state.Trial == nil || a.kubelet.lease.renewed(s)
		if !renewed && a.node.watching && a.kubelet.lease.overtaken() {
			a.p.Nodes.Start(ctx) // the watch has seen its renewal, and looks rarely
		}
		n.Ready = s.Ready && renewed
		if s.Reachable && s.Complete {
			_, others := countActive(s.Pods)
			a.node.workloadPods = &others
		}
		n.Pressure = s.Pressure
		for _, p := range s.Pods {
			if active(p) {
				n.Pods = append(n.Pods, string(p.UID))
			}
		}
		if t := a.state.Trial; t != nil {
			n.LostPods = lostPods(s.Pods, t.Baseline.Pods)
		}
	}
	if a.state.Trial != nil || a.kubelet.exit != nil || a.kubelet.process == nil {
		ours, theirs := component.RuntimeEndpoint(a.validations.local.EffectiveOrAssumed()), component.RuntimeEndpoint(a.kubelet.verdict.EffectiveOrAssumed())
		n.RuntimeDown = ours != "" && (ours == theirs || a.kubelet.verdict.EffectiveOrAssumed() == nil) && a.p.Kubelet.RuntimeReachable(ctx, ours) != nil
	}
	if a.kubelet.exit != nil || a.kubelet.process == nil {
		n.ShuttingDown = a.o.ShuttingDown != nil && a.o.ShuttingDown(ctx)
	}
	return n
}

// active tells whether a pod takes one of the places that maxPods limits.
func active(p source.Pod) bool {
	return p.Phase != string(corev1.PodFailed) && p.Phase != string(corev1.PodSucceeded)
}

// countActive counts the pods that run: all, and without static pods and those of DaemonSets.
func countActive(pods []source.Pod) (all, workload int64) {
	for _, p := range pods {
		if active(p) {
			all++
			if !p.Static && p.OwnerKind != "DaemonSet" {
				workload++
			}
		}
	}
	return all, workload
}

// lostPods names the pods among those that ran at adoption that the kubelet
// has evicted or rejected since.
func lostPods(pods []source.Pod, before []string) []string {
	var lost []string
	for _, p := range pods {
		if !slices.Contains(before, string(p.UID)) || active(p) {
			continue
		}
		switch {
		case p.Phase == string(corev1.PodFailed) && (p.Reason == "Evicted" || strings.HasPrefix(p.Message, "Pod was rejected")):
			lost = append(lost, fmt.Sprintf("pod %s/%s: %s", p.Namespace, p.Name, p.Reason))
		case p.RestartsAlways && !p.Deleting && p.Reason == "":
			// How the containers of a rejected pod ended may replace why it did.
			lost = append(lost, fmt.Sprintf("pod %s/%s: ended by the kubelet", p.Namespace, p.Name))
		}
	}
	return lost
}

// verdicts are those of the dry run, with what the guards say of the one that
// is to be adopted.
func (a *Agent) verdicts(now time.Time, in trial.Intent) map[string]trial.Verdict {
	verdicts := map[string]trial.Verdict{}
	for revision, v := range a.validations.all(now, a.state.Run.Config.Revision, a.kubelet.process != nil) {
		verdicts[revision] = trialVerdict(v)
		if a.validations.unavailable[revision] {
			verdicts[revision] = trial.Verdict{Outcome: trial.Unavailable, Words: v.Message}
		}
		if revision != "" && verdicts[revision].Outcome == trial.Accepted && in.Kind == trial.Assigned && in.Config.Revision == revision && !a.runs(revision) {
			if guard := a.guard(v.Verdict, in.Config.Asked.AllowPodLoss); guard.Outcome != trial.NotValidated {
				verdicts[revision] = guard
			}
		}
	}
	return verdicts
}

func trialVerdict(v verdict) trial.Verdict {
	out := trial.Verdict{Outcome: trial.CouldNotTell, Words: v.Message}
	switch {
	case v.incomparable:
		out = trial.Verdict{Outcome: trial.Refused, Guard: v1alpha1.ReasonProtectedFields, Words: v.protected}
	case v.protected != "":
		out = trial.Verdict{Outcome: trial.Protected, Guard: v1alpha1.ReasonProtectedFields, Words: v.protected}
	case v.Outcome == component.Accepted:
		out.Outcome = trial.Accepted
	case v.Outcome == component.Rejected:
		out.Outcome = trial.RejectedOutcome
	}
	return out
}

// guard protects the workload from a configuration that the kubelet accepts
// but that would cost pods. Its zero value lets it pass. It is asked anew for
// every decision, so that it follows pods, cordon and state files.
func (a *Agent) guard(v component.Verdict, allowPodLoss bool) trial.Verdict {
	if a.p.Nodes == nil {
		return trial.Verdict{}
	}
	s := a.node.view.now(a.p.Nodes)
	if !s.Reachable {
		return trial.Verdict{Outcome: trial.CouldNotTell, Words: "the pods of this node could not be counted: " + s.Cause}
	}
	pods, others := countActive(s.Pods)
	if !allowPodLoss {
		if refused := a.guardPodCount(v, s, pods); refused.Outcome != trial.NotValidated {
			return refused
		}
	}
	conflicts, err := a.p.Kubelet.Conflicts(v.EffectiveOrAssumed())
	if err != nil {
		return trial.Verdict{Outcome: trial.CouldNotTell, Words: err.Error()}
	}
	if len(conflicts) > 0 && !(s.Unschedulable && others == 0) {
		words := make([]string, len(conflicts))
		for i, c := range conflicts {
			words[i] = c.String()
		}
		return trial.Verdict{Outcome: trial.Refused, Guard: v1alpha1.ReasonNeedsDrain,
			Words: strings.Join(words, "; ") + "; cordon and drain the node first"}
	}
	return trial.Verdict{}
}

// guardPodCount refuses what would have the kubelet kill pods that are one too many. Where the kubelet does not print
// its configuration, the Node says how many pods it takes, unless the configuration is to change that.
func (a *Agent) guardPodCount(v component.Verdict, s source.NodeState, pods int64) trial.Verdict {
	most, ok := v.Effective.Int("maxPods")
	if v.Effective == nil {
		if fields := v.ChangedPodFields(a.kubelet.verdict.Verdict); len(fields) > 0 {
			return trial.Verdict{Outcome: trial.Refused, Guard: v1alpha1.ReasonWouldEvictPods,
				Words: "this kubelet does not print its configuration, so it cannot be predicted whether pods would be killed, and the configuration changes " +
					strings.Join(fields, ", ") + ": leave that out, or say trial.allowPodLoss in the configuration"}
		}
		most, ok = s.AllocatablePods, s.AllocatablePods > 0
	}
	switch {
	case !ok:
		return trial.Verdict{Outcome: trial.CouldNotTell, Words: "the kubelet did not say what its maxPods would be"}
	case pods > most:
		return trial.Verdict{Outcome: trial.Refused, Guard: v1alpha1.ReasonWouldEvictPods,
			Words: fmt.Sprintf("%d pods run on this node and maxPods would be %d: the kubelet would kill the rest; move them away first, or say trial.allowPodLoss in the configuration", pods, most)}
	}
	return trial.Verdict{}
}

// validate finds verdicts, in the background, that are neither there nor being
// found.
func (a *Agent) validate(ctx context.Context, configs []trial.Config) {
	for _, c := range configs {
		if a.validations.has(c.Revision) {
			continue
		}
		if c.IsLocal() {
			a.validations.begin(ctx, "", func(ctx context.Context) verdict {
				return verdict{Verdict: a.judged(ctx, string(a.p.Kubelet.Local()), a.p.Kubelet.CheckLocal(ctx))}
			})
			continue
		}
		if a.assignment.answer.PayloadErr != nil && a.assignment.config.Revision == c.Revision {
			verdict := a.judged(ctx, c.Revision, component.Verdict{Outcome: component.Rejected, Message: a.assignment.answer.PayloadErr.Error()})
			a.o.Metrics.validated(verdict, 0)
			a.validations.put(c.Revision, verdict)
			signal(a.validations.changed)
			continue
		}
		p, err := a.payload(c)
		if err != nil && a.assignment.config.Revision == c.Revision && a.assignment.answer.ConfigMap != nil && a.checkpoint(c.Revision) == nil {
			p, err = a.payload(c) // it was downloaded, and has gone since
		}
		if err != nil {
			if !a.validations.unavailable[c.Revision] {
				a.log(c).Error("a checkpoint cannot be used", "err", err)
			}
			a.cannotUse(c.Revision, err)
			signal(a.validations.changed)
			continue
		}
		delete(a.validations.unavailable, c.Revision)
		// Only what is new has guards, and a baseline, to count pods for: what is
		// on record must not wait for the API.
		count := !a.state.Current.Same(c) && !a.state.LastKnownGood.Same(c)
		a.validations.begin(ctx, c.Revision, func(ctx context.Context) verdict {
			counted, local := a.countPods(ctx), a.p.Kubelet.LocalDigest()
			found := a.p.Kubelet.Check(ctx, p)
			if ctx.Err() == nil {
				found = a.validations.insist(c.Revision, found)
			}
			v := a.compared(a.judged(ctx, c.Revision, found))
			v.local = local
			if count {
				<-counted
			}
			return v
		})
	}
}

// cannotUse takes note that a checkpoint cannot be used, and has it downloaded
// anew if it is what is assigned: now and then, for the disk may be at fault.
func (a *Agent) cannotUse(revision string, err error) {
	a.unusable(revision, err)
	if a.p.Source != nil && a.assignment.config.Revision == revision && time.Since(a.assignment.redownloaded) > storageRetry {
		a.assignment.saved, a.assignment.redownloaded = trial.Config{}, time.Now()
		a.p.Source.Refresh()
	}
}

// unusable takes note that a configuration cannot be run now.
func (a *Agent) unusable(revision string, err error) {
	a.validations.unavailable[revision] = true
	a.validations.put(revision, component.Verdict{Outcome: component.CouldNotTell, Message: err.Error()})
}

// judged logs a verdict that is news and still wanted, and returns it.
func (a *Agent) judged(ctx context.Context, uid string, v component.Verdict) component.Verdict {
	level := slog.LevelDebug
	if ctx.Err() == nil && a.validations.news(uid, v.Outcome.String()+v.Message) {
		level = slog.LevelInfo
	}
	a.o.Log.Log(ctx, level, "validated", "uid", uid, "verdict", v.Outcome.String(), "stage", v.Stage, "words", v.Message, "warnings", v.Warnings)
	return v
}

// compared lays what this node protects over what its kubelet said. Local is
// kept as what differs from it alone: it is the same for all.
func (a *Agent) compared(v component.Verdict) verdict {
	out := verdict{Verdict: v}
	if v.Effective != nil && v.Local != nil {
		out.differs = payload.Diff(v.Effective, v.Local)
	}
	if v.Outcome == component.Accepted {
		words, compared := v.CheckProtected(a.o.Protected)
		out.protected, out.incomparable = words, !compared
	}
	out.Local = nil
	return out
}

// countTimeout is how long an API that hangs can keep a verdict waiting; the
// sync timeout if that is longer.
const countTimeout = 2 * time.Second

// countPods asks how the node is while it is being validated: the guards need
// to know, and so does the baseline of a trial.
func (a *Agent) countPods(ctx context.Context) <-chan struct{} {
	done := make(chan struct{})
	if a.p.Nodes == nil {
		close(done)
		return done
	}
	a.node.view.set(source.NodeState{Cause: "they are being counted"}) // what was seen hours ago counts for nothing
	ctx, cancel := context.WithTimeout(ctx, max(a.o.SyncTimeout, countTimeout))
	go func() {
		defer close(done)
		defer cancel()
		a.node.view.set(a.p.Nodes.Snapshot(ctx))
	}()
	return done
}

// payload returns the payload of a checkpointed configuration.
func (a *Agent) payload(c trial.Config) (payload.Payload, error) {
	raw, err := a.disk.store.Get(c)
	if err != nil {
		return payload.Payload{}, err
	}
	var cm corev1.ConfigMap
	if err := json.Unmarshal(raw, &cm); err != nil {
		return payload.Payload{}, fmt.Errorf("checkpoint %s: %w", c.Revision, err)
	}
	p, err := payload.FromConfigMap(&cm)
	if err != nil {
		return payload.Payload{}, fmt.Errorf("checkpoint %s: %w", c.Revision, err)
	}
	if c.Payload != "" && p.SHA256 != c.Payload {
		return payload.Payload{}, fmt.Errorf("checkpoint %s: the payload is not the one on record", c.Revision)
	}
	return p, nil
}

// view is the node as it was seen last: by the watch, or where that is off or
// has not seen everything yet, by a single look.
type view struct {
	mu   sync.Mutex
	once source.NodeState
	at   time.Time // of the look
}

// lookLasts is how long a single look tells how the node is. After that it is not known: a trial that begins then, because
// a kubelet exited, is not to be blamed for what happened to pods in the hours before.
const lookLasts = 2 * time.Minute

func (v *view) set(s source.NodeState) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.once, v.at = s, time.Now()
}

func (v *view) now(nodes Nodes) source.NodeState {
	s := nodes.Current()
	if s.Complete || s.Cause != "" {
		return s
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if time.Since(v.at) > lookLasts {
		return source.NodeState{Cause: "they were not counted lately"}
	}
	return v.once
}
