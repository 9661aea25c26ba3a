// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package hollow

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/agent"
	"github.com/evenkeel/evenkeel/internal/node/supervisor"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/internal/payload"
)

// KubeletVersion is the version of simulated kubelets.
const KubeletVersion = "v1.36.3"

const (
	startDelay = 500 * time.Millisecond // until a kubelet is healthy
	crashDelay = 100 * time.Millisecond // until it crashes, if it does
)

// Defaults are a kubelet's default values of the fields that the agent's guards
// read. Do not change them.
var Defaults = map[string]any{
	"address": "0.0.0.0", "port": json.Number("10250"), "readOnlyPort": json.Number("0"),
	"healthzBindAddress": "127.0.0.1", "healthzPort": json.Number("10248"),
	"authentication": map[string]any{
		"anonymous": map[string]any{"enabled": false}, "webhook": map[string]any{"enabled": true, "cacheTTL": "2m0s"}, "x509": map[string]any{},
	},
	"authorization":            map[string]any{"mode": "Webhook"},
	"logging":                  map[string]any{"verbosity": json.Number("0")},
	"maxPods":                  json.Number("110"),
	"podPidsLimit":             json.Number("-1"),
	"cgroupDriver":             "systemd",
	"cpuManagerPolicy":         "none",
	"memoryManagerPolicy":      "None",
	"containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
}

// kubelet is the simulated kubelet of one node. It implements agent.Kubelet.
type kubelet struct {
	NoMachine
	heartbeat *heartbeat
	size      payload.Capacity

	mu      sync.Mutex
	faults  []Fault // of this node
	process *process
}

var _ agent.Kubelet = (*kubelet)(nil)

// setFaults replaces the faults, also of the running process.
func (k *kubelet) setFaults(faults []Fault) {
	k.mu.Lock()
	k.faults = faults
	p := k.process
	k.mu.Unlock()
	if p != nil {
		p.setBehaviour(k.behave(p.payload))
	}
}

func (k *kubelet) behave(p *payload.Payload) behaviour {
	k.mu.Lock()
	defer k.mu.Unlock()
	return behaviourOf(k.faults, p)
}

// Capacity implements agent.Kubelet.
func (k *kubelet) Capacity() payload.Capacity { return k.size }

// Identity implements agent.Kubelet.
func (k *kubelet) Identity() (string, error) { return KubeletVersion, nil }

// Version implements agent.Kubelet.
func (k *kubelet) Version(context.Context) (string, error) { return KubeletVersion, nil }

// Local implements agent.Kubelet.
func (k *kubelet) Local() trial.LocalConfig { return trial.LocalDefault }

// LocalDigest implements agent.Kubelet.
func (k *kubelet) LocalDigest() string { return "defaults" }

// CheckLocal implements agent.Kubelet.
func (k *kubelet) CheckLocal(context.Context) component.Verdict {
	return component.Verdict{Outcome: component.Accepted, Stage: 2, Effective: Defaults}
}

// Check implements agent.Kubelet.
func (k *kubelet) Check(_ context.Context, p payload.Resolved) component.Verdict {
	content := p.Payload
	content.Fields = p.Fields
	if k.behave(&content).rejects {
		return component.Verdict{Outcome: component.Rejected, Stage: 1, Message: "this hollow node is set to reject it"}
	}

	return Accept(p.Fields)
}

// Accept is the verdict of a dry run about the fields of a payload with which
// nothing is wrong.
func Accept(fields map[string]any) component.Verdict {
	effective, err := Effective(fields)
	if err != nil {
		return component.Verdict{Outcome: component.Rejected, Stage: 1, Message: err.Error()}
	}

	return component.Verdict{Outcome: component.Accepted, Stage: 2, Effective: effective, Local: Defaults}
}

// Effective merges the fields of a payload over the Defaults.
func Effective(fields map[string]any) (component.Effective, error) {
	text, err := json.Marshal(fields)
	if err != nil {
		return nil, fmt.Errorf("encode the payload: %w", err)
	}

	over, err := payload.DecodeMapping(text)
	if err != nil {
		return nil, fmt.Errorf("decode the payload: %w", err)
	}

	over = payload.Canonical(over)
	delete(over, "apiVersion")
	delete(over, "kind")

	return payload.Merge(Defaults, over), nil
}

// Start implements agent.Kubelet.
func (k *kubelet) Start(_ context.Context, run component.RunConfig, _ component.Effective) (agent.Process, error) {
	rendered, err := Rendered(run, os.ReadFile)
	if err != nil {
		return nil, err
	}

	p := &process{kubelet: k, payload: rendered, done: make(chan struct{}), changed: make(chan struct{}, 1)}
	p.mu.Lock()
	defer p.mu.Unlock()
	k.mu.Lock()
	k.process = p
	k.mu.Unlock()
	b := k.behave(p.payload)
	p.due = time.Now().Add(startDelay + b.delay)
	p.timer = time.AfterFunc(startDelay+b.delay, func() { p.Healthy() })
	p.apply(b)

	return p, nil
}

// process is one run of a kubelet. It uses timers instead of goroutines.
type process struct {
	kubelet *kubelet
	payload *payload.Payload // nil for the local configuration
	done    chan struct{}
	changed chan struct{}

	mu        sync.Mutex
	behaviour behaviour
	due       time.Time   // when it is up
	timer     *time.Timer // marks it as up
	crash     *time.Timer
	isUp      bool
	healthy   bool
	ended     bool
	exit      supervisor.Exit
}

// setBehaviour changes the behaviour of the running kubelet.
func (p *process) setBehaviour(b behaviour) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.apply(b)
}

// apply applies a behaviour. The caller holds mu.
func (p *process) apply(b behaviour) {
	if p.ended {
		return
	}

	p.behaviour = b
	switch {
	case b.crashes && p.crash == nil:
		p.crash = time.AfterFunc(crashDelay, func() { p.end(supervisor.Exit{Code: 1}) })
	case !b.crashes && p.crash != nil:
		p.crash.Stop()
		p.crash = nil
	}

	healthy := p.isUp && !b.unhealthy && !b.crashes
	if healthy {
		p.kubelet.heartbeat.kubeletHealthy(!p.healthy, !b.notReady)
	}

	if healthy != p.healthy {
		p.healthy = healthy
		p.signal()
	}
}

func (p *process) signal() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// end ends the process; only the first call has an effect.
func (p *process) end(exit supervisor.Exit) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return
	}

	p.ended, p.healthy, p.exit = true, false, exit
	p.timer.Stop()
	if p.crash != nil {
		p.crash.Stop()
	}

	p.kubelet.heartbeat.kubeletEnded()
	close(p.done)
}

// Done implements agent.Process.
func (p *process) Done() <-chan struct{} { return p.done }

// Changed implements agent.Process.
func (p *process) Changed() <-chan struct{} { return p.changed }

// Exit implements agent.Process.
func (p *process) Exit() supervisor.Exit {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.exit
}

// LastErrors implements agent.Process.
func (p *process) LastErrors() string { return "" }

func (p *process) PodRefusals() []component.PodRefusal { return nil }

// Stop implements agent.Process.
func (p *process) Stop(time.Duration) supervisor.Exit {
	p.end(supervisor.Exit{Code: -1, Signal: "terminated", Stopped: true})
	return p.Exit()
}

// Healthy implements agent.Process. It marks the kubelet as up if that is due:
// on a busy machine the agent may ask before the timer runs that was due first.
func (p *process) Healthy() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.isUp && !time.Now().Before(p.due) {
		p.isUp = true
		p.apply(p.behaviour)
	}

	return p.healthy
}

// Waiting implements agent.Process.
func (p *process) Waiting() bool { return false }

// Watch implements agent.Process. An agent that watches closely waits for
// renewals of the Lease.
func (p *process) Watch(closely bool) { p.kubelet.heartbeat.watchLease(closely) }
