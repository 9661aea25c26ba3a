// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/internal/node/source"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/machine"
)

// refused requires an error with words, and that nothing was changed.
func (n *node) refused(words ...string) {
	n.t.Helper()
	tree := n.digest()
	before := n.invocation()
	_, err := n.install()
	for _, w := range words {
		w = strings.NewReplacer("UNIT", n.unit, "ETC", n.m.Path(machine.Etc), "LIB", n.m.Path(machine.Lib)).Replace(n.filled(w))
		assert.That(n.t, err != nil && strings.Contains(err.Error(), w), "error %v\nwant %s", err, w)
	}

	assert.That(n.t, !errors.Is(err, ErrTakenBack), "something was changed: %v", err)
	n.unchanged(before, tree)
}

func TestUnitThatCannotBeWrappedIsRefused(t *testing.T) {
	for _, tt := range []struct{ name, dropin, words string }{
		{"a script", "[Service]\nExecStart=\nExecStart=DIR/kubelet-wrapper --healthz=HEALTHZ\n", "UNIT runs DIR/kubelet-wrapper, which is a script (ETC/UNIT.d/50-a.conf): evenkeel-agent must be given the kubelet itself; have the script exec `evenkeel-agent -- /path/to/kubelet ...`, or the unit run the kubelet"},
		{"k3s, with variables that are missing", "[Service]\nEnvironmentFile=DIR/none.env\nExecStart=\nExecStart=DIR/k3s agent\n", "UNIT runs DIR/k3s: k3s contains its kubelet and cannot be wrapped"},
		{"evenkeel, by hand", "[Service]\nExecStart=\nExecStart=DIR/evenkeel-agent -- DIR/kubelet --healthz=HEALTHZ\n", "ETC/UNIT.d/50-a.conf already starts evenkeel-agent for the kubelet of UNIT: remove that line"},
		{"another name", "[Service]\nExecStart=\nExecStart=@DIR/kubelet k --healthz=HEALTHZ\n", "UNIT cannot be wrapped: ExecStart= in ETC/UNIT.d/50-a.conf begins with \"@\""},
		{"a prefix in quotes", "[Service]\nExecStart=\nExecStart=\"-DIR/kubelet\" --healthz=HEALTHZ\n", "UNIT cannot be wrapped: ExecStart= in ETC/UNIT.d/50-a.conf has a prefix within quotes"},
		{"no path", "[Service]\nExecStart=\nExecStart=kubelet --healthz=HEALTHZ\n", "UNIT runs \"kubelet\": use the absolute path in ETC/UNIT.d/50-a.conf"},
		{"a $ in the path", "[Service]\nExecStart=\nExecStart=DIR/kubelet$$x --healthz=HEALTHZ\n", "and a $ cannot be preserved"},
		{"flags that the agent refuses", "[Service]\nExecStart=\nExecStart=DIR/kubelet --healthz=HEALTHZ --bad=1\n", "the agent refuses the kubelet of UNIT: bad is no flag of a kubelet"},
		{"a root of its own", "[Service]\nRootDirectory=/srv\n", "UNIT runs in another root directory (/srv), which does not contain the agent"},
		{"Type=forking", "[Service]\nType=forking\n", "UNIT is of Type=forking, which a kubelet cannot have"},
		{"two commands", "[Service]\nExecStart=DIR/kubelet\n", "systemd cannot load UNIT (bad-setting): "},
		{"variables that are missing", "[Service]\nEnvironmentFile=DIR/none.env\n", "UNIT: EnvironmentFile=DIR/none.env: file does not exist: systemd would not start it"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t)
			n.beside("kubelet-wrapper", "#!/bin/sh\nexec DIR/kubelet \"$@\"\n")
			n.write(machine.Etc+"/"+n.unit+".d/50-a.conf", tt.dropin)
			n.systemctl("daemon-reload")
			n.refused(tt.words)
		})
	}
}

func TestOverridingDropInIsRefused(t *testing.T) {
	n := newNode(t)
	n.write(machine.Etc+"/"+n.unit+".d/95-a.conf", "[Service]\nKillMode=process\n")
	n.write(machine.Etc+"/"+n.unit+".d/96-harmless.conf", "[Service]\nNice=3\n")
	n.systemctl("daemon-reload")
	n.refused("ETC/UNIT.d/95-a.conf would override evenkeel's 90-evenkeel.conf: rename it so that it sorts before")
}

func TestMissingUnitListsFoundUnits(t *testing.T) {
	n := newNode(t)
	n.write(machine.Lib+"/k3s-agent.service", "[Service]\nExecStart=/usr/local/bin/k3s agent\n")
	n.systemctl("daemon-reload")
	kubelet := n.unit
	n.unit = "nothing.service"
	n.refused("nothing.service does not exist; found ", kubelet, "k3s-agent.service (k3s contains its kubelet and cannot be wrapped)", ": set --unit")
	assert.NoError(t, os.Remove(n.m.Path(machine.Lib+"/k3s-agent.service")))
	n.unit = kubelet
	n.systemctl("stop", n.unit)
	n.systemctl("mask", n.unit)
	defer n.systemctl("unmask", n.unit)
	n.refused("UNIT is masked: unmask it (systemctl unmask UNIT), or name the unit that runs the kubelet with --unit")
}

func TestProductIsKnownByItsProgramAndItsUnits(t *testing.T) {
	for name, want := range map[string]string{
		"/usr/local/bin/k3s": "k3s", "k3s.service": "k3s", "k3s-agent.service": "k3s", "rke2-server.service": "RKE2",
		"/usr/local/bin/k0s": "k0s", "k0sworker.service": "k0s", "k0scontroller.service": "k0s",
		"snap.microk8s.daemon-kubelite.service": "a snap", "/snap/microk8s/1/kubelite": "MicroK8s",
		"kubelet.service": "", "/usr/bin/kubelet": "", "k3sup.service": "",
	} {
		assert.Equal(t, productOf(name), want, name, "is of")
	}
}

func TestUnhealthyNodeIsRefused(t *testing.T) {
	for _, tt := range []struct {
		name  string
		do    func(*node)
		words string
	}{
		{"the unit is stopped", func(n *node) { n.systemctl("stop", n.unit) }, "UNIT is inactive (dead) before the install: nothing was changed; fix that first, then install"},
		{"the kubelet is not healthy", func(n *node) { n.beside("kubelet.mode", "unwell") }, "the kubelet of UNIT is not healthy before the install (http://HEALTHZ answers 500 Internal Server Error): nothing was changed"},
		{"the node is not Ready", func(n *node) { n.state.Ready = false }, "node n is not Ready before the install"},
		{"the API server does not answer", func(n *node) { n.state = source.NodeState{Cause: "connection refused"} }, "cannot see whether node n is Ready (connection refused)"},
		{"there is no such Node", func(n *node) { n.state.Exists = false }, "Node n does not exist in the API: set the name under which the kubelet registers (-- --node-name=NAME)"},
		{"systemd has not read its files", func(n *node) {
			n.write(machine.Etc+"/"+n.unit+".d/50-a.conf", "[Service]\nNice=3\n")
		}, "the files of UNIT changed after systemd read them: systemctl daemon-reload && systemctl restart UNIT"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t)
			tt.do(n)
			n.refused(tt.words)
			assert.That(t, len(n.events) == 0, "events %q", n.events)
		})
	}
}

func TestARestartThatCostsPodsIsRefused(t *testing.T) {
	n := newNode(t)
	n.lost = "default/a: NodeAffinity (its label has changed)"
	n.refused("a restart of the kubelet would end pods of node n: default/a: NodeAffinity (its label has changed): nothing was changed; correct the cause, move the pods to other nodes, or use --allow-pod-loss")
	n.lost, n.lostErr = "", errors.New("the pods cannot be listed")
	n.refused("cannot tell whether the pods of node n survive a restart of its kubelet (the pods cannot be listed): nothing was changed; --allow-pod-loss restarts it anyway")
	r := n.request()
	r.AllowPodLoss = true
	assert.NoError(t, assert.Err(n.Install(t.Context(), r)))
	with, running := n.command(), n.invocation()
	assert.ErrorHas(t, assert.Err(n.uninstall()), "cannot tell whether the pods of node n survive", "uninstall")
	n.lost, n.lostErr = "default/a: NodeAffinity", nil
	_, err := n.uninstall()
	assert.That(t, err != nil && strings.Contains(err.Error(), "would end pods of node n: default/a: NodeAffinity") && n.command() == with && n.invocation() == running,
		"uninstall: %v", err)

	assert.NoError(t, assert.Err(n.Uninstall(t.Context(), r)), "uninstall that allows it")
}

// mayNot makes D-Bus deny a method of systemd until the test ends.
func (n *node) mayNot(member string) {
	n.t.Helper()
	deny := `<policy context="mandatory"><deny send_destination="org.freedesktop.systemd1" send_interface="org.freedesktop.systemd1.Manager" send_member="` + member + `"/></policy>`
	assert.NoError(n.t, n.m.Policy(n.t.Context(), deny))
	n.t.Cleanup(func() {
		assert.OK(n.t, n.m.Policy(context.Background(), ""))
	})
}

func TestInstallWithoutGuardIsReported(t *testing.T) {
	n := newNode(t)
	n.mayNot("StartTransientUnit")
	n.installs()
	want := "no guard will take the change back if this process is killed: start the transient unit evenkeel-guard-" + n.unit + ": denied by the policy of D-Bus, polkit or SELinux: "
	assert.That(t, strings.Contains(n.out.String(), want), "it says %s, want %s", n.out, want)
}

func TestDeniedCallsLeaveTheKubeletAlone(t *testing.T) {
	for member, words := range map[string]string{
		"Reload":      "systemctl daemon-reload: denied by the policy of D-Bus, polkit or SELinux: ",
		"RestartUnit": "systemctl restart UNIT: denied by the policy of D-Bus, polkit or SELinux: ",
	} {
		t.Run(member, func(t *testing.T) {
			n := newNode(t)
			n.mayNot(member)
			n.refused(words, "nothing was changed: the kubelet was not restarted")
			assert.Is(t, assert.Err(os.Stat(filepath.Join(n.StateDir, n.unit+".json"))), os.ErrNotExist, "the record is left")
		})
	}
}

func TestDialWithoutDBusNamesBothSockets(t *testing.T) {
	dir := t.TempDir()
	_, err := Dial(t.Context(), dir+"/bus", dir+"/private")
	want := dir + "/private: dial unix " + dir + "/private: connect: no such file or directory: this command works on nodes whose kubelet is a systemd service"
	assert.That(t, errors.Is(err, ErrNoSystemd) && strings.Contains(err.Error(), want), "error %v, want %q", err, want)
}

func TestDialEndsWithItsContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bus")
	listener := assert.Value(net.Listen("unix", path))(t)
	defer listener.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	assert.Is(t, assert.Err(Dial(ctx, path, path)), context.DeadlineExceeded)
}

func TestDialBusySystemdByPrivateSocket(t *testing.T) {
	n := newNode(t)
	busy, socket := filepath.Join(n.dir, "busy"), filepath.Join(n.dir, "socket")
	assert.NoError(t, os.Link(filepath.Join(n.dir, "kubelet"), busy))
	cmd := n.m.Command(t.Context(), busy, socket)
	said, err := cmd.StdoutPipe()
	assert.NoError(t, errors.Join(err, cmd.Start()))
	defer func() { _ = cmd.Wait() }()
	assert.NoError(t, assert.Err(said.Read(make([]byte, 1))))
	s := assert.Value(Dial(t.Context(), n.dir+"/none", socket))(t)
	defer s.Close()
	assert.NoError(t, s.Restart(t.Context(), n.unit))
	u := assert.Value(s.Unit(t.Context(), n.unit))(t)
	assert.That(t, u.Running(), "%+v", u)
}

func TestTrialWithoutRecordIsRefusedWithRemedy(t *testing.T) {
	n := newNode(t)
	trial := n.trial(n.unit)
	n.put(trial, sign("[Service]\nNice=3\n"))
	n.systemctl("daemon-reload")
	n.refused(trial+" is left over from an install without a record: remove it, systemctl daemon-reload && systemctl restart "+n.unit+", and install again", "")
	assert.Returns(t, "the kubelet of "+n.unit+" runs without evenkeel-agent", "uninstall")(n.uninstall())
	assert.Is(t, assert.Err(os.Stat(filepath.Dir(trial))), os.ErrNotExist, "its directory is left")
}

func TestUnusableProgramDirectoryIsRefusedWithRemedy(t *testing.T) {
	n := newNode(t)
	for options, words := range map[string]string{"ro": "read-only", "noexec": "noexec"} {
		dir := mounted(t, "tmpfs", options+",mode=755")
		n.Place = Program{Path: filepath.Join(n.dir, "evenkeel-agent"), BinDir: dir}.Place
		n.refused("the agent cannot be copied to " + dir + " (another directory: --bin-dir): " +
			"directory " + dir + " is on a file system of the host that is mounted " + words + "; use another directory")
	}

	n.Place = Program{Path: filepath.Join(n.dir, "evenkeel-agent"), BinDir: "bin"}.Place
	n.refused(`--bin-dir: "bin" is no absolute path of letters, digits and ./_-`)
}

func TestForeignOrEditedDropInStays(t *testing.T) {
	n := newNode(t)
	n.put(n.DropIn(n.unit), "[Service]\nNice=3\n")
	n.systemctl("daemon-reload")
	n.refused("ETC/UNIT.d/90-evenkeel.conf exists and was not written by evenkeel: rename it")
	r := n.request()
	r.Force = true
	assert.Error(t, assert.Err(n.Uninstall(t.Context(), r)), n.DropIn(n.unit)+" was not written by evenkeel and stays; remove it yourself if you do not need it", "uninstall")
	assert.NoError(t, os.RemoveAll(filepath.Dir(n.DropIn(n.unit))))
	n.systemctl("daemon-reload")
	command, tree := n.command(), n.digest()
	n.installs()
	raw := assert.Value(os.ReadFile(n.DropIn(n.unit)))(t)
	n.put(n.DropIn(n.unit), string(raw)+"Nice=3\n")
	n.systemctl("daemon-reload")
	n.refused("ETC/UNIT.d/90-evenkeel.conf was edited after evenkeel wrote it: move the changes to a file of your own")
	r.Force = false
	assert.ErrorHas(t, assert.Err(n.Uninstall(t.Context(), r)), "was edited after evenkeel wrote it: save what you need, then uninstall with --force", "uninstall")
	r.Force = true
	_, err := n.Uninstall(t.Context(), r)
	assert.That(t, err == nil && n.command() == command, "uninstall --force: %v, runs %s", err, n.command())

	assert.That(t, n.digest() == tree, "unit files changed")
}

func TestInterruptedInstallIsTakenBack(t *testing.T) {
	n := newNode(t)
	tree, command := n.digest(), n.command()
	n.beside("agent.mode", "never ready")
	ctx, cancel := context.WithCancel(t.Context())
	n.atRestart(func() {
		go func() {
			for ctx.Err() == nil {
				if u, err := n.manager.Unit(ctx, n.unit); err == nil && u.ActiveState == "activating" {
					cancel()
				}
			}
		}()
	})
	_, err := n.Install(ctx, n.request())
	assert.That(t, errors.Is(err, ErrTakenBack) && strings.Contains(err.Error(), "context canceled") && n.digest() == tree && n.command() == command,
		"error %v, runs %s", err, n.command())
}
