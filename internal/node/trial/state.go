package trial

import (
	"fmt"
	"slices"
	"time"
)

// Config names one configuration that a node may run. The zero value is the
// local one: the init file, or the built-in defaults and flags.
type Config struct {
	Revision   string     `json:"revision"` // the key everywhere; empty: local
	Namespace  string     `json:"namespace,omitempty"`
	Name       string     `json:"name,omitempty"`
	UID        string     `json:"uid,omitempty"`
	SHA256     string     `json:"sha256,omitempty"`        // what the assignment demands of the payload, if it does
	Payload    string     `json:"payloadSHA256,omitempty"` // sha256 of the payload
	Checkpoint string     `json:"fileSHA256,omitempty"`    // sha256 of the checkpoint's file
	Dropin     bool       `json:"dropin,omitempty"`        // it is laid over the local configuration
	Rollout    RolloutRef `json:"rolloutRef,omitzero"`
	Asked      Asked      `json:"trial,omitzero"`
	// AssignedBy identifies the object that assigned it: the NodeConfig by its UID. Empty: not known, or that object's
	// assignment was taken back. Only the object named here can have its assignment removed.
	AssignedBy string `json:"assignedBy,omitempty"`
}

// Asked is what a configuration asks of its own trial. What is zero is left to
// the agent's flags.
type Asked struct {
	Duration     time.Duration `json:"durationNanoseconds,omitempty"`
	Starts       int           `json:"starts,omitempty"` // crashLoopThreshold + 1: the extra one adopts it
	AllowPodLoss bool          `json:"allowPodLoss,omitempty"`
}

// RolloutRef says which rollout assigned a configuration, if one did.
type RolloutRef struct {
	Name       string    `json:"name"`
	Revision   int64     `json:"revision"`
	Attempt    int64     `json:"attempt"`
	AssignedAt time.Time `json:"assignedAt,omitzero"`
}

// IsLocal tells whether c is the local configuration.
func (c Config) IsLocal() bool { return c.Revision == "" }

// Record is what `current` and `last-known-good` say: a configuration, and
// since when it has been that.
type Record struct {
	Config
	Since time.Time `json:"adoptedAt,omitzero"`
}

// State is what the node remembers. All but Run is on disk; Bad, Startups,
// Promoted and Trial are kept for each version of the component.
type State struct {
	Current       Record
	LastKnownGood Record
	Revoked       []string // UIDs that must never run here
	Bad           []BadConfig
	Startups      []time.Time // counted starts of the trial's configuration
	Promoted      []Promotion
	Trial         *Trial // nil: none is going on
	Run           Run
}

// Failure is the way in which a configuration failed.
type Failure string

// The ways to fail. The first three leave the verdict provisional until the
// last-known-good configuration does better.
const (
	CrashLooped    Failure = "CrashLooped"
	NotHealthy     Failure = "NotHealthy"
	NotReady       Failure = "NotReady"
	WorkloadHarmed Failure = "WorkloadHarmed"
	LostAPI        Failure = "LostAPI"
	Rejected       Failure = "ValidationFailed"
)

// BadConfig is an entry of bad-configs.
type BadConfig struct {
	Revision    string    `json:"-"`
	Namespace   string    `json:"namespace,omitempty"`
	Name        string    `json:"name,omitempty"`
	UID         string    `json:"uid,omitempty"`
	Payload     string    `json:"payloadSHA256,omitempty"`
	Time        time.Time `json:"time"`
	Reason      string    `json:"reason"`           // the condition's reason
	Detail      string    `json:"detail,omitempty"` // the kubelet's words
	Failure     Failure   `json:"failure"`
	Attempt     int64     `json:"attempt,omitempty"`     // a higher one lifts the entry
	Provisional bool      `json:"provisional,omitempty"` // last-known-good has not done better yet
}

// String is the reason with its details.
func (b BadConfig) String() string {
	if b.Detail == "" {
		return b.Reason
	}
	return b.Reason + ": " + b.Detail
}

// Promotion says that a payload passed its whole trial with this version of
// the component.
type Promotion struct {
	Revision string    `json:"revision"`
	Payload  string    `json:"payloadSHA256"`
	Time     time.Time `json:"time"`
	Local    string    `json:"localDigest,omitempty"` // what it was laid over; empty: it is no drop-in, or that was not recorded
}

// Fallback says why the last-known-good configuration runs although the one on
// trial is not bad.
type Fallback string

// The reasons for running last-known-good while a trial waits.
const (
	NoFallback   Fallback = ""
	Inconclusive Fallback = "Inconclusive" // last-known-good failed too
	APIProbe     Fallback = "APIProbe"     // does the API come back with last-known-good?
)

// Terms are what a trial was begun with: they last as long as it does, whatever
// becomes of the agent's flags.
type Terms struct {
	Duration     time.Duration `json:"durationNanoseconds"` // to be observed healthy
	Threshold    int           `json:"crashLoopThreshold"`
	AllowPodLoss bool          `json:"allowPodLoss,omitempty"`
}

// Trial is what is known of the trial of the current configuration.
type Trial struct {
	Revision      string        `json:"revision"`
	StartTime     time.Time     `json:"startTime"`
	Terms         Terms         `json:"terms,omitzero"`
	Local         string        `json:"localDigest,omitempty"`          // what a drop-in is laid over in it
	Healthy       time.Duration `json:"healthyNanoseconds"`             // observed healthy, in steps
	Unhealthy     time.Duration `json:"unhealthyNanoseconds,omitempty"` // those of Run, in steps: a stop is no health
	NotReady      time.Duration `json:"notReadyNanoseconds,omitempty"`
	LongestUptime time.Duration `json:"livedNanoseconds,omitempty"` // the longest life of a kubelet in it, no longer than settled; 0: not known
	BootID        string        `json:"bootID"`
	Clean         bool          `json:"cleanShutdown"` // it does not run: stopped on purpose, or something else runs
	Baseline      Baseline      `json:"baseline"`
	Fallback      Fallback      `json:"fallback,omitempty"`
	APILostEarly  bool          `json:"apiLostEarly,omitempty"`
	APIProbed     bool          `json:"apiProbed,omitempty"` // it fell back that way once; never again
}

// lived takes note of how long a kubelet has lived in the trial.
func (t *Trial) noteUptime(d time.Duration) {
	t.LongestUptime = min(stableAfter, max(t.LongestUptime, d))
}

// Baseline is how the node was when the configuration was adopted: only what
// was fine then can be held against it.
type Baseline struct {
	API      bool     `json:"apiReachable"`
	Ready    bool     `json:"ready"`
	Pressure []string `json:"pressure,omitempty"`
	Pods     []string `json:"podUIDs,omitempty"`
	// Open: no kubelet ran then, and the node was not seen to be Ready. It is taken when the node is Ready for the first
	// time, and no health counts before.
	Pending bool `json:"open,omitempty"`
}

// Run is what only matters while this agent lives: it is about the kubelet that
// it started, and it is lost with it.
type Run struct {
	Started  bool          // Config has been started
	Config   Config        // what was started last
	Local    string        // the digest of local, as it was then
	Deferred bool          // the source was invalid at the start: last-known-good until it is clear
	Crashes  int           // unexpected exits without a minute of health between them
	Counted  int           // of those: while nothing else was to blame
	Delay    time.Duration // left until the next start after a crash
	LastExit string

	Healthy        bool          // at the last decision
	SinceStart     time.Duration // alive, since the last change of Config
	Uptime         time.Duration // alive, since the last start
	HealthyFor     time.Duration // without a break, since the last start
	ReadyFor       time.Duration // the same, and the node is Ready
	Unhealthy      time.Duration // alive but not healthy, without a break
	Waiting        time.Duration // alive but waiting for its lock, without a break
	NotReady       time.Duration // healthy, but the node is not Ready, without a break
	Outage         bool          // at the last decision, of what health depends on
	ClocksPaused   bool          // at the last decision, the clocks that the API stops stood still
	UnsavedHealthy time.Duration // healthy time of the trial that is not on disk yet
	APISeen        bool          // reachable since the last change of Config
	APIAway        time.Duration // without a break
	Probing        time.Duration // since the API probe began
	Waited         time.Duration // since the trial was inconclusive
	Retries        int           // how often it went on after that although what ran failed
	DeadEnd        bool
}

// Same tells whether two records name the same configuration.
func (r Record) Same(c Config) bool { return r.Revision == c.Revision }

// BadEntry returns the entry that forbids c, and whether there is one. Entries
// match by revision or by payload.
func (s State) BadEntry(c Config) (BadConfig, bool) {
	if c.IsLocal() {
		return BadConfig{}, false
	}
	i := slices.IndexFunc(s.Bad, func(b BadConfig) bool { return b.matches(c) })
	if i < 0 {
		return BadConfig{}, false
	}
	return s.Bad[i], true
}

func (b BadConfig) matches(c Config) bool {
	return b.Revision == c.Revision || b.Payload != "" && b.Payload == c.Payload
}

// IsRevoked tells whether c must never run here by order of the NodeConfig.
func (s State) IsRevoked(c Config) bool {
	return c.UID != "" && slices.Contains(s.Revoked, c.UID)
}

// OnTrial tells whether c is the configuration whose trial is going on. It may
// be last-known-good: with another version of the component.
func (s State) OnTrial(c Config) bool {
	return s.Trial != nil && s.Trial.Revision == c.Revision && s.Current.Same(c)
}

// Replaced returns what is left of a run when the component's binary was
// replaced by one of another version, whose records are other ones.
func (r Run) Replaced() Run {
	return Run{Started: r.Started, Config: r.Config, Local: r.Local, Deferred: r.Deferred, LastExit: r.LastExit}
}

// TakesUp reports whether next, which follows s, has another current configuration or lacks a verdict that s has. The disk
// must take such a state before the node goes by it: an agent that cannot record it decides again with Observed.Storage.
func (s State) TakesUp(next State) bool {
	return next.Current != s.Current || slices.ContainsFunc(s.Bad, func(b BadConfig) bool {
		return !slices.ContainsFunc(next.Bad, func(x BadConfig) bool { return x.Revision == b.Revision })
	})
}

// RemovedBy reports whether in means that current was assigned by an object that assigns nothing any more.
func (s State) RemovedBy(in Intent) bool {
	return in.Kind == Unassigned && in.Config.AssignedBy != "" && s.Current.AssignedBy == in.Config.AssignedBy
}

// Records returns the revisions that the state names, local left out, and what
// payload is on record for each.
func (s State) Records() map[string]string {
	records := map[string]string{}
	for _, b := range s.Bad {
		records[b.Revision] = b.Payload
	}
	for _, p := range s.Promoted {
		records[p.Revision] = p.Payload
	}
	for _, c := range []Config{s.LastKnownGood.Config, s.Current.Config} {
		if !c.IsLocal() {
			records[c.Revision] = c.Payload
		}
	}
	return records
}

// CleanShutdown returns the state to persist when the kubelet was stopped
// because the agent was told to stop: what was observed is kept, and the next
// start is not held against the configuration.
func CleanShutdown(s State) State {
	if s.Trial != nil {
		t := *s.Trial
		t.Healthy += s.Run.UnsavedHealthy
		if s.Run.Started && s.OnTrial(s.Run.Config) && t.Fallback == NoFallback {
			t.Unhealthy, t.NotReady = max(t.Unhealthy, s.Run.Unhealthy), max(t.NotReady, s.Run.NotReady)
			t.noteUptime(s.Run.Uptime)
		}
		t.Clean = true
		s.Trial = &t
	}
	s.Run.UnsavedHealthy = 0
	return s
}

// maxKept bounds the lists in the state.
const (
	maxPromoted = 10
	maxBad      = 50
)

// Forget returns the state without the belief that a revision is bad: the
// proposal's repair for dead ends.
func Forget(s State, revision string) State {
	d := &decider{next: s.clone(), o: Observed{Forget: []string{revision}}}
	d.forgetRequested()
	return d.next
}

// Standing says what a node with this state runs and why, as far as the state
// alone tells.
func Standing(s State) (Config, string) {
	c := s.Current.Config
	why := "it is current"
	if b, bad := s.BadEntry(c); bad {
		why = b.Reason
	} else if s.IsRevoked(c) {
		why = fmt.Sprintf("current (UID: %s) is revoked", c.Revision)
	} else if s.Trial != nil && s.Trial.Fallback != NoFallback {
		why = fmt.Sprintf("the trial of current (UID: %s) waits: %s", c.Revision, s.Trial.Fallback)
	} else {
		if s.OnTrial(c) {
			why = "it is current, on trial"
		}
		return c, why
	}
	if lkg := s.LastKnownGood.Config; !lkg.IsLocal() && !s.Current.Same(lkg) {
		if _, bad := s.BadEntry(lkg); !bad && !s.IsRevoked(lkg) {
			return lkg, "it is last-known-good; " + why
		}
	}
	return Config{}, "it is what is left to fall back to; " + why
}
