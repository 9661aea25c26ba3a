// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"io"
	"time"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
	"github.com/evenkeel/evenkeel/internal/node/source"
)

// Manager is the service manager of the node. Systemd implements it.
type Manager interface {
	Unit(ctx context.Context, name string) (Unit, error)
	Kubelets(ctx context.Context) ([]string, error)
	Reload(ctx context.Context) error
	Restart(ctx context.Context, name string) error
	Stop(ctx context.Context, name string) error
	// StartTransient starts a command as a transient service, which systemd
	// forgets when it has ended. The command does not start if pre fails. A
	// running service of that name stays as it is.
	StartTransient(ctx context.Context, name, description string, pre, argv []string) error
}

// API is the API server, with the credentials of this node. *source.Client
// implements it.
type API interface {
	Snapshot(ctx context.Context, node string) source.NodeState
	NodeAnnotation(ctx context.Context, node, annotation string) (string, error)
	Event(ctx context.Context, node, component string, severity source.Severity, reason, message string) error
}

// Target is the kubelet that a command line starts.
type Target struct {
	Node       string `json:"node"`
	Kubeconfig string `json:"kubeconfig,omitempty"` // empty: a standalone kubelet
	Healthz    string `json:"healthz,omitempty"`    // address of its health check; empty: none
}

// Checked is what the agent finds in its flags and a kubelet's command line.
type Checked struct {
	Target   Target
	Limits   Limits
	Warnings []string
	// Losses describes the pods that the restart of the kubelet would end, with
	// their causes; empty: none. nil: the kubelet has no API server.
	Losses func(context.Context) (string, error)
}

// Host is the node, and what install needs to know about the agent.
type Host struct {
	Manager Manager
	// Check checks the agent's flags and the kubelet's command line as the
	// agent would at its start. It changes nothing. With plain it checks the
	// same kubelet without the agent: of the flags only those that identify the
	// node count.
	Check func(ctx context.Context, flags, kubelet []string, plain bool) (Checked, error)
	// API returns a client for a kubelet that has a kubeconfig.
	API func(Target) (API, error)
	// Healthy checks the health of a kubelet.
	Healthy func(ctx context.Context, healthz string) error
	// Journal returns the last log lines of a unit since its start; "" if they
	// are not available.
	Journal func(ctx context.Context, unit Unit) string
	// Place copies the agent to a permanent directory, and returns its path.
	// With dry it writes nothing.
	Place func(dry bool) (string, error)

	// Volatile reports whether a reboot clears a directory.
	Volatile func(dir string) bool

	FS              atomicfile.FS
	UnitDir         string // /etc/systemd/system, for the drop-in
	TrialDir        string // /run/systemd/system, for a trial; cleared by a reboot
	StateDir        string // for the records and the lock
	DefaultAgentDir string // the agent's state directory if its flags do not name one
	Proc            string // /proc
	Out             io.Writer
}

// Timing says how long to wait for the kubelet.
type Timing struct {
	Timeout    time.Duration // until the kubelet must be healthy
	HealthyFor time.Duration // how long it must then stay healthy
	Poll       time.Duration // between checks
}
