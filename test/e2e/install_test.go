// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/localcluster/sweep"
	systemd "github.com/evenkeel/evenkeel/testkit/machine"
	"github.com/evenkeel/evenkeel/testkit/procs"
)

// host is a node as kubeadm makes it.
type host struct {
	*systemdNode
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

// newHost makes a host, and waits until its node is Ready.
func newHost(t *testing.T, name string) *host {
	t.Helper()
	n := newNode(t, name)
	cgroup := assert.Value(os.ReadFile(filepath.Join(n.Node.Dir(), sweep.CgroupFile)))(t)
	h := &host{systemdNode: bootSystemd(n, strings.TrimSpace(string(cgroup)))}
	h.bin = filepath.Join(h.dir, "bin")
	unit := h.m.Path(systemd.Lib + "/kubelet.service")
	more := fmt.Appendf(nil, nodeDropIn, strings.Join(n.Node.KubeletArgs(), " "), filepath.Join(h.dir, "kubelet.env"), n.Node.KubeletPath())
	assert.NoError(t, errors.Join(os.WriteFile(unit, []byte(nodeUnit), 0o644), os.Mkdir(unit+".d", 0o755),
		os.WriteFile(unit+".d/10-kubeadm.conf", more, 0o644)))
	h.systemctl("daemon-reload")
	h.systemctl("start", "kubelet")
	n.Eventually("the node is Ready", n.Ready)

	return h
}

// does runs evenkeel-agent on the machine, which must succeed and say words.
func (h *host) does(words string, args ...string) {
	h.t.Helper()
	out, err := h.m.Command(h.t.Context(), h.Binary, args...).CombinedOutput()
	if err != nil || !strings.Contains(string(out), words) {
		h.t.Fatalf("evenkeel-agent %s: %v; it said\n%swant %s", strings.Join(args, " "), err, out, words)
	}
}

// TestTheAgentIsInstalledReplacesFlagsAndIsUninstalledOnANode has a stock
// kubelet in a unit as kubeadm makes it. internal/node/install has what can go
// wrong.
func TestTheAgentIsInstalledReplacesFlagsAndIsUninstalledOnANode(t *testing.T) {
	t.Parallel()
	h := newHost(t, "install")
	dropins, env := filepath.Join(h.dir, "kubelet.conf.d"), filepath.Join(h.dir, "kubelet.env")
	flags := fmt.Appendf(nil, "KUBELET_EXTRA_ARGS='--max-pods=77 --config-dir=%s'\n", dropins)
	assert.NoError(t, errors.Join(os.Mkdir(dropins, 0o755), os.WriteFile(env, flags, 0o644)))
	h.does("evenkeel-agent runs the kubelet of kubelet.service: healthy, node "+h.Node.Name()+" Ready\n",
		"install", "--bin-dir="+h.bin, "--attempt=second", "--", "--listen="+h.Listen)
	h.commandLine("--max-pods=77", true)
	h.Eventually("the agent has made the node's NodeConfig", func(ctx context.Context) error {
		return assert.Err(h.Get(ctx))
	})
	h.replacesFlags(dropins)
	h.does("the kubelet of kubelet.service runs without evenkeel-agent: healthy, node "+h.Node.Name()+" Ready\n", "uninstall")
}

// replacesFlags replaces --max-pods=77 by a drop-in, without which the flag
// counts again.
func (h *host) replacesFlags(dropins string) {
	h.t.Helper()
	h.does("replaces flags of the kubelet\n", "flags", "--apply", "--bin-dir="+h.bin)
	h.commandLine("--max-pods=77", false)
	h.Eventually("the drop-in replaces the flag", func(ctx context.Context) error {
		pods, err := h.MaxPods(ctx)
		return errors.Join(err, assert.Unless(pods == 77, "maxPods is %d", pods))
	})
	files, err := filepath.Glob(filepath.Join(dropins, "99-evenkeel-flags-*.conf"))
	assert.Must(h.t, err == nil && len(files) == 1, "the drop-ins are %q, %v", files, err)
	assert.NoError(h.t, os.Remove(files[0]))
	h.systemctl("restart", "kubelet")
	h.commandLine("--max-pods=77", true)
}

// commandLine waits until the kubelet's command line has a flag, or has it no
// more.
func (h *host) commandLine(flag string, has bool) {
	h.t.Helper()
	h.Eventually(fmt.Sprintf("the kubelet has %s: %v", flag, has), func(ctx context.Context) error {
		for _, p := range procs.Children(h.m.Proc(), h.mainPID()) {
			if strings.HasPrefix(filepath.Base(p.Argv[0]), "kubelet") && slices.Contains(p.Argv, flag) == has {
				return h.Healthy(ctx)
			}
		}

		return errors.New("there is no such kubelet")
	})
}
