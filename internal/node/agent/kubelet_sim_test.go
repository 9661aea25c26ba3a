// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/podguard"
	"github.com/evenkeel/evenkeel/internal/node/supervisor"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/internal/payload"
)

// conf is a configuration, and the behaviour of a kubelet with it.
type conf struct {
	name         string
	dropin       bool          // its payload is one
	rejected     string        // by the dry run, in these words
	doubtful     bool          // the dry run cannot tell
	hangs        bool          // the dry run does not end
	slow         bool          // the dry run takes as long, and ends
	crashes      time.Duration // after this long; 0: it does not
	sick         bool          // alive, never healthy
	maxPods      int
	healthz      int            // port
	readOnlyPort int            // protected
	noDump       bool           // the dry run does not print the configuration
	alone        bool           // it kills the dry run, and local does not
	policy       string         // of the CPU manager
	loses        bool           // it never renews the node's Lease
	socket       string         // of the runtime, if it is another one
	greedy       bool           // while it runs, the runtime does not answer
	gates        map[string]any // feature gates
}

func (c conf) text() string {
	return fmt.Sprintf("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nhairpinMode: %s\n", c.name)
}

func (c conf) effective() component.Effective {
	number := func(n int) json.Number { return json.Number(fmt.Sprint(n)) }
	return component.Effective{
		"hairpinMode": c.name, "maxPods": number(cmp.Or(c.maxPods, 110)), "healthzPort": number(cmp.Or(c.healthz, 10248)),
		"containerRuntimeEndpoint": cmp.Or(c.socket, "unix:///run/containerd/containerd.sock"), "cpuManagerPolicy": c.policy,
		"readOnlyPort": number(c.readOnlyPort), "featureGates": c.gates,
	}
}

// behaves changes a configuration, or how kubelets behave with it from their
// next start or dry run on.
func (w *world) behaves(c conf) {
	w.kubelet.set(func(s *kubeletState) { s.confs[c.name] = c })
}

// knows is behaves, unless the configuration is known already.
func (w *world) knows(c conf) {
	w.kubelet.set(func(s *kubeletState) {
		if _, known := s.confs[c.name]; !known {
			s.confs[c.name] = c
		}
	})
}

// replaceBinary replaces the kubelet's binary.
func (w *world) replaceBinary(version string) {
	w.kubelet.set(func(s *kubeletState) { s.identity, s.version = s.identity+"+", version })
}

// kubeletState is what a test may set and read, by get and set.
type kubeletState struct {
	identity, version string
	capacity          payload.Capacity
	identityErr       error
	spawnErr          error
	checking          int           // dry runs in progress
	killTakes         time.Duration // of a dry run
	filesErr          error
	confs             map[string]conf // by name; "" is local
	cpuState          string          // the policy in cpu_manager_state; empty: there is no file
	describeErr       error
	runtimeDown       bool
	runtimeHangs      time.Time // until then it accepts connections and does not answer
	shuttingDown      bool
	lastErrors        string // before each exit
	refusals          []component.PodRefusal
	stopTakes         time.Duration

	mended  bool            // the dry run rejects local no more
	refuses map[string]bool // configurations that this binary rejects, by name

	starts  []string // names, in their order
	ports   []string // of the health endpoint, as the agent knew it at each start
	checks  map[string]int
	healthy map[string]time.Duration // observed, by name and version
	moved   []string
	lease   time.Time // when it was renewed last
	ended   time.Time // when the last one ended; zero: none has
	exit    supervisor.Exit
	gap     time.Duration // the longest without any, after the first
}

// clone returns a copy that shares nothing with s.
func (s kubeletState) clone() kubeletState {
	s.confs, s.checks, s.healthy, s.refuses = maps.Clone(s.confs), maps.Clone(s.checks), maps.Clone(s.healthy), maps.Clone(s.refuses)
	s.starts, s.ports, s.moved = slices.Clone(s.starts), slices.Clone(s.ports), slices.Clone(s.moved)
	return s
}

// rejection returns why the dry run rejects a configuration by itself; empty:
// it does not.
func (s kubeletState) rejection(name string) string {
	switch {
	case s.refuses[name]:
		return "unrecognized feature gate: " + s.identity
	case name == "" && s.mended:
		return ""
	}

	return s.confs[name].rejected
}

// simKubelet is a kubelet binary: it validates configurations, and runs one at
// a time.
type simKubelet struct {
	guarded[kubeletState]
	w *world

	// Protected by mu.
	process *simProcess
	ignored bool
	onStart func(name string) // before it counts

	asked atomic.Int32 // how often for its version
	reads atomic.Int32 // of the local configuration
}

func newSimKubelet(w *world) *simKubelet {
	k := &simKubelet{w: w}
	k.s = kubeletState{
		identity: "inode-1", version: "v1.36.3", confs: map[string]conf{"": {}},
		checks: map[string]int{}, healthy: map[string]time.Duration{}, stopTakes: 50 * time.Millisecond,
	}

	return k
}

func (k *simKubelet) running() *simProcess {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.process
}

// ignore makes the test ignore what follows.
func (k *simKubelet) ignore(on bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ignored = on
}

func (k *simKubelet) checked(name string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.s.checks[name]
}

// observedHealthy returns how long kubelets of a version were healthy with a
// configuration, in total.
func (k *simKubelet) observedHealthy(version, name string) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	sum := k.s.healthy[version+"/"+name]
	if p := k.process; p != nil && p.conf.name == name && p.version == version && p.Healthy() {
		sum += time.Since(p.get().healthySince)
	}

	return sum
}

// leaseRenewed returns the renew time of the node's Lease: a healthy kubelet
// renews it at once, and then every ten seconds.
func (k *simKubelet) leaseRenewed() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if p := k.process; p != nil && p.Healthy() {
		p.renew()
	}

	return k.s.lease.Format(time.RFC3339Nano)
}

func (p *simProcess) renew() {
	if !p.conf.loses {
		since := p.get().healthySince
		p.kubelet.s.lease = since.Add(time.Since(since).Truncate(10 * time.Second))
	}
}

func (k *simKubelet) Identity() (string, error) {
	s := k.get()
	return s.identity, s.identityErr
}

func (k *simKubelet) Local() trial.LocalConfig { return trial.LocalInit }

func (k *simKubelet) Version(context.Context) (string, error) {
	k.asked.Add(1)
	return k.get().version, nil
}

func (k *simKubelet) CheckLocal(ctx context.Context) component.Verdict { return k.judge(ctx, "") }

func (k *simKubelet) LocalDigest() string {
	k.reads.Add(1)
	return fmt.Sprint(k.get().confs[""])
}

func (k *simKubelet) LocalFiles() map[string]string {
	return map[string]string{"/var/lib/kubelet/config.yaml": fmt.Sprint(k.get().confs[""])}
}

func (k *simKubelet) Capacity() payload.Capacity { return k.get().capacity }

func (k *simKubelet) Check(ctx context.Context, p payload.Resolved) component.Verdict {
	v := k.judge(ctx, nameOf(p.Upstream))
	if v.Effective != nil {
		for _, name := range p.Rules() {
			v.Effective[name] = p.Fields[name]
		}
	}

	return v
}

func (k *simKubelet) Files(p payload.Resolved) (map[string][]byte, error) {
	return map[string][]byte{"kubelet": p.Upstream}, k.get().filesErr
}

func nameOf(data []byte) string {
	fields, _ := payload.DecodeMapping(data)
	name, _ := fields["hairpinMode"].(string)
	return name
}

func (k *simKubelet) judge(ctx context.Context, name string) component.Verdict {
	k.mu.Lock()
	k.s.checks[name]++
	k.s.checking++
	defer k.set(func(s *kubeletState) { s.checking-- })
	c, known := k.s.confs[name]
	local := k.s.confs[""]
	c.rejected, local.rejected = k.s.rejection(name), k.s.rejection("")
	k.mu.Unlock()
	takes := 300 * time.Millisecond
	if c.hangs || c.slow {
		takes = 15 * time.Second
	}

	select {
	case <-ctx.Done():
		time.Sleep(k.get().killTakes)
		return component.Verdict{Message: ctx.Err().Error()}
	case <-time.After(takes):
	}

	switch {
	case !known:
		return component.Verdict{Outcome: component.Rejected, Message: "nobody knows " + name}
	case c.hangs:
		return component.Verdict{Message: "it did not end in time"}
	case c.alone:
		return component.Verdict{Message: "it was killed", CandidateOnly: true}
	case c.doubtful:
		return component.Verdict{Message: "the runtime cannot be reached"}
	case c.dropin && local.rejected != "":
		return component.Verdict{Message: local.rejected + " (but the local configuration does not pass the dry run either, for the same reason)"}
	case c.rejected != "":
		return component.Verdict{Outcome: component.Rejected, Stage: 1, Message: c.rejected}
	}

	v := accepted
	if c.noDump {
		v.Assumed = component.Effective{"healthzPort": c.effective()["healthzPort"]}
		v.Limits = []component.Limit{{Reason: component.LimitNotComparable, Message: "it prints nothing"}}
	} else {
		v.Effective = c.effective()
	}

	if name != "" {
		if local.rejected == "" && !local.doubtful && !local.hangs {
			v.Local = local.effective()
		}

		v.Overridden = []string{"clusterDNS"}
		v.Origins = map[string]component.Origin{"maxPods": "remote"}
	}

	return v
}

func (k *simKubelet) Start(_ context.Context, run component.RunConfig, effective component.Effective) (Process, error) {
	name := ""
	if run.Dir != "" {
		data, err := k.w.disk.ReadFile(run.Dir + "/kubelet")
		if err != nil {
			return nil, err
		}

		name = nameOf(data)
	}

	k.mu.Lock()
	defer k.mu.Unlock()
	if k.s.spawnErr != nil {
		return nil, k.s.spawnErr
	}
	if k.process != nil {
		k.w.t.Errorf("a second kubelet was started, with %s beside %s", orLocal(name), orLocal(k.process.conf.name))
	}

	p := &simProcess{kubelet: k, conf: k.s.confs[name], version: k.s.version, done: make(chan struct{}), changed: make(chan struct{}, 1), kill: make(chan supervisor.Exit)}
	p.conf.name = name
	if !k.ignored && !k.w.disk.Crashed() {
		if k.onStart != nil {
			k.onStart(name)
		}

		k.s.starts = append(k.s.starts, name)
		port, _ := effective.Int("healthzPort")
		k.s.ports = append(k.s.ports, fmt.Sprint(port))
	}

	if !k.s.ended.IsZero() {
		k.s.gap = max(k.s.gap, time.Since(k.s.ended))
	}

	k.process = p
	go p.run()

	return p, nil
}

func (k *simKubelet) Describe(ctx context.Context, in *podguard.Input) error {
	k.readState(in)
	return k.get().describeErr
}

func (k *simKubelet) readState(in *podguard.Input) {
	if policy := k.get().cpuState; policy != "" {
		in.CPUState = &podguard.CPUState{Policy: policy}
	}
}

func (k *simKubelet) MoveState(in podguard.Input) (moved []string, err error) {
	k.readState(&in)
	conflicts := podguard.StateConflicts(in)
	if len(conflicts) == 0 {
		return nil, nil
	}

	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range conflicts {
		moved = append(moved, "/var/lib/kubelet/"+c.File+".evenkeel")
	}

	k.s.moved = append(k.s.moved, moved...)
	k.s.cpuState = ""

	return moved, nil
}

func (k *simKubelet) RuntimeReachable(_ context.Context, endpoint string) error {
	if endpoint == "" {
		return errors.New("the container runtime endpoint \"\" is not a unix socket")
	}
	if k.get().runtimeDown {
		return errors.New("connection refused")
	}
	if p := k.running(); p != nil && p.conf.greedy {
		return context.DeadlineExceeded
	}

	const timeout = 2 * time.Second
	hangs := time.Until(k.get().runtimeHangs)
	time.Sleep(min(hangs, timeout))
	if hangs > timeout {
		return context.DeadlineExceeded
	}

	return nil
}

func (k *simKubelet) RunsStaticPods(component.Effective) bool { return false }

type processState struct {
	healthySince time.Time // zero: it is not
	waiting      bool
	exit         supervisor.Exit
	closely      bool
}

// simProcess is a running kubelet. It is healthy 300 ms after its start.
type simProcess struct {
	guarded[processState]
	kubelet *simKubelet
	conf    conf
	version string
	done    chan struct{}
	changed chan struct{}
	kill    chan supervisor.Exit
}

func (p *simProcess) run() {
	var crash, health <-chan time.Time
	if p.conf.crashes > 0 {
		crash = time.After(p.conf.crashes)
	}
	if !p.conf.sick {
		health = time.After(300 * time.Millisecond)
	}

	var exit supervisor.Exit
	for over := false; !over; {
		select {
		case <-health:
			p.set(func(s *processState) { s.healthySince = time.Now() })
			signal(p.changed)
		case <-crash:
			exit, over = exitOne, true
		case exit = <-p.kill:
			over = true
		}
	}

	p.endHealth() // the probes of a real kubelet end with it, without a signal
	p.set(func(s *processState) { s.exit = exit })
	p.kubelet.set(func(s *kubeletState) { p.kubelet.process, s.ended, s.exit = nil, time.Now(), exit })
	close(p.done)
}

// sicken makes it unhealthy.
func (p *simProcess) sicken() {
	p.endHealth()
	signal(p.changed)
}

func (p *simProcess) endHealth() {
	p.kubelet.mu.Lock()
	defer p.kubelet.mu.Unlock()
	if p.Healthy() {
		p.renew()
		p.kubelet.s.healthy[p.version+"/"+p.conf.name] += time.Since(p.get().healthySince)
	}

	p.set(func(s *processState) { s.healthySince = time.Time{} })
}

// die makes it exit.
func (p *simProcess) die(exit supervisor.Exit) {
	select {
	case p.kill <- exit:
	case <-p.done:
	}
}

func (p *simProcess) Done() <-chan struct{}    { return p.done }
func (p *simProcess) Changed() <-chan struct{} { return p.changed }
func (p *simProcess) Exit() supervisor.Exit    { return p.get().exit }
func (p *simProcess) LastErrors() string       { return p.kubelet.get().lastErrors }
func (p *simProcess) Healthy() bool            { return !p.get().healthySince.IsZero() }
func (p *simProcess) Waiting() bool            { return p.get().waiting }
func (p *simProcess) Watch(closely bool)       { p.set(func(s *processState) { s.closely = closely }) }

// PodRefusals says that the kubelet tries to start the pods every ten seconds.
func (p *simProcess) PodRefusals() []component.PodRefusal {
	refusals := slices.Clone(p.kubelet.get().refusals)
	for i := range refusals {
		refusals[i].Attempt = time.Now().Truncate(10 * time.Second).String()
		refusals[i].Seen = refusals[i].Attempt
	}

	return refusals
}

func (p *simProcess) Stop(time.Duration) supervisor.Exit {
	select {
	case <-p.done:
	case <-time.After(p.kubelet.get().stopTakes):
		p.die(supervisor.Exit{Signal: "terminated", Stopped: true})
	}

	<-p.done

	return p.Exit()
}
