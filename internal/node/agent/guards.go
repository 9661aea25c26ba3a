// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/podguard"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// renewVerdicts drops verdicts that must be found again. Those found on another
// basis matter only if something may be started soon, or if not everything is
// as it should be. Then the verdict on the local configuration, which may
// become the fallback, is found again at once.
func (a *Agent) renewVerdicts(ctx context.Context, o *trial.Observed) {
	assigned := o.Intent.Kind == trial.Assigned && !a.isRunning(o.Intent.Config.Revision)
	mayStart := a.kubelet.process == nil || a.state.Trial != nil || assigned || a.reports.condition.Status != metav1.ConditionTrue
	if mayStart {
		a.validations.dropOther(a.basis(o.LocalDigest))
	}

	a.validations.dropUndecided(o.Now, a.state.Run.Config.Revision, a.kubelet.process != nil)
	if mayStart {
		a.validate(ctx, []trial.Config{{}})
	}

	o.Verdicts = a.verdicts()
}

// verdicts returns the verdicts of the dry runs. It leaves out those that need
// the verdict on the local configuration, until that is found.
func (a *Agent) verdicts() map[string]trial.Verdict {
	verdicts, found := map[string]trial.Verdict{}, a.validations.all()
	local, known := found[""]
	for revision, v := range found {
		switch {
		case v.unavailable, revision == "", !v.isUndecided():
			verdicts[revision] = trialVerdict(v)
		case known:
			verdicts[revision] = blameLocal(trialVerdict(v), local.Verdict)
		}
	}

	return verdicts
}

// blameLocal returns an undecided verdict, whose reason is the local
// configuration if that is invalid.
func blameLocal(v trial.Verdict, local component.Verdict) trial.Verdict {
	if local.Outcome == component.Rejected {
		v.Guard, v.Message = v1alpha1.ReasonLocalInvalid, "the local configuration is invalid: "+local.Message
	}

	return v
}

func trialVerdict(v verdict) trial.Verdict {
	out := trial.Verdict{Outcome: trial.CouldNotTell, Message: v.Message}
	switch {
	case v.unavailable:
		out.Outcome = trial.Unavailable
	case v.incomparable:
		out = trial.Verdict{Outcome: trial.Refused, Guard: v1alpha1.ReasonProtectedFields, Message: v.protected}
	case v.protected != "":
		out = trial.Verdict{Outcome: trial.Protected, Guard: v1alpha1.ReasonProtectedFields, Message: v.protected}
	case v.Outcome == component.Accepted:
		out.Outcome = trial.Accepted
	case v.Outcome == component.Rejected:
		out.Outcome = trial.Rejected
	}

	return out
}

// guard is the last judgement of the pod guard.
type guard struct {
	judgement
	asked   trial.Adoption
	at      time.Time
	changed bool // the node or its pods have changed since
}

// judgement is what the pod guard says about a restart of the kubelet.
type judgement struct {
	refusal    trial.Verdict // zero: none
	pods       []string      // the UIDs of the active pods; nil: they are not known
	unanswered bool          // the API server did not say which pods the node has; the refusal can change with the next request
}

// How long a refusal is kept: while a node is blocked, each change of a pod
// leads to a decision.
const (
	guardInterval = 10 * time.Second // after a change of the node or its pods, or if the API server did not answer
	guardRecheck  = time.Minute      // without a change: files, usage and devices are not watched
)

// guardTimeout limits how long an unresponsive API server or container runtime
// delays the agent's loop.
const guardTimeout = 5 * time.Second

// permit returns the last judgement while its refusal is kept, else nil.
func (a *Agent) permit() *trial.Permit {
	if a.guardWait() == 0 {
		return nil
	}

	return &trial.Permit{Adoption: a.guard.asked, Refusal: a.guard.refusal}
}

// ask asks the pod guard, whose judgement is the last before the restart.
func (a *Agent) ask(ctx context.Context, q trial.Adoption) *trial.Permit {
	a.guard = guard{asked: q, at: time.Now()}
	if a.p.Nodes != nil {
		a.guard.judgement = a.judgeRestart(ctx, q.Config, q.AllowPodLoss)
	}

	return &trial.Permit{Adoption: q, Refusal: a.guard.refusal, Pods: a.guard.pods}
}

// guardWait returns how long the last refusal is still kept; 0 if there is
// none.
func (a *Agent) guardWait() time.Duration {
	keep := guardRecheck
	if a.guard.changed || a.guard.unanswered {
		keep = guardInterval
	}
	if a.guard.refusal.Outcome == trial.NotValidated {
		return 0
	}

	return max(0, keep-time.Since(a.guard.at))
}

// judgeRestart returns why the kubelet must not be restarted with a
// configuration that it accepts: pods would be lost, or it is not known whether
// they would. There is no refusal if it may be.
func (a *Agent) judgeRestart(ctx context.Context, c trial.Config, allowPodLoss bool) judgement {
	if s := a.node.view.now(a.p.Nodes); !c.IsLocal() && !s.Reachable { // an API server that does not answer must not delay each pass
		return judgement{refusal: cannotTell(c, "cannot count the pods of this node: "+s.Cause), unanswered: true}
	}

	v, _ := a.validations.get(c.Revision)
	if c.IsLocal() {
		v = a.validations.local
	}

	return a.guardInput().judge(ctx, a.p.Nodes, a.p.Kubelet, c, v, allowPodLoss)
}

// guardInput is what the pod guard knows of the kubelet that runs.
type guardInput struct {
	startupTaint string              // its key; empty: none
	before       component.Effective // nil: not known
}

// guardInput returns the guard's input as of now.
func (a *Agent) guardInput() guardInput {
	g := guardInput{startupTaint: a.o.StartupTaint, before: a.kubelet.verdict.Effective}
	if a.kubelet.process == nil {
		g.before = a.verdictFor(a.state.Current.Config).Effective
	}

	return g
}

// judge returns why the kubelet must not be restarted with a configuration that
// has the verdict v, as Agent.judgeRestart does.
func (g guardInput) judge(ctx context.Context, nodes Nodes, kubelet Kubelet, c trial.Config, v verdict, allowPodLoss bool) judgement {
	in := podguard.Input{Before: g.before, After: v.Effective}
	if err := describe(ctx, nodes, kubelet, &in); err != nil {
		_, unanswered := errors.AsType[unansweredError](err)
		return judgement{refusal: cannotTell(c, "cannot tell whether the pods of this node survive a restart: "+err.Error()),
			unanswered: unanswered}
	}

	active := activeUIDs(in.Pods)

	return judgement{refusal: g.refusal(in, len(active), c, v, allowPodLoss), pods: active}
}

// refusal returns why the kubelet must not be restarted, if its pods are known;
// the zero value: it may be.
func (g guardInput) refusal(in podguard.Input, active int, c trial.Config, v verdict, allowPodLoss bool) trial.Verdict {
	if reasons := podguard.NeedsDrain(in); len(reasons) > 0 && !g.isDrained(in) {
		return trial.Verdict{Outcome: trial.Refused, Guard: v1alpha1.ReasonNeedsDrain,
			Message: strings.Join(reasons, "; ") + "; cordon and drain the node first"}
	}

	if allowPodLoss || v.Effective == nil && active == 0 { // nothing can be lost
		return trial.Verdict{}
	}

	if v.Effective == nil { // of local, because every other one is refused without it
		return cannotTell(c, "the kubelet did not print the configuration, so the loss of pods cannot be predicted; to return anyway, set "+
			"trial.allowPodLoss")
	}

	return predict(in, active)
}

// predict returns a refusal if pods would be lost with the present
// configuration already, or else with the new one.
func predict(in podguard.Input, active int) trial.Verdict {
	unchanged := in
	unchanged.After = in.Before
	if in.Before != nil {
		if lost := podguard.Predict(unchanged); len(lost) > 0 {
			return trial.Verdict{Outcome: trial.Refused, Guard: v1alpha1.ReasonRestartWouldEvictPods, Message: fmt.Sprintf(
				"any restart of the kubelet would end %d of the node's %s, and the configuration is not the cause: %s; correct the cause, move the "+
					"pods to other nodes, or set trial.allowPodLoss",
				len(lost), printable.Count(active, "pod"), describeLosses(lost))}
		}
	}

	if lost := podguard.Predict(in); len(lost) > 0 {
		return trial.Verdict{Outcome: trial.Refused, Guard: v1alpha1.ReasonWouldEvictPods, Message: fmt.Sprintf(
			"the kubelet would end %d of the node's %s: %s; move them to other nodes first, or set trial.allowPodLoss in the configuration",
			len(lost), printable.Count(active, "pod"), describeLosses(lost))}
	}

	return trial.Verdict{}
}

// describe sets what a prediction depends on: the version of the kubelet's
// file, which may have been replaced since the start, the Node and its pods
// from the API server, and the facts of this machine.
func describe(ctx context.Context, nodes Nodes, kubelet Kubelet, in *podguard.Input) error {
	ctx, cancel := context.WithTimeout(ctx, guardTimeout)
	defer cancel()
	var node *corev1.Node
	var pods []*corev1.Pod
	var podsErr error
	listed := make(chan struct{})
	go func() {
		defer close(listed)
		node, pods, podsErr = nodes.Bound(ctx)
	}()
	version, err := kubelet.Version(ctx)
	in.Minor = minorOf(version)
	err = errors.Join(err, kubelet.Describe(ctx, in))
	<-listed
	in.Node, in.Pods = node, pods
	if podsErr != nil {
		return unansweredError{errors.Join(podsErr, err)}
	}

	return err
}

// unansweredError is why the API server did not say which pods the node has.
type unansweredError struct{ error }

func cannotTell(c trial.Config, message string) trial.Verdict {
	if c.IsLocal() { // an undecided dry run does not keep a node from its local configuration
		return trial.Verdict{Outcome: trial.Refused, Guard: v1alpha1.ReasonCouldNotValidate, Message: message}
	}

	return trial.Verdict{Outcome: trial.CouldNotTell, Message: message}
}

// isDrained reports whether new pods are kept away, by a cordon, by a rollout
// that drains the node, or by the startup taint, and only static pods and pods
// of DaemonSets are left.
func (g guardInput) isDrained(in podguard.Input) bool {
	return in.Node != nil && g.isCordoned(in.Node) && !slices.ContainsFunc(in.Pods, func(p *corev1.Pod) bool {
		_, static := p.Annotations[corev1.MirrorPodAnnotationKey]
		owner := metav1.GetControllerOfNoCopy(p)
		return !hasEnded(p) && !static && (owner == nil || owner.Kind != "DaemonSet")
	})
}

func (g guardInput) isCordoned(node *corev1.Node) bool {
	return node.Spec.Unschedulable || slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		return (t.Key == v1alpha1.TaintDraining || g.startupTaint != "" && t.Key == g.startupTaint) && t.Effect == corev1.TaintEffectNoSchedule
	})
}

func hasEnded(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

func activeUIDs(pods []*corev1.Pod) []string {
	var uids []string
	for _, p := range pods {
		if !hasEnded(p) {
			uids = append(uids, string(p.UID))
		}
	}

	slices.Sort(uids)

	return uids
}

// describeLosses names the pods of each cause.
func describeLosses(losses []podguard.Loss) string {
	var causes []string
	pods := map[string][]string{}
	for _, l := range losses {
		cause := l.Reason + " (" + l.Message + ")"
		if pods[cause] == nil {
			causes = append(causes, cause)
		}

		pods[cause] = append(pods[cause], l.Namespace+"/"+l.Name)
	}

	for i, cause := range causes {
		causes[i] = printable.Few(pods[cause]) + ": " + cause
	}

	return printable.Few(causes)
}

// Losses describes the pods that a restart of this kubelet would end, with
// their causes; empty: none. before is the configuration that it runs with, nil
// if that is not known, and after the one that it starts with. The error says
// what cannot be read.
func (h *HostKubelet) Losses(ctx context.Context, nodes Nodes, before, after component.Effective) (string, error) {
	in := podguard.Input{Before: before, After: after}
	if err := describe(ctx, nodes, h, &in); err != nil {
		return "", err
	}

	return describeLosses(podguard.Predict(in)), nil
}

// minorOf returns the minor version. An unreadable version counts as the
// newest.
func minorOf(version string) int {
	v, err := utilversion.ParseGeneric(version)
	if err != nil {
		return math.MaxInt
	}

	return int(v.Minor())
}
