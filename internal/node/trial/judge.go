// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// onTrial reports whether the kubelet runs the configuration on trial, and that
// configuration is not forbidden.
func (d *decider) onTrial() bool {
	c := d.next.Run.Config
	return d.next.Run.Started && d.next.OnTrial(c) && d.next.Trial.Fallback == NoFallback && !d.forbidden(c)
}

// handleExit counts an unexpected exit.
func (d *decider) handleExit() bool {
	run, o := &d.next.Run, d.o
	if !o.Child.Exited || !run.Started {
		return true
	}
	// In a long crash loop, the details of the errors can differ each time: the
	// status must not change at each exit.
	if run.LastExit != o.Child.Exit || run.Crashes <= maxStarts || run.Crashes%staleErrors == 0 {
		run.LastErrors = o.Child.LastErrors
	}

	run.LastExit = o.Child.Exit
	run.Healthy, run.HealthyFor, run.ReadyFor = false, 0, 0
	run.Crashes++
	counts := d.countsExit()
	if counts {
		run.Counted++
	}

	most := maxBackoff
	if d.onTrial() {
		most = maxTrialBackoff
		d.editTrial(func(t *Trial) { t.noteUptime(run.Uptime) })
		if counts && !d.trialBegan {
			d.editTrial(func(t *Trial) { t.noteUptime(time.Millisecond) }) // an immediate exit counts as a known uptime
			run.Unhealthy, run.NotReady = 0, 0                             // this failure counts as a crash
			d.countCrash()
		}
	}

	run.Delay = initialBackoff << min(run.Crashes-1, 10)
	run.Delay = min(run.Delay, most)

	return true
}

// countsExit reports whether an exit can be a failure of the configuration: not
// of a missing binary, an unavailable runtime, or a node that shuts down. An
// outage that has ended since the last decision excuses no two exits in a row:
// a configuration can cause both.
func (d *decider) countsExit() bool {
	run := &d.next.Run
	blamed := d.o.Child.Spawned && !d.outage()
	run.Excused = blamed && run.Outage && !run.Excused
	return blamed && !run.Excused
}

// countCrash counts the start that follows an unexpected exit of the
// configuration on trial, or fails the trial after threshold + 1 starts. The
// first start is the adoption.
func (d *decider) countCrash() {
	s := &d.next
	if len(s.Startups) <= s.Trial.Terms.Threshold {
		s.Startups = append(s.Startups, d.o.Now)
		return
	}

	starts := printable.Count(len(s.Startups), "start")
	d.fail(v1alpha1.ReasonCrashLooped, fmt.Sprintf("crash-looped: %s in its trial, last: %s", starts, s.Run.LastExit))
}

// judge passes, fails or continues the trial. After a rollback it judges the
// fallback.
func (d *decider) judge() bool {
	if !d.next.Run.Started {
		return true
	}

	if d.onTrial() {
		d.judgeTrial()
	} else {
		d.judgeFallback()
		d.judgeAfterTrial()
	}

	return true
}

func (d *decider) judgeTrial() {
	d.saveUnhealthyTime()
	run, o, t := &d.next.Run, d.o, d.next.Trial
	known := func(p string) bool { return slices.Contains(t.Baseline.Pressure, p) }
	pressure := slices.DeleteFunc(slices.Clone(o.Node.Pressure), known)
	switch {
	case run.Unhealthy >= o.Limits.HealthTimeout && run.Unhealthy > 0 && !run.Healthy && !d.outage():
		d.fail(v1alpha1.ReasonNotHealthy, fmt.Sprintf("was not healthy for %s%s", o.Limits.HealthTimeout, d.inAll()))
	case run.NotReady >= o.Limits.ReadyTimeout && run.NotReady > 0 && !o.Node.Ready && !d.clocksPaused():
		d.fail(v1alpha1.ReasonNotReady, fmt.Sprintf("left the node not ready for %s%s", o.Limits.ReadyTimeout, d.inAll()))
	case !d.clocksPaused() && !t.Terms.AllowPodLoss && len(o.Node.LostPods) > 0 && run.SinceStart > 0:
		d.unexplained = o.Node.LossUnexplained && len(pressure) == 0
		d.fail(v1alpha1.ReasonWorkloadHarmed, "harmed the workload: "+printable.Few(o.Node.LostPods))
	case !d.clocksPaused() && t.Baseline.API && len(pressure) > 0 && run.SinceStart > 0:
		d.fail(v1alpha1.ReasonWorkloadHarmed, "harmed the workload: "+strings.Join(pressure, ", ")+" turned True")
	case d.cannotStart() && run.RefusedFor >= refusedAfter:
		d.fail(v1alpha1.ReasonPodsCannotStart, "left the node unable to start pods: "+refusals(o.Node.Refused))
	case t.APILostEarly && run.APIAway >= apiLossAfter && o.Limits.APILossRollback &&
		!(d.next.LastKnownGood.Same(run.Config) && !d.localCanRun()):
		d.editTrial(func(t *Trial) { t.Fallback, t.APIProbed, t.APILostEarly = APIProbe, true, false })
		run.Probing = 0
		d.startCause = CauseRollback
		d.event(true, eventAPILost, "the API server became unreachable within %s of the start of current %s, and for %s: trying %s",
			apiLossWindow, d.next.Current.UIDLabel(), apiLossAfter, d.fallbackLabel())
	case run.Healthy && !d.clocksPaused() && (o.Node.Ready || !d.mustBeReady()) && d.observedHealth() >= t.Terms.Duration.Duration &&
		!d.waitsForStarts():
		if !d.isTemporary() {
			d.promote()
		}
	case run.UnsavedHealthy >= healthySaveStep:
		d.editTrial(func(t *Trial) { t.Healthy.Duration += run.UnsavedHealthy; t.noteUptime(run.Uptime) })
		run.UnsavedHealthy = 0
	}
}

// observedHealth returns for how long the trial has seen the kubelet healthy.
func (d *decider) observedHealth() time.Duration {
	return d.next.Trial.Healthy.Duration + d.next.Run.UnsavedHealthy
}

// inAll returns words for a time in a bad state that was interrupted.
func (d *decider) inAll() string {
	if d.next.Run.Relapsed {
		return " in all"
	}

	return ""
}

func (d *decider) promote() {
	s := &d.next
	c, terms := s.Current.Config, s.Trial.Terms
	if t := s.Temporary; t != nil && t.Revision == c.SourceRevision() {
		s.Temporary = nil // it no longer ends; the record of another one keeps that from running again
	}
	if !s.LastKnownGood.Same(c) {
		s.LastKnownGood = AdoptedConfig{c, d.o.Now}
	}

	starts := d.startsOfTrial()
	d.recordPromotion(c, s.Trial.Local, starts)
	d.endTrial()
	s.Run.AfterTrial = reportRefusals
	d.event(false, eventConfigLastKnownGood, "%s became last-known-good after %s of observed health", c.UIDLabel(), terms.Duration.Duration)
	if starts.Refused != "" {
		d.event(true, eventPodsCannotStart, "%s became last-known-good although pods could not start: %s", c.UIDLabel(), starts.Refused)
	}
}

// fail records a verdict on the configuration on trial and rolls back.
func (d *decider) fail(f, words string) {
	detail := d.lastErrors(f)
	s := &d.next
	c := s.Current.Config
	if local, known := d.o.Verdicts[""]; s.LastKnownGood.Same(c) && (!known || local.Outcome == Rejected) {
		if !known && d.o.Child.Alive { // the file or the binary has changed
			d.toValidate = append(d.toValidate, Config{})
		} else if known && (f == v1alpha1.ReasonCrashLooped || f == v1alpha1.ReasonNotHealthy) {
			d.reportDeadEnd(words, detail)
		}

		return
	}

	d.markBad(c, f, fmt.Sprintf("current %s %s", c.UIDLabel(), words), detail)
	if d.next.Bad[0].Provisional {
		d.editTrial(func(t *Trial) {
			t.noteUptime(s.Run.Uptime)
			t.Unhealthy.Duration, t.NotReady.Duration = 0, 0 // if the verdict is withdrawn, they count from zero
		})
	}

	s.Run.UnsavedHealthy = 0
	d.startCause = CauseRollback
	d.event(true, eventConfigRolledBack, "current %s %s; going back to %s%s", c.UIDLabel(), words, d.fallbackLabel(), quoted(detail))
	d.events[len(d.events)-1].Failure = f
}

// lastErrors returns what the kubelet logged before the exit that is the
// failure, if it is one.
func (d *decider) lastErrors(f string) string {
	if f != v1alpha1.ReasonCrashLooped {
		return ""
	}

	return d.o.Child.LastErrors
}

// quoted returns the end of an event's message with the last errors.
func quoted(lastErrors string) string {
	if lastErrors == "" {
		return ""
	}

	return "; the kubelet's last errors: " + lastErrors
}
