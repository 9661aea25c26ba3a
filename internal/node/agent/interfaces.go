package agent

import (
	"context"
	"log/slog"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/checkpoint"
	"github.com/evenkeel/evenkeel/internal/node/source"
	"github.com/evenkeel/evenkeel/internal/node/supervisor"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/internal/payload"
)

// Kubelet is the program this node runs, with the command line that it has.
type Kubelet interface {
	// Identity changes when the binary is replaced.
	Identity() (string, error)
	Version(ctx context.Context) (string, error)
	// Local says what "local" is on this node.
	Local() trial.Local
	CheckLocal(ctx context.Context) component.Verdict
	// LocalDigest changes when the local configuration does.
	LocalDigest() string
	Check(ctx context.Context, p payload.Payload) component.Verdict
	// Files are what a payload is rendered as, for Start.
	Files(p payload.Payload) (map[string][]byte, error)
	// Start runs it with what was rendered; without a Dir: with the local
	// configuration. What of that is the node's own is for Start to know.
	Start(ctx context.Context, run component.RunConfig, effective component.Effective) (Process, error)
	Conflicts(effective component.Effective) ([]component.StateConflict, error)
	MoveAside(conflicts []component.StateConflict, now time.Time) ([]string, error)
	// RuntimeReachable asks the container runtime for an answer.
	RuntimeReachable(ctx context.Context, endpoint string) error
	RunsStaticPods(effective component.Effective) bool
}

// Process is a kubelet that was started.
type Process interface {
	Done() <-chan struct{}
	Changed() <-chan struct{} // its health may have changed
	Exit() supervisor.Exit    // after Done
	Stop(grace time.Duration) supervisor.Exit
	Healthy() bool // READY, watchdog and healthz all say so
	Waiting() bool // for its lock
	Watch(paceChanged bool)
}

// Store is where the node's state is kept.
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

// Source says what is intended for this node.
type Source interface {
	First(ctx context.Context) source.Answer
	Current() source.Answer
	Changed() <-chan struct{}
	// Refresh has what is assigned resolved anew: its checkpoint cannot be used.
	Refresh()
}

// Nodes says how the node is, as the API has it.
type Nodes interface {
	Snapshot(ctx context.Context) source.NodeState // asks once
	Start(ctx context.Context)                     // goes on looking, until Stop
	Stop()
	Current() source.NodeState // zero while off
	Changed() <-chan struct{}
}

// Reporter tells the API; it never blocks and never fails to its caller.
type Reporter interface {
	Report(source.Report)
	Event(severity source.Severity, reason, message string)
	// Flush waits until what was reported has been written, or ctx ends.
	Flush(ctx context.Context)
}

// InitSystem is told how the service is; see sd_notify(3).
type InitSystem interface {
	Ready() error
	Stopping() error
	Status(text string) error
	Cover(bool)
}

// Parts are the outside world. Source, Nodes and Reporter are nil where there
// is no API to talk to.
type Parts struct {
	Kubelet  Kubelet
	Source   Source
	Nodes    Nodes
	Reporter Reporter
	Records  *Records
}

// Options are what an agent is told once.
type Options struct {
	Limits       trial.Limits
	APILoss      string // auto, on or off
	SyncTimeout  time.Duration
	StopGrace    time.Duration
	AgentVersion string
	Remote       v1alpha1.RemoteConfig
	RunMode      v1alpha1.RunMode
	BootID       string
	Log          *slog.Logger
	// GiveUp is asked once for each decision, with the monotonic time and whether the kubelet is healthy. When GiveUp returns
	// an error, the agent leaves the node to another one: Run reports the error as an event, stops the kubelet, and returns the
	// error. nil: this agent never gives the node up.
	GiveUp func(now time.Time, healthy bool) error
	// Protected are the fields that no payload may change.
	Protected payload.Protection
	// Record keeps what runs and why, as JSON, for people who ask while the agent
	// runs; nil: nobody asks.
	Record func([]byte) error
	// OpenStore opens the state of one version of the component; nil: dynamic
	// configuration is off and nothing is kept.
	OpenStore    func(version string) (Store, error)
	Metrics      *Metrics
	Init         InitSystem
	ShuttingDown func(context.Context) bool
}
