// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// invariants checks the invariants for each decision. It counts health, exits
// and starts itself.
type invariants struct {
	n              *randomNode
	starts         int                      // that the core asked for, since a test set it to zero
	healthy        map[string]time.Duration // by version and payload: observed since the adoption
	passed         map[string]bool          // by version and payload: a whole trial
	was            bool                     // healthy at the last decision
	fallbackStable bool
	boot           int
	outage         bool                     // at the last decision, of what health depends on
	exits          map[string]int           // by version: exits that count in the trial
	lostWrite      map[string]bool          // by version: a write was lost, so that exits may be counted again or not at all
	booted         int                      // the boot of the last decision
	terms          map[string]Terms         // by trial: the expected ones at its begin
	unhealthy      map[string]time.Duration // by trial: running and not healthy, across cleanly stopped agents
	unhealthyNow   time.Duration            // the same, in this agent's life
	life           time.Duration            // of the kubelet that runs
	streak         time.Duration            // of health without a break
	longest        map[string]time.Duration // by trial: the longest observed uptime of a kubelet
	over           string                   // the local configuration at the kubelet's start
	runs           string                   // the revision that runs; empty: none

	evidence *evidence
	from     string // the object that assigned current; empty: not known, or taken back since
	kept     string // the same, as last saved
}

func newInvariants(n *randomNode) *invariants {
	return &invariants{n: n, evidence: newEvidence(n), healthy: map[string]time.Duration{}, lostWrite: map[string]bool{}, exits: map[string]int{}, booted: 1, passed: map[string]bool{}, terms: map[string]Terms{}, longest: map[string]time.Duration{}, unhealthy: map[string]time.Duration{}}
}

// watch is called with each decision that is used.
func (r *invariants) watch(before State, o Observed, d Decision) {
	for _, e := range d.Events {
		r.n.seen[e.Reason]++
		if strings.HasSuffix(e.Message, "the kubelet already runs this content") {
			r.n.seen["inherited"]++
		}
	}

	if r.runs = ""; o.Child.Alive || o.Child.Exited {
		r.runs = before.Run.Config.Revision
	}

	r.showsUIDs(d)
	r.neverStartsForbidden(o, d)
	r.lastKnownGoodPassedItsTrial(before, o, d)
	r.newVersionsRunOnTrial(before, o, d)
	r.fallbackProvesBlame(before, o, d) // before the end of a trial resets lostWrite
	r.verdictsHaveACause(before, o, d)
	r.badEntriesStay(before, o, d)
	r.unhealthyGetsAVerdict(before, o, d)
	r.localOnlyIfAssigned(before, o, d)
	r.restartsOnlyForAChange(before, o, d)
	r.evidence.watch(before, o, d)
	r.outage = o.Node.RuntimeDown || o.Node.ShuttingDown
	if d.Action.Kind != None {
		r.over = o.LocalDigest
	}
	if d.Action.Kind != None && before.Run.Started && d.Next.IsRevoked(before.Run.Config) {
		r.n.seen["revoked what ran"]++
	}
}

var shownUID = regexp.MustCompile(`\(UID: ([^,)]*)`)

// showsUIDs checks that whatever a person reads as a UID is one, and not a
// revision.
func (r *invariants) showsUIDs(d Decision) {
	_, why := NextStart(d.Next)
	texts := []string{d.Status.Condition.Message, d.Status.Condition.Cause, d.Status.Error, why}
	for _, e := range d.Events {
		texts = append(texts, e.Message)
	}

	for _, b := range d.Next.Bad {
		texts = append(texts, b.Reason)
	}

	for _, text := range texts {
		for _, shown := range shownUID.FindAllStringSubmatch(text, -1) {
			r.n.must(!strings.HasSuffix(shown[1], "-content"), "%q shows a revision as a UID", text)
		}
	}
}

// neverStartsForbidden is invariant 1.
func (r *invariants) neverStartsForbidden(o Observed, d Decision) {
	n, c := r.n, d.Action.Config
	switch d.Action.Kind {
	case None:
		return
	case Refuse:
		n.seen["Refuse"]++
		n.must(o.Verdicts[""].Outcome == Rejected, "refused although local is not invalid: %+v", o.Verdicts[""])
		n.must(d.Action.Message == o.Verdicts[""].Message, "it does not say why")
		return
	}

	if d.Action.Cause != CauseCrash {
		r.starts++
	}

	_, bad := d.Next.BadEntry(c)
	n.must(!bad, "started %s, which is bad", c.Revision)
	n.must(!d.Next.IsRevoked(c), "started %s, which is revoked", c.Revision)
	n.must(n.dryRuns[c.Revision].Outcome != Rejected || c.IsLocal(), "started %s, which its dry run rejects", c.Revision)
	n.must(o.Verdicts[c.Revision].Outcome == NotValidated || n.basis[c.Revision] == n.files(), "started %s, which was validated with other files than those of now", label(c, n.local))
	n.must(o.Verdicts[c.Revision].Outcome != Protected, "started %s, which changes what is protected", c.Revision)
	n.must(!o.Node.ShuttingDown, "started %s while the node shuts down", c.Revision)
	n.must(d.Next.Current.Same(c) || d.Next.LastKnownGood.Same(c) || c.IsLocal(), "started %s, which is neither current, last-known-good nor local", c.Revision)
	n.must((d.Action.Kind == Restart) == o.Child.Alive, "%s with the kubelet alive: %t", d.Action.Kind, o.Child.Alive)
}

// lastKnownGoodPassedItsTrial is invariant 2: a configuration becomes
// last-known-good after health was observed for its whole trial.
func (r *invariants) lastKnownGoodPassedItsTrial(before State, o Observed, d Decision) {
	n, run := r.n, before.Run
	key := r.key
	now := o.Child.Alive && o.Child.Healthy
	if run.Started && now && r.was && !o.Node.RuntimeDown && !o.Node.ShuttingDown && o.Node.API {
		r.healthy[key(run.Config)] += o.Elapsed
	}

	r.was = now
	if d.Action.Kind != None {
		r.was = false
	}

	good := d.Next.LastKnownGood.Config
	if t := d.Next.Trial; t != nil && (before.Trial == nil || !t.StartTime.Equal(before.Trial.StartTime) || before.Current.SHA256 != d.Next.Current.SHA256) {
		terms := n.expectedTerms(d.Next.Current.RequestedTerms)
		if r.passed[key(d.Next.Current.Config)] {
			terms.Duration.Duration = min(terms.Duration.Duration, time.Minute)
		}

		r.terms[n.trialKey(t)] = terms
	}

	isProven := happened(d, "ConfigLastKnownGood")
	if c := before.Current.Config; isProven {
		n.must(before.Trial != nil && r.healthy[key(c)] >= r.begun(before.Trial).Duration.Duration, "%s became last-known-good after %s of health", c.Revision, r.healthy[key(c)])
		r.passed[key(c)] = true
	}

	if !good.IsLocal() && good.SHA256 != before.LastKnownGood.SHA256 {
		n.must(isProven && before.Current.Same(good), "%s became last-known-good without a trial", good.Revision)
		_, bad := before.BadEntry(good)
		n.must(!bad, "%s became last-known-good while it was bad", good.Revision)
		n.must(!d.Next.IsRevoked(good) || before.IsRevoked(good), "%s became last-known-good while it was revoked", good.Revision)
	}

	if c := d.Next.Current.Config; c.SHA256 != before.Current.SHA256 {
		delete(r.healthy, key(c))
	}
}

// newVersionsRunOnTrial: a configuration that has not passed a trial with this
// version of the component and this local configuration runs on trial only; and
// while local may work, it is a fallback.
func (r *invariants) newVersionsRunOnTrial(before State, o Observed, d Decision) {
	n := r.n
	if c := d.Action.Config; d.Action.Kind != None && !c.IsLocal() && d.Next.Current.Same(c) && !r.passed[r.keyOver(c, n.digest)] {
		n.must(d.Next.OnTrial(c), "%s is started without a trial, with %s and %s", c.Revision, n.version, n.digest)
		if d.Next.LastKnownGood.Same(c) {
			n.seen["last-known-good on trial"]++
		}
	}

	if c := before.Run.Config; happened(d, "DeadEnd") && !c.IsLocal() {
		n.must(r.passed[r.key(c)] || o.Verdicts[""].Outcome == Rejected,
			"a dead end with %s, which is not proven, although local may work", c.Revision)
	}
}

// knows reports whether the node knows that a configuration passed its trial:
// it keeps the newest promotions only, and a write may have been lost.
func (r *invariants) knows(s State, c Config) bool {
	return r.passed[r.key(c)] && slices.ContainsFunc(s.Promoted, func(p Promotion) bool {
		return p.SHA256 == c.SHA256 && (!c.Dropin || p.Local == r.over)
	})
}

// key identifies what a promotion is about.
func (r *invariants) key(c Config) string {
	if c.Revision == r.runs {
		return r.keyOver(c, r.over)
	}

	return r.keyOver(c, r.n.digest)
}

func (r *invariants) keyOver(c Config, local string) string {
	k := r.n.version + "/" + c.SHA256
	if c.Dropin {
		k += " over " + local
	}

	return k
}

// trialKey identifies a trial. After a crash an older one may continue.
func (n *randomNode) trialKey(t *Trial) string {
	return n.version + "/" + t.Revision + "/" + t.StartTime.String()
}

// begun returns the terms that a trial began with; its own, if no decision
// showed its begin.
func (r *invariants) begun(t *Trial) Terms {
	if terms, seen := r.terms[r.n.trialKey(t)]; seen {
		return terms
	}

	return t.Terms
}

// expectedTerms returns the terms that a trial must begin with.
func (n *randomNode) expectedTerms(a RequestedTerms) Terms {
	t := Terms{metav1.Duration{Duration: n.limits.TrialDuration}, n.limits.CrashLoopThreshold, a.AllowPodLoss}
	if a != (RequestedTerms{}) { // every one here asks for both
		t.Duration.Duration, t.Threshold = a.Duration.Duration, a.Starts-1
	}

	return t
}

// verdictsHaveACause is invariant 7, and checks the count of the crash loop.
func (r *invariants) verdictsHaveACause(before State, o Observed, d Decision) {
	n := r.n
	first := !before.Run.Started
	rebooted := r.booted != n.boot
	r.booted = n.boot
	outage := o.Node.RuntimeDown || o.Node.ShuttingDown
	on := before.Run.Started && before.OnTrial(before.Run.Config) && before.Trial.Fallback == NoFallback && !before.forbids(before.Run.Config)
	exited := on && o.Child.Exited && o.Child.Spawned && !outage && (!r.outage || before.Run.Excused)
	if exited {
		r.exits[n.version]++
	}

	unclean := first && rebooted && before.Trial != nil && before.Trial.BootID != o.BootID && before.Trial.BootID != "" && o.BootID != "" && !before.Trial.Clean
	if unclean {
		r.exits[n.version]++
	}

	var terms Terms
	if t := cmp.Or(before.Trial, d.Next.Trial); t != nil {
		terms = r.begun(t)
	}

	exits, threshold := r.exits[n.version], terms.Threshold
	verdicts := 0
	for _, b := range fresh(before, d) {
		n.seen[b.Failure]++
		if b.Failure == v1alpha1.ReasonValidationFailed {
			n.must(n.dryRuns[b.Revision].Outcome == Rejected, "%s is called rejected, and is not", b.Revision)
			continue
		}

		verdicts++
		if b.Revision != before.Current.Revision && b.Revision == before.LastKnownGood.Revision && before.Run.Config.Revision == b.Revision {
			n.seen["last-known-good gives way"]++
			n.must(!r.knows(before, before.Run.Config) && !outage && (o.Child.Exited || !o.Child.Healthy || !o.Node.Ready), "%s was replaced by local although it is proven or does not fail", b.Revision)
			continue
		}

		n.must(before.Current.Revision == b.Revision, "a verdict on %s, which was not current", b.Revision)
		switch b.Failure {
		case v1alpha1.ReasonCrashLooped:
			n.must(exited || unclean || r.lostWrite[n.version], "a crash loop without a crash")
			n.must(exits == threshold+1 || r.lostWrite[n.version], "crash-looped after %d crashes, with a threshold of %d", exits, threshold)
		case v1alpha1.ReasonNotHealthy:
			n.must(!first && !outage, "called not healthy at a start or in an outage: %+v", o.Node)
			n.must(!o.Child.Healthy, "called not healthy while it is")
		case v1alpha1.ReasonNotReady, v1alpha1.ReasonWorkloadHarmed:
			n.must(len(o.Node.LostPods) == 0 || len(o.Node.Pressure) > 0 || b.Failure == v1alpha1.ReasonNotReady || !terms.AllowPodLoss, "pods were lost, as was allowed")
			n.must(!first && !outage && o.Node.API, "called %s at a start or in an outage: %+v", b.Failure, o.Node)
		case v1alpha1.ReasonPodsCannotStart:
			n.must(!first && !outage && o.Node.API && o.Node.Ready, "pods cannot start at a start or in an outage: %+v", o.Node)
			names := map[string]bool{}
			trusted := false
			for _, p := range o.Node.Refused {
				names[p.Namespace], trusted = true, trusted || p.Trusted
			}

			n.must(len(names) > 1 || trusted, "pods of one namespace failed a trial: %+v", o.Node.Refused)
			for _, p := range o.Node.Started {
				n.must(names[v1alpha1.SystemNamespace] && !p.Trusted, "pods cannot start, but one has: %+v", o.Node.Started)
			}
		case v1alpha1.ReasonLostAPI:
			n.must(!first && o.Node.API && before.Trial != nil && before.Trial.APIProbed, "lost the API: %+v", o.Node)
		}
	}

	n.must(verdicts <= 1, "%d verdicts in one decision", verdicts)
	rolledBack := 0
	for _, e := range d.Events {
		if e.Reason == "ConfigRolledBack" {
			rolledBack++
		}
	}

	lifts := o.Intent.Kind == Assigned && o.Intent.Config.Rollout.Attempt > min(before.Current.Rollout.Attempt, before.LastKnownGood.Rollout.Attempt) // one that waits lifts it at once
	n.must(rolledBack == verdicts || rolledBack == 1 && lifts, "%d verdicts, told %d times", verdicts, rolledBack)
	switch t := d.Next.Trial; {
	case t == nil, before.Trial == nil, !t.StartTime.Equal(before.Trial.StartTime), (before.Trial.Fallback == Inconclusive) != (t.Fallback == Inconclusive):
		r.exits[n.version], r.lostWrite[n.version] = 0, false
		if t != nil && len(d.Next.Startups) == 2 {
			r.exits[n.version] = 1 // it began with this very decision
		}
	default:
		_, bad := d.Next.BadEntry(d.Next.Current.Config)
		r.lostWrite[n.version] = r.lostWrite[n.version] || noWayOut(before, o) // they are not counted on
		n.must(bad || exits <= threshold || r.lostWrite[n.version], "%d crashes without a verdict, with a threshold of %d", exits, threshold)
	}

	r.lostWrite[n.version] = r.lostWrite[n.version] || n.diskFails != "" || n.tearDisk != nil
	for _, b := range before.Bad {
		if _, still := d.Next.BadEntry(Config{Revision: b.Revision}); !still && slices.ContainsFunc(d.Next.Startups, func(time.Time) bool { return d.Next.Current.Revision == b.Revision }) && o.Intent.Config.Rollout.Attempt > b.Attempt {
			n.seen["lifted"]++
		}
	}
}

// badEntriesStay is the other half of invariant 1: a configuration stays bad
// until its verdict is withdrawn. Only entries of configurations in no role may
// be dropped because of their age.
func (r *invariants) badEntriesStay(before State, o Observed, d Decision) {
	takenBack := happened(d, "Inconclusive")
	verdict := happened(d, "ConfigRolledBack") || happened(d, "ConfigRejected")
	full := len(d.Next.Bad) >= maxBad || len(before.Bad) >= maxBad && verdict // one verdict may come, and another be lifted
	for _, b := range before.Bad {
		if slices.ContainsFunc(d.Next.Bad, func(x BadConfig) bool { return x.Revision == b.Revision }) {
			continue
		}

		of := func(c Config) bool { return c.Revision == b.Revision || !c.IsLocal() && c.SHA256 == b.SHA256 }
		onRecord := of(d.Next.Current.Config) || of(d.Next.LastKnownGood.Config)
		lifted := o.Intent.Kind == Assigned && of(o.Intent.Config) && o.Intent.Config.Rollout.Attempt > b.Attempt
		r.n.must(slices.Contains(o.Forget, b.Revision) || lifted || takenBack && b.Provisional || !onRecord && full,
			"%s is not bad any more, for no reason", b.Revision)
	}
}

// unhealthyGetsAVerdict: a configuration that is never healthy gets a verdict,
// however often the agent is stopped. A restart may lose the last observation,
// and a kubelet that was just started has its time.
func (r *invariants) unhealthyGetsAVerdict(before State, o Observed, d Decision) {
	n, t := r.n, before.Trial
	if !before.Run.Started {
		r.unhealthyNow = 0
		return
	}

	hasOne := before.forbids(before.Run.Config) // it runs because nothing else can
	if t == nil || hasOne || !before.OnTrial(before.Run.Config) || t.Fallback != NoFallback || d.Next.Trial == nil || d.Next.Current.SHA256 != before.Current.SHA256 || n.diskFails != "" || n.tearDisk != nil {
		clear(r.unhealthy)
		return
	}

	key := n.trialKey(t)
	switch {
	case o.Child.Exited, o.Child.Alive && o.Child.Healthy && !o.Child.Waiting:
		clear(r.unhealthy)
		r.unhealthyNow = 0
	case o.Child.Alive && !o.Child.Waiting && !r.outage && !o.Node.RuntimeDown && !o.Node.ShuttingDown:
		r.unhealthy[key] += o.Elapsed
		r.unhealthyNow += o.Elapsed
	}

	forbidden := d.Next.forbids(before.Run.Config) // what was just revoked is replaced without a verdict
	lifted := o.Intent.Kind == Assigned && o.Intent.Config.Rollout.Attempt > before.Current.Rollout.Attempt && happened(d, "ConfigRolledBack")
	n.must(forbidden || lifted || noWayOut(before, o) || r.unhealthy[key] < n.limits.HealthTimeout || r.unhealthyNow < n.limits.HealthTimeout/4, "not healthy for %s in all, and no verdict", r.unhealthy[key])
}

// fallbackProvesBlame: a verdict becomes final only if the fallback was healthy
// for a minute, or for longer than the failed configuration ever ran, and never
// if the fallback failed too.
func (r *invariants) fallbackProvesBlame(before State, o Observed, d Decision) {
	n := r.n
	var trial string
	if before.Trial != nil {
		trial = n.trialKey(before.Trial)
	}

	if r.boot != n.boot {
		r.boot = n.boot
		_, bad := before.BadEntry(before.Current.Config)
		if t := before.Trial; t != nil && !bad && !t.Clean && t.BootID != "" && o.BootID != "" {
			r.longest[trial] = time.Hour // nobody saw how it ended
		}
	}

	switch {
	case !before.Run.Started:
		r.life, r.streak = 0, 0
	case o.Child.Alive || o.Child.Exited:
		r.life += min(o.Elapsed, maxGap)
		if !o.Child.Healthy && !o.Child.Waiting {
			r.streak = 0
		} else if r.fallbackStable {
			r.streak += min(o.Elapsed, maxGap)
		}
	}

	r.fallbackStable = o.Child.Alive && o.Child.Healthy
	failed := happened(d, "DeadEnd")
	for _, b := range before.Bad {
		if x, bad := d.Next.BadEntry(Config{Revision: b.Revision}); bad && x.Revision == b.Revision && b.Provisional {
			n.must(x.Provisional || x.Failure == v1alpha1.ReasonValidationFailed || r.streak >= time.Minute || r.streak > r.longest[trial] || r.lostWrite[n.version],
				"%s is to blame for good, after %s of health, and one lived for %s", b.Revision, r.streak, r.longest[trial])
			n.must(!failed || before.Current.Revision != b.Revision || before.Run.Config.Revision == b.Revision || before.Trial == nil,
				"%s stays bad, although what replaced it failed too", b.Revision)
		}
	}

	if before.OnTrial(before.Run.Config) && (o.Child.Spawned || d.Action.Kind == Restart) {
		r.longest[trial] = max(r.longest[trial], r.life)
	}
	if d.Action.Kind != None || o.Child.Exited {
		r.life, r.streak, r.fallbackStable = 0, 0, false
	}
}

// noWayOut reports whether no verdict on last-known-good is possible, because
// local is invalid.
func noWayOut(before State, o Observed) bool {
	local := o.Verdicts[""].Outcome // it may be validated again
	return before.LastKnownGood.Same(before.Current.Config) && (local == Rejected || local == NotValidated)
}

// killed updates the counters for an agent that had no time to save.
func (r *invariants) killed() {
	for key := range r.unhealthy {
		r.unhealthy[key] = max(0, r.unhealthy[key]-unhealthySaveStep-5*time.Second)
	}
}

// localOnlyIfAssigned is invariant 8. It remembers by itself which object
// assigned current.
func (r *invariants) localOnlyIfAssigned(before State, o Observed, d Decision) {
	in, good := o.Intent, before.LastKnownGood
	if !before.Run.Started && before.Current.AssignedBy == r.kept {
		r.from = r.kept // what the agent before made of it was lost
	}

	defer func() {
		if r.n.diskFails == "" && r.n.tearDisk == nil {
			r.kept = r.from
		}
	}()
	from, removed := r.from, in.Kind == Unassigned && r.from == in.Config.AssignedBy
	mark := in.TakenBack
	taken := mark != nil && before.Current.Rollout.Name != "" && !mark.AssignedAt.Time.Before(before.Current.Rollout.AssignedAt.Time)
	revoked := slices.Contains(d.Next.Revoked, before.Current.UID)
	_, bad := d.Next.BadEntry(in.Config)
	waits := o.Storage != "" || o.Node.ShuttingDown || d.Action.Kind == Refuse || !before.Run.Started && len(d.Validate) > 0
	switch {
	case in.Kind == Assigned && d.Next.Current.Same(in.Config) && !bad && !d.Next.IsRevoked(in.Config):
		r.from = in.Config.AssignedBy
	case removed && (taken || revoked) && !waits:
		r.from = ""
	}

	if good.IsLocal() {
		return
	}

	if d.Next.LastKnownGood.IsLocal() {
		r.n.must(d.Next.Current.IsLocal(), "last-known-good was forgotten, but local is not current")
		switch {
		case before.Current.IsLocal(): // the agent died between the two records
		case in.Kind == Nil:
			r.n.seen["forgot at local: {}"]++
			r.n.must(o.Storage == "", "last-known-good was forgotten, and that could not be recorded")
		default:
			r.n.seen["forgot at a removal"]++
			r.n.must(removed && from != "" && !taken && !revoked && o.Storage == "", "last-known-good was forgotten, current was adopted from %q: %+v", from, in)
		}

		return
	}

	ended := happened(d, eventAssignmentEnded)
	if in.Kind != Unassigned || before.Current.IsLocal() || ended {
		return
	}

	r.n.must(!d.Next.Current.IsLocal(), "current became local, with a last-known-good: %+v", in)
	switch {
	case removed && taken:
		r.n.seen["kept what was taken back"]++
		r.n.must(d.Next.Current.Same(good.Config) || waits, "%s was taken back and is still current, not %s", d.Next.Current.Revision, good.Revision)
	case removed && revoked:
		r.n.seen["kept at a removal of what is revoked"]++
	case in.Config.AssignedBy != before.Current.AssignedBy:
		r.n.seen["kept what another object had assigned"]++
		r.n.must(d.Next.Current.Same(before.Current.Config), "current changed from %s to %s without a reason", before.Current.Revision, d.Next.Current.Revision)
	}
}

// restartsOnlyForAChange is the other half of invariant 6: a kubelet that runs
// the right configuration is not restarted.
func (r *invariants) restartsOnlyForAChange(before State, o Observed, d Decision) {
	if d.Action.Kind != Restart {
		return
	}

	r.n.must(before.Run.Config.Revision != d.Action.Config.Revision, "restarted %s for nothing", d.Action.Config.Revision)
	_, bad := d.Next.BadEntry(before.Run.Config)
	failed := !before.Current.Same(before.Run.Config) || before.forbids(before.Run.Config) // it runs because nothing else can; a higher attempt starts it anew
	r.n.must(bad || failed || d.Next.IsRevoked(before.Run.Config) || before.Run.Config.SHA256 != d.Action.Config.SHA256 || d.Action.Config.IsLocal() || before.Run.Config.IsLocal() || d.Action.Cause != CauseChange,
		"restarted for the same content under another name: %s to %s", before.Run.Config.Revision, d.Action.Config.Revision)
}

// atRest holds when nothing is left to decide: invariants 3 and 4, and that a
// kubelet runs or is about to start.
func (r *invariants) atRest() {
	n := r.n
	if !n.up || len(n.last.Validate) > 0 {
		return
	}

	s, c := n.state, n.state.Run.Config
	if !s.Run.Started {
		n.must(n.node.ShuttingDown, "nothing was started: %+v", s)
		return
	}

	n.must(n.child.Alive || n.node.ShuttingDown || s.Run.Delay > 0 && n.last.Wake <= max(s.Run.Delay, 50*time.Millisecond),
		"no kubelet runs, and none will: %+v", s.Run)
	if n.node.ShuttingDown {
		return
	}

	_, bad := s.BadEntry(c)
	if gone := !s.Current.Same(c) && !s.LastKnownGood.Same(c); (bad || gone || s.IsRevoked(c)) && n.verdicts[""].Outcome == Rejected && n.last.Status.Condition.Reason == "DeadEnd" {
		return // local is invalid: a kubelet that should not run is still better than none, and it says so
	}

	n.must(!bad && !s.IsRevoked(c), "%s runs, which it must not", label(c, n.local))
	n.must(s.Current.Same(c) || s.LastKnownGood.Same(c) || c.IsLocal(), "%s runs, which is neither current, last-known-good nor local", label(c, n.local))
	if n.intent.Kind == Nil && n.storage == "" && n.verdicts[""].Outcome != Rejected && n.verdicts[""].Outcome != Refused {
		n.must(s.Current.IsLocal() && s.LastKnownGood.IsLocal(), "local is assigned, and it is not adopted: %+v", s)
	}

	st := n.last.Status
	n.must(st.Active == c, "it says that %s runs, and runs %s", st.Active.Revision, c.Revision)
	n.must(strings.HasSuffix(st.Condition.Message, label(c, n.local)), "%q does not say that %s runs", st.Condition.Message, label(c, n.local))
	if ended := s.Temporary; st.Condition.Status == "True" && st.Condition.Reason == "AssignmentEnded" {
		n.must(ended.Revision == n.intent.Config.Revision && ended.End == n.intent.Config.End && ended.Ran.Duration >= ended.End.After.Duration && c.Revision != ended.Revision, "%+v: %+v", ended, st.Condition)
		return
	}

	n.must((st.Condition.Status == "True") == (st.Condition.Reason == "AllChecksPassed" || st.Condition.Reason == "LocalInit"), "%+v", st.Condition)
	if n.intent.Kind == Assigned && st.Condition.Status == "True" {
		n.must(c.Revision == n.intent.Config.Revision, "ConfigOK is True for %s, but %s runs", n.intent.Config.Revision, c.Revision)
	}
}
