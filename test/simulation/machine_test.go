// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"regexp"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/atomicfile"
	"github.com/evenkeel/evenkeel/internal/node/supervisor"
	"github.com/evenkeel/evenkeel/testkit/crashfs"
)

const (
	leasePeriod    = 10 * time.Second
	nodeMonitor    = 40 * time.Second // without a renewal of its Lease, a Node becomes Unknown
	leaseNamespace = corev1.NamespaceNodeLease
)

// machine is one node's machine. It outlives its agents, its kubelets and its
// Node.
type machine struct {
	w    *world
	name string
	zone string
	skew time.Duration // of its clock
	gate *gate         // of its network, for its agent and its kubelet
	// ownConfigMap says that the node's configuration comes from its own
	// ConfigMap, and not from its NodeConfig.
	ownConfigMap bool

	mu       sync.Mutex
	exists   bool // it is switched on
	onSince  time.Time
	disk     *crashfs.FS
	boots    int
	kubelets string // the version of the kubelet's binary
	flags    int    // of the agent: an upgrade changes them
	agent    *agentProcess
	serial   int // of agents
	process  *process
	runs     int64    // of kubelets
	last     *process // the newest, also if it has ended
	lastBy   *agentProcess
	fault    time.Time // when a kubelet last crashed or hung for no reason of its configuration, or had too many pods or no room on its disk

	// The heartbeat: a healthy kubelet with a network renews the Lease and
	// posts that the Node is Ready.
	beating   bool
	beatSince time.Time
	renewed   time.Time
	beats     int // counts the changes of beating
	idleSince time.Time
}

func (m *machine) version() string { return locked(&m.mu, func() string { return m.kubelets }) }

// startKubelet starts a kubelet for an agent, and reports whether it did.
func (m *machine) startKubelet(a *agentProcess, p *process) bool {
	m.mu.Lock()
	if a.way.isDead() || m.agent != a {
		m.mu.Unlock()
		return false
	}

	second := m.process
	m.runs++
	p.run = m.runs
	m.process = p
	m.mu.Unlock()
	m.w.book.must(second == nil, "%s: a second kubelet was started, with %s beside %s", m.name, p, second)
	m.w.book.trace("%s: kubelet starts with %s", m.name, p)
	again := m.checkRestart(a, p)
	m.w.checkStart(m, a, p, again)
	b := m.w.behaviourOf(p.content, m.name)
	r := dice(m.w.plan.seed, "kubelet", m.name, p.run)
	if b.once && m.w.crashedOnce(m.name, p.content) {
		b.crash = 0
	}

	healthy := between(r, 300*time.Millisecond, 4*time.Second) + b.slow
	if b.sick == 0 || b.sick > healthy {
		time.AfterFunc(healthy, func() {
			m.admit(p)
			m.setHealthy(p, true)
		})
	}

	if b.sick > healthy {
		time.AfterFunc(b.sick, func() { m.setHealthy(p, m.w.calm()) })
	}

	if b.crash > 0 {
		time.AfterFunc(b.crash, func() {
			if !m.w.calm() {
				m.endKubelet(p, supervisor.Exit{Code: 1})
			}
		})
	}

	return true
}

// admit rejects the pods for which the kubelet has no room, as a kubelet does
// that starts.
func (m *machine) admit(p *process) {
	if locked(&m.mu, func() bool { return p.ended }) {
		return
	}

	active := 0
	for _, name := range m.w.server.Names("pods", m.name) {
		pod, is := get[corev1.Pod](m.w, "pods", m.name, name)
		if !is || pod.Status.Phase == corev1.PodFailed {
			continue
		}

		if active++; active > p.maxPods {
			m.noteFault()
			m.w.direct(m.w.server.Patch("pods", m.name, name, types.MergePatchType, map[string]any{"status": map[string]any{"phase": "Failed", "reason": "OutOfpods"}}))
		}
	}
}

func (m *machine) setHealthy(p *process, healthy bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p.ended || p.hung || healthy == !p.healthySince.IsZero() {
		return
	}

	if healthy {
		p.healthySince = time.Now()
	} else {
		p.healthyFor += time.Since(p.healthySince)
		p.healthySince = time.Time{}
	}

	m.w.book.trace("%s: kubelet with %s healthy=%t", m.name, p, healthy)
	select {
	case p.changed <- struct{}{}:
	default:
	}

	m.beat()
}

// endKubelet ends a kubelet; only the first call has an effect.
func (m *machine) endKubelet(p *process, exit supervisor.Exit) {
	with(&m.mu, func() { m.end(p, exit) })
}

// end is endKubelet. The caller holds mu.
func (m *machine) end(p *process, exit supervisor.Exit) {
	if p.ended {
		return
	}

	if !p.healthySince.IsZero() {
		p.healthyFor += time.Since(p.healthySince)
		p.healthySince = time.Time{}
	}

	p.ended, p.exit = true, exit
	if m.process == p {
		m.process, m.idleSince = nil, time.Now()
	}

	m.w.book.trace("%s: kubelet with %s ended: %s", m.name, p, exit)
	m.w.noteHealthy(m, p)
	close(p.done)
	m.beat()
}

// beat starts or stops the heartbeat. The caller holds mu.
func (m *machine) beat() {
	beating := m.exists && m.process != nil && !m.process.healthySince.IsZero() && !m.gate.isClosed()
	if beating == m.beating {
		return
	}

	m.renewed = m.lastRenewal()
	m.beating = beating
	m.beats++
	beats := m.beats
	if !beating {
		time.AfterFunc(nodeMonitor, func() { m.monitor(beats) })
		return
	}

	m.beatSince = time.Now()
	delay := between(dice(m.w.plan.seed, "ready", m.name, beats), 100*time.Millisecond, 8*time.Second)
	p := m.process
	time.AfterFunc(delay, func() { m.postReady(beats, p) })
}

// lastRenewal returns when the Lease was renewed last. The caller holds mu.
func (m *machine) lastRenewal() time.Time {
	if !m.beating {
		return m.renewed
	}

	return m.beatSince.Add(time.Since(m.beatSince).Truncate(leasePeriod))
}

// beatsSince reports whether the heartbeat has not changed since a change, and
// the machine is on.
func (m *machine) beatsSince(beats int) bool {
	return locked(&m.mu, func() bool { return m.beats == beats && m.exists })
}

// monitor does what kube-controller-manager does for a Node without renewals.
func (m *machine) monitor(beats int) {
	if m.beatsSince(beats) {
		m.setReady(corev1.ConditionUnknown, "NodeStatusUnknown")
	}
}

// postReady posts the condition Ready, and registers the Node if there is none.
func (m *machine) postReady(beats int, p *process) {
	if !m.beatsSince(beats) {
		return
	}

	m.register()
	if m.w.behaviourOf(p.content, m.name).unready {
		m.setReady(corev1.ConditionFalse, "KubeletNotReady")
		return
	}

	m.setReady(corev1.ConditionTrue, "KubeletReady")
}

func (m *machine) setReady(status corev1.ConditionStatus, reason string) {
	now := m.w.server.Clock().UTC().Format(time.RFC3339)
	node, is := get[corev1.Node](m.w, "nodes", "", m.name)
	same := func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady && c.Status == status }
	if !is || slices.ContainsFunc(node.Status.Conditions, same) {
		return
	}

	m.w.direct(m.w.server.Patch("nodes", "", m.name, types.StrategicMergePatchType, map[string]any{"status": map[string]any{"conditions": []any{map[string]any{
		"type": "Ready", "status": status, "reason": reason, "lastHeartbeatTime": now, "lastTransitionTime": now,
	}}}}))
}

// register creates the Node and its Lease if there are none.
func (m *machine) register() {
	if m.w.has("nodes", "", m.name) {
		return
	}

	capacity := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("256Gi"), corev1.ResourcePods: resource.MustParse("110"),
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: m.name, Labels: map[string]string{
			corev1.LabelHostname: m.name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64", corev1.LabelTopologyZone: m.zone, "pool": "all",
		}},
		Status: corev1.NodeStatus{
			Capacity: capacity, Allocatable: capacity,
			NodeInfo: corev1.NodeSystemInfo{KubeletVersion: m.version(), Architecture: "amd64", OperatingSystem: "linux"},
		},
	}
	if m.w.plan.tainted {
		node.Spec.Taints = []corev1.Taint{{Key: v1alpha1.TaintUnconfigured, Effect: corev1.TaintEffectNoSchedule}}
	}

	m.w.direct(m.w.server.Create("nodes", "", node))
	if !m.w.has("leases", leaseNamespace, m.name) {
		m.w.direct(m.w.server.Create("leases", leaseNamespace, map[string]any{"metadata": map[string]any{"name": m.name}, "spec": map[string]any{"holderIdentity": m.name}}))
	}
}

// renewLease writes the newest renewal of the Lease, which is not written all
// the time.
func (m *machine) renewLease() {
	at := locked(&m.mu, m.lastRenewal)
	if at.IsZero() {
		return
	}

	err := m.w.server.Patch("leases", leaseNamespace, m.name, types.MergePatchType, map[string]any{"spec": map[string]any{"renewTime": at.UTC().Format(metav1.RFC3339Micro)}})
	if !apierrors.IsNotFound(err) {
		m.w.direct(err)
	}
}

// cut closes or opens the network.
func (m *machine) cut(open bool) {
	m.gate.set(open)
	with(&m.mu, m.beat)
}

// switchOn boots the machine.
func (m *machine) switchOn() {
	m.mu.Lock()
	m.exists, m.onSince = true, time.Now()
	if m.boots > 0 { // it was switched off while it ran: for a trial on its disk this is a power cut
		m.fault = time.Now()
	}

	m.boots++
	m.mu.Unlock()
	m.startAgent()
}

// switchOff removes the machine, and reports whether there was one.
func (m *machine) switchOff() bool {
	m.mu.Lock()
	was := m.exists
	m.exists = false
	if was {
		m.w.checks.tally(func(s *stats) { s.NodeTime += time.Since(m.onSince) })
	}

	m.mu.Unlock()
	m.kill(false, nil, 0)
	with(&m.mu, m.beat)

	return was
}

// correct ends what is wrong with the kubelet that runs.
func (m *machine) correct() {
	p := m.running()
	if p == nil {
		return
	}

	m.setHung(p, false)
	m.setHealthy(p, true)
	m.mu.Lock()
	beats, beating := m.beats, m.beating
	m.mu.Unlock()
	if beating {
		m.postReady(beats, p)
	}
}

// noteFault notes that something is wrong with the machine itself.
func (m *machine) noteFault() { with(&m.mu, func() { m.fault = time.Now() }) }

// faultAt returns when something was last wrong with the machine itself; zero:
// never.
func (m *machine) faultAt() time.Time { return locked(&m.mu, func() time.Time { return m.fault }) }

func (m *machine) isOn() bool { return locked(&m.mu, func() bool { return m.exists }) }

func (m *machine) running() *process { return locked(&m.mu, func() *process { return m.process }) }

func (m *machine) setHung(p *process, hung bool) { with(&m.mu, func() { p.hung = hung }) }

// temporary is the end of the name of a temporary file, with its random part.
var temporary = regexp.MustCompile(`\.[0-9a-f]{8}\` + atomicfile.TempSuffix + `$`)

// kill ends the agent and its kubelet at this moment. With power, the machine
// loses what was not synced, and boots again.
func (m *machine) kill(power bool, choice crashfs.Choice, again time.Duration) {
	m.mu.Lock()
	a := m.agent
	if a == nil {
		m.mu.Unlock()
		return
	}

	a.way.kill()
	m.agent = nil
	if p := m.process; p != nil {
		m.end(p, supervisor.Exit{Code: -1, Signal: "killed"})
	}

	atOperation := m.disk.Crashed()
	m.disk.CrashAfter(0)
	if !power {
		choice = crashfs.Choices["all kept"]
	}

	m.disk = m.disk.Reboot(func(u crashfs.Unsynced) crashfs.Fate {
		u.Path = temporary.ReplaceAllString(u.Path, ".tmp") // the fate does not depend on random names
		return choice(u)
	})
	if power {
		m.boots++
		m.fault = time.Now() // a node that goes down in a trial may be the fault of the configuration
	}

	m.mu.Unlock()
	a.cancel()
	m.w.book.trace("%s: killed, power=%t", m.name, power)
	name := kills
	if power || atOperation {
		name = crashPoints
	}

	m.w.checks.tally(func(s *stats) { s.count(name, 1) })
	if again > 0 {
		time.AfterFunc(again, m.startAgent)
	}
}
