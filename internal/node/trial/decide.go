package trial

import (
	"fmt"
	"slices"
	"time"
)

// Decide says which configuration this node runs next, and why. It is pure: no
// I/O, no clock, no randomness.
//
// Deciding again with the same inputs, no time elapsed and the action carried
// out changes nothing.
func Decide(s State, o Observed) Decision {
	d := &decider{next: s.clone(), o: o}
	for _, step := range steps {
		if !step(d) {
			break
		}
	}
	return d.decision()
}

// steps is the whole decision, in order. A step returns false when nothing
// after it can be decided yet.
var steps = []func(*decider) bool{
	(*decider).forget,     // what an operator wants forgotten first, so that it counts in all that follows
	(*decider).revoke,     // then what must never run here
	(*decider).settle,     // complete a transition that a crash interrupted
	(*decider).checkLocal, // local must be valid at every start, whatever is assigned
	(*decider).reckon,     // add up what was observed since the last decision
	(*decider).crash,      // an exit counts before anything is said about health
	(*decider).judge,      // pass, fail or go on with the trial
	(*decider).adopt,      // take up a new assignment
	(*decider).choose,     // what must run now
	(*decider).act,        // how to get there
}

type decider struct {
	next   State
	o      Observed
	first  bool // nothing has been started yet in this agent's life
	began  bool // a trial begins with this decision
	action Action
	needs  []Config
	events []Event
	hold   hold // why the intended configuration does not run, if it was not adopted
	choice Config
	cause  Cause
}

// hold is why an assignment that is known is not taken up.
type hold struct {
	status string // False or Unknown
	reason string // CamelCase
	cause  string
	detail string
	pods   bool // it is decided again when the node's pods change
}

func (d *decider) forget() bool {
	for _, revision := range d.o.Forget {
		n := len(d.next.Bad)
		d.next.Bad = slices.DeleteFunc(d.next.Bad, func(b BadConfig) bool { return b.Revision == revision })
		if len(d.next.Bad) < n {
			d.event(false, eventForgotten, "%s is no longer held to be bad, by request", name(revision, d.o.Local))
		}
		if d.next.Trial != nil && d.next.Trial.Revision == revision {
			d.endTrial()
		}
	}
	return true
}

func (d *decider) revoke() bool {
	if d.o.Revoked != nil {
		d.next.Revoked = slices.Clone(*d.o.Revoked)
	}
	return true
}

// settle makes the records agree after a crash between two of them.
func (d *decider) settle() bool {
	s := &d.next
	d.first = !s.Run.Started
	b, bad := s.BadEntry(s.Current.Config)
	good := s.LastKnownGood.Same(s.Current.Config)
	if s.Trial != nil && (s.Trial.Revision != s.Current.Revision || good && d.isPromotedOver(s.Current.Config, s.Trial.Local) || bad && !b.Provisional) {
		d.endTrial()
	}
	if s.Trial != nil && s.Trial.Terms == (Terms{}) { // the record is of an agent that did not keep them
		d.editTrial(func(t *Trial) { t.Terms = d.terms(s.Current.Asked) })
	}
	unclean := d.rebooted()
	if !s.Current.IsLocal() && !good && !d.forbidden(s.Current.Config) && d.isContentOfGood(s.Current.Config) {
		s.LastKnownGood, good = Record{s.Current.Config, d.o.Now}, true
		d.endTrial()
	}
	switch {
	case d.lacksTrial():
		d.beginTrial()
	case unclean && !d.forbidden(s.Current.Config):
		s.Run.LastExit = "the node went down without a clean shutdown"
		d.editTrial(func(t *Trial) { t.Lived = settled }) // nobody knows how long it lived
		d.countCrash()
	}
	return true
}

// rebooted takes note of another boot, and tells whether the one before ended
// without a clean shutdown while the configuration on trial ran.
func (d *decider) rebooted() bool {
	t := d.next.Trial
	if t == nil || t.BootID == d.o.BootID {
		return false
	}
	d.editTrial(func(t *Trial) { t.BootID, t.Clean = d.o.BootID, true }) // nothing runs yet
	if t.BootID == "" || d.o.BootID == "" {
		return false // nobody knows whether it is another
	}
	return !t.Clean
}

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

// adopt takes up what is intended, if it is new and may run here.
func (d *decider) adopt() bool {
	s, in := &d.next, d.o.Intent
	if d.o.Node.ShuttingDown {
		return true // a trial would begin without its kubelet; the next boot asks again
	}
	switch in.Kind {
	case Invalid:
		if d.first && in.Reason != reasonStaleAssignment { // that says nothing against what was taken up before
			s.Run.Deferred = true
		}
		return true
	case Nil:
		s.Run.Deferred = false
		return d.adoptLocal()
	case Unassigned:
		return d.removed()
	case Assigned:
		s.Run.Deferred = false
	default:
		return true
	}
	c := in.Config
	if g := &s.LastKnownGood; g.Same(c) && g.Payload == c.Payload && c.Checkpoint != "" {
		g.Checkpoint = c.Checkpoint // it was downloaded anew: a rollback is to find what is there
	}
	if s.IsRevoked(c) {
		d.hold = hold{status: "False", reason: reasonRevoked, cause: fmt.Sprintf("refused current (UID: %s): it is revoked", c.Revision)}
		return true
	}
	if _, bad := s.BadEntry(c); bad {
		if slices.ContainsFunc(s.Bad, func(b BadConfig) bool { return b.matches(c) && c.Rollout.Attempt <= b.Attempt }) {
			return true // status says why
		}
		if d.o.Storage != "" { // a verdict is lifted for what is taken up, and for nothing else
			return d.awaitStorage()
		}
		if d.forbidden(s.Current.Config) {
			s.Current = s.LastKnownGood // lifting must not bring back more than what is adopted below
			d.endTrial()
		}
		s.Bad = slices.DeleteFunc(s.Bad, func(b BadConfig) bool { return b.matches(c) })
		if s.LastKnownGood.Same(s.Current.Config) && d.lacksTrial() {
			d.beginTrial()
		}
	}
	if s.Current.Same(c) {
		// Who assigned it may have changed, or its checkpoint was healed; not what it is. Each record is looked at, since
		// a crash may have come between two.
		s.Current.Config = c
		if s.LastKnownGood.Same(c) {
			s.LastKnownGood.Config = c
		}
		if s.Run.Config.Revision == c.Revision {
			s.Run.Config = c
		}
		return true
	}
	if d.o.Storage != "" {
		return d.awaitStorage()
	}
	if d.inherits(c) {
		return true
	}
	v, ok := d.o.Verdicts[c.Revision]
	if !ok {
		return d.awaitVerdict(c)
	}
	switch v.Outcome {
	case RejectedOutcome:
		d.markBad(c, Rejected, fmt.Sprintf("failed to validate current (UID: %s)", c.Revision), v.Words)
		d.event(true, eventConfigRejected, "failed to validate current (UID: %s): %s", c.Revision, v.Words)
	case Refused, Protected:
		d.hold = refused(c, v)
	case Accepted:
		d.adoptConfig(c)
	default:
		d.hold = hold{status: "Unknown", reason: reasonCouldNotValidate, cause: fmt.Sprintf("could not validate current (UID: %s): %s", c.Revision, v.Words), pods: true}
	}
	return true
}

func refused(c Config, v Verdict) hold {
	return hold{status: "False", reason: v.Guard, cause: fmt.Sprintf("refused current (UID: %s): %s", c.Revision, v.Words), pods: v.Outcome == Refused}
}

func (d *decider) adoptConfig(c Config) {
	s := &d.next
	s.Current = Record{c, d.o.Now}
	if s.Run.Config.Revision == c.Revision {
		s.Run.Config = c // it was taken back, and ran on because there was nothing else
	}
	d.endTrial()
	good := true
	switch {
	case s.LastKnownGood.Same(c):
		s.LastKnownGood.Config = c // its checkpoint may have been downloaded anew
	case d.isContentOfGood(c):
		s.LastKnownGood = Record{c, d.o.Now}
	default:
		good = false // also if it was promoted before: the one now is known to be good now
	}
	if !good || !d.isPromoted(c) {
		d.beginTrial()
	}
	d.cause = CauseChange
	d.event(false, eventConfigChanged, "now using current (UID: %s)", c.Revision)
}

// inherits takes up a revision whose payload already runs: without a restart,
// and with the standing of the one it replaces.
func (d *decider) inherits(c Config) bool {
	s := &d.next
	old := s.Current.Config
	if s.Run.Started {
		old = s.Run.Config
	}
	if old.IsLocal() || old.Payload != c.Payload || d.forbidden(old) {
		return false
	}
	switch {
	case s.LastKnownGood.Same(old):
		promoted, goesOn, local := d.isPromoted(old), s.OnTrial(old), d.basis(old) // with this version of the component
		s.Current = Record{c, d.o.Now}
		if s.Run.Started {
			s.Run.Config = c
		}
		s.LastKnownGood = Record{c, s.LastKnownGood.Since}
		switch {
		case goesOn:
			d.editTrial(func(t *Trial) { t.Revision = c.Revision })
		case promoted:
			d.endTrial()
			d.promoted(c, local)
		default:
			d.endTrial()
			d.beginTrial()
		}
	case s.OnTrial(old):
		s.Current = Record{c, d.o.Now}
		d.editTrial(func(t *Trial) { t.Revision = c.Revision })
	default:
		return false
	}
	if s.Run.Started {
		s.Run.Config = c
	}
	d.event(false, eventConfigChanged, "now using current (UID: %s), whose content already ran", c.Revision)
	return true
}

func (d *decider) adoptLocal() bool {
	s := &d.next
	if s.Current.IsLocal() && s.LastKnownGood.IsLocal() {
		return true
	}
	if d.o.Storage != "" {
		d.hold = cannotRecord(d.o.Storage)
		return true
	}
	v, ok := d.o.Verdicts[""]
	if !ok {
		return d.awaitVerdict(Config{})
	}
	if v.Outcome == RejectedOutcome {
		d.hold = hold{status: "False", reason: reasonLocalInvalid, cause: fmt.Sprintf("failed to validate current (%s)", d.o.Local), detail: v.Words}
		return true
	}
	if !s.Current.IsLocal() {
		d.event(false, eventConfigChanged, "now using current (%s)", d.o.Local)
	}
	s.Current, s.LastKnownGood = Record{Since: d.o.Now}, Record{Since: d.o.Now}
	d.endTrial()
	d.cause = CauseChange
	return true
}

// removed deals with an object that assigns nothing. If it had assigned current, a person removed that, which means
// local; or it was taken back or revoked, which means last-known-good. Otherwise nothing was removed.
func (d *decider) removed() bool {
	s, in := &d.next, d.o.Intent
	if s.Current.IsLocal() && !s.Current.Since.IsZero() { // adopted, and maybe interrupted; a current that was lost has no time
		return d.adoptLocal()
	}
	if !s.RemovedBy(in) {
		return true
	}
	good := s.LastKnownGood
	if good.IsLocal() || !in.takesBack(s.Current.Config) && !s.IsRevoked(s.Current.Config) {
		s.Run.Deferred = false
		return d.adoptLocal()
	}
	if d.o.Storage != "" {
		d.hold = cannotRecord(d.o.Storage)
		return true
	}
	if !good.Same(s.Current.Config) {
		d.event(false, eventConfigChanged, "now using last-known-good %s: the assignment of (UID: %s) was taken back", label(good.Config, d.o.Local), s.Current.Revision)
		s.Current = good
		d.endTrial()
		if d.lacksTrial() {
			d.beginTrial()
		}
		d.cause = CauseRollback
	}
	s.Current.AssignedBy, s.LastKnownGood.AssignedBy = "", "" // the same removal must not mean local later
	if s.Run.Config.Revision == s.Current.Revision {
		s.Run.Config = s.Current.Config
	}
	return true
}

// awaitStorage holds an assignment until the disk takes what it changes.
func (d *decider) awaitStorage() bool {
	d.hold = cannotRecord(d.o.Storage)
	d.hold.pods = true // when it can be recorded, the trial is to begin with those that run then
	return true
}

func cannotRecord(why string) hold {
	return hold{status: "Unknown", reason: reasonSyncFailed, cause: "failed to sync, desired config unclear, cause: cannot record it: " + why}
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

// forbidden tells whether c must not run, whatever the dry run says.
func (d *decider) forbidden(c Config) bool {
	_, bad := d.next.BadEntry(c)
	return bad || d.next.IsRevoked(c)
}

// awaitVerdict asks for a verdict on what is to be adopted. What runs goes on
// meanwhile; where nothing runs yet, the node waits, so that it starts once.
func (d *decider) awaitVerdict(c Config) bool {
	d.needs = append(d.needs, c)
	return !d.first
}

// lacksTrial tells whether current may run and is not proven, and nothing is known of a trial.
func (d *decider) lacksTrial() bool {
	s, c := &d.next, d.next.Current.Config
	return !c.IsLocal() && s.Trial == nil && !d.forbidden(c) && !(s.LastKnownGood.Same(c) && d.isPromoted(c))
}

// isContentOfGood tells whether c has the content of last-known-good.
func (d *decider) isContentOfGood(c Config) bool {
	g := d.next.LastKnownGood.Config
	return !g.IsLocal() && g.Payload == c.Payload
}

// isPromoted tells whether the content of c passed its trial before, with this
// version of the component, and laid over the same local configuration if it is
// a drop-in. What does not say over which one counts: it was recorded by an
// agent that did not keep that.
func (d *decider) isPromoted(c Config) bool { return d.isPromotedOver(c, d.basis(c)) }

func (d *decider) isPromotedOver(c Config, local string) bool {
	return !c.IsLocal() && slices.ContainsFunc(d.next.Promoted, func(p Promotion) bool {
		return p.Payload == c.Payload && (p.Local == local || p.Local == "" || local == "")
	})
}

// basis is what a drop-in is laid over: local as it was when it was started, if
// it runs, else as it is now. For what stands alone it is empty.
func (d *decider) basis(c Config) string {
	switch run := d.next.Run; {
	case !c.Dropin:
		return ""
	case run.Started && d.o.Child.Alive && run.Config.Revision == c.Revision:
		return run.Local
	}
	return d.o.LocalDigest
}

// laidOver begins the trial of a drop-in anew if it is started over another
// local configuration: what was seen of it so far was something else.
func (d *decider) laidOver() {
	c, t := d.next.Current.Config, d.next.Trial
	local := d.basis(c)
	if local == t.Local {
		return
	}
	if d.next.LastKnownGood.Same(c) && d.isPromoted(c) {
		d.endTrial() // it is what it was proven over again
		return
	}
	d.editTrial(func(t *Trial) {
		if t.Local != "" {
			t.Healthy = 0
		}
		if t.Local = local; !d.isPromoted(c) { // no probation any more
			t.Terms.Duration = max(t.Terms.Duration, d.terms(c.Asked).Duration)
		}
	})
	d.next.Run.Credit = 0
}

func (d *decider) beginTrial() {
	s, n := &d.next, d.o.Node
	c := s.Current.Config
	d.began = true
	s.Startups = []time.Time{d.o.Now}
	s.Trial = &Trial{
		Revision:  c.Revision,
		StartTime: d.o.Now,
		Terms:     d.terms(c.Asked),
		Local:     d.basis(c),
		BootID:    d.o.BootID,
		Baseline:  Baseline{API: n.API, Ready: n.API && n.Ready, Pressure: slices.Clone(n.Pressure), Pods: slices.Clone(n.Pods)},
	}
	if !d.o.Child.Alive && !s.Trial.Baseline.Ready {
		s.Trial.Baseline = Baseline{Open: true}
	}
	if d.isPromoted(c) {
		s.Trial.Terms.Duration = min(s.Trial.Terms.Duration, settled) // a probation: it passed a whole trial before
	}
	s.Run.Credit = 0
	if s.Run.Config.Revision == c.Revision {
		s.Run.Unhealthy, s.Run.NotReady = 0, 0 // it may run already: that was before its trial
	}
	if s.LastKnownGood.Same(c) {
		d.event(false, eventConfigOnTrial, "last-known-good %s was not proven with this version of the kubelet and the local configuration as it is: it is on trial again; if it fails, the node goes back to %s",
			label(c, d.o.Local), d.fallback())
	}
}

// fallback names what a trial that fails goes back to.
func (d *decider) fallback() string {
	if good := d.next.LastKnownGood.Config; !d.next.Current.Same(good) && !d.forbidden(good) {
		return "last-known-good " + label(good, d.o.Local)
	}
	return "local " + label(Config{}, d.o.Local)
}

// terms are what a trial is begun with: what the configuration asks for, else
// the agent's flags.
func (d *decider) terms(a Asked) Terms {
	t := Terms{Duration: d.o.Limits.TrialDuration, Threshold: d.o.Limits.CrashLoopThreshold, AllowPodLoss: a.AllowPodLoss}
	if a.Duration > 0 {
		t.Duration = a.Duration
	}
	if a.Starts > 0 {
		t.Threshold = a.Starts - 1
	}
	return t
}

func (d *decider) endTrial() {
	d.next.Trial, d.next.Startups = nil, nil
	d.next.Run.Credit, d.next.Run.NotReady, d.next.Run.Waited, d.next.Run.Turns = 0, 0, 0, 0
}

// editTrial changes a copy: the state handed to Decide is never written to.
func (d *decider) editTrial(edit func(*Trial)) {
	t := *d.next.Trial
	edit(&t)
	d.next.Trial = &t
}

func (d *decider) markBad(c Config, f Failure, reason, detail string) BadConfig {
	b := BadConfig{
		Revision: c.Revision, Namespace: c.Namespace, Name: c.Name, UID: c.UID, Payload: c.Payload,
		Time: d.o.Now, Reason: reason, Detail: detail, Failure: f, Attempt: c.Rollout.Attempt,
		Provisional: f == CrashLooped || f == NotHealthy || f == NotReady,
	}
	d.next.Bad = slices.DeleteFunc(d.next.Bad, func(b BadConfig) bool { return b.Revision == c.Revision })
	d.next.Bad = trimBad(append([]BadConfig{b}, d.next.Bad...), d.next.Current.Config, d.next.LastKnownGood.Config)
	return b
}

// trimBad keeps the newest entries, and each one that forbids a configuration that is on record, however old: without it
// that configuration would run again, as if nothing had been found.
func trimBad(bad []BadConfig, onRecord ...Config) []BadConfig {
	for i := len(bad) - 1; i >= 0 && len(bad) > maxBad; i-- {
		if !slices.ContainsFunc(onRecord, func(c Config) bool { return !c.IsLocal() && bad[i].matches(c) }) {
			bad = slices.Delete(bad, i, i+1)
		}
	}
	return bad
}

func (d *decider) promoted(c Config, local string) {
	p := slices.DeleteFunc(d.next.Promoted, func(p Promotion) bool {
		return p.Revision == c.Revision && (p.Local == local || p.Local == "")
	})
	d.next.Promoted = append([]Promotion{{c.Revision, c.Payload, d.o.Now, local}}, p...)
	d.next.Promoted = d.next.Promoted[:min(len(d.next.Promoted), maxKept)]
}

func (d *decider) event(warning bool, reason, format string, args ...any) {
	d.events = append(d.events, Event{Warning: warning, Reason: reason, Message: fmt.Sprintf(format, args...)})
}

func (s State) clone() State {
	s.Revoked = slices.Clone(s.Revoked)
	s.Bad = slices.Clone(s.Bad)
	s.Startups = slices.Clone(s.Startups)
	s.Promoted = slices.Clone(s.Promoted)
	return s
}
