package trial

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// maxGap bounds what one decision adds to any clock: an agent that did not
	// look for longer did not observe.
	maxGap = 15 * time.Second
	// flushEvery bounds how much observed health a crash of the agent can lose.
	flushEvery = 20 * time.Second
	// illStep is the same for the time in which it was not healthy, or the node not Ready.
	illStep = 10 * time.Second
	// settled is how long a kubelet must be healthy for its crashes to be forgotten.
	settled = time.Minute

	// turnAfter is how long a trial that was inconclusive waits for what runs instead, if that fails as well: twice as long
	// after each time, up to turnAfter<<turnsMost.
	turnAfter = time.Minute
	turnsMost = 3

	backoffFirst = 250 * time.Millisecond
	backoffTrial = 8 * time.Second
	backoffMost  = 10 * time.Second // what a unit of the stock kubelet waits

	apiLossWindow = 2 * time.Minute  // a loss this soon after the start may be the configuration's doing
	apiLossAfter  = 10 * time.Minute // how long it must stay away
)

// reckon adds the time since the last decision to what it was observed to be.
func (d *decider) reckon() bool {
	run, o := &d.next.Run, d.o
	if !run.Started {
		return true
	}
	gap := min(o.Elapsed, maxGap)
	run.Delay = max(0, run.Delay-o.Elapsed)
	if t := d.next.Trial; t != nil && t.Fallback == APIProbe {
		run.Probing += gap
	} else if t != nil && t.Fallback == Inconclusive {
		run.Waited += gap
	}
	d.reckonAPI(gap)
	if o.Child.Alive || o.Child.Exited && o.Child.Spawned {
		run.Lived += gap
	}
	was := run.Healthy
	run.Healthy = o.Child.Alive && o.Child.Healthy
	if o.Child.Alive && o.Child.Waiting {
		run.Waiting += gap
		return true
	}
	run.Waiting = 0
	if !o.Child.Alive {
		return true
	}
	run.SinceStart += gap
	if run.Healthy {
		run.Unhealthy = 0
		if was {
			run.HealthyFor += gap
		}
		if run.HealthyFor >= settled {
			run.Crashes, run.Counted, run.LastExit = 0, 0, ""
		}
		if run.Crashes == 0 {
			run.DeadEnd = false
		}
	} else {
		run.HealthyFor, run.ReadyFor = 0, 0
		if !d.outage() && !run.Outage { // nor what it left of the time since the last decision
			run.Unhealthy += gap
		}
	}
	d.reckonNode(gap, was)
	if run.ReadyFor >= settled {
		run.Turns = 0
	}
	return true
}

// outage tells whether what a kubelet's health depends on is away.
func (d *decider) outage() bool { return d.o.Node.RuntimeDown || d.o.Node.ShuttingDown }

// standsStill tells whether an outage stops the clocks that depend on it.
func (d *decider) standsStill() bool {
	return !d.o.Node.API || d.outage()
}

// mustBeReady tells whether the node was Ready when the trial began.
func (d *decider) mustBeReady() bool {
	return d.next.Trial != nil && d.next.Trial.Baseline.Ready
}

func (d *decider) reckonNode(gap time.Duration, wasHealthy bool) {
	run, n := &d.next.Run, d.o.Node
	if t := d.next.Trial; t != nil && t.Baseline.Open && d.onTrial() && run.Healthy && n.API && n.Ready {
		d.editTrial(func(t *Trial) {
			t.Baseline = Baseline{API: true, Ready: true, Pressure: slices.Clone(n.Pressure), Pods: slices.Clone(n.Pods)}
		})
	}
	notReady := d.mustBeReady() && !n.Ready
	switch {
	case !notReady:
		run.NotReady = 0
	case run.Healthy && !d.standsStill() && !run.Stood: // what an outage left of the time since is not counted
		run.NotReady += gap
	}
	switch {
	case !run.Healthy || !wasHealthy || d.standsStill():
	case !n.Ready:
		run.ReadyFor = 0
	default:
		run.ReadyFor += gap
	}
	if run.Healthy && wasHealthy && !notReady && !d.standsStill() && d.onTrial() && !d.next.Trial.Baseline.Open {
		run.Credit += gap
	}
}

func (d *decider) reckonAPI(gap time.Duration) {
	run := &d.next.Run
	if d.o.Node.API {
		run.APIAway, run.APISeen = 0, true
		if t := d.next.Trial; t != nil && t.APILostEarly {
			d.editTrial(func(t *Trial) { t.APILostEarly = false })
		}
		return
	}
	run.APIAway += gap
	if t := d.next.Trial; t != nil && d.onTrial() && run.APISeen && t.Baseline.API && !t.APILostEarly && !t.APIProbed && run.SinceStart <= apiLossWindow {
		d.editTrial(func(t *Trial) { t.APILostEarly = true })
	}
}

// onTrial tells whether the kubelet runs the configuration on trial, and that
// has not just failed.
func (d *decider) onTrial() bool {
	c := d.next.Run.Config
	return d.next.Run.Started && d.next.OnTrial(c) && d.next.Trial.Fallback == NoFallback && !d.forbidden(c)
}

// crash reckons with an exit that nobody asked for.
func (d *decider) crash() bool {
	run, o := &d.next.Run, d.o
	if !o.Child.Exited || !run.Started {
		return true
	}
	run.LastExit, run.Healthy, run.HealthyFor, run.ReadyFor = o.Child.Exit, false, 0, 0
	run.Crashes++
	if o.Child.Spawned && !d.outage() {
		run.Counted++
	}
	most := backoffMost
	if d.onTrial() {
		most = backoffTrial
		d.editTrial(func(t *Trial) { t.lived(run.Lived) })
		// Only the configuration's own doing counts: not a binary that is gone,
		// not a runtime that is, not the node going down.
		if o.Child.Spawned && !d.began && !o.Node.RuntimeDown && !o.Node.ShuttingDown {
			d.editTrial(func(t *Trial) {
				t.lived(time.Millisecond)      // it is known, if it was at once
				t.Unhealthy, t.NotReady = 0, 0 // it counts as a crash
			})
			d.countCrash()
		}
	}
	run.Delay = backoffFirst << min(run.Crashes-1, 10)
	run.Delay = min(run.Delay, most)
	return true
}

// countCrash counts the start that follows an unexpected exit of the
// configuration on trial, or gives the verdict: threshold + 1 starts are
// allowed, the extra one because it takes one to adopt a configuration.
func (d *decider) countCrash() {
	s := &d.next
	if len(s.Startups) <= s.Trial.Terms.Threshold {
		s.Startups = append(s.Startups, d.o.Now)
		return
	}
	d.fail(CrashLooped, fmt.Sprintf("crash-looped: %d starts in its trial, last: %s", len(s.Startups), s.Run.LastExit))
}

// judge passes, fails or continues the trial; when it is over, whether
// last-known-good does better.
func (d *decider) judge() bool {
	if !d.next.Run.Started {
		return true
	}
	if d.onTrial() {
		d.judgeTrial()
	} else {
		d.judgeFallback()
	}
	return true
}

func (d *decider) judgeTrial() {
	d.keepIll()
	run, o, t := &d.next.Run, d.o, d.next.Trial
	var pressure []string
	for _, p := range o.Node.Pressure {
		if !slices.Contains(t.Baseline.Pressure, p) {
			pressure = append(pressure, p)
		}
	}
	switch {
	case run.Unhealthy >= o.Limits.HealthTimeout && run.Unhealthy > 0:
		d.fail(NotHealthy, fmt.Sprintf("was not healthy for %s", o.Limits.HealthTimeout))
	case run.NotReady >= o.Limits.ReadyTimeout && run.NotReady > 0:
		d.fail(NotReady, fmt.Sprintf("left the node not ready for %s", o.Limits.ReadyTimeout))
	case !d.standsStill() && !t.Terms.AllowPodLoss && len(o.Node.LostPods) > 0 && run.SinceStart > 0:
		d.fail(WorkloadHarmed, "harmed the workload: "+firstFew(o.Node.LostPods))
	case !d.standsStill() && t.Baseline.API && len(pressure) > 0 && run.SinceStart > 0:
		d.fail(WorkloadHarmed, "harmed the workload: "+strings.Join(pressure, ", ")+" turned True")
	case t.APILostEarly && run.APIAway >= apiLossAfter && o.Limits.APILossRollback && !(d.next.LastKnownGood.Same(run.Config) && !d.localCanRun()):
		d.editTrial(func(t *Trial) { t.Fallback, t.APIProbed, t.APILostEarly = APIProbe, true, false })
		run.Probing = 0
		d.cause = CauseRollback
		d.event(true, eventAPILost, "the API was lost within %s of starting current (UID: %s) and stayed away for %s: trying %s",
			apiLossWindow, t.Revision, apiLossAfter, d.fallback())
	case run.Healthy && !d.standsStill() && t.Healthy+run.Credit >= t.Terms.Duration:
		d.promote()
	case run.Credit >= flushEvery:
		d.editTrial(func(t *Trial) { t.Healthy += run.Credit; t.lived(run.Lived) })
		run.Credit = 0
	}
}

// keepIll keeps in the trial for how long the kubelet was not healthy, or the node not Ready, so that an agent which is
// stopped again and again, perhaps for that very reason, comes to a verdict all the same.
func (d *decider) keepIll() {
	run, t := &d.next.Run, *d.next.Trial
	keep := func(kept *time.Duration, now time.Duration, over bool) {
		if over {
			*kept = 0
		} else if now >= *kept+illStep {
			*kept = now
		}
	}
	keep(&t.Unhealthy, run.Unhealthy, run.Healthy)
	keep(&t.NotReady, run.NotReady, d.o.Node.Ready)
	if t.Unhealthy != d.next.Trial.Unhealthy || t.NotReady != d.next.Trial.NotReady {
		t.lived(run.Lived)
	}
	d.next.Trial = &t
}

// resumeIll goes on counting where the agent before left off. The last quarter of a limit is to be seen in one run: the
// time that a kubelet takes to start is not held against it because its agent was restarted.
func (d *decider) resumeIll() {
	if !d.onTrial() {
		return
	}
	if d.o.Node.Ready {
		d.editTrial(func(t *Trial) { t.NotReady = 0 })
	}
	run, t, l := &d.next.Run, d.next.Trial, d.o.Limits
	run.Unhealthy, run.NotReady = min(t.Unhealthy, l.HealthTimeout*3/4), min(t.NotReady, l.ReadyTimeout*3/4)
}

func (d *decider) promote() {
	s := &d.next
	c, terms := s.Current.Config, s.Trial.Terms
	if !s.LastKnownGood.Same(c) {
		s.LastKnownGood = Record{c, d.o.Now}
	}
	d.promoted(c, s.Trial.Local)
	d.endTrial()
	d.event(false, eventConfigLastKnownGood, "(UID: %s) became last-known-good after %s of observed health", c.Revision, terms.Duration)
}

// fail gives a verdict on the configuration on trial.
func (d *decider) fail(f Failure, words string) {
	s := &d.next
	c := s.Current.Config
	if s.LastKnownGood.Same(c) && !d.localCanRun() {
		if f == CrashLooped || f == NotHealthy {
			d.deadEnd(words)
		}
		return
	}
	d.markBad(c, f, fmt.Sprintf("current (UID: %s) %s", c.Revision, words), "")
	if d.next.Bad[0].Provisional {
		d.editTrial(func(t *Trial) {
			t.lived(s.Run.Lived)
			t.Unhealthy, t.NotReady = 0, 0 // if the verdict is taken back, they count from the beginning
		})
	} else {
		d.endTrial()
	}
	s.Run.Credit = 0
	d.cause = CauseRollback
	d.event(true, eventConfigRolledBack, "current (UID: %s) %s; going back to %s", c.Revision, words, d.fallback())
	d.events[len(d.events)-1].Failure = f
}

// judgeFallback looks whether what the node fell back to does better than what
// failed: steadily, or the node itself may be at fault.
func (d *decider) judgeFallback() {
	s, run := &d.next, &d.next.Run
	failure, words := d.failing()
	if failure == CrashLooped || failure == NotHealthy {
		if d.stepDown(failure, words) {
			return
		}
		d.deadEnd(words)
	}
	doubt := func(b BadConfig) bool {
		return b.Provisional && (b.matches(s.Current.Config) || b.matches(s.LastKnownGood.Config))
	}
	doubted := slices.ContainsFunc(s.Bad, doubt)
	if run.Config.Revision == s.Current.Revision || s.Trial == nil && !doubted {
		return
	}
	if s.Trial != nil && s.Trial.Fallback == APIProbe {
		defer d.judgeProbe() // no verdict on current waits: only one on last-known-good may
	}
	needsReady := slices.ContainsFunc(s.Bad, func(b BadConfig) bool { return doubt(b) && b.Failure == NotReady })
	waits := s.Trial != nil && s.Trial.Fallback == Inconclusive
	switch {
	case failure != "" && doubted:
		d.takeBack(doubt)
	case !d.isSteady() || needsReady && run.ReadyFor < d.steady():
	case waits && d.mustBeReady() && run.ReadyFor < d.steady() && !d.standsStill():
	default:
		for i := range s.Bad {
			s.Bad[i].Provisional = s.Bad[i].Provisional && !doubt(s.Bad[i])
		}
		if _, bad := s.BadEntry(s.Current.Config); bad {
			d.endTrial()
		} else if waits {
			d.resume(fmt.Sprintf("%s is healthy", d.standing()))
		}
	}
	if t := s.Trial; failure != "" && t != nil && t.Fallback == Inconclusive && !d.forbidden(s.Current.Config) && run.Waited >= turnAfter<<min(run.Turns, turnsMost) {
		run.Turns++
		d.resume(fmt.Sprintf("%s goes on failing", d.standing())) // what is on trial may be the only one that can be well here
	}
}

// resume goes on with a trial that was inconclusive.
func (d *decider) resume(why string) {
	d.editTrial(func(t *Trial) { t.Fallback = NoFallback })
	d.next.Startups = []time.Time{d.o.Now}
	d.next.Run.Waited = 0
	d.cause = CauseResume
	d.event(false, eventTrialResumed, "%s: the trial of current (UID: %s) goes on", why, d.next.Current.Revision)
}

// takeBack withdraws the verdicts that were not final: what replaced what they are about fails too.
func (d *decider) takeBack(doubt func(BadConfig) bool) {
	s := &d.next
	var names []string
	for _, b := range s.Bad {
		if doubt(b) {
			names = append(names, label(Config{Revision: b.Revision}, d.o.Local))
		}
	}
	s.Bad = slices.DeleteFunc(s.Bad, doubt)
	if d.lacksTrial() { // the verdict was on another revision with that content
		d.beginTrial()
	}
	resumes := ""
	if s.Trial != nil && s.Trial.Fallback != APIProbe {
		d.editTrial(func(t *Trial) { t.Fallback = Inconclusive })
		resumes = "; the trial resumes when it is healthy, or in a while if it goes on failing"
	}
	d.event(true, eventInconclusive, "%s fails too, so that %s is no longer held to be bad%s", d.standing(), strings.Join(names, " and "), resumes)
}

// stepDown gives up last-known-good for local if it was never proven with this version of the component, and fails with
// it: in the place of a configuration that failed, it runs without a trial of its own.
// It returns false where that is no way out.
func (d *decider) stepDown(failure Failure, words string) bool {
	s, c, local := &d.next, d.next.Run.Config, ""
	if c.Dropin {
		local = d.next.Run.Local // that it failed over, though it may have been edited since
	}
	if c.IsLocal() || !s.LastKnownGood.Same(c) || s.Current.Same(c) || d.isPromotedOver(c, local) || d.forbidden(c) || !d.localCanRun() {
		return false
	}
	if failure == CrashLooped && (d.outage() || d.next.Run.Counted <= d.o.Limits.CrashLoopThreshold) {
		return true // no verdict comes of an outage, and local would do no better
	}
	reason := fmt.Sprintf("last-known-good %s, which was not proven with this version of the kubelet, failed: %s", label(c, d.o.Local), words)
	d.markBad(c, failure, reason, "")
	d.cause = CauseRollback
	d.event(true, eventConfigRolledBack, "%s; going back to local %s", reason, label(Config{}, d.o.Local))
	d.events[len(d.events)-1].Failure = failure
	return true
}

// localCanRun tells whether nothing is known to be wrong with local.
func (d *decider) localCanRun() bool { return d.o.Verdicts[""].Outcome != RejectedOutcome }

// standing names what runs, and as what.
func (d *decider) standing() string {
	c := d.next.Run.Config
	if d.next.LastKnownGood.Same(c) {
		return "last-known-good " + label(c, d.o.Local)
	}
	return "local " + label(c, d.o.Local)
}

// failing tells how what runs fails now, if it does, in whatever way: a node whose runtime hangs can have one configuration
// crash and another not be healthy.
func (d *decider) failing() (Failure, string) {
	run, l := &d.next.Run, d.o.Limits
	switch {
	case d.o.Child.Exited && run.Config.Dropin && run.Local != d.o.LocalDigest: // the next start is of something else
	case d.o.Child.Exited && run.Crashes > l.CrashLoopThreshold:
		return CrashLooped, fmt.Sprintf("%d unexpected exits, last: %s", run.Crashes, run.LastExit)
	case run.Unhealthy >= l.HealthTimeout && run.Unhealthy > 0:
		return NotHealthy, fmt.Sprintf("not healthy for %s", l.HealthTimeout)
	case run.NotReady >= l.ReadyTimeout && run.NotReady > 0:
		return NotReady, fmt.Sprintf("the node is not ready for %s", l.ReadyTimeout)
	}
	return "", ""
}

// steady is how long last-known-good must be healthy to do better than the
// configuration that failed: as long as makes its own crashes forgotten, or,
// if it had none, clearly longer than that one ever lived. What failed in its
// place before has more to show.
func (d *decider) steady() time.Duration {
	if t := d.next.Trial; t != nil && t.Lived > 0 && t.Fallback == NoFallback && d.next.Run.Crashes == 0 && d.next.Run.Turns == 0 {
		return min(settled, max(2*t.Lived, time.Second))
	}
	return settled
}

// isSteady tells whether what runs has been healthy for that long.
func (d *decider) isSteady() bool {
	return d.next.Run.Healthy && d.next.Run.HealthyFor >= d.steady()
}

// judgeProbe ends the excursion to last-known-good that an API lost early in a
// trial is answered with.
func (d *decider) judgeProbe() {
	run := d.next.Run
	switch {
	case d.next.Trial == nil:
	case d.o.Node.API && run.SinceStart > 0 && run.Probing <= apiLossWindow: // not before last-known-good runs
		d.editTrial(func(t *Trial) { t.Fallback = NoFallback })
		d.fail(LostAPI, "lost the API, which came back with last-known-good")
	case run.Probing > apiLossWindow:
		d.editTrial(func(t *Trial) { t.Fallback = NoFallback })
		d.cause = CauseResume
		d.event(false, eventTrialResumed, "the API stays away with last-known-good too: it was not current (UID: %s) that lost it", d.next.Current.Revision)
	}
}

func (d *decider) deadEnd(words string) {
	s, c := d.next, d.next.Run.Config
	stays := s.Current.Same(c) || s.LastKnownGood.Same(c) || c.IsLocal()
	if s.Run.DeadEnd || !stays || d.forbidden(c) { // what must not run is about to be replaced
		return
	}
	d.next.Run.DeadEnd = true
	d.event(true, eventDeadEnd, "%s keeps failing and there is nothing to fall back to: %s; trying on", label(d.next.Run.Config, d.o.Local), words)
}

func firstFew(list []string) string {
	const few = 3
	if len(list) <= few {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:few], ", "), len(list)-few)
}
