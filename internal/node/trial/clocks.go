// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package trial

import "time"

const (
	// maxGap limits the time that one decision adds to any clock: time in which
	// the agent did not run was not observed.
	maxGap = 15 * time.Second
	// healthySaveStep limits how much observed health a crash of the agent can
	// lose.
	healthySaveStep = 20 * time.Second
	// unhealthySaveStep is the same limit for the time in which the kubelet was
	// not healthy, or the node not Ready.
	unhealthySaveStep = 10 * time.Second
	// progressSteps is how often a decision is made for the progress of a
	// trial, so that the status can show it.
	progressSteps = 10
	// stableAfter is how long a kubelet must be healthy until its crashes are
	// forgotten.
	stableAfter = time.Minute

	// retryAfter is how long an inconclusive trial waits while its fallback
	// fails as well. It doubles with each retry, up to
	// retryAfter<<maxRetryDoublings.
	retryAfter        = time.Minute
	maxRetryDoublings = 3

	initialBackoff  = 250 * time.Millisecond
	maxTrialBackoff = 8 * time.Second
	maxStarts       = 11               // of a trial with the highest threshold
	staleErrors     = 30               // exits after which the reported errors of a crash loop are replaced
	maxBackoff      = 10 * time.Second // RestartSec of the stock kubelet's unit

	apiLossWindow = 2 * time.Minute  // only a loss this soon after the start can be caused by the configuration
	apiLossAfter  = 10 * time.Minute // how long the API must stay away
)

// updateClocks adds the time since the last decision to the counters of the
// kubelet's and the node's states.
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
		run.Unhealthy = d.recovered(run.Unhealthy, gap, o.Limits.HealthTimeout)
		if was {
			run.HealthyFor += gap
		}
		if run.HealthyFor >= stableAfter {
			run.Crashes, run.Counted, run.LastExit, run.LastErrors = 0, 0, "", ""
		}
		if run.Crashes == 0 {
			run.DeadEnd = false
		}
	} else {
		run.HealthyFor, run.ReadyFor = 0, 0
		if !d.outage() && !run.Outage { // nor the rest of the interval in which the outage ended
			run.Unhealthy += gap
		}
	}

	d.updateNodeClocks(gap, was)
	if run.ReadyFor >= stableAfter && !d.cannotStart() {
		run.Retries = 0
	}

	return true
}

func (d *decider) updateNodeClocks(gap time.Duration, wasHealthy bool) {
	run, n := &d.next.Run, d.o.Node
	if t := d.next.Trial; t != nil && t.Baseline.Pending && d.onTrial() && run.Healthy && n.API && n.Ready {
		d.editTrial(func(t *Trial) { t.Baseline = n.asBaseline() })
	}

	notReady := d.mustBeReady() && !n.Ready
	switch {
	case !d.mustBeReady():
		run.NotReady = 0
	case d.clocksPaused():
	case !notReady:
		run.NotReady = d.recovered(run.NotReady, gap, d.o.Limits.ReadyTimeout)
	case run.Healthy && !run.ClocksPaused: // the rest of the interval in which an outage ended does not count
		run.NotReady += gap
	}

	switch {
	case !run.Healthy || d.clocksPaused():
	case !n.Ready:
		run.ReadyFor = 0
	case wasHealthy:
		run.ReadyFor += gap
	}

	if run.Healthy && wasHealthy && !notReady && !d.clocksPaused() && d.onTrial() && !d.next.Trial.Baseline.Pending {
		run.UnsavedHealthy += gap
	}
}

// recovered returns what remains of the time in a bad state after a time in the
// good one. On trial, a state that comes and goes is not forgotten at once: a
// configuration that is well for less than four fifths of the time fails.
func (d *decider) recovered(bad, gap, limit time.Duration) time.Duration {
	if !d.runsTrial() {
		return 0
	}

	left := max(0, min(bad, limit)-gap/4)
	d.next.Run.Relapsed = d.next.Run.Relapsed || gap > 0 && left > 0

	return left
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
	if t := d.next.Trial; t != nil && d.onTrial() && run.APISeen && t.Baseline.API && !t.APILostEarly && !t.APIProbed &&
		run.SinceStart <= apiLossWindow {
		d.editTrial(func(t *Trial) { t.APILostEarly = true })
	}
}

// outage reports whether something that the kubelet's health depends on is
// unavailable.
func (d *decider) outage() bool { return d.o.Node.RuntimeDown || d.o.Node.ShuttingDown }

// clocksPaused reports whether an outage stops the clocks that depend on the
// API or the runtime.
func (d *decider) clocksPaused() bool {
	return !d.o.Node.API || d.outage()
}

// mustBeReady reports whether the node was Ready when the trial began.
func (d *decider) mustBeReady() bool {
	return d.next.Trial != nil && d.next.Trial.Baseline.Ready
}

// saveUnhealthyTime copies the time in which the kubelet was not healthy, or
// the node not Ready, to the trial, which is saved. An agent that is stopped
// again and again, perhaps because of that state, still reaches a verdict.
func (d *decider) saveUnhealthyTime() {
	run, t := &d.next.Run, *d.next.Trial
	keep := func(kept *time.Duration, now time.Duration) {
		if now == 0 || d.o.Child.Exited || (now-*kept).Abs() >= unhealthySaveStep { // at an exit for the next start
			*kept = now
		}
	}
	keep(&t.Unhealthy.Duration, run.Unhealthy)
	keep(&t.NotReady.Duration, run.NotReady)
	if t.Unhealthy != d.next.Trial.Unhealthy || t.NotReady != d.next.Trial.NotReady {
		t.noteUptime(run.Uptime)
	}

	d.next.Trial = &t
}

// restoreUnhealthyTime continues the count of the previous kubelet in the
// trial, or of the previous agent, up to three quarters of each limit: the time
// that a kubelet takes to start must not fail the trial.
func (d *decider) restoreUnhealthyTime() {
	if !d.onTrial() {
		return
	}

	d.editTrial(func(t *Trial) {
		t.Unhealthy.Duration = min(t.Unhealthy.Duration, d.o.Limits.HealthTimeout*3/4)
		t.NotReady.Duration = min(t.NotReady.Duration, d.o.Limits.ReadyTimeout*3/4)
	})
	d.next.Run.Unhealthy, d.next.Run.NotReady = d.next.Trial.Unhealthy.Duration, d.next.Trial.NotReady.Duration
}
