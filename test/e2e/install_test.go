// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/localcluster/sweep"
	sdmachine "github.com/evenkeel/evenkeel/testkit/machine"
)

// host is a node whose kubelet a real systemd runs.
type host struct {
	*node
	m   *sdmachine.Machine
	bin string // where install puts the agent
}

const (
	nodeUnit = `[Unit]
Description=kubelet: The Kubernetes Node Agent

[Service]
ExecStart=/usr/bin/kubelet
Restart=always
StartLimitInterval=0
RestartSec=1
`
	nodeDropIn = `[Service]
Environment="KUBELET_KUBECONFIG_ARGS=%s"
EnvironmentFile=-%s
ExecStart=
ExecStart=%s $KUBELET_KUBECONFIG_ARGS $KUBELET_EXTRA_ARGS
`
)

// newHost makes a node as kubeadm does, and waits until it is Ready.
func newHost(t *testing.T, name string) *host {
	t.Helper()
	n := newNode(t, name)
	cgroup := assert.Value(os.ReadFile(filepath.Join(n.Node.Dir(), sweep.CgroupFile)))(t)
	dir := assert.Value(os.MkdirTemp("", "evkh-"))(t)
	m, err := sdmachine.Start(t.Context(), dir, sdmachine.Inside, strings.TrimSpace(string(cgroup)))
	if err != nil {
		_ = os.RemoveAll(dir)
	}
	if errors.Is(err, sdmachine.ErrUnsupported) {
		t.Skip(err)
	}

	assert.NoError(t, err)
	h := &host{n, m, filepath.Join(dir, "bin")}
	t.Cleanup(func() {
		if t.Failed() {
			raw, _ := os.ReadFile(m.Log())
			t.Logf("systemd, agent and kubelet said last:\n%s", raw[max(0, len(raw)-6000):])
		}

		assert.OK(t, errors.Join(m.Stop(), os.RemoveAll(dir)))
	})
	h.write(sdmachine.Lib+"/kubelet.service", nodeUnit)
	h.write(sdmachine.Lib+"/kubelet.service.d/10-kubeadm.conf", fmt.Sprintf(nodeDropIn, strings.Join(n.Node.KubeletArgs(), " "), filepath.Join(dir, "kubelet.env"), n.Node.KubeletPath()))
	h.systemctl("daemon-reload")
	h.systemctl("start", "kubelet")
	n.Eventually("the node is Ready", n.Ready)

	return h
}

func (h *host) write(inside, content string) {
	h.t.Helper()
	path := h.m.Path(inside)
	assert.NoError(h.t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)))
}

func (h *host) systemctl(args ...string) string {
	h.t.Helper()
	out := assert.Value(h.m.Systemctl(h.t.Context(), args...))(h.t)
	return strings.TrimSpace(out)
}

// agent runs evenkeel-agent on the machine, and returns what it said and its
// exit code.
func (h *host) agent(args ...string) (string, int) {
	h.t.Helper()
	out, err := h.m.Command(h.t.Context(), h.Binary, args...).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		h.t.Fatal(err)
	}
	if exit != nil {
		return string(out), exit.ExitCode()
	}

	return string(out), 0
}

// does runs evenkeel-agent, and wants an exit code and words.
func (h *host) does(code int, words string, args ...string) {
	h.t.Helper()
	said, got := h.agent(args...)
	if got != code || !strings.Contains(said, words) {
		h.t.Fatalf("evenkeel-agent %s: exit code %d, want %d; it said\n%swant %s", strings.Join(args, " "), got, code, said, words)
	}
}

func (h *host) invocation() string {
	return h.systemctl("show", "kubelet", "--property=InvocationID", "--value")
}

// TestTheAgentIsInstalledReplacesFlagsAndIsUninstalledOnANode has a stock
// kubelet in a unit as kubeadm makes it. internal/node/install has what can go
// wrong.
func TestTheAgentIsInstalledReplacesFlagsAndIsUninstalledOnANode(t *testing.T) {
	t.Parallel()
	h := newHost(t, "install")
	plain := h.invocation()
	h.does(0, "Nothing was changed.\n", "install", "--dry-run", "--bin-dir="+h.bin)
	h.does(1, `the agent refuses the kubelet of kubelet.service: its local configuration (`+h.Node.KubeletConfig()+`) is rejected: `,
		h.withFlag("--feature-gates=NoSuchGate=true", "install", "--bin-dir="+h.bin)...)
	assert.Must(t, h.invocation() == plain, "the kubelet was restarted")
	dropins := filepath.Join(filepath.Dir(h.bin), "kubelet.conf.d")
	assert.NoError(t, os.Mkdir(dropins, 0o755))
	h.withFlag(fmt.Sprintf("'--max-pods=77 --config-dir=%s'", dropins))

	// An agent that does not come up.
	h.does(2, "install of kubelet.service: taken back: systemctl restart kubelet.service: the result of the job is \"failed\"",
		"install", "--bin-dir="+h.bin, "--attempt=first", "--", "--dynamic-config-dir=/proc/none")
	h.Eventually("the kubelet is healthy", h.Healthy)
	assert.Is(t, assert.Err(os.Stat(h.m.Path(sdmachine.Etc+"/kubelet.service.d"))), os.ErrNotExist, "the drop-in is left")
	plain = h.invocation()
	h.does(2, "this attempt (first) has failed before and is not repeated", "install", "--bin-dir="+h.bin, "--attempt=first")
	assert.That(t, h.invocation() == plain, "the same attempt has restarted the kubelet")

	h.does(0, "evenkeel-agent runs the kubelet of kubelet.service: healthy, node "+h.Node.Name()+" Ready\n",
		"install", "--bin-dir="+h.bin, "--attempt=second", "--", "--listen="+h.Listen, "--config-trial-duration=2s")
	h.commandLine("--max-pods=77", true)
	h.Eventually("the agent has made the node's NodeConfig", func(ctx context.Context) error {
		_, err := h.Get(ctx)
		return err
	})
	h.replacesFlags(dropins)

	// It is an agent like any other.
	h.good("a", map[string]any{"registryBurst": 21})
	h.KubeletHas("registryBurst", 21)

	// Without a bus systemd is asked by its own socket.
	h.systemctl("stop", "dbus.socket", "dbus.service")
	h.does(0, "the kubelet of kubelet.service runs without evenkeel-agent: healthy, node "+h.Node.Name()+" Ready\n", "uninstall")
	h.KubeletHas("registryBurst", 10) // its own configuration is back
	h.does(0, "nothing to do; /var/lib/evenkeel was removed\n", "uninstall", "--purge")
}

// replacesFlags replaces --max-pods=77 by a drop-in, without which the flag
// counts again.
func (h *host) replacesFlags(dropins string) {
	h.t.Helper()
	h.does(0, "replaces flags of the kubelet\n", "flags", "--apply", "--bin-dir="+h.bin)
	h.commandLine("--max-pods=77", false)
	h.Eventually("the drop-in replaces the flag", func(ctx context.Context) error {
		if pods, err := h.MaxPods(ctx); err != nil || pods != 77 {
			return fmt.Errorf("maxPods is %d, %w", pods, err)
		}

		return nil
	})
	files, err := filepath.Glob(filepath.Join(dropins, "99-evenkeel-flags-*.conf"))
	assert.Must(h.t, err == nil && len(files) == 1, "the drop-ins are %q, %v", files, err)
	assert.NoError(h.t, os.Remove(files[0]))
	h.systemctl("restart", "kubelet")
	h.commandLine("--max-pods=77", true)
}

// withFlag gives the kubelet a flag at its next start, and returns args.
func (h *host) withFlag(flag string, args ...string) []string {
	h.t.Helper()
	env := filepath.Join(filepath.Dir(h.bin), "kubelet.env")
	assert.NoError(h.t, os.WriteFile(env, []byte("KUBELET_EXTRA_ARGS="+flag+"\n"), 0o644))
	return args
}

// commandLine waits until the kubelet's command line has a flag, or has it no
// more.
func (h *host) commandLine(flag string, has bool) {
	h.t.Helper()
	h.Eventually(fmt.Sprintf("the kubelet has %s: %v", flag, has), func(ctx context.Context) error {
		pid := h.systemctl("show", "kubelet", "--property=MainPID", "--value")
		tasks, err := filepath.Glob(filepath.Join(h.m.Proc(), pid, "task/*/children"))
		if err != nil {
			return err
		}

		for _, task := range tasks {
			children, err := os.ReadFile(task)
			if err != nil {
				return err
			}

			for child := range strings.FieldsSeq(string(children)) {
				line, err := os.ReadFile(filepath.Join(h.m.Proc(), child, "cmdline"))
				words := strings.Split(string(line), "\x00")
				if err == nil && strings.HasPrefix(filepath.Base(words[0]), "kubelet") && slices.Contains(words, flag) == has {
					return h.Healthy(ctx)
				}
			}
		}

		return errors.New("there is no such kubelet")
	})
}
