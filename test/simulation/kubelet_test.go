// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"context"
	"fmt"
	"path"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/agent"
	"github.com/evenkeel/evenkeel/internal/node/supervisor"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/hollow"
)

// contentField is the field whose value identifies a content and decides how
// kubelets behave with it.
const contentField = "eventBurst"

// behaviour is how a kubelet behaves with a content.
type behaviour struct {
	reject   bool          // the dry run rejects it
	crash    time.Duration // it exits so long after each start; 0: it does not
	once     bool          // it exits only once
	sick     time.Duration // it becomes unhealthy so long after its start; 0: it does not
	unready  bool          // the Node is not Ready
	slow     time.Duration // until it is healthy, in addition
	unstable bool          // the dry run cannot tell
}

// behaviourOf returns how a content behaves on a node. The last digit of a
// content says what is wrong with it: 0 to 4 nothing.
func (w *world) behaviourOf(content int64, node string) behaviour {
	if w.calm() {
		return behaviour{} // whatever was wrong has been corrected
	}

	return w.faulty(content, node)
}

// faulty is behaviourOf before anything was corrected.
func (w *world) faulty(content int64, node string) behaviour {
	r := dice(w.plan.seed, "content", content)
	share := pick(r, 1, 1, 0.5, 0.2)
	if content == 0 || content%10 < 5 || !chance(dice(w.plan.seed, "share", content, node), share) {
		return behaviour{}
	}

	switch content % 10 {
	case 5:
		return behaviour{reject: true}
	case 6:
		return behaviour{crash: between(r, 100*time.Millisecond, 20*time.Second), once: chance(r, 0.3)}
	case 7:
		return behaviour{sick: between(r, time.Millisecond, 10*time.Second)}
	case 8:
		return behaviour{unready: true}
	}

	switch r.IntN(3) {
	case 0:
		return behaviour{slow: between(r, 5*time.Second, 3*time.Minute)}
	case 1:
		return behaviour{sick: between(r, time.Minute, 15*time.Minute)}
	}

	return behaviour{unstable: true}
}

// contentOf returns the content of a configuration; 0 for the local one.
func contentOf(fields map[string]any) int64 {
	n, _ := strconv.ParseInt(fmt.Sprint(fields[contentField]), 10, 64)
	return n
}

// agentKubelet is the kubelet binary as one agent process uses it.
type agentKubelet struct {
	hollow.NoMachine
	m      *machine
	agent  *agentProcess
	checks atomic.Int64
}

var _ agent.Kubelet = (*agentKubelet)(nil)

func (k *agentKubelet) Identity() (string, error)               { return k.m.version(), nil }
func (k *agentKubelet) Version(context.Context) (string, error) { return k.m.version(), nil }
func (k *agentKubelet) Local() trial.LocalConfig                { return trial.LocalInit }
func (k *agentKubelet) LocalDigest() string                     { return "local" }

// checkTakes waits as long as a dry run takes.
func (k *agentKubelet) checkTakes(ctx context.Context, content int64) error {
	r := dice(k.m.w.plan.seed, "check", k.m.name, k.agent.serial, content, k.checks.Add(1))
	timer := time.NewTimer(between(r, 200*time.Millisecond, 2*time.Second))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// CheckLocal implements agent.Kubelet.
func (k *agentKubelet) CheckLocal(ctx context.Context) component.Verdict {
	if err := k.checkTakes(ctx, 0); err != nil {
		return component.Verdict{Message: err.Error()}
	}

	return component.Verdict{Outcome: component.Accepted, Stage: 2, Effective: hollow.Defaults}
}

// Check implements agent.Kubelet.
func (k *agentKubelet) Check(ctx context.Context, p payload.Resolved) component.Verdict {
	content := contentOf(p.Fields)
	if err := k.checkTakes(ctx, content); err != nil {
		return component.Verdict{Message: err.Error()}
	}

	switch b := k.m.w.behaviourOf(content, k.m.name); {
	case b.unstable && chance(dice(k.m.w.plan.seed, "unstable", k.m.name, k.checks.Load()), 0.5):
		return component.Verdict{Message: "the runtime cannot be reached"}
	case b.reject:
		return component.Verdict{Outcome: component.Rejected, Stage: 1, Message: fmt.Sprintf("content %d is rejected here", content)}
	}

	return hollow.Accept(p.Fields)
}

// Start implements agent.Kubelet.
func (k *agentKubelet) Start(_ context.Context, run component.RunConfig, _ component.Effective) (agent.Process, error) {
	rendered, err := hollow.Rendered(run, k.agent.disk.ReadFile)
	if err != nil {
		return nil, err
	}

	p := &process{m: k.m, began: time.Now(), maxPods: 110, done: make(chan struct{}), changed: make(chan struct{}, 1)}
	if rendered != nil {
		p.revision, p.sha256, p.content = path.Base(run.Dir), rendered.SHA256, contentOf(rendered.Fields)
		if v, ok := rendered.Fields["maxPods"].(int64); ok {
			p.maxPods = int(v)
		}
	}

	if !k.m.startKubelet(k.agent, p) {
		return nil, errDead
	}

	return p, nil
}

// process is one run of a kubelet.
type process struct {
	m        *machine
	began    time.Time
	revision string // the directory that it was rendered to; empty: local
	sha256   string // of the payload
	content  int64
	maxPods  int
	run      int64 // number of the start on this machine
	done     chan struct{}
	changed  chan struct{}

	// Protected by m.mu.
	healthySince time.Time // zero: it is not healthy
	healthyFor   time.Duration
	exit         supervisor.Exit
	ended        bool
	hung         bool
}

var _ agent.Process = (*process)(nil)

func (p *process) Done() <-chan struct{}    { return p.done }
func (p *process) Changed() <-chan struct{} { return p.changed }
func (p *process) LastErrors() string       { return "" }

func (p *process) PodRefusals() []component.PodRefusal { return nil }

func (p *process) Waiting() bool { return false }
func (p *process) Watch(bool)    {}

func (p *process) Exit() supervisor.Exit {
	return locked(&p.m.mu, func() supervisor.Exit { return p.exit })
}

func (p *process) Healthy() bool {
	return locked(&p.m.mu, func() bool { return !p.healthySince.IsZero() })
}

// Stop implements agent.Process. A kubelet takes a moment to end, and is killed
// if it does not.
func (p *process) Stop(grace time.Duration) supervisor.Exit {
	takes := between(dice(p.m.w.plan.seed, "stop", p.m.name, p.run), 10*time.Millisecond, 3*time.Second)
	signal := "terminated"
	p.m.mu.Lock()
	if p.hung || takes > grace {
		takes, signal = grace, "killed"
	}

	p.m.mu.Unlock()
	select {
	case <-p.done:
	case <-time.After(takes):
		p.m.endKubelet(p, supervisor.Exit{Code: -1, Signal: signal, Stopped: true})
	}

	return p.Exit()
}

func (p *process) String() string {
	if p.revision == "" {
		return "local"
	}

	return fmt.Sprintf("content %d", p.content)
}
