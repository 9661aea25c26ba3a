// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

func (d *decider) checkLocal() bool {
	if !d.starting {
		return true
	}

	v, ok := d.o.Verdicts[""]
	if !ok {
		d.toValidate = append(d.toValidate, Config{})
		return false
	}

	if v.Outcome != Rejected {
		return true
	}

	if good := d.next.LastKnownGood.Config; d.o.Limits.DegradeLocal && !good.IsLocal() && !d.forbidden(good) {
		switch fallback, known := d.o.Verdicts[good.Revision]; {
		case !known: // the node starts with an invalid local configuration only if another one may run
			d.toValidate = append(d.toValidate, good)
			return false
		case fallback.Outcome != Rejected:
			return true
		}
	}

	d.action = Action{Kind: Refuse, Message: v.Message}

	return false
}

// chooseConfig chooses what must run: current, else last-known-good, else
// local. Each is validated again before its first start.
func (d *decider) chooseConfig() bool {
	s := &d.next
	candidates := []Config{s.Current.Config, s.LastKnownGood.Config, {}}
	waits := s.Trial != nil && s.Trial.Fallback != NoFallback
	if s.Run.Deferred || waits {
		candidates = candidates[1:]
		if waits && s.Current.Same(candidates[0]) {
			candidates = candidates[1:] // last-known-good itself is on trial
		}
	}

	if waits {
		candidates = append(candidates, s.Current.Config) // a configuration whose trial waits is better than no kubelet
	}

	for i, c := range candidates {
		if d.forbidden(c) {
			continue
		}

		running := d.o.Child.Alive && s.Run.Config.Revision == c.Revision // no verdict stops a running kubelet
		v, ok := d.o.Verdicts[c.Revision]
		if !ok && !running {
			d.toValidate = append(d.toValidate, c)
			if _, bad := s.BadEntry(s.Run.Config); bad && d.o.Child.Alive && !s.LastKnownGood.Same(c) {
				continue // a rollback waits only for the verdict on what it rolls back to
			}

			return false
		}

		switch {
		case running || v.mayStart(c):
			d.choice = c
			d.resumeIfLast(waits && i == len(candidates)-1)
			return true
		case c.IsLocal():
		case v.Outcome == Rejected && !d.isPromoted(c):
			d.reject(c, v)
		case !s.Current.Same(c) || d.blocked.status != "":
		case v.Outcome == Rejected:
			// A configuration that passed its trial with this version of the
			// component is not bad: the node has changed. It does not run while
			// the dry run rejects it, and runs again when the dry run accepts
			// it.
			d.blocked = blocker{status: metav1.ConditionUnknown, reason: v1alpha1.ReasonCouldNotValidate, cause: fmt.Sprintf(
				"could not validate current %s, which has passed its trial with this kubelet: %s", c.UIDLabel(), v.Message)}
		case v.Guard != "":
			d.blocked = d.guardBlocker(c, v)
		default:
			d.blocked = blocker{status: metav1.ConditionUnknown, reason: v1alpha1.ReasonSyncFailed,
				cause: "failed to sync, desired config unclear, cause: " + v.Message}
		}
	}

	switch {
	case len(d.toValidate) > 0: // the assigned configuration may still be accepted
	case d.o.Child.Alive: // a kubelet with a forbidden configuration is better than none
		d.choice = s.Run.Config
		d.blocked = blocker{status: metav1.ConditionFalse, reason: v1alpha1.ReasonDeadEnd, detail: d.o.Verdicts[""].Message,
			cause: fmt.Sprintf("%s must not run, but nothing else can run: the local configuration is invalid", label(d.choice, d.o.Local))}
		return true
	default:
		d.action = Action{Kind: Refuse, Message: d.o.Verdicts[""].Message}
	}

	return false
}

// mayStart reports whether c, which was adopted before, may start again. The
// pod guard does not matter then.
func (v Verdict) mayStart(c Config) bool {
	if c.IsLocal() {
		return v.Outcome != Rejected
	}

	invalidBase := c.Dropin && v.Outcome == CouldNotTell && v.Guard == v1alpha1.ReasonLocalInvalid // it would be merged with that

	return v.Outcome != Rejected && v.Outcome != Unavailable && v.Outcome != Protected && !invalidBase
}

// resumeIfLast resumes a waiting trial if its configuration is the only one
// left that can run.
func (d *decider) resumeIfLast(last bool) {
	if !last || d.next.Trial == nil {
		return
	}
	if d.next.Trial.Fallback == Inconclusive {
		d.next.Startups = []time.Time{d.o.Now}
	}

	d.editTrial(func(t *Trial) { t.Fallback = NoFallback })
	d.event(false, eventTrialResumed, "nothing else can run, because the local configuration is invalid: the trial of current %s continues",
		d.next.Current.UIDLabel())
}

// chooseAction derives the action from the choice.
func (d *decider) chooseAction() bool {
	s, run := &d.next, &d.next.Run
	same := run.Started && run.Config.Revision == d.choice.Revision
	if same && (d.o.Child.Alive || run.Delay > 0) || d.o.Node.ShuttingDown {
		return true
	}

	kind := Start
	if d.o.Child.Alive {
		// wait for the verdict on the assigned configuration: one restart
		// instead of two
		if _, bad := s.BadEntry(run.Config); len(d.toValidate) > 0 && !bad {
			return true
		}

		kind = Restart
	}

	if !same {
		if d.startCause == "" {
			d.startCause = CauseRollback
			if d.choice.Revision == s.Current.Revision {
				d.startCause = CauseResume
			}
		}

		if s.OnTrial(run.Config) {
			d.editTrial(func(t *Trial) { t.noteUptime(run.Uptime) })
		}

		adopted := d.startCause == CauseChange
		if !run.Started {
			d.startCause = CauseBoot
		}

		*run = Run{
			Started: true, Config: d.choice, Local: d.o.LocalDigest, Deferred: run.Deferred, Probing: run.Probing, Waited: run.Waited,
			Retries: run.Retries, UnsavedTemporary: run.UnsavedTemporary,
			APISeen: adopted && d.o.Node.API,
		}
		if s.promotion(d.choice).refused() {
			run.AfterTrial = reportRefusals
		}
	} else {
		if d.startCause = CauseCrash; run.Crashes == 0 {
			d.startCause = CauseBoot // it was stopped, and its binary is another one
		}

		run.Config, run.Local = d.choice, d.o.LocalDigest
		run.Uptime, run.HealthyFor, run.ReadyFor, run.Unhealthy, run.NotReady, run.Relapsed, run.Healthy = 0, 0, 0, 0, 0, false, false
		run.RefusedFor, run.Refused = 0, "" // the new kubelet has refused no pod yet
	}

	d.restoreUnhealthyTime()
	if s.OnTrial(d.choice) {
		d.checkMergeBase()
	}

	if s.Trial != nil {
		d.editTrial(func(t *Trial) {
			t.Clean = !d.onTrial() // while another configuration runs, an unclean reboot does not count
			if n := d.o.Node; d.startCause == CauseResume && n.API {
				b := n.asBaseline() // nor does what happened while it did not run
				t.Baseline.Pressure, t.Baseline.Pods, t.Baseline.Failing = b.Pressure, b.Pods, b.Failing
			}
		})
	}

	d.action = Action{Kind: kind, Config: d.choice, Cause: d.startCause}

	return true
}

// nextWake returns after which time something changes that no event announces.
func (d *decider) nextWake() time.Duration {
	run, l := d.next.Run, d.o.Limits
	if run.Started && !d.o.Child.Alive && d.action.Kind == None {
		if run.Delay == 0 {
			return time.Second // a verdict is pending, or the node is shutting down
		}

		return max(run.Delay, 50*time.Millisecond)
	}

	if d.next.Trial == nil {
		if l.RestInterval > 0 && d.isAtRest() {
			return l.RestInterval
		}

		return 10 * time.Second
	}

	wake := 5 * time.Second
	terms, healthy := d.next.Trial.Terms, d.next.Trial.Healthy.Duration+run.UnsavedHealthy
	step := max(terms.Duration.Duration/progressSteps, time.Second) // the status has seconds
	for _, left := range []time.Duration{
		terms.Duration.Duration - healthy, step - healthy%step, l.HealthTimeout - run.Unhealthy, l.ReadyTimeout - run.NotReady,
		d.stableTime() - run.HealthyFor,
	} {
		if left > 0 {
			wake = min(wake, left)
		}
	}

	return max(wake, 20*time.Millisecond)
}

// isAtRest reports whether the node runs what it should, and nothing waits for
// a time.
func (d *decider) isAtRest() bool {
	run := d.next.Run
	return run.Healthy && run.HealthyFor >= stableAfter && d.blocked == (blocker{}) && !d.isDoubted() && len(d.toValidate) == 0
}
