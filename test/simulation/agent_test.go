// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/node/agent"
	"github.com/evenkeel/evenkeel/internal/node/checkpoint"
	"github.com/evenkeel/evenkeel/internal/node/source"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/crashfs"
	"github.com/evenkeel/evenkeel/testkit/hollow"
	"github.com/evenkeel/evenkeel/testkit/simapi"
)

const stateDir = "/var/lib/evenkeel"

// agentProcess is one run of an agent. Its fields do not change.
type agentProcess struct {
	m      *machine
	serial int
	disk   *crashfs.FS
	way    *way
	cancel context.CancelFunc
	done   chan struct{}
	limits trial.Limits
	began  time.Time

	hasStarted bool // a kubelet; guarded by checks.mu
}

// flagsOf returns the agent's flags: those before and after each upgrade.
func (w *world) flagsOf(upgrades int) (limits trial.Limits, version string) {
	r := dice(w.plan.seed, "flags", upgrades)
	longest := 2 * time.Minute // a trial reports every ten seconds: long ones cost much, and add little
	if chance(r, 0.1) {
		longest = 10 * time.Minute
	}

	length := between(r, time.Minute, longest).Truncate(time.Second)
	if w.plan.trial > 0 {
		length = w.plan.trial
	}

	return trial.Limits{
		TrialDuration: length, CrashLoopThreshold: r.IntN(4),
		HealthTimeout: between(r, 30*time.Second, 2*time.Minute).Truncate(time.Second), ReadyTimeout: between(r, 90*time.Second, 3*time.Minute).Truncate(time.Second),
	}, fmt.Sprintf("v0.%d.0", upgrades+1)
}

// startAgent starts an agent on a machine that is switched on and has none.
func (m *machine) startAgent() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.exists || m.agent != nil {
		return
	}

	w := m.w
	m.serial++
	ctx, cancel := context.WithCancel(w.ctx)
	a := &agentProcess{m: m, serial: m.serial, cancel: cancel, disk: m.disk, done: make(chan struct{}), began: time.Now(), way: &way{outer: m.gate}}
	a.disk.OnCrash(func() { go m.crashed(a) })
	m.agent = a
	var version string
	a.limits, version = w.flagsOf(m.flags)
	boot := fmt.Sprintf("boot-%d", m.boots)
	log := w.logger(fmt.Sprintf("%s/%d", m.name, a.serial))
	transport := w.transport(m.name, m.serial, a.way)
	config := &rest.Config{Host: "http://api.simulated", Transport: transport, UserAgent: "evenkeel-agent"}
	client, err := source.NewClientFor(config, &http.Client{Transport: transport})
	w.direct(err)
	reporter := source.NewReporter(client, m.name, "evenkeel-agent", log)
	if skew := m.skew; skew != 0 {
		reporter.SetClock(func() time.Time { return time.Now().Add(skew) })
	}

	records := &agent.SavedConfigs{}
	parts := agent.Parts{Kubelet: &agentKubelet{m: m, agent: a}, Nodes: source.NewNodeWatch(client, m.name), Reporter: reporter, SavedConfigs: records}
	remote := v1alpha1.RemoteConfigNodeConfig
	var runSource func(context.Context)
	if m.ownConfigMap {
		own, err := source.NodeConfigMapOf(v1alpha1.SystemNamespace, m.name)
		w.direct(err)
		intended := source.NewConfigMapSource(client, own, records, log)
		intended.ShowTo(reporter)
		parts.Source, runSource, remote = intended, intended.Run, v1alpha1.RemoteConfigConfigMap
	} else {
		intended := source.NewNodeConfigSource(client, m.name, records, log)
		intended.ShowTo(reporter)
		parts.Source, parts.Preflights, runSource = intended, intended, intended.Run
	}

	running := agent.New(agent.Options{
		Limits: a.limits, APILoss: "auto", SyncTimeout: 2 * time.Second, StopGrace: 30 * time.Second, AgentVersion: version,
		Remote: remote, RunMode: v1alpha1.RunModeHost, BootID: boot, Log: log, Init: hollow.NoInit{},
		StartupTaint: v1alpha1.TaintUnconfigured, Protected: payload.DefaultProtection(),
		OpenStore: func(version string) (agent.Store, error) {
			return checkpoint.Open(a.disk, stateDir, version, log)
		},
	}, parts)
	w.book.trace("%s: agent %d starts", m.name, a.serial)
	w.processes.Go(func() {
		defer close(a.done)
		var all sync.WaitGroup
		background, stop := context.WithCancel(context.WithoutCancel(ctx))
		all.Go(func() { reporter.Run(background) })
		all.Go(func() { runSource(background) })
		err := running.Run(ctx)
		stop()
		all.Wait()
		m.agentEnded(a, err)
	})
}

// agentEnded is called when an agent has ended by itself or was stopped;
// systemd starts it again.
func (m *machine) agentEnded(a *agentProcess, err error) {
	m.mu.Lock()
	current := m.agent == a
	if current {
		m.agent = nil
	}

	m.mu.Unlock()
	if !current {
		return
	}

	m.w.book.trace("%s: agent %d ended: %v", m.name, a.serial, err)
	if m.w.ctx.Err() != nil {
		return
	}

	m.w.book.must(err == nil || a.way.isDead(), "%s: the agent ended: %v", m.name, err)
	time.AfterFunc(between(dice(m.w.plan.seed, "again", m.name, a.serial), time.Second, 5*time.Second), m.startAgent)
}

// crashed is called when the disk of an agent has crashed.
func (m *machine) crashed(a *agentProcess) {
	if locked(&m.mu, func() bool { return m.agent == a }) {
		r := dice(m.w.plan.seed, "crashed", m.name, a.serial)
		m.kill(chance(r, 0.5), crashfs.Dice(r.Uint64()), between(r, time.Second, time.Minute))
	}
}

// stopAgent sends SIGTERM to the agent, and starts it again when it has ended.
func (m *machine) stopAgent() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.agent != nil {
		m.agent.cancel()
	}
}

// way is how a process reaches the network: through its own gate, and that of
// its machine.
type way struct {
	gate
	outer *gate
}

func (w *way) pass(ctx context.Context) error {
	if err := w.gate.pass(ctx); err != nil || w.outer == nil {
		return err
	}
	if err := w.outer.pass(ctx); err != nil {
		return err
	}

	return w.gate.pass(ctx)
}

// isShut reports whether nothing passes now.
func (w *way) isShut() bool {
	return w.isDead() || w.isClosed() || w.outer != nil && (w.outer.isDead() || w.outer.isClosed())
}

// transport returns the connection of a process to the API server.
func (w *world) transport(name string, serial int, way *way) *simapi.Transport {
	var mu sync.Mutex
	counts := map[string]int{}
	var lags atomic.Int64
	log := w.logger(fmt.Sprintf("%s/%d", name, serial))

	return &simapi.Transport{
		Server: w.server, Client: name,
		Fate: func(r *http.Request) simapi.Fate {
			mu.Lock()
			what := r.Method + " " + r.URL.Path
			counts[what]++
			n := counts[what]
			mu.Unlock()
			f := w.fate(r, name, serial, n)
			log.Debug("request", "method", r.Method, "url", r.URL.RequestURI(), "n", n, "fate", f)

			return f
		},
		Lag:  func() time.Duration { return w.lag(name, serial, lags.Add(1)) },
		Gate: way.pass,
	}
}

// logger returns the log of a process, whose times are those of the history.
func (w *world) logger(who string) *slog.Logger {
	if w.log == nil {
		return slog.New(slog.DiscardHandler)
	}

	return slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug})).With("who", who)
}
