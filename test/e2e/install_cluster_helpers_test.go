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

	"github.com/evenkeel/evenkeel/testkit/assert"
	systemd "github.com/evenkeel/evenkeel/testkit/machine"
	"github.com/evenkeel/evenkeel/testkit/procs"
)

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

			status, err := os.ReadFile(p.Dir + "/status")
			if err != nil {
				return err
			}

			for _, line := range []string{"Uid:\t65534\t65534\t65534\t65534\n", "CapPrm:\t0000000000000000\n", "NoNewPrivs:\t1\n"} {
				if !strings.Contains(string(status), line) {
					return fmt.Errorf("its status lacks %q:\n%s", line, status)
				}
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
