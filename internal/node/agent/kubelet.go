package agent

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/lockfile"
	"github.com/evenkeel/evenkeel/internal/node/supervisor"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/internal/payload"
)

// watchdog is how often a kubelet must say that it is alive.
const watchdog = 30 * time.Second

// HostKubelet is the stock kubelet of this node, run as a child of the agent.
type HostKubelet struct {
	*component.Kubelet
	Harness  *component.DryRunner
	InitFile string // local, if not the kubelet's own --config
	LockFile string // that each kubelet takes; empty: none
	Notifier *supervisor.Notifier
	Log      *slog.Logger

	mu          sync.Mutex
	preparation preparation
	noLockFile  bool // the kubelet that was asked last knows no --lock-file
}

// prepared is what Prepare found, of a kubelet and a local configuration as they were then.
type preparation struct {
	identity, version string
	local             string // the digest; empty: the verdict was taken, or there was none
	verdict           component.Verdict
}

// Prepare asks before its time what every start asks first, so that a node that waits for its kubelet does not wait for
// that too: the kubelet's version, and the verdict on the local configuration, which it returns. Version and the next
// CheckLocal answer with it unless the kubelet or the configuration is another then. The error says why this kubelet
// cannot be run.
func (h *HostKubelet) Prepare(ctx context.Context) (component.Verdict, error) {
	identity, err := h.Identity()
	if err != nil {
		return component.Verdict{}, err
	}
	version, err := h.version(ctx)
	if err != nil {
		return component.Verdict{}, err
	}
	local := h.LocalDigest() // before it is judged: what is written meanwhile is to be judged again
	found := preparation{identity: identity, version: version, local: local, verdict: h.Harness.CheckLocal(ctx, h.InitFile)}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.preparation = found
	return found.verdict, nil
}

// stillPrepared is what Prepare found, zero if the kubelet is another now. Of what it found on the local configuration
// it is the last time that it counts, if that is taken.
func (h *HostKubelet) currentPreparation(take bool) preparation {
	identity, err := h.Identity()
	h.mu.Lock()
	defer h.mu.Unlock()
	found := h.preparation
	if err != nil || identity != found.identity {
		h.preparation = preparation{}
		return preparation{}
	}
	if take {
		h.preparation.local, h.preparation.verdict = "", component.Verdict{}
	}
	return found
}

// Identity implements Kubelet.
func (h *HostKubelet) Identity() (string, error) {
	id, err := h.Kubelet.Identity()
	return fmt.Sprint(id), err
}

// Local implements Kubelet.
func (h *HostKubelet) Local() trial.Local {
	if h.InitFile != "" || h.Config != "" {
		return trial.Init
	}
	return trial.Default
}

// Version implements Kubelet.
func (h *HostKubelet) Version(ctx context.Context) (string, error) {
	if found := h.currentPreparation(false); found.version != "" {
		return found.version, nil
	}
	return h.version(ctx)
}

// version asks the kubelet for its version, and learns whether it takes a lock by itself.
func (h *HostKubelet) version(ctx context.Context) (string, error) {
	if h.LockFile == "" {
		return h.Kubelet.Version(ctx)
	}
	version, locks, err := h.VersionWithLock(ctx, h.LockFile)
	if err != nil {
		return "", err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !locks && !h.noLockFile {
		h.Log.Warn("this kubelet knows no --lock-file: it runs without it, and only agents keep a second kubelet from running here", "version", version, "lock", h.LockFile)
	}
	h.noLockFile = !locks
	return version, nil
}

// lock is the file that the kubelet is given to lock, empty if it is none.
func (h *HostKubelet) lockFile() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.noLockFile {
		return ""
	}
	return h.LockFile
}

// CheckLocal implements Kubelet.
func (h *HostKubelet) CheckLocal(ctx context.Context) component.Verdict {
	found := h.currentPreparation(true)
	if found.verdict.Outcome != component.CouldNotTell && found.local == h.LocalDigest() {
		return found.verdict
	}
	return h.Harness.CheckLocal(ctx, h.InitFile)
}

// LocalDigest implements Kubelet.
func (h *HostKubelet) LocalDigest() string { return h.Kubelet.LocalDigest(h.InitFile) }

// Check implements Kubelet.
func (h *HostKubelet) Check(ctx context.Context, p payload.Payload) component.Verdict {
	return h.Harness.Check(ctx, candidate(p), h.InitFile)
}

// Files implements Kubelet.
func (h *HostKubelet) Files(p payload.Payload) (map[string][]byte, error) {
	return h.Kubelet.Files(candidate(p), h.InitFile)
}

func candidate(p payload.Payload) component.Candidate {
	return component.Candidate{Data: p.Upstream, Dropin: p.Key == payload.KeyKubeletDropin}
}

// Conflicts implements Kubelet.
func (h *HostKubelet) Conflicts(effective component.Effective) ([]component.StateConflict, error) {
	return h.StateConflicts(effective)
}

// MoveAside implements Kubelet.
func (h *HostKubelet) MoveAside(conflicts []component.StateConflict, now time.Time) ([]string, error) {
	return component.MoveAside(conflicts, now)
}

// RuntimeReachable implements Kubelet.
func (h *HostKubelet) RuntimeReachable(ctx context.Context, endpoint string) error {
	return component.RuntimeReachable(ctx, endpoint)
}

// RunsStaticPods implements Kubelet.
func (h *HostKubelet) RunsStaticPods(effective component.Effective) bool {
	runs, err := component.HasStaticPods(effective)
	if err != nil {
		h.Log.Warn("cannot tell whether static pods run here", "err", err)
	}
	return runs
}

// Start implements Kubelet.
func (h *HostKubelet) Start(ctx context.Context, run component.RunConfig, effective component.Effective) (Process, error) {
	run.InitFile = h.InitFile
	argv := h.Argv(run, h.lockFile())
	p, err := supervisor.Start(supervisor.Command{
		Path: argv[0], Args: argv[1:], Stdout: os.Stdout, Stderr: os.Stderr, Watchdog: watchdog,
	}, h.Notifier)
	if err != nil {
		return nil, err
	}
	k := &kubeletProcess{Process: p, changed: make(chan struct{}, 1), paceChanged: make(chan struct{}, 1)}
	// Where it is not known, or there is none, READY and the watchdog alone tell.
	if url := h.HealthzURL(effective); effective != nil && url != "" {
		k.health = component.NewHealth(url)
	}
	go k.probe(ctx)
	return k, nil
}

// kubeletProcess is a kubelet with its health.
type kubeletProcess struct {
	*supervisor.Process
	health      *component.Health // nil: the node's own configuration switches the endpoint off; READY must do
	ok          atomic.Bool       // healthz, at the last probe
	wasHealthy  bool
	close       atomic.Bool
	paceChanged chan struct{}
	changed     chan struct{}
}

// Paces of asking for the kubelet's health: a start is worth a close look, a
// kubelet that has been fine for long is not.
const (
	minProbePace     = 20 * time.Millisecond
	maxUnhealthyPace = 500 * time.Millisecond
	trialPace        = 2 * time.Second
	idlePace         = 10 * time.Second
	probeTimeout     = 2 * time.Second
)

// probe asks for the kubelet's health until it is gone.
func (k *kubeletProcess) probe(ctx context.Context) {
	if k.health != nil {
		defer k.health.Close()
	}
	pace := minProbePace
	for {
		ask, cancel := context.WithTimeout(ctx, probeTimeout)
		ok := k.health == nil || k.health.Healthz(ask) == nil
		cancel()
		k.ok.Store(ok)
		if healthy := k.Healthy(); healthy != k.wasHealthy {
			k.wasHealthy = healthy
			signal(k.changed)
		}
		switch {
		case !k.wasHealthy:
			pace = min(pace*3/2, maxUnhealthyPace)
		case k.close.Load():
			pace = trialPace
		default:
			pace = idlePace
		}
		timer := time.NewTimer(pace)
		select {
		case <-k.Done():
			timer.Stop()
			return
		case <-ctx.Done():
			timer.Stop()
			return
		case <-k.Process.Changed():
			pace = minProbePace
		case <-k.paceChanged:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// Changed implements Process.
func (k *kubeletProcess) Changed() <-chan struct{} { return k.changed }

// Healthy implements Process: READY since this start, WATCHDOG=1 in its
// interval if it was ever sent, and healthz ok.
func (k *kubeletProcess) Healthy() bool {
	since, seen := k.Process.Watchdog()
	return k.ok.Load() && k.Ready() && (!seen || since < watchdog*3/2)
}

// Waiting implements Process.
func (k *kubeletProcess) Waiting() bool { return !k.Ready() && lockfile.Waiting(k.Pid()) }

// Watch implements Process.
func (k *kubeletProcess) Watch(paceChanged bool) {
	if k.close.Swap(paceChanged) != paceChanged {
		signal(k.paceChanged)
	}
}
