package install

import (
	"context"
	"io"
	"time"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
	"github.com/evenkeel/evenkeel/internal/node/source"
)

// Manager is the service manager of the node.
type Manager interface {
	Unit(ctx context.Context, name string) (Unit, error)
	Kubelets(ctx context.Context) ([]string, error)
	Reload(ctx context.Context) error
	Restart(ctx context.Context, name string) error
	Stop(ctx context.Context, name string) error
	// StartTransient starts a command as a transient service, which systemd forgets when it has ended. The command does
	// not start if pre fails. A running service of that name stays as it is.
	StartTransient(ctx context.Context, name, description string, pre, argv []string) error
}

// API is the API server, asked as this node.
type API interface {
	Snapshot(ctx context.Context) source.NodeState
	// Turn is what the Node says of whose turn it is.
	Turn(ctx context.Context) (string, error)
	Event(ctx context.Context, severity source.Severity, reason, message string) error
}

// Target is the kubelet of a command line.
type Target struct {
	Node       string `json:"node"`
	Kubeconfig string `json:"kubeconfig,omitempty"` // empty: it stands alone
	Healthz    string `json:"healthz,omitempty"`    // empty: it does not answer for its health
}

// Checked is what an agent with certain flags makes of a kubelet's command line.
type Checked struct {
	Target   Target
	Limits   Limits
	Warnings []string
}

// Host is the node, as far as it is not systemd's.
type Host struct {
	Manager Manager
	// Check has the agent judge its flags and the kubelet's command line, as it would at its start, and changes nothing.
	Check func(ctx context.Context, flags, kubelet []string) (Checked, error)
	// Plain judges the same kubelet as it would be without the agent, of whose flags only those count that say who the node is.
	Plain func(ctx context.Context, flags, kubelet []string) (Checked, error)
	// API is for a kubelet that has a kubeconfig.
	API func(Target) (API, error)
	// Healthy asks a kubelet for its health.
	Healthy func(ctx context.Context, healthz string) error
	// Journal returns the last lines that a unit has written since it was started; "" if they cannot be had.
	Journal func(ctx context.Context, unit Unit) string
	// Place puts the agent where it can stay, and returns its path. With dry nothing is written.
	Place func(dry bool) (string, error)

	FS       atomicfile.FS
	UnitDir  string // where the drop-in goes: /etc/systemd/system
	TrialDir string // where it is tried: /run/systemd/system, which a reboot forgets
	StateDir string // for the record and the lock
	Memory   string // what an agent remembers, if its flags do not say
	Proc     string // /proc
	Out      io.Writer
}

// Pace is how long things are watched.
type Pace struct {
	Timeout time.Duration // for the kubelet to come back
	Settle  time.Duration // how long it must then be healthy
	Poll    time.Duration // how often it is looked at
}
