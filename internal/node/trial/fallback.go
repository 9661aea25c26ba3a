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

// judgeFallback judges the configuration that replaced a failed one. If it is
// healthy long enough, a trial that waits for that goes on. If it fails too,
// the node may be the cause, and the verdict on the failed one is withdrawn.
func (d *decider) judgeFallback() {
	s, run := &d.next, &d.next.Run
	failure, words := d.currentFailure()
	if failure == v1alpha1.ReasonCrashLooped || failure == v1alpha1.ReasonNotHealthy {
		if d.rejectLastKnownGood(failure, words) {
			return
		}

		d.reportDeadEnd(words, d.lastErrors(failure))
	}

	doubted := d.isDoubted()
	if s.Trial == nil && !doubted || d.runsTrial() {
		return
	}
	if s.Trial != nil && s.Trial.Fallback == APIProbe {
		defer d.judgeProbe() // a probe never makes a verdict on current final, only one on last-known-good
	}

	waits := s.Trial != nil && s.Trial.Fallback == Inconclusive
	switch {
	// Any other configuration runs only because nothing else can, and proves
	// nothing.
	case failure != "" && doubted && (run.Config.IsLocal() || s.LastKnownGood.Same(run.Config)):
		d.withdrawVerdicts()
	case !d.isProof():
	case waits && d.mustBeReady() && run.ReadyFor < d.stableTime() && !d.clocksPaused():
	case waits:
		d.resumeTrial(fmt.Sprintf("%s is healthy", d.runningLabel()))
	}

	if t := s.Trial; failure != "" && t != nil && t.Fallback == Inconclusive && !d.forbidden(s.Current.Config) &&
		run.Waited >= retryAfter<<min(run.Retries, maxRetryDoublings) {
		run.Retries++
		d.resumeTrial(fmt.Sprintf("%s keeps failing", d.runningLabel())) // the configuration on trial may be the only one that works here
	}
}

// inDoubt reports whether b is a provisional verdict that what runs now can
// prove or refute: it is about another configuration, which may be one that is
// no longer assigned.
func (d *decider) inDoubt(b BadConfig) bool { return b.Provisional && !b.matches(d.next.Run.Config) }

// isDoubted reports whether there is a verdict in doubt.
func (d *decider) isDoubted() bool { return slices.ContainsFunc(d.next.Bad, d.inDoubt) }

// isProof reports whether what runs has been healthy for stableTime and can
// start pods, and has been Ready for long enough if a verdict in doubt is about
// that or about pods. A verdict does not wait forever for pods that only an
// earlier configuration may have broken.
func (d *decider) isProof() bool {
	var ready time.Duration
	for _, b := range d.next.Bad {
		switch {
		case d.inDoubt(b) && b.Failure == v1alpha1.ReasonNotReady:
			ready = max(ready, d.stableTime())
		case d.inDoubt(b) && b.Failure == v1alpha1.ReasonPodsCannotStart:
			ready = max(ready, refusedAfter+time.Second) // the kubelet had the time to be refused, too
		}
	}

	run := d.next.Run

	return run.Healthy && run.HealthyFor >= d.stableTime() && (run.ReadyFor >= ready && !d.cannotStart() ||
		d.refusesInherited() && run.HealthyFor >= maxRefusalWait)
}

// confirmVerdicts makes the verdicts in doubt final if what runs proves them.
// That may be no fallback: the configurations may not be assigned any more, or
// be assigned again.
func (d *decider) confirmVerdicts() bool {
	if d.runsTrial() || !d.isDoubted() || !d.isProof() {
		return true
	}

	s := &d.next
	for i := range s.Bad {
		s.Bad[i].Provisional = s.Bad[i].Provisional && !d.inDoubt(s.Bad[i])
	}
	if _, bad := s.BadEntry(s.Current.Config); bad {
		d.endTrial()
	}

	return true
}

// runsTrial reports whether the configuration on trial runs, forbidden or not:
// it proves nothing until it is promoted.
func (d *decider) runsTrial() bool {
	return d.next.Trial != nil && d.next.Run.Config.Revision == d.next.Current.Revision
}

// judgeProbe ends an API probe: last-known-good runs to find out whether the
// API comes back with it.
func (d *decider) judgeProbe() {
	run := d.next.Run
	switch {
	case d.next.Trial == nil:
	case d.o.Node.API && run.SinceStart > 0 && run.Probing <= apiLossWindow: // only once last-known-good runs
		d.editTrial(func(t *Trial) { t.Fallback = NoFallback })
		d.fail(v1alpha1.ReasonLostAPI, "lost the API, which came back with last-known-good")
	case run.Probing > apiLossWindow:
		d.editTrial(func(t *Trial) { t.Fallback = NoFallback })
		d.startCause = CauseResume
		d.event(false, eventTrialResumed, "the API server is unreachable with last-known-good too: current %s is not the cause",
			d.next.Current.UIDLabel())
	}
}

// currentFailure returns how the running configuration fails now, if it does.
// The kind may differ from the failure of the configuration that it replaced:
// with a runtime that hangs, one can crash and another be unhealthy.
func (d *decider) currentFailure() (string, string) {
	run, l := &d.next.Run, d.o.Limits
	switch {
	case d.o.Child.Exited && run.Config.Dropin && run.Local != d.o.LocalDigest: // the next start uses another local configuration
	case d.o.Child.Exited && run.Crashes > l.CrashLoopThreshold:
		return v1alpha1.ReasonCrashLooped, fmt.Sprintf("%d unexpected exits, last: %s", run.Crashes, run.LastExit)
	case run.Unhealthy >= l.HealthTimeout && run.Unhealthy > 0:
		return v1alpha1.ReasonNotHealthy, fmt.Sprintf("not healthy for %s", l.HealthTimeout)
	case run.NotReady >= l.ReadyTimeout && run.NotReady > 0 && !d.refusesInherited(): // it may need these pods
		return v1alpha1.ReasonNotReady, fmt.Sprintf("the node is not ready for %s", l.ReadyTimeout)
	case d.cannotStart() && run.RefusedFor >= refusedAfter:
		return v1alpha1.ReasonPodsCannotStart, "the node cannot start pods"
	}

	return "", ""
}

// stableTime returns how long last-known-good must be healthy until it counts
// as better than the failed configuration: until its own crashes are forgotten
// or, if it had none, twice as long as the failed one ever ran. A fallback that
// failed before needs the longer time.
func (d *decider) stableTime() time.Duration {
	if t := d.next.Trial; t != nil && t.LongestUptime.Duration > 0 && t.Fallback == NoFallback && d.next.Run.Crashes == 0 &&
		d.next.Run.Retries == 0 {
		return min(stableAfter, max(2*t.LongestUptime.Duration, time.Second))
	}

	return stableAfter
}

// resumeTrial resumes an inconclusive trial.
func (d *decider) resumeTrial(why string) {
	d.editTrial(func(t *Trial) { t.Fallback = NoFallback })
	d.next.Startups = []time.Time{d.o.Now}
	d.next.Run.Waited = 0
	d.startCause = CauseResume
	d.event(false, eventTrialResumed, "%s: the trial of current %s continues", why, d.next.Current.UIDLabel())
}

// withdrawVerdicts withdraws the verdicts in doubt, because the configuration
// that replaced the failed one fails too.
func (d *decider) withdrawVerdicts() {
	s := &d.next
	var names []string
	for _, b := range s.Bad {
		if d.inDoubt(b) {
			names = append(names, b.UIDLabel())
		}
	}

	s.Bad = slices.DeleteFunc(s.Bad, d.inDoubt)
	if d.needsTrial() { // the verdict was on another revision with the same content
		d.beginTrial()
	}

	resumes := ""
	if s.Trial != nil && s.Trial.Fallback != APIProbe {
		d.editTrial(func(t *Trial) { t.Fallback = Inconclusive })
		resumes = "; the trial resumes when the fallback is healthy, or after a pause if it keeps failing"
	}

	d.event(true, eventInconclusive, "%s fails too: the verdict on %s is withdrawn%s", d.runningLabel(), strings.Join(names, " and "), resumes)
}

// rejectLastKnownGood gives up last-known-good for local if it fails without
// ever having passed a trial with this version of the component: as the
// fallback of a failed configuration it has no trial of its own. It returns
// false where local is no alternative.
func (d *decider) rejectLastKnownGood(failure string, words string) bool {
	s, c, local := &d.next, d.next.Run.Config, ""
	if c.Dropin {
		local = d.next.Run.Local // the one that it failed with; the file may have been edited since
	}
	if c.IsLocal() || !s.LastKnownGood.Same(c) || s.Current.Same(c) || d.isPromotedOn(c, local) || d.forbidden(c) || !d.localCanRun() {
		return false
	}

	if _, known := d.o.Verdicts[""]; !known && d.o.Child.Alive { // until local runs, this failure would be judged again and again
		d.toValidate = append(d.toValidate, Config{})
		return true
	}

	if failure == v1alpha1.ReasonCrashLooped && (d.outage() || d.next.Run.Counted <= d.o.Limits.CrashLoopThreshold) {
		return true // an outage leads to no verdict, and local would not do better
	}

	reason := fmt.Sprintf("last-known-good %s, which has not passed a trial with this kubelet version, failed: %s", label(c, d.o.Local), words)
	detail := d.lastErrors(failure)
	d.markBad(c, failure, reason, detail)
	d.startCause = CauseRollback
	d.event(true, eventConfigRolledBack, "%s; going back to local %s%s", reason, label(Config{}, d.o.Local), quoted(detail))
	d.events[len(d.events)-1].Failure = failure

	return true
}

func (d *decider) reportDeadEnd(words, detail string) {
	s, c := d.next, d.next.Run.Config
	stays := s.Current.Same(c) || s.LastKnownGood.Same(c) || c.IsLocal()
	if s.Run.DeadEnd || !stays || d.forbidden(c) { // a forbidden configuration is about to be replaced
		return
	}

	d.next.Run.DeadEnd = true
	d.event(true, eventDeadEnd, "%s keeps failing and there is nothing to fall back to: %s; the agent keeps restarting it%s",
		label(d.next.Run.Config, d.o.Local), words, quoted(detail))
}

// localCanRun reports whether local is not known to be invalid.
func (d *decider) localCanRun() bool { return d.o.Verdicts[""].Outcome != Rejected }

// runningLabel names the running configuration and its role.
func (d *decider) runningLabel() string {
	c := d.next.Run.Config
	if d.next.LastKnownGood.Same(c) {
		return "last-known-good " + label(c, d.o.Local)
	}

	return "local " + label(c, d.o.Local)
}
