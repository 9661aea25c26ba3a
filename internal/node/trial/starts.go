// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

const (
	// refusedAfter is how long pods must be refused while none starts. The
	// kubelet tries to create a sandbox again after 10 to 15 s, and a container
	// after 10, 20 and 40 s.
	refusedAfter = 90 * time.Second
	// maxRefusalWait is how much longer a trial takes while pods are refused.
	// The controller waits for 15 minutes more than the duration.
	maxRefusalWait = 10 * time.Minute
	// reportRefusals is how long after a trial refused pods are still reported.
	reportRefusals = time.Hour
)

// PodStart is a pod that was started, or that was refused.
type PodStart struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Trusted   bool   `json:"trusted,omitempty"` // static, or in a namespace of the cluster's own
	Probe     bool   `json:"-"`                 // evenkeel created it to see whether the node can start pods
	Inherited bool   `json:"-"`                 // an earlier kubelet may have created its cgroup
	Words     string `json:"-"`                 // why it was refused
}

// weight is how much pods say about the node: 0 without pods, 1 if all are of
// one namespace, whose author decides what its pods do, and 2 if they are of
// several namespaces or one is trusted.
func weight(pods []PodStart) int {
	switch {
	case len(pods) == 0:
		return 0
	case slices.ContainsFunc(pods, func(p PodStart) bool { return p.Trusted || p.Namespace != pods[0].Namespace }):
		return 2
	}

	return 1
}

func isTrusted(p PodStart) bool { return p.Trusted }

// AddStart adds a pod that was started to those that are known, if it says more
// about the node than they do: at most three do.
func AddStart(known []PodStart, p PodStart) []PodStart {
	if weight(append(slices.Clone(known), p)) > weight(known) || p.Trusted && !slices.ContainsFunc(known, isTrusted) {
		return append(slices.Clone(known), p)
	}

	return known
}

// started returns the pods that were started since the trial began; if its
// configuration does not run, since the start of the kubelet.
func (d *decider) started() []PodStart {
	if t := d.next.Trial; t != nil && d.runsTrial() {
		return t.Started
	}

	return d.o.Node.Started
}

// cannotStart reports whether pods are refused whose namespaces no single
// author controls, and none has started. No single namespace's pods outvote a
// start probe. They do outvote a refused pod of the cluster's own, which can
// have a fault of its own: the node can start pods, and the trial waits and
// says which are refused.
func (d *decider) cannotStart() bool {
	refused, started := d.o.Node.Refused, weight(d.started())
	probe := slices.ContainsFunc(refused, func(p PodStart) bool { return p.Probe })
	return weight(refused) == 2 && (started == 0 || probe && started == 1)
}

// refusesInherited reports whether the node cannot start pods and only
// inherited ones say so. A kubelet keeps the cgroup of a pod, with the limits of
// the configuration that created it, such as podPidsLimit: the pod stays refused
// until somebody deletes it.
func (d *decider) refusesInherited() bool {
	return d.cannotStart() && weight(slices.DeleteFunc(slices.Clone(d.o.Node.Refused), func(p PodStart) bool { return p.Inherited })) < 2
}

// isRefused reports whether pods are refused, and no trusted pod that started
// outvotes them.
func (d *decider) isRefused() bool {
	refused := weight(d.o.Node.Refused)
	return refused == 2 || refused == 1 && !slices.ContainsFunc(d.started(), isTrusted)
}

// waitsForStarts reports whether the trial must not pass yet: pods are refused,
// or an earlier kubelet waited for refused pods, which this one has not had the
// time to refuse, too. One broken pod must not hold a trial forever.
func (d *decider) waitsForStarts() bool {
	duration, health, now := d.next.Trial.Terms.Duration.Duration, d.observedHealth(), d.next.Run.HealthyFor
	return (d.isRefused() || health-now > duration && now < refusedAfter) && health < duration+maxRefusalWait
}

// recordStarts records which pods were started in the trial; again at the end,
// for a trial that began without a restart.
func (d *decider) recordStarts() bool {
	if !d.onTrial() || !d.o.Node.API || d.action.Kind != None {
		return true
	}

	for _, p := range d.o.Node.Started {
		p.Probe = false // it is not saved
		d.editTrial(func(t *Trial) { t.Started = AddStart(t.Started, p) })
	}

	return true
}

// updateStarts records which pods were started in the trial, and for how long
// pods are refused.
func (d *decider) updateStarts() bool {
	run, n := &d.next.Run, d.o.Node
	gap := min(d.o.Elapsed, maxGap)
	d.recordStarts()
	switch {
	case !d.cannotStart() || (d.next.Trial != nil || d.isDoubted()) && !d.runsTrial() && d.refusesInherited():
		run.RefusedFor = 0
	case run.Healthy && n.Ready && !d.clocksPaused() && !run.ClocksPaused && run.SinceStart > 0:
		run.RefusedFor += gap
	}

	waits := d.onTrial() && d.observedHealth() >= d.next.Trial.Terms.Duration.Duration
	switch {
	case !d.isRefused():
		run.Refused = ""
	case run.Refused == "" && waits: // as they were first, so that the status does not change with each pod
		run.Refused = refusals(n.Refused)
	}

	return true
}

// judgeAfterTrial reports refused pods after the trial, as long as somebody
// looks. The node never goes back because of them.
func (d *decider) judgeAfterTrial() {
	s := &d.next
	c := s.Run.Config
	s.Run.AfterTrial = max(0, s.Run.AfterTrial-d.o.Elapsed)
	if s.Trial != nil || !s.LastKnownGood.Same(c) {
		return
	}

	i := slices.IndexFunc(s.Promoted, func(p Promotion) bool { return p.Revision == c.Revision })
	if i < 0 {
		return
	}

	p := &s.Promoted[i]
	switch {
	case p.refused() && s.Run.AfterTrial == 0: // nobody looks any more
		p.Starts, p.Refused = v1alpha1.PodsStartUnknown, ""
	case s.Run.AfterTrial == 0:
	case p.Starts != v1alpha1.PodsStartFailed && s.Run.RefusedFor >= refusedAfter && d.cannotStart():
		p.Starts, p.Refused = v1alpha1.PodsStartFailed, refusals(d.o.Node.Refused)
		d.event(true, eventPodsCannotStart, "since %s became last-known-good, the node cannot start pods: %s", c.UIDLabel(), p.Refused)
	case p.Starts == v1alpha1.PodsStartFailed && weight(d.o.Node.Started) > 0 && !d.cannotStart():
		p.Starts, p.Refused = v1alpha1.PodsStartObserved, ""
	}
}

// startsOfTrial returns what the trial that passes says about pods.
func (d *decider) startsOfTrial() Promotion {
	switch {
	case d.isRefused():
		return Promotion{Starts: v1alpha1.PodsStartRefused, Refused: refusals(d.o.Node.Refused)}
	case len(d.started()) > 0:
		return Promotion{Starts: v1alpha1.PodsStartObserved}
	}

	return Promotion{Starts: v1alpha1.PodsStartUnknown}
}

// promotion returns the last promotion of c; zero if there is none.
func (s State) promotion(c Config) Promotion {
	for _, p := range s.Promoted {
		if p.Revision == c.Revision {
			return p
		}
	}

	return Promotion{}
}

// refused reports whether a promotion says that pods were refused.
func (p Promotion) refused() bool {
	return p.Starts == v1alpha1.PodsStartFailed || p.Starts == v1alpha1.PodsStartRefused
}

// Words returns what a promotion says about pods that were started; empty:
// nothing.
func (p Promotion) Words() string {
	switch p.Starts {
	case v1alpha1.PodsStartObserved:
		return "passed; a pod was started"
	case v1alpha1.PodsStartUnknown:
		return "passed; no pod was started during the trial"
	case v1alpha1.PodsStartRefused:
		return "the node cannot start some pods: " + p.Refused
	case v1alpha1.PodsStartFailed:
		return "the node cannot start pods: " + p.Refused
	}

	return ""
}

// PodsWords returns what is known about pods that were started with
// last-known-good; empty: nothing, or the node is on trial.
func (s State) PodsWords() string {
	if s.Trial != nil || s.LastKnownGood.IsLocal() {
		return ""
	}

	return s.promotion(s.LastKnownGood.Config).Words()
}

// podStarts returns what to report about pods.
func (d *decider) podStarts() Promotion {
	s := d.next
	switch {
	case s.Trial == nil && s.LastKnownGood.Same(s.Run.Config) && !s.Run.Config.IsLocal():
		p := s.promotion(s.Run.Config)
		return Promotion{Starts: p.Starts, Refused: p.Refused}
	case s.Trial != nil && s.Run.Refused != "" && d.onTrial():
		return Promotion{Starts: v1alpha1.PodsStartRefused, Refused: s.Run.Refused}
	}

	return Promotion{}
}

// refusals says how many pods were refused, and names three, and why.
func refusals(pods []PodStart) string {
	var words []string
	for _, p := range pods[:min(len(pods), 3)] {
		words = append(words, fmt.Sprintf("pod %s/%s: %s", p.Namespace, p.Name, p.Words))
	}

	example := ""
	if len(words) < len(pods) {
		example = "for example "
	}

	return fmt.Sprintf("%d refused, %s%s", len(pods), example, strings.Join(words, ", "))
}
