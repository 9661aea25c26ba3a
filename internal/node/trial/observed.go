// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// Observed is what the agent has observed. Nothing in it comes from the State.
type Observed struct {
	Now     time.Time     // wall clock: recorded, never used in a calculation
	Elapsed time.Duration // monotonic time since the last decision
	BootID  string
	Limits  Limits
	Local   LocalConfig
	// LocalDigest changes when the local configuration changes.
	LocalDigest string
	Intent      Intent
	// Verdicts are the results of the dry runs, by revision; "" is local.
	Verdicts map[string]Verdict
	Guard    *Permit // the answer to the last Ask; nil: the pod guard was not asked
	Child    Child
	Node     Node
	Revoked  *[]types.UID // nil: not known
	Forget   []string     // revisions whose verdicts an operator wants removed
	Storage  string       // why the last Next could not be saved; empty: it was saved
}

// Limits are the agent's flags, and RestInterval. The first two apply to
// configurations that request nothing else.
type Limits struct {
	TrialDuration      time.Duration
	CrashLoopThreshold int
	HealthTimeout      time.Duration
	ReadyTimeout       time.Duration
	APILossRollback    bool
	DegradeLocal       bool // --local-invalid=degrade
	// RestInterval is how often a decision is made while the node runs what it
	// should and is healthy; 0 means 10s. Only hollow nodes set it.
	RestInterval time.Duration
}

// IntentKind is what is known about the intended configuration.
type IntentKind int

// The kinds of intents. The proposal's "empty" is Nil, its "correct" is
// Assigned.
const (
	Unanswered IntentKind = iota // no answer yet
	Unassigned                   // the object assigns nothing: this means local only if that object assigned current
	Nil                          // local is assigned explicitly, or dynamic configuration is off
	Invalid                      // answered, but not correct
	Assigned                     // correct, downloaded and saved to disk
)

// Intent is the intended configuration, as the source returned it.
type Intent struct {
	Kind   IntentKind
	Cause  string // of Unanswered, Unassigned and Invalid
	Reason string // CamelCase, of Invalid, if there is a better one than SyncFailed
	Config Config // of Assigned; of Invalid as far as it is known; of Unassigned only AssignedBy
	Notice string // a message without effect on the decision: the object was edited or deleted
	// TakenBack is the assignment that a rollout took back, of Unassigned; nil:
	// none.
	TakenBack *v1alpha1.TakenBackAssignment
}

// takesBack reports whether a rollout took c back: any rollout assigned c, not
// later than the assignment that was taken back. A rollout can have taken the
// node over, and taken its own assignment back, before the agent saw either.
func (in Intent) takesBack(c Config) bool {
	return in.TakenBack != nil && c.Rollout.Name != "" && !c.Rollout.AssignedAt.After(in.TakenBack.AssignedAt.Time)
}

// Outcome is the result of validating a configuration.
type Outcome int

// The outcomes. Refused, Protected and CouldNotTell are not final: they change
// with the things they depend on.
const (
	NotValidated Outcome = iota
	Accepted
	Rejected
	Refused
	CouldNotTell
	Unavailable // its checkpoint is missing or corrupt: it cannot run until it is downloaded again
	Protected   // like Refused, and it must not run even if it was adopted before: it changes protected fields
)

// Verdict is the result of validating one configuration.
type Verdict struct {
	Outcome Outcome
	Guard   string // CamelCase, of Refused and Protected; of CouldNotTell if the local configuration is the cause
	Message string
}

// Adoption is a restart of the kubelet for a change, which can cost pods.
type Adoption struct {
	Config       Config
	Attempt      int64 // of the assignment
	AllowPodLoss bool
}

// Permit is what the pod guard says about a restart.
type Permit struct {
	Adoption
	Refusal Verdict  // zero: none
	Pods    []string // the UIDs of the active pods; nil: they are not known
}

// Child is the state of the kubelet's process.
type Child struct {
	Alive   bool
	Waiting bool // for its lock: neither healthy nor unhealthy
	Healthy bool // READY, watchdog and healthz agree
	Exited  bool // unexpectedly, since the last decision
	Spawned bool // of Exited: the process had started
	Exit    string
	// LastErrors are the last errors that it logged before, in one line; empty:
	// none are known.
	LastErrors string
}

// Node is the node's state in the API, and the state of what the kubelet
// depends on.
type Node struct {
	API      bool // reachable with the kubelet's own credentials
	Ready    bool // Ready, and its Lease was renewed since this start
	Pressure []string
	Pods     []string // UIDs of the running pods
	LostPods []string // ran at adoption and were ended by the kubelet since, or perhaps by it
	// Failing are the UIDs of active pods with a container that does not run,
	// and of their owners.
	Failing []string
	// Started are pods of which a container was started since this start of the
	// kubelet, as many as AddStart keeps. Refused are those that were not, that
	// were not in Baseline.Failing, and that the kubelet or its runtime refused
	// to start twice or more.
	Started, Refused []PodStart
	// RefusedUnseen means that the kubelet refused pods while the node's pods
	// are not watched, so that Refused is empty.
	RefusedUnseen bool
	// LossUnexplained means that it is not known of any of LostPods that the
	// kubelet ended it.
	LossUnexplained bool
	RuntimeDown     bool // a runtime socket that the payload does not change is unreachable
	ShuttingDown    bool
}

// ActionKind is what a decision can request.
type ActionKind int

// The actions. Repeating one has no effect.
const (
	None    ActionKind = iota
	Start              // start the kubelet with Config
	Restart            // stop it, then start it with Config
	Refuse             // stop the agent: local is invalid and nothing proven can run
)

func (k ActionKind) String() string {
	return [...]string{"None", "Start", "Restart", "Refuse"}[k]
}

// Cause is the cause of a start of the kubelet, a label of a metric.
type Cause string

// The causes of a start.
const (
	CauseBoot     Cause = "boot"
	CauseCrash    Cause = "crash"
	CauseChange   Cause = "change"
	CauseRollback Cause = "rollback"
	CauseResume   Cause = "resume"
)

// Action is what to do after Next has been saved.
type Action struct {
	Kind    ActionKind
	Config  Config
	Cause   Cause
	Message string // of Refuse
}

// Decision is the result of Decide. Its fields take effect in their order.
type Decision struct {
	Next     State         // save before Action is carried out
	Action   Action        // what to do now
	Validate []Config      // missing verdicts: find them and decide again
	Ask      *Adoption     // ask the pod guard, and decide again: nothing else is decided; nil: nothing to ask
	Refused  bool          // the pod guard refused a restart that would be made otherwise
	Status   Status        // what to report; empty while a verdict is missing
	Events   []Event       // what has just happened, once
	Watch    bool          // observe the node's state: the next decision needs it
	Wake     time.Duration // decide again after this time, even if nothing happens
}

// Event is something to report once.
type Event struct {
	Warning bool
	Reason  string // CamelCase
	Message string
	Failure string // of a failed trial
}

func (k IntentKind) String() string {
	return [...]string{"Unanswered", "Unassigned", "Nil", "Invalid", "Assigned"}[k]
}
