package doctor

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// Facts are all that is judged.
type Facts struct {
	Now       time.Time
	Parts     []Part   // of an installation
	Denied    []Denied // what could not be looked at
	HasConfig bool     // the API server serves NodeConfigs and NodeConfigRollouts, and they could be read
	Nodes     []Node   // by name
	Rollouts  []v1alpha1.NodeConfigRollout
	Lease     Lease
	Crews     map[string]Crew // the DaemonSets that nodes with a label wait for, by its value; none for a label that no node has
	// Sources are the ConfigMaps of the namespaces that could be read, by what NodeConfigs call them.
	Sources map[types.NamespacedName]types.UID
	Read    map[string]bool // the namespaces of which Sources has all
}

// Denied is something that the user may not look at, or that could not be read for another reason.
type Denied struct{ What, Why string }

// Part is an object that an installation has.
type Part struct {
	Of        string // api, people or controller
	Want, Got *unstructured.Unstructured
	Unserved  bool // the API server does not know its kind
	Denied    bool
}

// Lease is that of the controller.
type Lease struct {
	Denied   bool
	Found    bool
	Holder   string
	Renewed  time.Time
	Duration time.Duration
	Alive    bool   // it is renewed
	Version  string // of its holder, if it says
}

// Crew is the installer or the uninstaller.
type Crew struct {
	Object  string
	Found   bool
	Version string // that its image's tag names; may be empty
}

// Node is a node of the cluster: its Node, its NodeConfig, or both.
type Node struct {
	Name       string
	Exists     bool // there is a Node
	Ready      bool
	Selected   bool   // by a rollout
	Config     bool   // there is a NodeConfig
	Label      string // of the agent's installation, such as install or install-failed; may be empty
	LabelSince time.Time
	Because    string // why it failed
	Reported   bool   // and an agent has written its status

	Agent                   string // its version
	Status, Reason, Message string // of ConfigOK
	Since                   time.Time
	Limited, Limits         string    // the reason and the message of KubeletLimited; empty: the kubelet is not
	Unanswered              time.Time // when the newest spec was written that the agent has not answered; zero: it has
	TrialStart              time.Time
	TrialDuration           time.Duration
	Source                  *v1alpha1.ConfigMapReference // what is assigned
}
