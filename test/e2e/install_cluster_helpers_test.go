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
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
	systemd "github.com/evenkeel/evenkeel/testkit/machine"
)

// systemdNode is a node of a cluster whose init system is the real systemd. It
// runs the node's containerd and its kubelet as units, the kubelet's being of
// the shape that packages bring.
type systemdNode struct {
	*node
	m   *systemd.Machine
	dir string // of the machine; short, as sockets are in it
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

// newSystemdNode boots a machine that a node is moved to.
func newSystemdNode(n *node) *systemdNode {
	t := n.t
	t.Helper()
	dir, err := os.MkdirTemp("", "evkm-")
	assert.NoError(t, err)
	s := &systemdNode{node: n, dir: dir}
	n.t.Cleanup(func() {
		if t.Failed() {
			s.show()
		}
		if s.m != nil {
			assert.OK(t, s.m.Stop())
		}

		assert.OK(t, os.RemoveAll(dir))
	})
	assert.NoError(t, n.Node.StopRuntime()) // it is started again inside
	s.m, err = systemd.Start(t.Context(), dir, systemd.Inside)
	if errors.Is(err, systemd.ErrUnsupported) {
		t.Skip(err)
	}

	assert.NoError(t, err)
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
	containerd := assert.Value(exec.LookPath("containerd"))(t)
	s.unit("containerd", containerd+" --config "+at+"/containerd.toml", path)
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
	out := assert.Value(s.m.Systemctl(s.t.Context(), args...))(s.t)
	return strings.TrimSpace(out)
}

// runs returns the command line of the process that systemd has for the
// kubelet, and its process ID.
func (s *systemdNode) runs() (argv []string, pid string) {
	s.t.Helper()
	pid = s.systemctl("show", "kubelet", "--property=MainPID", "--value")
	raw := assert.Value(os.ReadFile(s.m.Proc() + "/" + pid + "/cmdline"))(s.t)
	return strings.Split(strings.TrimSuffix(string(raw), "\x00"), "\x00"), pid
}

// wantsPlain requires that the kubelet's unit runs the kubelet, as its file
// says, and that nothing else is in its directory.
func (s *systemdNode) wantsPlain() {
	s.t.Helper()
	argv, _ := s.runs()
	if argv[0] != s.Node.KubeletPath() {
		s.t.Errorf("%s: the kubelet's unit runs %q, want the kubelet", s.Node.Name(), argv)
	}
	if _, err := os.Stat(s.m.Path(systemd.Etc + "/kubelet.service.d")); !errors.Is(err, os.ErrNotExist) {
		s.t.Errorf("%s: there is a directory with drop-ins: %v", s.Node.Name(), err)
	}
}

// wantsWrapped requires that the unit runs the agent of the image, and that the
// kubelet is its child.
func (s *systemdNode) wantsWrapped() {
	s.t.Helper()
	argv, pid := s.runs()
	if !strings.HasPrefix(argv[0], "/var/lib/evenkeel-bin/evenkeel-agent-") {
		s.t.Errorf("%s: the kubelet's unit runs %q, want the agent", s.Node.Name(), argv)
	}

	children := assert.Value(filepath.Glob(s.m.Proc() + "/" + pid + "/task/*/children"))(s.t)
	for _, file := range children {
		raw, _ := os.ReadFile(file)
		for child := range strings.FieldsSeq(string(raw)) {
			if exe, err := os.Readlink(s.m.Proc() + "/" + child + "/exe"); err == nil && exe == s.realKubelet() {
				return
			}
		}
	}

	s.t.Errorf("%s: the agent, process %s, has no kubelet", s.Node.Name(), pid)
}

// wantsNoPrivileges requires that the process of the installer's pod, which has
// done its work, has no privileges left.
func (s *systemdNode) wantsNoPrivileges() {
	s.t.Helper()
	s.Eventually("the installer has dropped its privileges", func(context.Context) error {
		files, err := filepath.Glob(s.m.Proc() + "/*/cmdline")
		if err != nil {
			return err
		}

		for _, file := range files {
			raw, _ := os.ReadFile(file)
			if !strings.Contains(string(raw), "\x00install\x00--stay\x00") {
				continue
			}

			status, err := os.ReadFile(filepath.Join(filepath.Dir(file), "status"))
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

func (s *systemdNode) realKubelet() string {
	path := assert.Value(filepath.EvalSymlinks(s.Node.KubeletPath()))(s.t)
	return path
}

func (s *systemdNode) show() {
	for _, name := range []string{"kubelet", "containerd"} {
		raw, _ := os.ReadFile(s.log(name))
		for line := range strings.Lines(string(raw[max(0, len(raw)-100000):])) {
			if name == "containerd" && !strings.Contains(line, "level=error") || strings.HasPrefix(line, "I") {
				continue
			}

			s.t.Logf("%s %s: %.300s", s.Node.Name(), name, strings.TrimSpace(line))
		}
	}

	files, _ := filepath.Glob(filepath.Join(s.Node.Dir(), "log/pods/evenkeel-install_*/*/*.log"))
	for _, file := range files {
		raw, _ := os.ReadFile(file)
		s.t.Logf("%s: %s", filepath.Base(filepath.Dir(filepath.Dir(file))), raw[max(0, len(raw)-3000):])
	}

	raw, _ := os.ReadFile(s.m.Log())
	s.t.Logf("systemd: %s", raw[max(0, len(raw)-1500):])
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
