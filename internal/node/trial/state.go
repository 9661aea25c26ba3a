// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// LocalConfig is the kind of local configuration that a node has.
type LocalConfig string

// The kinds of local configuration.
const (
	LocalInit    LocalConfig = "init"    // a file of the node's own, in --init-config-dir or named by the kubelet's --config
	LocalDefault LocalConfig = "default" // the kubelet's built-in defaults and its flags
)

// Config identifies a configuration that a node may run. The zero value is the
// local configuration: the init file, or the built-in defaults and flags.
type Config struct {
	v1alpha1.ConfigRevision
	// Revision is the key under which the node stores the configuration: the
	// UID of the ConfigMap. For a ConfigMap of the node's own, a dash and the
	// first 12 digits of the payload's sha256 follow, and for a payload with
	// rules a dash and those of ResolvedSHA256.
	Revision   string `json:"revision,omitempty"`
	Checkpoint string `json:"fileSHA256,omitempty"` // sha256 of the checkpoint's file
	Dropin     bool   `json:"dropin,omitempty"`     // merged with the local configuration
	// Rollout is the rollout that assigned it, without Term and Previous; zero:
	// a person did.
	Rollout        v1alpha1.RolloutReference `json:"rolloutRef,omitzero"`
	RequestedTerms RequestedTerms            `json:"trial,omitzero"`
	End            End                       `json:"temporary,omitzero"`
	// AssignedBy identifies the object that assigned the configuration: the UID
	// of the NodeConfig. It is empty if that is not known or the assignment was
	// taken back. Only this object can remove the assignment.
	AssignedBy string `json:"assignedBy,omitempty"`
}

// RequestedTerms are what a configuration requests for its own trial. The
// agent's flags replace zero values.
type RequestedTerms struct {
	Duration     metav1.Duration `json:"configTrialDuration,omitzero"`
	Starts       int             `json:"starts,omitempty"` // crashLoopThreshold + 1: the first start is the adoption
	AllowPodLoss bool            `json:"allowPodLoss,omitempty"`
}

// WithValues returns c, as a source names it, with the digest of the values
// that its rules give on this machine. With other values it is another
// configuration: the revision contains the beginning of the digest.
func (c Config) WithValues(digest string) Config {
	c.Revision, c.ResolvedSHA256 = sourceRevision(c.Revision, c.ResolvedSHA256), digest
	c.Revision += v1alpha1.ValuesSuffix(digest)
	return c
}

// SourceRevision returns the revision that the source knows: without the values
// of this machine.
func (c Config) SourceRevision() string { return sourceRevision(c.Revision, c.ResolvedSHA256) }

func sourceRevision(revision, resolved string) string {
	return strings.TrimSuffix(revision, v1alpha1.ValuesSuffix(resolved))
}

// sameContent reports whether two configurations have the same payload and the
// same values of its rules.
func sameContent(a, b v1alpha1.ConfigRevision) bool {
	return a.SHA256 == b.SHA256 && a.ResolvedSHA256 == b.ResolvedSHA256
}

// IsLocal reports whether c is the local configuration.
func (c Config) IsLocal() bool { return c.Revision == "" }

// AdoptedConfig is the content of `current` or `last-known-good`: a
// configuration and the time at which it took that role.
type AdoptedConfig struct {
	Config
	Since time.Time `json:"since,omitzero"`
}

// State is what the node remembers. All fields but Run are saved to disk; Bad,
// Startups, Promoted and Trial are kept separately for each version of the
// component. Its JSON is the format of the records, and of `evenkeel-agent
// status`.
type State struct {
	Current       AdoptedConfig `json:"current"`
	LastKnownGood AdoptedConfig `json:"lastKnownGood"`
	Revoked       []types.UID   `json:"revoked,omitempty"` // must never run here
	Bad           []BadConfig   `json:"badConfigs,omitempty"`
	Startups      []time.Time   `json:"startups,omitempty"` // counted starts of the configuration on trial
	Promoted      []Promotion   `json:"promoted,omitempty"`
	Trial         *Trial        `json:"trial,omitempty"`     // nil: no trial is in progress
	Temporary     *Temporary    `json:"temporary,omitempty"` // of the newest assignment that was adopted; nil: it does not end by itself
	Run           Run           `json:"-"`
}

// BadConfig is an entry of bad-configs: a configuration that failed. Its reason
// is in two parts.
type BadConfig struct {
	v1alpha1.ConfigRevision
	Revision string `json:"revision,omitempty"` // of its Config

	Time   time.Time `json:"time"`
	Reason string    `json:"reason"`           // the condition's cause
	Detail string    `json:"detail,omitempty"` // the kubelet's message
	// Failure is the reason of ConfigOK. After CrashLooped, NotHealthy and
	// NotReady, and after a loss of pods that nobody can explain, the verdict
	// stays provisional until the fallback has been healthy for long enough.
	Failure     string `json:"failure"`
	Attempt     int64  `json:"attempt,omitempty"`     // a rollout's higher attempt withdraws the entry
	Provisional bool   `json:"provisional,omitempty"` // the fallback has not proven to be better yet
}

// String returns the reason and the detail.
func (b BadConfig) String() string { return withDetail(b.Reason, b.Detail) }

// Promotion records that a payload passed its whole trial with this version of
// the component.
type Promotion struct {
	Revision string    `json:"revision"`
	SHA256   string    `json:"sha256"`
	Time     time.Time `json:"time"`
	Local    string    `json:"localDigest,omitempty"`    // the local configuration that it was merged with; empty: it is no drop-in
	Resolved string    `json:"resolvedSHA256,omitempty"` // as in ConfigRevision
	Starts   string    `json:"podStarts,omitempty"`      // a reason of PodsStarted; empty: an earlier agent did not look
	Refused  string    `json:"podsRefused,omitempty"`    // of Starts: the pods that were refused, and why
}

// Fallback is the reason why last-known-good runs although the configuration on
// trial is not bad.
type Fallback string

// The reasons for running last-known-good while a trial waits.
const (
	NoFallback   Fallback = ""
	Inconclusive Fallback = v1alpha1.ReasonInconclusive // last-known-good failed too
	APIProbe     Fallback = "APIProbe"                  // find out whether the API comes back with last-known-good
)

// Terms are the terms that a trial began with. Later changes of the agent's
// flags do not affect it.
type Terms struct {
	Duration     metav1.Duration `json:"configTrialDuration"` // of health that must be observed
	Threshold    int             `json:"crashLoopThreshold"`
	AllowPodLoss bool            `json:"allowPodLoss,omitempty"`
}

// Trial is the progress of the trial of the current configuration.
type Trial struct {
	Revision      string          `json:"revision"`
	StartTime     time.Time       `json:"startTime"`
	Terms         Terms           `json:"terms"`
	Local         string          `json:"localDigest,omitempty"`  // the local configuration that a drop-in is merged with
	Healthy       metav1.Duration `json:"healthy"`                // observed health, saved in steps
	Unhealthy     metav1.Duration `json:"unhealthy,omitzero"`     // Run.Unhealthy, saved in steps: a restart of the agent does not reset it
	NotReady      metav1.Duration `json:"notReady,omitzero"`      // the same of Run.NotReady
	LongestUptime metav1.Duration `json:"longestUptime,omitzero"` // of a kubelet in this trial, at most stableAfter; 0: not known
	BootID        string          `json:"bootID"`
	Clean         bool            `json:"cleanShutdown"` // it does not run: it was stopped on purpose, or another configuration runs
	Baseline      Baseline        `json:"baseline"`
	Fallback      Fallback        `json:"fallback,omitempty"`
	APILostEarly  bool            `json:"apiLostEarly,omitempty"`
	Started       []PodStart      `json:"podsStarted,omitempty"` // pods that started in the trial, at most one of three namespaces
	APIProbed     bool            `json:"apiProbed,omitempty"`   // there was an API probe in this trial; there is at most one
}

// noteUptime records how long a kubelet ran in the trial.
func (t *Trial) noteUptime(d time.Duration) {
	t.LongestUptime.Duration = min(stableAfter, max(t.LongestUptime.Duration, d))
}

// Baseline is the state of the node before the trial. Only a change from good
// to bad can fail the trial.
type Baseline struct {
	API      bool     `json:"apiReachable"`
	Ready    bool     `json:"ready"` // also if only a configuration on trial made the node not Ready, which the present one replaces
	Pressure []string `json:"pressure,omitempty"`
	Pods     []string `json:"podUIDs,omitempty"`
	Failing  []string `json:"failingUIDs"` // pods that did not run, and their owners; null: not known
	// Pending: the node was not Ready, and it is not known why. The baseline is
	// taken when the node is Ready for the first time; no health counts before
	// that.
	Pending bool `json:"pending,omitempty"`
}

// Run is about the kubelet that this agent started. It is not saved. Each group
// has one writer; chooseAction, which starts a kubelet, and endTrial also reset
// what is about the one before.
type Run struct {
	// What was started last: chooseAction.
	Started bool
	Config  Config // also changed by adopt, if only its assignment or its checkpoint's file is another one
	Local   string // the digest of the local configuration at that start

	// Exits: handleExit. updateClocks forgets them after a minute of health.
	Crashes    int // unexpected exits without a minute of health between them
	Counted    int // those of Crashes that were not caused by an outage
	LastExit   string
	LastErrors string        // the last errors that the kubelet logged before LastExit; empty: none are known
	Excused    bool          // the last exit did not count, because of an outage that had just ended
	Delay      time.Duration // remaining time until the restart; updateClocks counts it down

	// Times that were observed: updateClocks.
	Healthy        bool          // at the last decision
	SinceStart     time.Duration // of the process, since the last change of Config
	Uptime         time.Duration // of the process, since the last start
	HealthyFor     time.Duration // without a break, since the last start
	ReadyFor       time.Duration // the same, with a Ready node
	Unhealthy      time.Duration // running but not healthy; on trial, a quarter of the time of health is taken off, else all of it
	Waiting        time.Duration // running but waiting for its lock, without a break
	NotReady       time.Duration // healthy, but the node is not Ready; on trial, a quarter of the time of Ready is taken off, else all of it
	Relapsed       bool          // Unhealthy or NotReady was interrupted by a good time
	UnsavedHealthy time.Duration // health in the trial; judge moves it to the trial, which is saved
	APISeen        bool          // reachable since the last change of Config
	APIAway        time.Duration // without a break
	Probing        time.Duration // since the API probe began
	Waited         time.Duration // since the trial became inconclusive

	UnsavedTemporary time.Duration // time of a temporary assignment; endTemporary moves it to State.Temporary, which is saved

	// Pods that cannot start: updateStarts. AfterTrial: promote, chooseAction
	// and judgeAfterTrial.
	RefusedFor time.Duration // pods are refused, and none has started
	Refused    string        // the pods that are refused, and why, as they were reported first; empty: none
	AfterTrial time.Duration // remaining time in which refused pods are still reported

	// How the fallback does: judge.
	Retries int // how often the trial was resumed although its fallback failed
	DeadEnd bool

	// The source was invalid at the agent's start, so that last-known-good runs
	// until it is valid: adopt.
	Deferred bool

	// What was unavailable at the last decision: decision.
	Outage       bool // something that health depends on
	ClocksPaused bool // the clocks that depend on the API or the runtime were stopped
}

// exitReason returns the last exit with the kubelet's last errors before it.
func (r Run) exitReason() string { return withDetail(r.LastExit, r.LastErrors) }

// withDetail adds the kubelet's own words to a reason, if there are any.
func withDetail(reason, detail string) string {
	if detail == "" {
		return reason
	}

	return reason + ": " + detail
}

// Same reports whether r contains the configuration c.
func (r AdoptedConfig) Same(c Config) bool { return r.Revision == c.Revision }

// BadEntry returns the entry that forbids c, and whether there is one. Entries
// match by revision or by payload.
func (s State) BadEntry(c Config) (BadConfig, bool) {
	for _, b := range s.Bad {
		if b.matches(c) {
			return b, true
		}
	}

	return BadConfig{}, false
}

// FinalEntry returns the entry that keeps an assignment of c from being tried,
// and whether there is one. A later attempt of a rollout withdraws the verdicts
// of earlier ones.
func (s State) FinalEntry(c Config) (BadConfig, bool) {
	for _, b := range s.Bad {
		if b.matches(c) && c.Rollout.Attempt <= b.Attempt {
			return b, true
		}
	}

	return BadConfig{}, false
}

// Continued returns the running configuration if it already has c's payload, so
// that adopting c needs no restart. Before this agent has started a kubelet,
// the running configuration is current.
func (s State) Continued(c Config) (Config, bool) {
	old := s.Current.Config
	if s.Run.Started {
		old = s.Run.Config
	}

	same := !old.IsLocal() && sameContent(old.ConfigRevision, c.ConfigRevision) && !s.forbids(old)

	return old, same && (s.LastKnownGood.Same(old) || s.OnTrial(old))
}

// forbids reports whether c must not run.
func (s State) forbids(c Config) bool {
	_, bad := s.BadEntry(c)
	return bad || s.IsRevoked(c)
}

func (b BadConfig) matches(c Config) bool {
	return b.Revision == c.Revision && !c.IsLocal() || b.SHA256 != "" && sameContent(b.ConfigRevision, c.ConfigRevision)
}

// IsRevoked reports whether the NodeConfig forbids c on this node.
func (s State) IsRevoked(c Config) bool {
	return c.UID != "" && slices.Contains(s.Revoked, c.UID)
}

// OnTrial reports whether the trial in progress is that of c. With a new
// version of the component, c may be last-known-good.
func (s State) OnTrial(c Config) bool {
	return s.Trial != nil && s.Trial.Revision == c.Revision && s.Current.Same(c)
}

// ForNewVersion returns the part of r that stays valid when the component's
// binary is replaced by another version.
func (r Run) ForNewVersion() Run {
	return Run{Started: r.Started, Config: r.Config, Local: r.Local, Deferred: r.Deferred, LastExit: r.LastExit, LastErrors: r.LastErrors,
		UnsavedTemporary: r.UnsavedTemporary}
}

// MustPersist reports whether next, which follows s, has another current
// configuration or withdraws a verdict. Such a state must be saved before the
// node acts on it: if it cannot be saved, the agent decides again with
// Observed.Storage set.
func (s State) MustPersist(next State) bool {
	return next.Current != s.Current || slices.ContainsFunc(s.Bad, func(b BadConfig) bool {
		return !slices.ContainsFunc(next.Bad, func(x BadConfig) bool { return x.Revision == b.Revision })
	})
}

// RemovedBy reports whether in means that the object that assigned current
// assigns nothing any more.
func (s State) RemovedBy(in Intent) bool {
	return in.Kind == Unassigned && in.Config.AssignedBy != "" && s.Current.AssignedBy == in.Config.AssignedBy
}

// PayloadDigests returns the digest of the payload of each revision that the
// state names, as the source knows it, without local.
func (s State) PayloadDigests() map[string]string {
	records := map[string]string{}
	for _, b := range s.Bad {
		records[sourceRevision(b.Revision, b.ResolvedSHA256)] = b.SHA256
	}

	for _, p := range s.Promoted {
		records[sourceRevision(p.Revision, p.Resolved)] = p.SHA256
	}

	for _, c := range []Config{s.LastKnownGood.Config, s.Current.Config} {
		if !c.IsLocal() {
			records[c.SourceRevision()] = c.SHA256
		}
	}

	return records
}

// CleanShutdown returns the state to save when the kubelet was stopped because
// the agent stops: it keeps the observed times, and the next start does not
// count as a crash.
func CleanShutdown(s State) State {
	if s.Trial != nil {
		t := *s.Trial
		t.Healthy.Duration += s.Run.UnsavedHealthy
		if s.Run.Started && s.OnTrial(s.Run.Config) && t.Fallback == NoFallback {
			t.Unhealthy.Duration, t.NotReady.Duration = max(t.Unhealthy.Duration, s.Run.Unhealthy), max(t.NotReady.Duration, s.Run.NotReady)
			t.noteUptime(s.Run.Uptime)
		}

		t.Clean = true
		s.Trial = &t
	}

	if s.Temporary != nil {
		t := *s.Temporary
		t.Ran.Duration += s.Run.UnsavedTemporary
		s.Temporary = &t
	}

	s.Run.UnsavedHealthy, s.Run.UnsavedTemporary = 0, 0

	return s
}

// Limits of the lists in the state.
const (
	maxPromoted = 10
	maxBad      = 50
)

// Forget returns the state without the verdict on a revision: the proposal's
// repair for a dead end.
func Forget(s State, revision string) State {
	d := &decider{next: s.clone(), o: Observed{Forget: []string{revision}}}
	d.forgetRequested()
	return d.next
}

// NextStart returns the configuration that a node with this state runs at its
// next start, and why, as far as the state alone tells.
func NextStart(s State) (Config, string) {
	c := s.Current.Config
	why := "it is current"
	if b, bad := s.BadEntry(c); bad {
		why = b.Reason
	} else if s.IsRevoked(c) {
		why = fmt.Sprintf("current %s is revoked", c.UIDLabel())
	} else if s.Trial != nil && s.Trial.Fallback != NoFallback {
		why = fmt.Sprintf("the trial of current %s waits: %s", c.UIDLabel(), s.Trial.Fallback)
	} else {
		if s.OnTrial(c) {
			why = "it is current, on trial"
		}

		return c, why
	}

	if lkg := s.LastKnownGood.Config; !lkg.IsLocal() && !s.Current.Same(lkg) && !s.forbids(lkg) {
		return lkg, "it is last-known-good; " + why
	}

	return Config{}, "it is the only fallback left; " + why
}
