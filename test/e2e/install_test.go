// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/localcluster/sweep"
	systemd "github.com/evenkeel/evenkeel/testkit/machine"
	"github.com/evenkeel/evenkeel/testkit/must"
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

// The real installer, DaemonSets, controllers, scheduler, containerd, kubelets
// and systemd: two nodes, of which the second does not come back under the
// agent.
func TestEvenkeelIsInstalledAndUninstalledNodeByNode(t *testing.T) {
	t.Parallel()
	first := newCluster(t, "ci-a")
	second := nodeOn(t, first.Cluster, "ci-b")
	assert.NoError(t, first.Cluster.StartControllers(t.Context()))
	applyInstaller(t, first)
	var nodes []*systemdNode
	for _, n := range []*node{first, second} {
		assert.NoError(t, n.Node.ImportImage(t.Context(), "evenkeel.dev/agent:test", "/evenkeel-agent", n.Binary))
		s := newSystemdNode(n)
		nodes = append(nodes, s)
		n.Eventually("the node is Ready", n.Ready)
		s.wantsPlain()
	}

	a, b := nodes[0], nodes[1]
	before := b.systemctl("cat", "kubelet") // its unit's files

	// A file in the place of the agent's directory makes the installation fail.
	obstacle := filepath.Join(b.dir, "var-lib", "evenkeel")
	assert.NoError(t, os.WriteFile(obstacle, nil, 0o600))
	first.Plugin(2, []string{"install", "--all-nodes", "--yes"}, a.Node.Name()+": installed",
		b.Node.Name()+": FAILED: tried and rolled back", "EvenkeelInstallFailed", "failed on "+b.Node.Name())
	a.wantsWrapped()
	b.Eventually("it is Ready with its plain kubelet", b.Ready)
	b.wantsPlain()
	assert.Equal(t, b.systemctl("cat", "kubelet"), before, "its unit's files")

	// A second run skips the failed node. After its repair, --retry installs
	// it.
	pid := b.mainPID()
	first.Plugin(2, []string{"install", "--all-nodes", "--yes"})
	assert.Equal(t, b.mainPID(), pid, "the kubelet of the node that has failed was restarted: process")
	assert.NoError(t, os.Remove(obstacle))
	first.Plugin(0, []string{"install", "--retry", "--yes"}, "2 of 2 nodes installed")
	for _, s := range nodes {
		s.wantsWrapped()
		s.wantsNoPrivileges()
		assert.OK(t, assert.Err(s.Get(t.Context())))
	}

	first.Plugin(0, []string{"uninstall", "--yes"}, "2 of 2 nodes uninstalled", "evenkeel-installer deleted")
	for _, s := range nodes {
		s.wantsPlain()
		s.Eventually("it is Ready", s.Ready)
		obj := assert.Value(s.Object(t.Context()))(t)
		if _, ok := obj.Labels["evenkeel.dev/agent"]; ok {
			t.Errorf("%s has the labels %v", s.Node.Name(), obj.Labels)
		}
	}

	assert.Equal(t, b.systemctl("cat", "kubelet"), before, "its unit's files")
	first.Eventually("no pod is left", func(ctx context.Context) error {
		pods, err := first.Kube.CoreV1().Pods("evenkeel-install").List(ctx, metav1.ListOptions{})
		return errors.Join(err, assert.Unless(len(pods.Items) == 0, "%d are left", len(pods.Items)))
	})
}

// systemdNode is a node whose kubelet a real systemd runs.
type systemdNode struct {
	*node
	m   *systemd.Machine
	dir string // of the machine; short, as sockets are in it
}

// bootSystemd boots a machine in these cgroups that ends with the test.
func bootSystemd(n *node, cgroups ...string) *systemdNode {
	n.t.Helper()
	dir := assert.Value(os.MkdirTemp("", "evkm-"))(n.t)
	n.t.Cleanup(func() { assert.OK(n.t, os.RemoveAll(dir)) })
	m, err := systemd.Start(n.t.Context(), dir, systemd.Inside, cgroups...)
	if errors.Is(err, systemd.ErrUnsupported) {
		n.t.Skip(err)
	}

	assert.NoError(n.t, err)
	s := &systemdNode{n, m, dir}
	n.t.Cleanup(func() {
		if n.t.Failed() {
			s.show()
		}

		assert.OK(n.t, m.Stop())
	})

	return s
}

// cgroupsOfHost gives the machine the host's cgroups once more, beside its own:
// a container's limits need controllers that systemd, where the host has the
// first version, does not see. The other directories are the machine's alone.
const cgroupsOfHost = `mkdir -p "$0/var-lib" /run/host-cgroup
mount --bind "$0/var-lib" /var/lib
mount -t tmpfs -o mode=755 none /run/host-cgroup
while read -r _ at type options _; do
	name=$(basename "$at")
	case $type in
	cgroup) mkdir "/run/host-cgroup/$name"; case $options in
		*name=*) mount -t cgroup -o "none,name=${options##*name=}" cgroup "/run/host-cgroup/$name";;
		*) mount -t cgroup -o "${options##*relatime,}" cgroup "/run/host-cgroup/$name";;
		esac;;
	cgroup2) case $at in
		/sys/fs/cgroup) umount /run/host-cgroup; mount -t cgroup2 cgroup2 /run/host-cgroup; exit;;
		*) mkdir "/run/host-cgroup/$name"; mount -t cgroup2 cgroup2 "/run/host-cgroup/$name";;
		esac;;
	esac
done`

const serviceUnit = `[Unit]
StartLimitIntervalSec=0
[Service]
ExecStart=%s
Restart=always
RestartSec=1
KillMode=process
BindPaths=/run/host-cgroup:/sys/fs/cgroup
StandardOutput=append:%s
StandardError=inherit
Environment=PATH=%s
`

// newSystemdNode boots a machine that a node is moved to. Its containerd and its
// kubelet are units, the kubelet's being of the shape that packages bring.
func newSystemdNode(n *node) *systemdNode {
	t := n.t
	t.Helper()
	n.Node.StopRuntime() // it is started again inside
	s := bootSystemd(n)
	dir := s.dir
	mounts := assert.Value(os.ReadFile("/proc/self/mounts"))(t)
	// The root of a mounted hierarchy is the cgroup of the process that mounts
	// it: the host's, not the machine's.
	prepare := exec.CommandContext(t.Context(), "nsenter", "--target="+strings.Split(s.m.Proc(), "/")[2], "--mount", "--pid", "sh", "-ec", cgroupsOfHost, dir)
	prepare.Stdin = bytes.NewReader(mounts)
	if out, err := prepare.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}

	at := n.Node.Dir()
	path := os.Getenv("PATH") + ":/usr/local/sbin:/usr/sbin:/sbin"
	s.unit("containerd", assert.Value(exec.LookPath("containerd"))(t)+" --config "+at+"/containerd.toml", path)
	s.unit("kubelet", n.Node.KubeletPath()+" "+strings.Join(n.Node.KubeletArgs(), " "), path)
	s.systemctl("daemon-reload")
	s.systemctl("start", "containerd", "kubelet")

	return s
}

// unit writes a service's unit file.
func (s *systemdNode) unit(name, argv, path string) {
	s.t.Helper()
	content := fmt.Sprintf(serviceUnit, argv, s.log(name), path)
	assert.NoError(s.t, os.WriteFile(s.m.Path(systemd.Lib+"/"+name+".service"), []byte(content), 0o644))
}

func (s *systemdNode) log(unit string) string { return filepath.Join(s.dir, unit+".log") }

func (s *systemdNode) systemctl(args ...string) string {
	s.t.Helper()
	return strings.TrimSpace(assert.Value(s.m.Systemctl(s.t.Context(), args...))(s.t))
}

// mainPID returns the process ID that systemd has for the kubelet.
func (s *systemdNode) mainPID() int {
	s.t.Helper()
	return assert.Value(strconv.Atoi(s.systemctl("show", "kubelet", "--property=MainPID", "--value")))(s.t)
}

// program returns the program of the process that systemd has for the kubelet.
func (s *systemdNode) program() string {
	s.t.Helper()
	raw := assert.Value(os.ReadFile(fmt.Sprintf("%s/%d/cmdline", s.m.Proc(), s.mainPID())))(s.t)
	program, _, _ := strings.Cut(string(raw), "\x00")

	return program
}

// wantsPlain requires that the kubelet's unit runs the kubelet, as its file
// says, and that nothing else is in its directory.
func (s *systemdNode) wantsPlain() {
	s.t.Helper()
	assert.Equal(s.t, s.program(), s.Node.KubeletPath(), s.Node.Name(), "runs the unit of the kubelet")
	assert.Is(s.t, assert.Err(os.Stat(s.m.Path(systemd.Etc+"/kubelet.service.d"))), os.ErrNotExist, s.Node.Name(), "has drop-ins")
}

// wantsWrapped requires that the unit runs the agent of the image, and that the
// kubelet is its child.
func (s *systemdNode) wantsWrapped() {
	s.t.Helper()
	assert.That(s.t, strings.HasPrefix(s.program(), "/var/lib/evenkeel-bin/evenkeel-agent-"),
		"%s: the kubelet's unit runs %q, want the agent", s.Node.Name(), s.program())
	pid := s.mainPID()
	kubelet := assert.Value(filepath.EvalSymlinks(s.Node.KubeletPath()))(s.t)
	assert.That(s.t, slices.ContainsFunc(procs.Children(s.m.Proc(), pid), func(p procs.Process) bool {
		exe, _ := os.Readlink(p.Dir + "/exe")
		return exe == kubelet
	}), "%s: the agent, process %d, has no kubelet", s.Node.Name(), pid)
}

// wantsNoPrivileges requires that the process of the installer's pod, which has
// done its work, has no privileges left.
func (s *systemdNode) wantsNoPrivileges() {
	s.t.Helper()
	s.Eventually("the installer has dropped its privileges", func(context.Context) error {
		for _, p := range procs.All(s.m.Proc()) {
			if !strings.Contains(strings.Join(p.Argv, " "), " install --stay ") {
				continue
			}

			status := must.Get(os.ReadFile(p.Dir + "/status"))
			for _, line := range []string{"Uid:\t65534\t65534\t65534\t65534\n", "CapPrm:\t0000000000000000\n", "NoNewPrivs:\t1\n"} {
				must.That(strings.Contains(string(status), line), "its status lacks %q:\n%s", line, status)
			}

			return nil
		}

		return errors.New("there is no such process")
	})
}

// show prints the end of what units, pods of the installer and systemd said.
func (s *systemdNode) show() {
	files, _ := filepath.Glob(filepath.Join(s.Node.Dir(), "log/pods/evenkeel-install_*/*/*.log"))
	for _, file := range append(files, s.log("kubelet"), s.log("containerd"), s.m.Log()) {
		raw, _ := os.ReadFile(file)
		s.t.Logf("%s: %s", file, raw[max(0, len(raw)-6000):])
	}
}

// applyInstaller gives the cluster the installer's manifests, with flags for
// agents that share a network.
func applyInstaller(t *testing.T, n *node) {
	t.Helper()
	args := `[{"op": "add", "path": "/spec/template/spec/containers/0/args", "value": ["--", "--listen="]}]`
	n.applyKustomization("installer", map[string]any{
		"images":  []any{map[string]any{"name": "evenkeel.dev/agent", "newTag": "test"}},
		"patches": []any{map[string]any{"target": map[string]any{"kind": "DaemonSet", "name": "evenkeel-installer"}, "patch": args}},
	})
}

// applyKustomization applies a directory of config/ with changes.
func (n *node) applyKustomization(config string, changes map[string]any) {
	n.t.Helper()
	dir := filepath.Join(n.t.TempDir(), "kustomize")
	base, err := filepath.Abs("../../config/" + config)
	assert.NoError(n.t, err)
	base = assert.Value(filepath.Rel(dir, base))(n.t)
	changes["resources"] = []string{base}
	content, err := json.Marshal(changes)
	assert.NoError(n.t, errors.Join(err, os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "kustomization.yaml"), content, 0o644)))
	n.kubectl("apply", "-k", dir)
}

// kubectl runs kubectl as the administrator.
func (n *node) kubectl(args ...string) {
	n.t.Helper()
	var out bytes.Buffer
	code, err := n.Kubectl(n.t.Context(), "", &out, args...)
	assert.Must(n.t, err == nil && code == 0, "kubectl %q: exit code %d, %v: %s", args, code, err, &out)
}
