// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package doctor diagnoses an installation of evenkeel: missing or outdated
// manifests, a controller that does not run, failed nodes, stopped rollouts.
// Look gathers facts from the API server; Judge is pure and returns findings
// with advice.
//
// It must not write anything, nor repeat decisions of the controller or an
// agent.
package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// Severity is how bad a finding is.
type Severity string

// The severities, the worst first.
const (
	Error   Severity = "error"   // something does not work, or is not protected
	Warning Severity = "warning" // a person must act, but not at once
	Unknown Severity = "unknown" // it could not be read
	Note    Severity = "note"    // no action is needed
)

var severities = []Severity{Error, Warning, Unknown, Note}

// Finding is one problem of an installation, or a note.
type Finding struct {
	ID       string   `json:"id"` // within a report: the check, with a number from the second finding of a check on
	Severity Severity `json:"severity"`
	Check    string   `json:"check"`
	Object   string   `json:"object,omitempty"` // kind and name; empty if the finding is about nodes
	Nodes    int      `json:"nodes,omitempty"`  // number of nodes that the finding is about
	Names    []string `json:"names,omitempty"`  // the first of them
	Wrong    string   `json:"wrong"`
	Do       string   `json:"do,omitempty"`
	// ExplainedBy is the ID of the finding that this one follows from. Empty:
	// no finding explains it.
	ExplainedBy string `json:"explainedBy,omitempty"`

	missing string  // kind and name of the object of the manifests that does not exist; may be empty
	absent  bool    // nothing of evenkeel is installed
	nodes   []*Node // all nodes that the finding is about
}

// About names the object or the nodes that a finding is about.
func (f Finding) About() string {
	switch {
	case f.Nodes == 0:
		return f.Object
	case f.Nodes == 1:
		return "node " + f.Names[0]
	case f.Nodes > len(f.Names):
		return fmt.Sprintf("%s (%s, ...)", printable.Count(f.Nodes, "node"), strings.Join(f.Names, ", "))
	}

	return fmt.Sprintf("%s (%s)", printable.Count(f.Nodes, "node"), strings.Join(f.Names, ", "))
}

// mostNames is the number of nodes that a finding names.
const mostNames = 3

// of returns a finding about nodes. NAMES in what to do are those of the first
// nodes.
func of(severity Severity, nodes []*Node, wrong, do string) Finding {
	f := Finding{Severity: severity, Nodes: len(nodes), Wrong: wrong, nodes: nodes}
	for _, n := range nodes[:min(len(nodes), mostNames)] {
		f.Names = append(f.Names, n.Name)
	}

	f.Do = strings.ReplaceAll(do, "NAMES", strings.Join(f.Names, " "))

	return f
}

// checks run in the order in which a person would look: fixing an earlier
// problem can fix later ones.
var checks = []struct {
	name  string
	why   string
	judge func(*Facts) []Finding
}{
	{"rights", "parts that cannot be read are not known to work", denied},
	{"api", "everything else depends on the API and its admission policies", api},
	{"controller-rights", "a controller without its permissions does nothing", controllerRights},
	{"controller", "without a controller, rollouts neither proceed nor stop on failures", controllerAlive},
	{"dead-end", "a node may have no working kubelet", deadEnd},
	{"fallen-back", "the assigned configuration failed on the node", fallenBack},
	{"refused", "the node does not run its assigned configuration", refused},
	{"unclear", "the node does not know its configuration", unclear},
	{"kubelet", "with this kubelet some checks or features are missing", limited},
	{"trial", "a configuration is not last-known-good before its trial ends", trialStuck},
	{"silent", "an agent that does not answer applies no configuration", silent},
	{"not-ready", "nothing is known about a node that is not Ready", notReady},
	{"clock", "certificates, and the times that a node reports, are judged by its clock", wrongClock},
	{"later", "a configuration can make nodes unhealthy after its trial", later},
	{"install", "failed and interrupted installs do not continue by themselves", installation},
	{"no-agent", "rollouts skip a node without an agent", noAgent},
	{"sources", "a node that loses its disk cannot get its configuration again", sources},
	{"manual", "a rollout does not change a node that a person configured", manual},
	{"rollouts", "the status that the controller reports", rollouts},
	{"versions", "agents of different versions behave differently", versions},
	{"left-over", "a NodeConfig without a Node is not used", leftOver},
}

// Judge returns the findings, the most severe first. A finding that follows
// from another one names it.
func Judge(f *Facts) []Finding {
	var out []Finding
	for _, c := range checks {
		for _, finding := range c.judge(f) {
			finding.Check = c.name
			out = append(out, finding)
		}
	}

	if f, ok := installed(f, out); ok {
		out = slices.Insert(out, 0, f)
	}

	slices.SortStableFunc(out, func(a, b Finding) int {
		return slices.Index(severities, a.Severity) - slices.Index(severities, b.Severity)
	})
	number(out)
	explain(out)

	return out
}

// denied reports objects that the user is not allowed to read.
func denied(f *Facts) []Finding {
	var out []Finding
	for _, d := range f.Denied {
		out = append(out, Finding{Severity: Unknown, Object: d.What, Wrong: "you are not allowed to read it: " + d.Why,
			Do: "ask an administrator to run this command; the role evenkeel-operator covers nodes and rollouts"})
	}

	return out
}

// Facts are the input of Judge.
type Facts struct {
	Now       time.Time
	Parts     []Part   // of the installation
	Denied    []Denied // objects that could not be read
	HasConfig bool     // the API server serves NodeConfigs and NodeConfigRollouts, and they could be read
	Nodes     []Node   // by name
	Orphans   []string // NodeConfigs without a Node: no node of the fleet
	// Situation counts the nodes for the headline.
	Situation describe.Situation
	Rollouts  []v1alpha1.NodeConfigRollout
	Lease     Lease
	// Installers are the DaemonSets of the installer and the uninstaller, by
	// the value of LabelAgent that they serve. Only values that a node has are
	// looked up.
	Installers map[string]Installer
	// Sources are the UIDs of the ConfigMaps in the namespaces that NodeConfigs
	// refer to and that could be read.
	Sources map[types.NamespacedName]types.UID
	Read    map[string]bool // the namespaces whose ConfigMaps are all in Sources
}

// Denied is an object or kind that could not be read.
type Denied struct{ What, Why string }

// Part is an object of the manifests, and the one in the cluster.
type Part struct {
	Of        string // api, people or controller
	Want, Got *unstructured.Unstructured
	Unserved  bool // the API server does not know its kind
	Denied    bool
}

// Lease is the controller's Lease.
type Lease struct {
	Denied   bool
	Found    bool
	Holder   string
	Renewed  time.Time
	Duration time.Duration
	Alive    bool   // it is being renewed
	Version  string // of its holder; may be empty
}

// Installer is the DaemonSet of the installer or the uninstaller.
type Installer struct {
	Object  string
	Found   bool
	Version string // from the tag of its image; may be empty
}

// Node is a node of the cluster, with its NodeConfig. If Nodes cannot be read,
// each NodeConfig counts as one.
type Node struct {
	Name       string
	Ready      bool
	Selected   bool   // by a rollout
	Label      string // of the agent's installation, such as install or install-failed; may be empty
	LabelSince time.Time
	Because    string // why an install or uninstall failed
	// ClockAhead is by how much the node's clock is ahead of the API server's,
	// to about ten seconds. Zero if it is not known.
	ClockAhead time.Duration
	Reported   bool // an agent has written the NodeConfig's status
	Standing   describe.Standing

	Agent                   string // its version
	Status, Reason, Message string // of ConfigOK
	Since                   time.Time
	Limited, Limits         string    // the reason and the message of KubeletLimited; empty: not limited
	Asked                   time.Time // when the newest spec was written; zero: the agent does not follow its NodeConfig
	Answered                bool      // the agent has answered it
	TrialStart              time.Time
	TrialDuration           time.Duration
	Source                  *v1alpha1.ConfigMapReference // the assigned ConfigMap
	Manual                  bool                         // a person assigned its configuration
}
