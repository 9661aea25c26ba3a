package trial

import (
	"fmt"
	"slices"
	"time"
)

func (d *decider) checkLocal() bool {
	if !d.first {
		return true
	}
	v, ok := d.o.Verdicts[""]
	if !ok {
		d.needs = append(d.needs, Config{})
		return false
	}
	if v.Outcome != RejectedOutcome {
		return true
	}
	if d.o.Limits.DegradeLocal && d.proven() {
		good := d.next.LastKnownGood.Config
		switch fallback, known := d.o.Verdicts[good.Revision]; {
		case !known: // a node starts degraded only beside what may run now
			d.needs = append(d.needs, good)
			return false
		case fallback.Outcome != RejectedOutcome:
			return true
		}
	}
	d.action = Action{Kind: Refuse, Words: v.Words}
	return false
}

// proven tells whether there is a configuration besides local that may be run
// when local is invalid.
func (d *decider) proven() bool {
	c := d.next.LastKnownGood.Config
	return !c.IsLocal() && !d.forbidden(c)
}

// choose picks what must run: current, else last-known-good, else local, each
// validated anew before the first start.
func (d *decider) choose() bool {
	s := &d.next
	candidates := []Config{s.Current.Config, s.LastKnownGood.Config, {}}
	waits := s.Trial != nil && s.Trial.Fallback != NoFallback
	if s.Run.Deferred || waits {
		candidates = candidates[1:]
		if waits && s.Current.Same(candidates[0]) {
			candidates = candidates[1:] // last-known-good is what is on trial
		}
	}
	if waits {
		candidates = append(candidates, s.Current.Config) // what waits is still better than no kubelet
	}
	for i, c := range candidates {
		if d.forbidden(c) {
			continue
		}
		last := waits && i == len(candidates)-1
		if d.o.Child.Alive && s.Run.Config.Revision == c.Revision { // no verdict stops what runs
			d.choice = c
			d.waitsNoMore(last)
			return true
		}
		if c.IsLocal() {
			if d.o.Verdicts[""].Outcome == RejectedOutcome {
				continue
			}
			d.choice = c
			return true
		}
		v, ok := d.o.Verdicts[c.Revision]
		if !ok {
			d.needs = append(d.needs, c)
			return false
		}
		// What has passed its trial with this very component is not bad: it is the node that has changed. It does not run
		// while its dry run rejects it, and is taken up again when that accepts it.
		if v.Outcome == RejectedOutcome && d.isPromoted(c) {
			if s.Current.Same(c) && d.hold.status == "" {
				d.hold = hold{status: "Unknown", reason: reasonCouldNotValidate, cause: fmt.Sprintf(
					"could not validate current (UID: %s), which has passed its trial with this kubelet: %s", c.Revision, v.Words)}
			}
			continue
		}
		if v.Outcome == RejectedOutcome {
			d.markBad(c, Rejected, fmt.Sprintf("failed to validate current (UID: %s)", c.Revision), v.Words)
			d.event(true, eventConfigRejected, "failed to validate current (UID: %s): %s", c.Revision, v.Words)
			if s.Current.Same(c) {
				d.endTrial()
			}
			continue
		}
		if v.Outcome == Unavailable || v.Outcome == Protected {
			if s.Current.Same(c) && d.hold.status == "" {
				d.hold = hold{status: "Unknown", reason: reasonSyncFailed, cause: "failed to sync, desired config unclear, cause: " + v.Words}
				if v.Outcome == Protected {
					d.hold = refused(c, v)
				}
			}
			continue
		}
		d.choice = c
		d.waitsNoMore(last)
		return true
	}
	switch {
	case len(d.needs) > 0: // what is assigned may yet be run
	case d.o.Child.Alive: // a kubelet that should not run is still better than none
		d.choice = s.Run.Config
		d.hold = hold{status: "False", reason: reasonDeadEnd, detail: d.o.Verdicts[""].Words,
			cause: fmt.Sprintf("%s must not run, and there is nothing else: the local configuration is invalid", label(d.choice, d.o.Local))}
		return true
	default:
		d.action = Action{Kind: Refuse, Words: d.o.Verdicts[""].Words}
	}
	return false
}

// waitsNoMore has a trial go on that waited, if its configuration is the last that can run.
func (d *decider) waitsNoMore(last bool) {
	if !last || d.next.Trial == nil {
		return
	}
	if d.next.Trial.Fallback == Inconclusive {
		d.next.Startups = []time.Time{d.o.Now}
	}
	d.editTrial(func(t *Trial) { t.Fallback = NoFallback })
	d.event(false, eventTrialResumed, "nothing else can run, the local configuration is invalid: the trial of current (UID: %s) goes on", d.next.Current.Revision)
}

// act turns the choice into an action.
func (d *decider) act() bool {
	s, run := &d.next, &d.next.Run
	same := run.Started && run.Config.Revision == d.choice.Revision
	if same && (d.o.Child.Alive || run.Delay > 0) || d.o.Node.ShuttingDown {
		return true
	}
	kind := Start
	if d.o.Child.Alive {
		if _, bad := s.BadEntry(run.Config); len(d.needs) > 0 && !bad { // the verdict on what is assigned is on its way: one restart, not two
			return true
		}
		kind = Restart
	}
	if !same {
		if d.cause == "" {
			d.cause = CauseRollback
			if d.choice.Revision == s.Current.Revision {
				d.cause = CauseResume
			}
		}
		if s.Trial != nil && s.OnTrial(run.Config) {
			d.editTrial(func(t *Trial) { t.lived(run.Lived) })
		}
		adopted := d.cause == CauseChange
		if !run.Started {
			d.cause = CauseBoot
		}
		*run = Run{
			Started: true, Config: d.choice, Local: d.o.LocalDigest, Deferred: run.Deferred, Probing: run.Probing, Waited: run.Waited, Turns: run.Turns,
			APISeen: adopted && d.o.Node.API,
		}
		d.resumeIll()
	} else {
		d.cause = CauseCrash
		run.Local = d.o.LocalDigest
		run.Lived, run.HealthyFor, run.ReadyFor, run.Unhealthy, run.NotReady, run.Healthy = 0, 0, 0, 0, 0, false
	}
	if s.Trial != nil && s.OnTrial(d.choice) {
		d.laidOver()
	}
	if s.Trial != nil {
		d.editTrial(func(t *Trial) {
			t.Clean = !d.onTrial() // then an unclean reboot is not its doing
			if n := d.o.Node; d.cause == CauseResume && n.API {
				t.Baseline.Pressure, t.Baseline.Pods = slices.Clone(n.Pressure), slices.Clone(n.Pods) // nor what happened meanwhile
			}
		})
	}
	d.action = Action{Kind: kind, Config: d.choice, Cause: d.cause}
	return true
}

// nextWake is when something changes that no event announces.
func (d *decider) nextWake() time.Duration {
	run, l := d.next.Run, d.o.Limits
	if run.Started && !d.o.Child.Alive && d.action.Kind == None {
		if run.Delay == 0 {
			return time.Second // a verdict is on its way, or the node is going down
		}
		return max(run.Delay, 50*time.Millisecond)
	}
	wake := 10 * time.Second
	if d.next.Trial == nil {
		return wake
	}
	wake = 5 * time.Second
	for _, left := range []time.Duration{
		d.next.Trial.Terms.Duration - d.next.Trial.Healthy - run.Credit, l.HealthTimeout - run.Unhealthy, l.ReadyTimeout - run.NotReady,
		d.steady() - run.HealthyFor,
	} {
		if left > 0 {
			wake = min(wake, left)
		}
	}
	return max(wake, 20*time.Millisecond)
}
