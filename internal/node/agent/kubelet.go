// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/lockfile"
	"github.com/evenkeel/evenkeel/internal/node/podguard"
	"github.com/evenkeel/evenkeel/internal/node/podguard/machine"
	"github.com/evenkeel/evenkeel/internal/node/supervisor"
	"github.com/evenkeel/evenkeel/internal/node/supervisor/relay"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// watchdog is the interval within which a kubelet must send WATCHDOG=1.
const watchdog = 30 * time.Second

// HostKubelet is the stock kubelet of this node, run as a child process of the
// agent.
type HostKubelet struct {
	*component.Kubelet
	DryRunner *component.DryRunner
	InitFile  string // the local configuration, if it is not the kubelet's own --config
	LockFile  string // for each kubelet to lock; empty: none
	Notifier  *supervisor.Notifier
	Log       *slog.Logger

	mu          sync.Mutex
	preparation preparation
	noLockFile  bool // the last examined kubelet has no --lock-file
}

// preparation is the result of Prepare or, without the verdict, of Version.
type preparation struct {
	identity, version string
	local             string // its digest; empty: the verdict was used, or there was none
	verdict           component.Verdict
}

// Prepare determines in advance what each start needs, so that the start does
// not wait for it: the kubelet's version, and the verdict on the local
// configuration, which it returns. Version and the next CheckLocal use the
// results unless the kubelet or the configuration has changed. The error says
// why this kubelet cannot run.
func (h *HostKubelet) Prepare(ctx context.Context) (component.Verdict, error) {
	identity, err := h.Identity()
	if err != nil {
		return component.Verdict{}, err
	}

	version, err := h.Version(ctx)
	if err != nil {
		return component.Verdict{}, err
	}

	local := h.LocalDigest() // before the dry run: a later edit must be validated again
	found := preparation{identity: identity, version: version, local: local, verdict: h.DryRunner.CheckLocal(ctx, h.InitFile)}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.preparation = found

	return found.verdict, nil
}

// currentPreparation returns what was prepared, zero if the kubelet has
// changed. take uses up the verdict on the local configuration.
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
func (h *HostKubelet) Local() trial.LocalConfig {
	if h.InitFile != "" || h.Config != "" {
		return trial.LocalInit
	}

	return trial.LocalDefault
}

// Version implements Kubelet. It runs `kubelet --version` once for each
// identity of the binary, and learns whether the kubelet supports --lock-file.
func (h *HostKubelet) Version(ctx context.Context) (string, error) {
	if found := h.currentPreparation(false); found.version != "" {
		return found.version, nil
	}

	identity, _ := h.Identity() // before the run: a binary that is replaced later is asked again
	version, locks, err := h.VersionWithLock(ctx, h.LockFile)
	if err != nil {
		return "", err
	}

	h.mu.Lock()
	defer h.mu.Unlock()
	if !locks && !h.noLockFile {
		h.Log.Warn("this kubelet does not support --lock-file: only agents prevent a second kubelet on this node", "version", version, "lock",
			h.LockFile)
	}

	h.noLockFile, h.preparation = !locks, preparation{identity: identity, version: version}

	return version, nil
}

// lockFile returns the kubelet's --lock-file; empty: none.
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

	return h.DryRunner.CheckLocal(ctx, h.InitFile)
}

// LocalDigest implements Kubelet.
func (h *HostKubelet) LocalDigest() string { return h.Kubelet.LocalDigest(h.InitFile) }

// LocalFiles implements Kubelet.
func (h *HostKubelet) LocalFiles() map[string]string { return h.Kubelet.LocalFiles(h.InitFile) }

// Check implements Kubelet.
func (h *HostKubelet) Check(ctx context.Context, p payload.Resolved) component.Verdict {
	v := h.DryRunner.Check(ctx, candidate(p), h.InitFile)
	if message, compared := v.CheckProtected(h.DryRunner.Protected); v.Outcome != component.Accepted || message != "" || !compared {
		return v
	}

	version, err := h.Version(ctx)
	in := podguard.Input{Minor: minorOf(version), Before: v.Local}
	if err != nil || v.Local == nil {
		return v
	}
	if err := h.machine().Measure(ctx, &in); err != nil {
		v.Warnings = append(v.Warnings, "the cgroup driver was not compared: "+err.Error())
	}
	if words := newReasons(podguard.Unusable(in, v.Effective), podguard.Unusable(in, v.Local)); words != "" {
		v.Outcome, v.Stage, v.Message = component.Rejected, 3, words
	}

	return v
}

// maxReasons limits the message of a rejection, in bytes, like that of a dry
// run.
const maxReasons = 2000

// newReasons returns why a candidate is unusable, in words. A fault that the
// local configuration has too, perhaps with a worse value, is not the
// candidate's.
func newReasons(candidate, local []podguard.Reason) string {
	var words []string
	for _, reason := range candidate {
		if !slices.ContainsFunc(local, func(l podguard.Reason) bool { return l.Key == reason.Key }) {
			words = append(words, reason.Words)
		}
	}

	return printable.Truncate(strings.Join(words, "; "), maxReasons)
}

// Files implements Kubelet.
func (h *HostKubelet) Files(p payload.Resolved) (map[string][]byte, error) {
	return h.Kubelet.Files(candidate(p), h.InitFile)
}

func candidate(p payload.Resolved) component.Candidate {
	return component.Candidate{Data: p.Upstream, Dropin: p.Key == payload.KeyKubeletDropin}
}

// Capacity implements Kubelet.
func (h *HostKubelet) Capacity() payload.Capacity { return h.machine().Total() }

// Describe implements Kubelet.
func (h *HostKubelet) Describe(ctx context.Context, in *podguard.Input) error {
	return h.machine().Describe(ctx, in)
}

// MoveState implements Kubelet.
func (h *HostKubelet) MoveState(in podguard.Input) ([]string, error) {
	if err := h.machine().StateFiles(&in); err != nil {
		return nil, fmt.Errorf("read it: %w", err)
	}

	var files []string
	for _, c := range podguard.StateConflicts(in) {
		files = append(files, filepath.Join(h.RootDir, c.File))
	}

	return component.MoveAside(files, time.Now())
}

func (h *HostKubelet) machine() machine.Machine {
	ignore := h.Flag("experimental-allocatable-ignore-eviction")
	return machine.Machine{KubeletDir: h.RootDir, NodeLabels: h.Flag("node-labels"), IgnoreEviction: ignore != "" && ignore != "false"}
}

// RuntimeReachable implements Kubelet.
func (h *HostKubelet) RuntimeReachable(ctx context.Context, endpoint string) error {
	return component.RuntimeReachable(ctx, endpoint)
}

// RunsStaticPods implements Kubelet.
func (h *HostKubelet) RunsStaticPods(effective component.Effective) bool {
	runs, err := component.HasStaticPods(effective)
	if err != nil {
		h.Log.Warn("cannot determine whether this node runs static pods", "err", err)
	}

	return runs
}

// Start implements Kubelet.
func (h *HostKubelet) Start(ctx context.Context, run component.RunConfig, effective component.Effective) (Process, error) {
	run.InitFile = h.InitFile
	argv := h.Argv(run, h.lockFile())
	output, stderr := h.relayOutput()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, stderr
	p, err := supervisor.Start(cmd, watchdog, h.Notifier)
	if err != nil {
		if output != nil {
			output.Close()
		}

		return nil, err
	}

	k := &kubeletProcess{
		Process: p, output: output, collected: make(chan struct{}), copied: make(chan struct{}),
		changed: make(chan struct{}, 1), intervalChanged: make(chan struct{}, 1),
	}
	go k.collect()
	// Without a health endpoint, READY and the watchdog decide.
	if url := h.HealthzURL(effective); effective != nil && url != "" {
		k.health = component.NewHealth(url)
	}

	go k.probe(ctx)

	return k, nil
}

// relayOutput returns the file for the kubelet's log. The log passes through a
// relay, which keeps the last errors. Without one, which the node may have no
// memory for, the kubelet runs all the same, and writes to this process's
// stderr itself.
func (h *HostKubelet) relayOutput() (*relay.Relay, *os.File) {
	output, err := relay.Start(os.Stderr, h.Log)
	if err != nil {
		h.Log.Warn("cannot keep the kubelet's last errors: if it exits, the status does not say why", "err", err)
		return nil, os.Stderr
	}

	return output, output.Input()
}

// kubeletProcess is a running kubelet with its health and its log.
type kubeletProcess struct {
	*supervisor.Process
	output          *relay.Relay // nil: the log is not relayed
	reading         sync.Mutex   // held while output is read or closed
	closed          bool
	collected       chan struct{} // closed when lastErrors is set, after the exit
	lastErrors      string
	copied          chan struct{}     // closed when the log has been copied, after the exit
	health          *component.Health // nil: the configuration disables the endpoint
	ok              atomic.Bool       // the result of the last probe of healthz
	wasHealthy      bool
	closely         atomic.Bool // probe at closeInterval
	intervalChanged chan struct{}
	changed         chan struct{}
}

const (
	maxLastErrors = 1 << 10 // bytes
	// relayTimeout limits how long an exit waits for the relay, twice: a slow
	// journal must not delay the next start.
	relayTimeout = time.Second
)

// collect keeps the last errors of a kubelet that has exited, and releases its
// relay.
func (k *kubeletProcess) collect() {
	defer close(k.copied)
	<-k.Done()
	if k.output == nil {
		close(k.collected)
		return
	}

	defer func() {
		k.reading.Lock()
		defer k.reading.Unlock()
		k.closed = true
		k.output.Close()
	}()
	k.lastErrors = component.LastErrors(k.output.Lines(relayTimeout), maxLastErrors)
	close(k.collected)
	k.output.Drain(relayTimeout)
}

// kept returns the errors at the end of the log; nil if they are not known any
// more.
func (k *kubeletProcess) kept() []byte {
	k.reading.Lock()
	defer k.reading.Unlock()
	if k.output == nil || k.closed {
		return nil
	}

	return k.output.Kept()
}

// PodRefusals implements Process.
func (k *kubeletProcess) PodRefusals() []component.PodRefusal { return component.PodRefusals(k.kept()) }

// LastErrors implements Process.
func (k *kubeletProcess) LastErrors() string {
	<-k.collected
	return k.lastErrors
}

// Stop implements Process. It also waits until the log has been copied: in a
// container, the relay ends with the agent.
func (k *kubeletProcess) Stop(grace time.Duration) supervisor.Exit {
	exit := k.Process.Stop(grace)
	<-k.copied
	return exit
}

// Intervals between health probes: short after a start and during a trial, long
// for a kubelet that has been healthy.
const (
	minProbeInterval     = 20 * time.Millisecond
	maxUnhealthyInterval = 500 * time.Millisecond
	closeInterval        = 2 * time.Second
	idleInterval         = 10 * time.Second
	probeTimeout         = 2 * time.Second
)

// probe probes the kubelet's health until it exits.
func (k *kubeletProcess) probe(ctx context.Context) {
	if k.health != nil {
		defer k.health.Close()
	}

	interval := minProbeInterval
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
			interval = min(interval*3/2, maxUnhealthyInterval)
		case k.closely.Load():
			interval = closeInterval
		default:
			interval = idleInterval
		}

		select {
		case <-k.Done():
			return
		case <-ctx.Done():
			return
		case <-k.Process.Changed():
			interval = minProbeInterval
		case <-k.intervalChanged:
		case <-time.After(interval):
		}
	}
}

// Changed implements Process.
func (k *kubeletProcess) Changed() <-chan struct{} { return k.changed }

// Healthy implements Process: READY since this start, WATCHDOG=1 within its
// interval if it was ever sent, and healthz ok.
func (k *kubeletProcess) Healthy() bool {
	since, seen := k.Process.Watchdog()
	return k.ok.Load() && k.Ready() && (!seen || since < watchdog*3/2)
}

// Waiting implements Process.
func (k *kubeletProcess) Waiting() bool { return !k.Ready() && lockfile.Waiting(k.Pid()) }

// Watch implements Process.
func (k *kubeletProcess) Watch(closely bool) {
	if k.closely.Swap(closely) != closely {
		signal(k.intervalChanged)
	}
}
