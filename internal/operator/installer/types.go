// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// Operation is install or uninstall.
type Operation struct {
	Verb, Past    string // install, installed
	DaemonSet     string
	label, failed string // values of LabelAgent
}

// The operations.
var (
	Install   = Operation{"install", "installed", v1alpha1.InstallerName, v1alpha1.AgentInstall, v1alpha1.AgentInstallFailed}
	Uninstall = Operation{"uninstall", "uninstalled", v1alpha1.UninstallerName, v1alpha1.AgentUninstall, v1alpha1.AgentUninstallFailed}
)

// Desired describes the operation's current DaemonSet.
type Desired struct {
	Revision string // of its pods
	Image    string
	Version  string        // that agents must report; empty: any
	ReadyFor time.Duration // how long a pod must have been ready
}

// Policy has the settings of an operation. They do not change while it runs.
type Policy struct {
	Operation      Operation
	Desired        Desired
	MaxUnavailable int // nodes in progress at a time, at least 1
	Timeout        time.Duration
	Retry          bool // retry nodes that failed before
}

// Node is the state of a node in the API, with its agent and its pods of the
// operation's DaemonSet.
type Node struct {
	Name string
	// Unread is a temporary error of reading the node. Then only Name is set.
	Unread string
	Gone   bool // the Node does not exist

	Deleting, Cordoned, Ready bool
	ControlPlane              bool
	SelfHosted                bool // its kubelet runs in a pod that has the agent
	OS                        string

	Label   string // value of LabelAgent
	Failure string // why it failed before
	Turn    string // revision of the installer that may replace an existing agent

	Reported     bool // an agent has written its status
	AgentVersion string

	Pods []corev1.Pod // without those that are being deleted
}

// Stage is the progress of a node.
type Stage string

// The stages.
const (
	Skipped Stage = "Skipped" // the operation is not needed or not possible
	Failed  Stage = "Failed"
	ToDo    Stage = "ToDo"
	Doing   Stage = "Doing"
	Done    Stage = "Done"
)

// State is the progress of a node, with an explanation.
type State struct {
	Stage Stage
	Why   string
	Said  string // output of its failed pod, many lines
}

// NodeProgress is the progress of the operation on one node.
type NodeProgress struct {
	Name     string
	State    State
	Begun    time.Time // when this operation began on the node or found it in progress; zero: neither
	TimedOut bool      // it failed because of Policy.Timeout
	// labelBefore is the value of the label before this operation changed it;
	// nil: it has not.
	labelBefore *string
	doneSince   time.Time // since when its pod and agent have been ready; zero: they are not
}

// Progress is the progress of the operation. Nodes are in the order in which
// they begin.
type Progress struct {
	Nodes []NodeProgress
	// Stopped is set when a node fails: no other node begins then, and those in
	// progress finish.
	Stopped bool
}

// In returns the names of the nodes in a stage.
func (p Progress) In(s Stage) []string {
	var names []string
	for i := range p.Nodes {
		if p.Nodes[i].State.Stage == s {
			names = append(names, p.Nodes[i].Name)
		}
	}

	return names
}

// TimedOut reports whether a node did not finish within Policy.Timeout.
func (p Progress) TimedOut() bool {
	return slices.ContainsFunc(p.Nodes, func(n NodeProgress) bool { return n.TimedOut })
}

// Action is a change of one node.
type Action string

const (
	// Begin labels the node for the operation, allows the newest installer to
	// replace an existing agent, and deletes Step.Pods, which the DaemonSet
	// creates again.
	Begin Action = "Begin"
	// MarkFailed labels the node as failed, with Step.Why. Its pod is removed,
	// and only a person can start a retry.
	MarkFailed Action = "MarkFailed"
	// RemoveLabel removes the label of a node after its agent was removed.
	RemoveLabel Action = "RemoveLabel"
	// RestoreLabel restores the label that the node had before this operation
	// (Step.Label).
	RestoreLabel Action = "RestoreLabel"
)

// Step is one action, on one node.
type Step struct {
	Action Action
	Node   string
	Why    string       // of MarkFailed
	Label  string       // of RestoreLabel
	Pods   []corev1.Pod // of Begin
}

// Verdict says how the operation continues.
type Verdict string

// The verdicts.
const (
	Read Verdict = "Read" // read Decision.Read now, and decide again
	Wait Verdict = "Wait" // wait, read Decision.Read, and decide again
	End  Verdict = "End"
)

// Decision is the result of Decide. The steps are carried out first, in order;
// then Next is the progress. Begin is the only step of its decision.
type Decision struct {
	Steps   []Step
	Next    Progress
	Verdict Verdict
	Read    []string // nodes
}

// Observed is the input of Decide. Nodes are those that the previous decision
// asked for.
type Observed struct {
	Now         time.Time
	Nodes       []Node
	Interrupted bool // the operation must end now
}
