package installer

import (
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// Operation is what installing and uninstalling differ in.
type Operation struct {
	Verb, Past    string // install, installed
	DaemonSet     string
	label, failed string // values of LabelAgent
}

var (
	Install   = Operation{"install", "installed", v1alpha1.InstallerName, v1alpha1.AgentInstall, v1alpha1.AgentInstallFailed}
	Uninstall = Operation{"uninstall", "uninstalled", v1alpha1.UninstallerName, v1alpha1.AgentUninstall, v1alpha1.AgentUninstallFailed}
)

// Desired is what the operation's DaemonSet is now.
type Desired struct {
	Revision string // of its pods
	Image    string
	Version  string        // that agents must report; empty: any
	ReadyFor time.Duration // how long a pod must have been ready
}

// Policy is what a person asked for. It stays the same from the first decision to the last.
type Policy struct {
	Operation      Operation
	Desired        Desired
	MaxUnavailable int // nodes in progress at a time, at least 1
	Timeout        time.Duration
	Retry          bool // nodes that have failed before
}

// Node is what the API says of a node, of its agent, and of its pods of the operation's DaemonSet.
type Node struct {
	Name string
	// Unread is why the node could not be read now, although it may be later. Then only its name is known.
	Unread string
	Gone   bool // there is no such Node

	Deleting, Cordoned, Ready bool
	ControlPlane              bool
	SelfHosted                bool // its kubelet runs in a pod that has the agent
	OS                        string

	Label   string // value of LabelAgent
	Failure string // why it failed before
	Turn    string // revision of the installer that may change an agent which is there

	Reported     bool // an agent has written its status
	AgentVersion string

	Pods []Pod // without those that are being deleted
}

// Pod is a pod of the operation's DaemonSet.
type Pod struct {
	Name, UID, Revision string

	Ready       bool
	Unscheduled bool
	Phase       string
	Message     string // the scheduler's, if the pod is not scheduled
	Started     bool   // a process may have run in it
	Running     bool
	Container   *Container // nil: its kubelet has reported none
}

// Container is what the kubelet reports of a pod's first container.
type Container struct {
	Restarts int32
	Exit     *Exit // the last one; nil: it has not ended
	// Waits is the reason why it does not run; empty: it runs, or has run.
	Waits, Message string
}

// Exit is how a container ended.
type Exit struct {
	Code int32
	Said string // its last lines
}

// Stage is how far a node is.
type Stage string

const (
	Skipped Stage = "Skipped" // nothing is to be done here, or cannot be now
	Failed  Stage = "Failed"
	ToDo    Stage = "ToDo"
	Doing   Stage = "Doing"
	Done    Stage = "Done"
)

// State is how far a node is, and why it is no further.
type State struct {
	Stage Stage
	Why   string
	Said  string // by its pod, which has failed: many lines
}

// NodeProgress is how far the operation is on one node.
type NodeProgress struct {
	Name     string
	State    State
	Begun    time.Time // when this operation began with it, or found it in progress; zero: neither
	TimedOut bool      // it failed because Policy.Timeout was over
	// labelBefore is the value of its label before this operation began with it; nil: it has not changed the label.
	labelBefore *string
	doneSince   time.Time // since when its pod and agent have been as they must be; zero: they are not
}

// Progress is how far the operation is. Nodes are in the order in which they begin.
type Progress struct {
	Nodes []NodeProgress
	// Stopped is set when a node fails: no other node begins then, and those in progress finish.
	Stopped bool
}

// In are the names of the nodes in a stage.
func (p Progress) In(s Stage) []string {
	var names []string
	for i := range p.Nodes {
		if p.Nodes[i].State.Stage == s {
			names = append(names, p.Nodes[i].Name)
		}
	}
	return names
}

// Outcome is how an operation ended.
type Outcome string

const (
	Succeeded  Outcome = "Succeeded"  // no node has failed
	NodeFailed Outcome = "NodeFailed" // in this operation or before
	TimedOut   Outcome = "TimedOut"   // a node did not finish within Policy.Timeout
)

// Outcome is how the operation has ended.
func (p Progress) Outcome() Outcome {
	outcome := Succeeded
	for i := range p.Nodes {
		switch n := &p.Nodes[i]; {
		case n.TimedOut:
			return TimedOut
		case n.State.Stage == Failed:
			outcome = NodeFailed
		}
	}
	return outcome
}

// Action is what is done to one node.
type Action string

const (
	// Begin labels the node for the operation, lets the newest installer change an agent that is there, and deletes
	// Step.Pods, which the DaemonSet makes anew.
	Begin Action = "Begin"
	// MarkFailed labels the node as failed, with Step.Why: its pod is removed, and nobody tries again before a person asks.
	MarkFailed Action = "MarkFailed"
	// RemoveLabel takes the label away from a node from which the agent is removed.
	RemoveLabel Action = "RemoveLabel"
	// RestoreLabel gives the node the label Step.Label that it had before this operation began with it.
	RestoreLabel Action = "RestoreLabel"
)

// Step is one action, on one node.
type Step struct {
	Action Action
	Node   string
	Why    string // of MarkFailed
	Label  string // of RestoreLabel
	Pods   []Pod  // of Begin
}

// Verdict is what the operation does next.
type Verdict string

const (
	Read Verdict = "Read" // read Decision.Read now, and decide again
	Wait Verdict = "Wait" // wait, read Decision.Read, and decide again
	End  Verdict = "End"
)

// Reason is why a decision has its verdict.
type Reason string

const (
	ReasonNextNode     Reason = "NextNode"     // Read: another node may begin
	ReasonLimitReached Reason = "LimitReached" // Wait: MaxUnavailable nodes are in progress
	ReasonLastNodes    Reason = "LastNodes"    // Wait: no other node is left to begin
	ReasonNodeFailed   Reason = "NodeFailed"   // Wait, End: a node has failed, and no other node begins
	ReasonAllFinished  Reason = "AllFinished"  // End
	ReasonInterrupted  Reason = "Interrupted"  // Read, End
)

// Decision is what happens next. The steps are carried out first, in their order; Next then is the progress. A Begin is the only
// step of its decision.
type Decision struct {
	Steps   []Step
	Next    Progress
	Verdict Verdict
	Reason  Reason
	Read    []string // nodes
}

// Observed is what is known now: Nodes are those which the decision before asked to read.
type Observed struct {
	Now         time.Time
	Nodes       []Node
	Interrupted bool // the operation must end now
}
