package trial

import (
	"slices"
	"time"
)

const (
	// maxGap bounds what one decision adds to any clock: an agent that did not
	// look for longer did not observe.
	maxGap = 15 * time.Second
	// flushEvery bounds how much observed health a crash of the agent can lose.
	healthySaveStep = 20 * time.Second
	// illStep is the same for the time in which it was not healthy, or the node not Ready.
	unhealthySaveStep = 10 * time.Second
	// settled is how long a kubelet must be healthy for its crashes to be forgotten.
	stableAfter = time.Minute

	// turnAfter is how long a trial that was inconclusive waits for what runs instead, if that fails as well: twice as long
	// after each time, up to turnAfter<<turnsMost.
	retryAfter        = time.Minute
	maxRetryDoublings = 3

	initialBackoff  = 250 * time.Millisecond
	maxTrialBackoff = 8 * time.Second
	maxBackoff      = 10 * time.Second // what a unit of the stock kubelet waits

	apiLossWindow = 2 * time.Minute  // a loss this soon after the start may be the configuration's doing
	apiLossAfter  = 10 * time.Minute // how long it must stay away
)

// reckon adds the time since the last decision to what it was observed to be.
func (d *decider) updateClocks() bool {
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
	d.updateAPIClocks(gap)
	if o.Child.Alive || o.Child.Exited && o.Child.Spawned {
		run.Uptime += gap
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
		if run.HealthyFor >= stableAfter {
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
	d.updateNodeClocks(gap, was)
	if run.ReadyFor >= stableAfter {
		run.Retries = 0
	}
	return true
}

func (d *decider) updateNodeClocks(gap time.Duration, wasHealthy bool) {
	run, n := &d.next.Run, d.o.Node
	if t := d.next.Trial; t != nil && t.Baseline.Pending && d.onTrial() && run.Healthy && n.API && n.Ready {
		d.editTrial(func(t *Trial) {
			t.Baseline = Baseline{API: true, Ready: true, Pressure: slices.Clone(n.Pressure), Pods: slices.Clone(n.Pods)}
		})
	}
	notReady := d.mustBeReady() && !n.Ready
	switch {
	case !notReady:
		run.NotReady = 0
	case run.Healthy && !d.clocksPaused() && !run.ClocksPaused: // what an outage left of the time since is not counted
		run.NotReady += gap
	}
	switch {
	case !run.Healthy || !wasHealthy || d.clocksPaused():
	case !n.Ready:
		run.ReadyFor = 0
	default:
		run.ReadyFor += gap
	}
	if run.Healthy && wasHealthy && !notReady && !d.clocksPaused() && d.onTrial() && !d.next.Trial.Baseline.Pending {
		run.UnsavedHealthy += gap
	}
}

func (d *decider) updateAPIClocks(gap time.Duration) {
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

// outage tells whether what a kubelet's health depends on is away.
func (d *decider) outage() bool { return d.o.Node.RuntimeDown || d.o.Node.ShuttingDown }

// standsStill tells whether an outage stops the clocks that depend on it.
func (d *decider) clocksPaused() bool {
	return !d.o.Node.API || d.outage()
}

// mustBeReady tells whether the node was Ready when the trial began.
func (d *decider) mustBeReady() bool {
	return d.next.Trial != nil && d.next.Trial.Baseline.Ready
}

// keepIll keeps in the trial for how long the kubelet was not healthy, or the node not Ready, so that an agent which is
// stopped again and again, perhaps for that very reason, comes to a verdict all the same.
func (d *decider) saveUnhealthyTime() {
	run, t := &d.next.Run, *d.next.Trial
	keep := func(kept *time.Duration, now time.Duration, over bool) {
		if over {
			*kept = 0
		} else if now >= *kept+unhealthySaveStep {
			*kept = now
		}
	}
	keep(&t.Unhealthy, run.Unhealthy, run.Healthy)
	keep(&t.NotReady, run.NotReady, d.o.Node.Ready)
	if t.Unhealthy != d.next.Trial.Unhealthy || t.NotReady != d.next.Trial.NotReady {
		t.noteUptime(run.Uptime)
	}
	d.next.Trial = &t
}

// resumeIll goes on counting where the agent before left off. The last quarter of a limit is to be seen in one run: the
// time that a kubelet takes to start is not held against it because its agent was restarted.
func (d *decider) restoreUnhealthyTime() {
	if !d.onTrial() {
		return
	}
	if d.o.Node.Ready {
		d.editTrial(func(t *Trial) { t.NotReady = 0 })
	}
	run, t, l := &d.next.Run, d.next.Trial, d.o.Limits
	run.Unhealthy, run.NotReady = min(t.Unhealthy, l.HealthTimeout*3/4), min(t.NotReady, l.ReadyTimeout*3/4)
}
