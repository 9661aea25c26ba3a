// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

func (d *decider) beginTrial() {
	s := &d.next
	c := s.Current.Config
	d.trialBegan = true
	s.Startups = []time.Time{d.o.Now}
	s.Trial = &Trial{
		Revision:  c.Revision,
		StartTime: d.o.Now,
		Terms:     d.terms(c.RequestedTerms),
		Local:     d.mergeBase(c),
		BootID:    d.o.BootID,
		Baseline:  d.baseline(),
	}
	if d.isPromoted(c) {
		s.Trial.Terms.Duration.Duration = min(s.Trial.Terms.Duration.Duration, stableAfter) // a probation: it passed a whole trial before
	}

	s.Run.UnsavedHealthy = 0
	if s.Run.Config.Revision == c.Revision {
		s.Run.Unhealthy, s.Run.NotReady = 0, 0 // it may run already; that time was before its trial
	}

	if s.LastKnownGood.Same(c) {
		d.event(false, eventConfigOnTrial, "last-known-good %s has not passed a trial with this kubelet version and local configuration: it is "+
			"on trial again; if it fails, the node goes back to %s",
			label(c, d.o.Local), d.fallbackLabel())
	}
}

// baseline returns the state of the node before a trial that begins now. What a
// configuration on trial may have done to the node is no reference for the one
// that replaces it.
func (d *decider) baseline() Baseline {
	n, run := d.o.Node, d.next.Run
	b := n.asBaseline()
	if was := d.replaced; was != nil && !was.Pending {
		b.Ready = b.Ready || was.Ready
		return b // with the present pressure: what the replaced configuration was to blame for has ended its trial
	}

	// A kubelet that has been healthy for long enough is not why the node is
	// not Ready.
	settled := n.API && d.replaced == nil && d.o.Child.Alive && run.Healthy && run.HealthyFor >= stableAfter
	if !b.Ready && !settled {
		return Baseline{Pending: true}
	}

	return b
}

func (n Node) asBaseline() Baseline {
	return Baseline{API: n.API, Ready: n.API && n.Ready, Pressure: slices.Clone(n.Pressure), Pods: slices.Clone(n.Pods),
		Failing: slices.Clone(n.Failing)}
}

func (d *decider) endTrial() {
	if t := d.next.Trial; t != nil {
		d.replaced = &t.Baseline
	}

	d.next.Trial, d.next.Startups = nil, nil
	run := &d.next.Run
	run.UnsavedHealthy, run.NotReady, run.Relapsed, run.Waited, run.Retries, run.RefusedFor, run.Refused = 0, 0, false, 0, 0, 0, ""
	if run.Healthy {
		run.Unhealthy = 0
	}
}

// editTrial changes a copy, because the State passed to Decide must not change.
func (d *decider) editTrial(edit func(*Trial)) {
	t := *d.next.Trial
	edit(&t)
	d.next.Trial = &t
}

// terms returns the terms of a new trial: those that the configuration
// requests, else the agent's flags.
func (d *decider) terms(a RequestedTerms) Terms {
	t := Terms{Threshold: d.o.Limits.CrashLoopThreshold, AllowPodLoss: a.AllowPodLoss}
	t.Duration.Duration = d.o.Limits.TrialDuration
	if a.Duration.Duration > 0 {
		t.Duration.Duration = a.Duration.Duration
	}
	if a.Starts > 0 {
		t.Threshold = a.Starts - 1
	}

	return t
}

// needsTrial reports whether current may run, is not proven, and has no trial
// yet.
func (d *decider) needsTrial() bool {
	s, c := &d.next, d.next.Current.Config
	return !c.IsLocal() && s.Trial == nil && !d.forbidden(c) && !(s.LastKnownGood.Same(c) && d.isPromoted(c))
}

// mergeBase returns the digest of the local configuration that a drop-in is
// merged with: the one at its start if it runs, else the present one. It is
// empty for a whole configuration.
func (d *decider) mergeBase(c Config) string {
	switch run := d.next.Run; {
	case !c.Dropin:
		return ""
	case run.Started && d.o.Child.Alive && run.Config.Revision == c.Revision:
		return run.Local
	}

	return d.o.LocalDigest
}

// checkMergeBase restarts the trial of a drop-in that is started over another
// local configuration: the health observed so far was that of another merged
// configuration.
func (d *decider) checkMergeBase() {
	c, t := d.next.Current.Config, d.next.Trial
	local := d.mergeBase(c)
	if local == t.Local {
		return
	}

	if d.next.LastKnownGood.Same(c) && d.isPromoted(c) {
		d.endTrial() // proven with this local configuration
		return
	}

	d.editTrial(func(t *Trial) {
		t.Healthy.Duration = 0
		if t.Local = local; !d.isPromoted(c) { // no longer a probation
			t.Terms.Duration.Duration = max(t.Terms.Duration.Duration, d.terms(c.RequestedTerms).Duration.Duration)
		}
	})
	d.next.Run.UnsavedHealthy = 0
}

// sameContentAsGood reports whether c has the content of last-known-good.
func (d *decider) sameContentAsGood(c Config) bool {
	g := d.next.LastKnownGood.Config
	return !g.IsLocal() && sameContent(g.ConfigRevision, c.ConfigRevision)
}

// isPromoted reports whether the content of c passed a trial with this version
// of the component and, for a drop-in, with the same local configuration.
// Without a digest of that configuration every promotion counts: one that was
// restored from the promotions does not say whether it is a drop-in.
func (d *decider) isPromoted(c Config) bool { return d.isPromotedOn(c, d.mergeBase(c)) }

func (d *decider) isPromotedOn(c Config, local string) bool {
	return !c.IsLocal() && slices.ContainsFunc(d.next.Promoted, func(p Promotion) bool {
		return p.SHA256 == c.SHA256 && p.Resolved == c.ResolvedSHA256 && (p.Local == local || local == "")
	})
}

// recordPromotion records that c passed its trial. starts is what is known
// about pods that it started.
func (d *decider) recordPromotion(c Config, local string, starts Promotion) {
	p := slices.DeleteFunc(d.next.Promoted, func(p Promotion) bool { return p.Revision == c.Revision && p.Local == local })
	d.next.Promoted = append([]Promotion{{
		Revision: c.Revision, SHA256: c.SHA256, Time: d.o.Now, Local: local, Resolved: c.ResolvedSHA256, Starts: starts.Starts,
		Refused: starts.Refused,
	}}, p...)
	d.next.Promoted = d.next.Promoted[:min(len(d.next.Promoted), maxPromoted)]
}

// fallbackLabel names the configuration that a failed trial falls back to.
func (d *decider) fallbackLabel() string {
	if good := d.next.LastKnownGood.Config; !d.next.Current.Same(good) && !d.forbidden(good) {
		return "last-known-good " + label(good, d.o.Local)
	}

	return "local " + label(Config{}, d.o.Local)
}

// provisional are failures that the node can have caused: last-known-good must
// prove that it does better.
var provisional = []string{v1alpha1.ReasonCrashLooped, v1alpha1.ReasonNotHealthy, v1alpha1.ReasonNotReady, v1alpha1.ReasonPodsCannotStart}

func (d *decider) markBad(c Config, failure, reason, detail string) {
	b := BadConfig{
		ConfigRevision: c.ConfigRevision, Revision: c.Revision, Time: d.o.Now, Reason: reason, Detail: detail, Failure: failure,
		Attempt:     c.Rollout.Attempt,
		Provisional: slices.Contains(provisional, failure) || failure == v1alpha1.ReasonWorkloadHarmed && d.unexplained,
	}
	if !b.Provisional && b.matches(d.next.Current.Config) {
		d.endTrial()
	}

	d.next.Bad = slices.DeleteFunc(d.next.Bad, func(b BadConfig) bool { // also what an earlier attempt with the same content left
		return b.Revision == c.Revision || b.matches(c) && !b.Provisional && b.Attempt < c.Rollout.Attempt
	})
	d.next.Bad = trimBad(append([]BadConfig{b}, d.next.Bad...), d.next.Current.Config, d.next.LastKnownGood.Config, d.o.Intent.Config)
}

// trimBad keeps the newest entries and, however old, those that forbid a
// configuration in keep: without its entry that configuration would run again.
func trimBad(bad []BadConfig, keep ...Config) []BadConfig {
	for i := len(bad) - 1; i >= 0 && len(bad) > maxBad; i-- {
		if !slices.ContainsFunc(keep, bad[i].matches) {
			bad = slices.Delete(bad, i, i+1)
		}
	}

	return bad
}
