// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// serviceManager plays systemd at the other end of NOTIFY_SOCKET.
type serviceManager struct {
	*node

	mu    sync.Mutex
	heard []message
}

type message struct {
	at    time.Time
	state string
	err   error // what the kubelet's healthz said at that moment
}

// managed gives the agent a service manager, whose watchdog wants to be fed.
func (n *node) managed(watchdog time.Duration) *serviceManager {
	n.t.Helper()
	socket := filepath.Join(n.Node.Dir(), "notify.sock")
	conn := assert.Value(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"}))(n.t)
	m := &serviceManager{node: n}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buffer := make([]byte, 4096)
		for {
			size, err := conn.Read(buffer)
			if err != nil {
				return
			}

			at, states := time.Now(), strings.Split(strings.TrimSpace(string(buffer[:size])), "\n")
			err = nil
			if slices.Contains(states, "READY=1") {
				err = n.Healthy(context.Background())
			}

			m.mu.Lock()
			for _, state := range states {
				m.heard = append(m.heard, message{at, state, err})
			}

			m.mu.Unlock()
		}
	}()
	n.t.Cleanup(func() {
		_ = conn.Close()
		<-done
	})
	n.Env = append(n.Env, "NOTIFY_SOCKET="+socket, fmt.Sprintf("WATCHDOG_USEC=%d", watchdog.Microseconds()))

	return m
}

// said returns the messages of one kind since a moment.
func (m *serviceManager) said(state string, since time.Time) (found []message) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, h := range m.heard {
		if h.state == state && h.at.After(since) {
			found = append(found, h)
		}
	}

	return found
}

func (m *serviceManager) awaits(state string, since time.Time) message {
	m.t.Helper()
	var found []message
	m.Eventually(state, func(context.Context) error {
		found = m.said(state, since)
		return assert.Unless(len(found) > 0, "it was not sent")
	})

	return found[0]
}

// fed checks that the watchdog was notified in time between two moments.
func (m *serviceManager) fed(interval time.Duration, from, to time.Time) {
	m.t.Helper()
	last := from
	for _, h := range append(m.said("WATCHDOG=1", from), message{at: to}) {
		if h.at.After(to) {
			break
		}
		if gap := h.at.Sub(last); gap > interval {
			m.t.Errorf("the watchdog was not fed for %s, from %s on", gap, last.Format(time.TimeOnly))
		}

		last = h.at
	}
}

func TestSystemdIsNotifiedAndItsWatchdogIsFed(t *testing.T) {
	t.Parallel()
	const interval = 3 * time.Second
	n := newNode(t, "notify", "--config-trial-duration=1s", "--crash-loop-threshold=1", "--health-timeout=10s", "--stop-grace=2s")
	n.wrap(`[ $mode = run ] && while [ ! -e "$dir/go" ]; do sleep 0.05; done
runs 'maxPods: 123' && exit 7`)
	m := n.managed(interval)
	begin := time.Now()
	n.start()
	n.RunningPID() // a kubelet was started
	n.throughout(interval+time.Second, "a kubelet that is not healthy", func(context.Context) error {
		return assert.Unless(len(m.said("READY=1", begin)) == 0, "READY=1 was sent")
	})
	assert.NoError(t, os.WriteFile(n.beside("go"), nil, 0o644))
	ready := m.awaits("READY=1", begin)
	assert.That(t, ready.err == nil, "READY=1 was sent, but: %v", ready.err)

	// A restart of the kubelet, and one that crash-loops, are the agent's
	// affair.
	n.is(localInit)
	good := n.good("good", map[string]any{"maxPods": 120})
	bad := n.assignNew("bad", map[string]any{"maxPods": 123})
	n.is(rolledBack(bad, "CrashLooped", fmt.Sprintf("(UID: %s)", good.UID), "crash-looped: 2 starts in its trial, last: exit status 7"))
	n.healthyWith(good)
	n.throughout(2*interval, "a kubelet that pings", n.Healthy)
	assert.That(t, len(m.said("STOPPING=1", begin)) == 0, "STOPPING=1 was sent while it runs")

	end := time.Now()
	m.fed(interval, begin, end)
	n.stop()
	m.awaits("STOPPING=1", end)
	n.exitsWith(0)
}

func TestSystemdAcceptsOurUnits(t *testing.T) {
	t.Parallel()
	systemdTakes(t, "evenkeel-bootstrap.service", "evenkeel-bootstrap.service", "evenkeel-bootstrap.service", nil,
		"Type=exec", "NotifyAccess=main", "KillMode=mixed", "Restart=always", "RestartSec=2", "StartLimitIntervalSec=0", "Conflicts=kubelet.service",
		"TimeoutStopSec=60", "RuntimeDirectory=evenkeel evenkeel/lock evenkeel/probe", "RuntimeDirectoryPreserve=yes",
	)
	const kubeadm = `[Service]
Environment="KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf"
Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
EnvironmentFile=-/etc/default/kubelet
ExecStart=
ExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
`
	systemdTakes(t, "evenkeel-agent-kubelet.conf", "kubelet.service.d/20-evenkeel.conf", "kubelet.service",
		map[string]string{"kubelet.service": nodeUnit, "kubelet.service.d/10-kubeadm.conf": kubeadm},
		"Type=notify", "NotifyAccess=main", "KillMode=mixed", "Restart=always", "RuntimeDirectory=evenkeel", "TimeoutStopSec=60", "TimeoutStartSec=10min",
	)
}

// systemdTakes has systemd verify a unit that a file of config/systemd makes,
// under the name "as" and beside others, and looks for settings in that file.
func systemdTakes(t *testing.T, file, as, unit string, others map[string]string, settings ...string) {
	t.Helper()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("no systemd-analyze here")
	}

	raw := assert.Value(os.ReadFile("../../config/systemd/" + file))(t)
	dir := t.TempDir()
	agent := filepath.Join(dir, "evenkeel-agent")
	assert.NoError(t, os.Symlink("/bin/true", agent)) // systemd wants a program that is there
	ours := strings.Replace(string(raw), "/usr/local/bin/evenkeel-agent", agent, 1)
	assert.Must(t, ours != string(raw), "it does not run /usr/local/bin/evenkeel-agent")
	files := map[string]string{as: ours}
	maps.Copy(files, others)
	for name, content := range files {
		path := filepath.Join(dir, name)
		assert.NoError(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)))
	}

	cmd := exec.CommandContext(t.Context(), analyze, "verify", "--man=no", unit)
	cmd.Env = append(os.Environ(), "SYSTEMD_UNIT_PATH="+dir+":") // the default ones follow
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}

	for _, setting := range settings {
		assert.That(t, slices.Contains(strings.Split(string(raw), "\n"), setting), "there is no %s", setting)
	}
}
