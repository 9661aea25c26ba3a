// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/checkpoint"
	"github.com/evenkeel/evenkeel/internal/node/podguard"
	"github.com/evenkeel/evenkeel/internal/node/source"
	"github.com/evenkeel/evenkeel/internal/node/supervisor"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/internal/payload"
)

// Kubelet is the kubelet binary of this node, with its command line.
type Kubelet interface {
	// Identity changes when the binary is replaced.
	Identity() (string, error)
	Version(ctx context.Context) (string, error)
	// Local returns the kind of the local configuration.
	Local() trial.LocalConfig
	CheckLocal(ctx context.Context) component.Verdict
	// LocalDigest changes when the local configuration changes.
	LocalDigest() string
	// LocalFiles returns a digest of each file of the local configuration, by
	// its path.
	LocalFiles() map[string]string
	// Capacity returns what the kubelet will measure of this machine.
	Capacity() payload.Capacity
	Check(ctx context.Context, p payload.Resolved) component.Verdict
	// Files returns the files for Start that contain the payload.
	Files(p payload.Resolved) (map[string][]byte, error)
	// Start starts the kubelet with the rendered files; without a Dir, with the
	// local configuration.
	Start(ctx context.Context, run component.RunConfig, effective component.Effective) (Process, error)
	// Describe sets the fields of in that are read from this machine.
	Describe(ctx context.Context, in *podguard.Input) error
	// MoveState renames the kubelet's state files with which it would not start
	// with in.After, and returns their new names.
	MoveState(in podguard.Input) ([]string, error)
	// RuntimeReachable returns an error if the container runtime does not
	// answer.
	RuntimeReachable(ctx context.Context, endpoint string) error
	RunsStaticPods(effective component.Effective) bool
}

// Process is a started kubelet.
type Process interface {
	Done() <-chan struct{}
	Changed() <-chan struct{} // its health may have changed
	Exit() supervisor.Exit    // after Done
	// PodRefusals returns the last attempts to start pods that the kubelet or
	// its runtime refused, as far as its log still has them.
	PodRefusals() []component.PodRefusal
	// LastErrors returns, after Done, the last errors that the kubelet logged,
	// as one line without credentials; empty: none.
	LastErrors() string
	Stop(grace time.Duration) supervisor.Exit
	Healthy() bool // READY, watchdog and healthz agree
	Waiting() bool // for its lock
	// Watch sets how often the health of a healthy kubelet is probed: closely
	// while a decision depends on it.
	Watch(closely bool)
}

// Store saves the node's state.
type Store interface {
	Load() (trial.State, []checkpoint.Problem)
	Save(trial.State) error
	Put(revision string, configMap []byte) (string, error)
	Get(trial.Config) ([]byte, error)
	Collect(keep ...string) error
	Render(revision string, files map[string][]byte) (string, error)
	Rendered() []string
	ForgetRequests() ([]string, error)
	DropForgetRequest(revision string) error
}

// Source returns the intended configuration of this node.
type Source interface {
	First(ctx context.Context) source.Answer
	Current() source.Answer
	Changed() <-chan struct{}
	// Refresh downloads the assigned configuration again, because its
	// checkpoint cannot be used.
	Refresh()
}

// Nodes returns the state of the Node in the API.
type Nodes interface {
	Snapshot(ctx context.Context) source.NodeState // a single request
	Start(ctx context.Context)                     // watches until Stop
	Stop()
	Current() source.NodeState // zero while it does not watch
	Changed() <-chan struct{}
	// Bound returns the Node, nil if it does not exist, and all pods that are
	// bound to it, as the API server has them now.
	Bound(ctx context.Context) (*corev1.Node, []*corev1.Pod, error)
}

// Reporter writes to the API. It never blocks, and handles errors itself.
type Reporter interface {
	Report(source.Report)
	Event(severity source.Severity, reason, message string)
	// Flush waits until the reports have been written, or ctx ends.
	Flush(ctx context.Context)
}

// InitSystem receives the state of the service; see sd_notify(3).
type InitSystem interface {
	Ready() error
	Stopping() error
	Status(text string) error
	Cover(bool)
}

// Parts are the agent's dependencies. Source, Nodes and Reporter are nil if the
// node has no API.
type Parts struct {
	Preflights Preflights // nil: the node takes no requests
	// Configz reads the /configz of the running kubelet, which runs with
	// effective. It is called beside the loop. nil: the agent has no
	// credentials for it.
	Configz      func(ctx context.Context, effective component.Effective) (component.Effective, error)
	Kubelet      Kubelet
	Source       Source
	Nodes        Nodes
	Reporter     Reporter
	SavedConfigs *SavedConfigs
}

// Options are the settings of an agent.
type Options struct {
	Limits      trial.Limits
	APILoss     string // auto, on or off
	SyncTimeout time.Duration
	StopGrace   time.Duration
	// UnansweredLimit is how long the API server may refuse an answer, or not
	// say which pods the node has, before the agent reports that; 0 means 30s.
	// If it does not answer at all about the NodeConfig, the limit is ten times
	// as long. An overloaded API server does not answer some agents for a few
	// seconds: if each of them reported that, and that it is over, the server
	// would stay overloaded. The controller must wait longer for an agent.
	UnansweredLimit time.Duration
	AgentVersion    string
	Remote          v1alpha1.RemoteConfig
	RunMode         v1alpha1.RunMode
	BootID          string
	Log             *slog.Logger
	// GiveUp is called once for each decision, with the monotonic time and
	// whether the kubelet is healthy. If it returns an error, the agent leaves
	// the node to another agent: Run reports the error as an Event, stops the
	// kubelet, and returns the error. nil: this agent never gives the node up.
	GiveUp func(now time.Time, healthy bool) error
	// StartupTaint is the key of the taint that keeps pods away from a new node
	// until it runs its configuration. The pod guard takes it for a cordon.
	// Empty: there is none.
	StartupTaint string
	// Protected are the fields that no payload may change.
	Protected payload.Protection
	// SaveRunning saves a JSON description of what runs and why, for
	// `evenkeel-agent status`. nil: it is not saved.
	SaveRunning func([]byte) error
	// OpenStore opens the state of a version of the component. nil: dynamic
	// configuration is off, and nothing is saved.
	OpenStore    func(version string) (Store, error)
	Metrics      *Metrics
	Init         InitSystem
	ShuttingDown func(context.Context) bool
}
