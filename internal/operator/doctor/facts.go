// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
)

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
	// Installers are the DaemonSets of the installer and the uninstaller, by the value of LabelAgent that they serve. Only values
	// that a node has are looked up.
	Installers map[string]Installer
	// Sources are the UIDs of the ConfigMaps in the namespaces that NodeConfigs refer to and that could be read.
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

// Node is a node of the cluster, with its NodeConfig. If Nodes cannot be read, each NodeConfig counts as one.
type Node struct {
	Name       string
	Ready      bool
	Selected   bool   // by a rollout
	Label      string // of the agent's installation, such as install or install-failed; may be empty
	LabelSince time.Time
	Because    string // why an install or uninstall failed
	// ClockAhead is by how much the node's clock is ahead of the API server's, to about ten seconds. Zero if it is not known.
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
