package rollout

import (
	"fmt"
	"time"
)

// Amount is a number, or a percentage.
type Amount struct {
	Value   int
	Percent bool
}

// Claim is what decides which of several rollouts has a node.
type Claim struct {
	Name     string
	Priority int32
	Created  time.Time
}

// Revision is one content of a rollout's template, in its immutable ConfigMap. Zero: there is none.
type Revision struct {
	Number          int64
	Namespace, Name string
	UID             string
	SHA256          string // of the payload
	Gone            bool   // its ConfigMap is no more, and cannot be returned to
}

// Step is so many nodes, or a pause.
type Step struct {
	Nodes Amount        // zero: a pause
	Pause time.Duration // of a pause; 0: until it is approved
}

// IsPause tells a pause from a number of nodes.
func (s Step) IsPause() bool { return s.Nodes == Amount{} }

// Approval lets a revision pass a step and all before it.
type Approval struct {
	Revision int64
	Step     int
}

// Abort stops a revision.
type Abort struct {
	Revision int64
	Rollback bool
}

// Retry has nodes try a revision again.
type Retry struct {
	Revision int64
	Attempt  int64
	Nodes    []string // empty: all that failed
}

// Policy is what an operator wants of one rollout, and the time at which that is looked at.
type Policy struct {
	Claim
	// Now never goes back, and is never before a time that was recorded for this rollout.
	Now time.Time

	Target        Revision // of the template as it could be used last; zero: it never could
	Invalid       string   // why the template cannot be used; empty: it can
	LastSucceeded Revision // the newest that has, other than the target
	// Stopped are the names of the ConfigMaps of revisions that were stopped because they were bad, or by a person: a node
	// that is given another one must never fall back to them.
	Stopped []string
	// Term is of the controller that plans: a number that grows with each leader. 0: it has none.
	Term int64
	// Since is when the fleet has been seen without a gap: nobody is late by what could not be seen.
	Since time.Time

	Paused, Frozen bool
	NewNodesTarget bool // nodes that join get Target, not LastSucceeded

	MaxUnavailable          Amount
	MaxJoining              *Amount // nil: as MaxUnavailable
	MaxUnavailablePerDomain *Amount
	MaxDomainsInFlight      int // 0: no limit
	Steps                   []Step
	Soak                    time.Duration
	NodeTimeout             time.Duration // beyond the trial's own length
	ProgressDeadline        time.Duration

	MaxFailures            Amount
	RollbackOnFailure      bool
	RollbackMaxUnavailable Amount

	Approval Approval // zero: none; so below
	Abort    Abort
	Retry    Retry

	AgentTimeout  time.Duration // to take up an assignment, while the Node is Ready
	NotReadyGrace time.Duration // that a node may be NotReady for before it has failed
}

// SourceKind is what a NodeConfig's spec.configSource holds.
type SourceKind int

const (
	SourceNone      SourceKind = iota // nil
	SourceLocal                       // local: {}
	SourceConfigMap                   // a ConfigMap
)

// Source is a NodeConfig's spec.configSource. Without a Rollout, and not None, a person wrote it.
type Source struct {
	Kind            SourceKind
	Namespace, Name string
	UID, SHA256     string

	Rollout    string
	Revision   int64
	Attempt    int64
	AssignedAt time.Time
	Term       int64   // of the controller that assigned it; 0: not known
	Previous   *Source // that the node had before; nil: none. It has no Previous of its own.
}

// Ref is a configuration as a node reports it. Zero: local.
type Ref struct{ UID, SHA256 string }

// Node is all that is observed about one node. No time in it was written by a node: what a node's clock says decides
// nothing.
type Node struct {
	Name        string
	Created     time.Time // of the Node, by the API server's clock
	Domain      string    // value of the topology key
	MachineKind string    // architecture, OS, kubelet version and instance type, in one
	Canary      bool
	Last        bool   // it goes last: the controller runs there
	Owner       string // the rollout that has it instead of this one; empty: this one

	Ready bool
	// WentNotReady is when whoever plans saw the node become NotReady last, or first saw it so; zero: never. It stays when
	// the node is Ready again.
	WentNotReady time.Time
	// Mark is what was recorded about the node before.
	Observation Observation

	// Of its NodeConfig.
	HasConfig   bool
	Generation  int64  // of spec
	Observed    int64  // the generation that the status answers
	Reported    bool   // an agent has written a status
	OtherSource string // ConfigMap or Disabled, if it does not take configuration from its NodeConfig
	Source      Source
	Revoked     []string

	// Of its status.
	Active        Ref
	LastKnownGood Ref
	Idle          bool // it had no workload pods when its agent wrote last, which may be long ago; false if that is not known
	InTrial       bool
	TrialLength   time.Duration
	OK            string // status of ConfigOK: True, False, Unknown or empty
	Reason        string // of ConfigOK
	Provisional   bool   // the verdict on Source may yet be taken back
	Error         string
}

// State is how a node stands to the target.
type State uint8

const (
	Pending State = iota
	Assigned
	Trial
	Soaking
	Updated
	Failed
	Skipped
	Stale
	Conflicted
	Manual
	Blocked // its guards refuse the target because of its pods: it has not restarted, and would take the target up later
)

var stateNames = [...]string{"Pending", "Assigned", "Trial", "Soaking", "Updated", "Failed", "Skipped", "Stale", "Conflicted", "Manual", "Blocked"}

func (s State) String() string { return stateNames[s] }

// Standing is a node's state and, in words, why.
type NodeState struct {
	State   State
	Reason  string // one word of a failure
	Message string
}

// Halt is a stop of a revision.
type Halt struct {
	Revision, Attempt int64
	Reason            string // HaltTooManyFailures, ...
	Message           string
	Time              time.Time
	Rollback          bool
}

// Why a revision was stopped, as the API has it.
const (
	HaltTooManyFailures = "TooManyFailures"
	HaltInconclusive    = "Inconclusive"
	HaltAborted         = "Aborted"
)

// Progress is what a rollout remembers about its target.
type Progress struct {
	Revision     int64 // that all of this is about
	Attempt      int64
	AttemptTime  time.Time // when the attempt began
	Step         int
	StepTime     time.Time // when the step began
	Started      time.Time
	ProgressTime time.Time // when the rollout got on last
	Updated      int       // nodes then
	Waiting      bool      // it could not get on: it was done, or waited for a person or for time to pass
	Halt         *Halt
	Succeeded    bool // it has been complete once
}

// MoveKind is what a write to a NodeConfig is for.
type MoveKind uint8

const (
	Assign   MoveKind = iota // the target
	Join                     // what a node that has joined gets
	TakeBack                 // an assignment that was not taken up goes back to what was before
	GoBack                   // a node leaves a revision that was stopped
	Renew                    // the same, in the term of who leads now
)

var moveNames = [...]string{"Assign", "Join", "TakeBack", "GoBack", "Renew"}

func (k MoveKind) String() string { return moveNames[k] }

// Move is one write to one NodeConfig: all of its spec.
type Move struct {
	Node    int // index into what Plan was given
	Kind    MoveKind
	Source  Source
	Revoked []string
}

// Counts counts nodes by state.
type Counts struct {
	Selected, Pending, Assigned, Trial, Soaking, Updated, Failed, Skipped, Stale, Conflicted, Manual, Blocked int
	// Members are those that can be this rollout's: what percentages are of.
	Members int
	// Unavailable is what the budget is spent on, Budget how much there is.
	Unavailable, Budget int
	RollingBack         int
}

// Event is worth telling once.
type Event struct {
	Warning         bool
	Reason, Message string
	// Assigned are the nodes that it says were given the target: it is true once the Moves are made. Empty: it is about
	// something else, and true now.
	Assigned []string
}

// NodesAssigned returns the event that nodes were given the target.
func NodesAssigned(p *Policy, next *Progress, nodes []string) Event {
	return Event{
		Reason:   "NodesAssigned",
		Message:  fmt.Sprintf("revision %d was given to %s (step %d/%d): %s", next.Revision, plural(len(nodes), "node"), next.Step, len(p.Steps), JoinNames(nodes)),
		Assigned: nodes,
	}
}

// Condition is one of the rollout's conditions.
type Condition struct {
	Type, Status, Reason, Message string
}

// Mark is what a plan remembers about one node and its assignment. A node cannot change it. It is void for every other
// assignment: Rollout, Revision and Attempt are those of the source that the node had when the mark was made.
type Observation struct {
	Rollout           string
	Revision, Attempt int64
	HealthySince      time.Time // when the node was first seen to have proven the revision, Ready and with ConfigOK True; zero: it is not so
	Failed            int64     // the attempt of the rollout before which the node had failed; 0: it has not
	Joined            bool      // it was given that source because it had joined

	// Of a node that refused the target because of its pods, and from which it was taken back: Revision and Attempt are the
	// rollout's then, whatever source the node has now.
	Blocked time.Time // when that was; zero: it was not
	Offers  int       // how often it has been
	Reason  string    // one word of the refusal
	Message string    // in the node's words
}

// NewMark is a mark to record for a node. If it has no Rollout, the existing mark is removed.
type NewObservation struct {
	Node        int // index into what Plan was given
	Observation Observation
}

// Result is what Plan decides: first Marks and then Next are to be recorded, then Moves are to be made, in their order.
// Making them twice does no harm.
type Result struct {
	Observations []NewObservation
	Next         Progress
	Moves        []Move
	NodeState    func(i int) NodeState // of a node
	States       []State               // of all
	Counts       Counts
	Failed       []int // indexes of the failed nodes, at most MostFailed
	Phase        string
	Message      string
	Conditions   []Condition
	Events       []Event
	RequeueAfter time.Duration // plan again after this long, even if nothing happens; 0: nothing will change by itself
}

// MostFailed is how many failed nodes a Result names.
const MostFailed = 10
