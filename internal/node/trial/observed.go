package trial

import "time"

// Observed is what the agent saw. Nothing in it comes from the state.
type Observed struct {
	Now     time.Time     // wall clock: recorded, never reckoned with
	Elapsed time.Duration // monotonic time since the last decision
	BootID  string
	Limits  Limits
	Local   Local
	// LocalDigest changes when the local configuration does.
	LocalDigest string
	Intent      Intent
	// Verdicts are what the dry run and the guards said, by revision; "" is local.
	Verdicts map[string]Verdict
	Child    Child
	Node     Node
	Revoked  *[]string // nil: not known
	Forget   []string  // revisions an operator wants forgotten
	Storage  string    // why the last Next could not be persisted; empty: it was
}

// Limits are the agent's flags. The first two are for configurations that ask
// for nothing else.
type Limits struct {
	TrialDuration      time.Duration
	CrashLoopThreshold int
	HealthTimeout      time.Duration
	ReadyTimeout       time.Duration
	APILossRollback    bool
	DegradeLocal       bool // --local-invalid=degrade
}

// Local says what "local" means on this node.
type Local string

// What local can mean.
const (
	Init    Local = "init"
	Default Local = "default"
)

// IntentKind says what is known of the intended configuration.
type IntentKind int

// The kinds of intent. The proposal's "empty" is Nil, its "correct" Assigned.
const (
	Unanswered IntentKind = iota // no answer yet, or none that can be had
	Unassigned                   // an object without an assignment: means local only if it assigned current before
	Nil                          // local is written explicitly, or the agent keeps no remote configuration
	Invalid                      // answered, but not correct
	Assigned                     // correct, downloaded, checkpointed
)

// Intent is the intended configuration, as its source has it.
type Intent struct {
	Kind   IntentKind
	Cause  string // of Unanswered, Unassigned and Invalid
	Reason string // CamelCase, of Invalid, if there is a better one than SyncFailed
	Config Config // of Assigned; of Invalid as far as it is known; of Unassigned: AssignedBy alone, the object
	Notice string // worth saying, changes nothing: the object was edited or deleted
	// TakenBack is the assignment that a rollout took back, of Unassigned; zero: none.
	TakenBack RolloutRef
}

// takesBack reports whether the rollout's mark covers c: a rollout assigned c, not later than what it took back.
func (in Intent) takesBack(c Config) bool {
	return in.TakenBack.Name != "" && c.Rollout.Name != "" && !c.Rollout.AssignedAt.After(in.TakenBack.AssignedAt)
}

// Outcome is the result of validating a configuration.
type Outcome int

// The outcomes. Refused, Protected and CouldNotTell are no verdicts: they are
// decided again when what they depend on changes.
const (
	NotValidated Outcome = iota
	Accepted
	RejectedOutcome
	Refused
	CouldNotTell
	Unavailable // its checkpoint is missing or corrupt: not to be run until it is healed
	Protected   // Refused, and not to be run either if it was taken up before: it changes what the node protects
)

// Verdict is what validation said of one configuration.
type Verdict struct {
	Outcome Outcome
	Guard   string // CamelCase, of Refused and Protected
	Words   string
}

// Child is the kubelet.
type Child struct {
	Alive   bool
	Waiting bool // for its lock: neither healthy nor unhealthy
	Healthy bool // READY, watchdog and healthz all say so
	Exited  bool // unexpectedly, since the last decision
	Spawned bool // of Exited: it ran at all
	Exit    string
}

// Node is the node as the API has it, and what the kubelet depends on.
type Node struct {
	API          bool // reachable with the kubelet's own credentials
	Ready        bool // Ready, and its Lease renewed since this start
	Pressure     []string
	Pods         []string // UIDs of the pods that run
	LostPods     []string // that ran at adoption and were evicted or rejected since
	RuntimeDown  bool     // a runtime socket that the payload did not change cannot be reached
	ShuttingDown bool
}

// ActionKind is the closed set of what a decision can ask for.
type ActionKind int

// The actions. Carrying one out twice is harmless.
const (
	None    ActionKind = iota
	Start              // start the kubelet with Config
	Restart            // stop it, then start it with Config
	Refuse             // local is invalid and nothing proven can run: stop
)

func (k ActionKind) String() string {
	return [...]string{"None", "Start", "Restart", "Refuse"}[k]
}

// Cause says why a kubelet is started; it labels a metric.
type Cause string

// The causes of a start.
const (
	CauseBoot     Cause = "boot"
	CauseCrash    Cause = "crash"
	CauseChange   Cause = "change"
	CauseRollback Cause = "rollback"
	CauseResume   Cause = "resume"
)

// Action is what to do after Next has been persisted.
type Action struct {
	Kind   ActionKind
	Config Config
	Cause  Cause
	Words  string // of Refuse
}

// Decision is a value; its fields take effect in their order.
type Decision struct {
	Next     State         // to persist before Action is carried out
	Action   Action        // what to do now
	Validate []Config      // verdicts that are missing: find them and decide again
	Status   Status        // what to report; not while a verdict is missing
	Events   []Event       // what has just happened, once
	Watch    bool          // the node's condition matters now: observe it
	Wake     time.Duration // decide again after this long, even if nothing happens
}

// Event is something to tell people once.
type Event struct {
	Warning bool
	Reason  string // CamelCase
	Message string
	Failure Failure // of a trial that failed: how
}

func (k IntentKind) String() string {
	return [...]string{"Unanswered", "Unassigned", "Nil", "Invalid", "Assigned"}[k]
}
