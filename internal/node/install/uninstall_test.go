// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evenkeel/evenkeel/internal/node/source"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/machine"
)

func TestInstallChecksTheNodeInTheAPI(t *testing.T) {
	for words, then := range map[string]func(*node){
		"not healthy within 3s: node n is not Ready":                func(n *node) { n.state.Ready = false },
		"not healthy within 3s: the Lease of node n is not renewed": func(n *node) { n.renews = false },
	} {
		t.Run(words, func(t *testing.T) {
			n := newNode(t)
			tree := n.digest()
			n.atWork(then)
			r := n.request()
			r.Timing.Timeout = 3 * time.Second
			_, err := n.Install(t.Context(), r)
			assert.Is(t, err, ErrTakenBack)
			assert.ErrorHas(t, err, words)
			assert.Equal(t, n.digest(), tree, "the digest of the unit files")
		})
	}
}

func TestInstallSucceedsIfTheAPIServerStopsAnswering(t *testing.T) {
	n := newNode(t)
	tree := n.digest()
	n.atWork(func(n *node) { n.state = source.NodeState{Cause: "connection refused"} })
	assert.NoError(t, assert.Err(n.install()))
	words := n.unit + " is healthy; cannot see whether its node is Ready: the API server does not answer: connection refused"
	assert.That(t, strings.Contains(n.out.String(), words) && n.digest() != tree, "said %s", n.out)
}

func TestUninstallThatWouldLeaveNoKubeletIsTakenBackOrRefused(t *testing.T) {
	n := newNode(t)
	plain := n.digest()
	n.installs()
	with, tree := n.command(), n.digest()

	n.beside("kubelet.mode", "unwell without agent")
	r := n.request()
	r.Attempt, r.Timing.Timeout = "pod-1", 3*time.Second
	_, err := n.Uninstall(t.Context(), r)
	assert.Is(t, err, ErrTakenBack)
	assert.ErrorHas(t, err, "uninstall of "+n.unit+": taken back: not healthy within 3s: http://"+n.healthz+" answers 500 ")

	n.well()
	n.is(with, tree)
	running := n.invocation()
	_, err = n.Uninstall(t.Context(), r)
	assert.That(t, errors.Is(err, ErrTakenBack) && strings.Contains(err.Error(), "is not repeated") && n.invocation() == running,
		"the same attempt again: %v", err)

	n.Check = func(ctx context.Context, flags, kubelet []string, plain bool) (Checked, error) {
		if plain {
			return Checked{}, errors.New("the configuration is no YAML")
		}

		return n.check(ctx, flags, kubelet, plain)
	}
	want := "without evenkeel the kubelet of " + n.unit + " would not work, nothing was changed (--force uninstalls anyway): the configuration is no YAML"
	r.Attempt = ""
	assert.Error(t, assert.Err(n.Uninstall(t.Context(), r)), want)
	assert.Equal(t, n.invocation(), running, "invocation")
	n.Check = n.check

	// --force removes it even if the kubelet does not become healthy.
	n.beside("kubelet.mode", "exit")
	r.Force = true
	words, err := n.Uninstall(t.Context(), r)
	want = n.DropIn(n.unit) + " was removed, and " + n.unit + " is as unhealthy as before: "
	assert.That(t, err == nil && strings.HasPrefix(words, want), "%q, %v, want %q", words, err, want)
	assert.Equal(t, n.digest(), plain, "the digest of the unit files")
	n.ends("nothing to do")(n.uninstall())
}

func TestUninstallDoesNotStartStoppedUnit(t *testing.T) {
	n := newNode(t)
	plain := n.digest()
	n.installs()
	n.systemctl("stop", n.unit)
	r := n.request()
	r.DryRun = true
	want := n.DropIn(n.unit) + " would be removed, then systemctl daemon-reload, systemctl restart " + n.unit + ". Nothing was changed."
	assert.Returns(t, want, "dry run")(n.Uninstall(t.Context(), r))
	assert.That(t, n.digest() != plain, "the dry run has removed the drop-in")
	want = n.DropIn(n.unit) + " was removed; " + n.unit + " does not run (inactive (dead)), and was not started"
	assert.Returns(t, want)(n.uninstall())
	assert.Equal(t, n.digest(), plain, "the digest of the unit files")
	assert.Equal(t, n.systemctl("show", n.unit, "--property=ActiveState", "--value"), "inactive", "the unit is")

	// The package of the kubelet was removed first.
	n.systemctl("start", n.unit)
	n.well()
	n.installs()
	n.systemctl("stop", n.unit)
	for _, name := range []string{n.unit, n.unit + ".d"} {
		assert.NoError(t, os.RemoveAll(n.m.Path(machine.Lib+"/"+name)))
	}

	n.systemctl("daemon-reload")
	r.DryRun, r.Force = false, true
	words := assert.Value(n.Uninstall(t.Context(), r))(t)
	assert.That(t, strings.HasPrefix(words, n.DropIn(n.unit)+" was removed; "), "%q", words)
	assert.Is(t, assert.Err(os.Stat(n.DropIn(n.unit))), os.ErrNotExist, "the drop-in is left")
}

func TestPurgeRemovesOnlyTheAgentsState(t *testing.T) {
	n := newNode(t)
	r := n.request()
	r.Flags, r.Keep, r.Purge = []string{"--dynamic-config-dir=" + n.dir + "/state"}, false, true
	assert.NoError(t, assert.Err(n.Install(t.Context(), r)))
	n.beside("state/precious", "")
	n.ends("healthy, node n Ready; " + n.dir + "/state is not an agent's directory, or does not exist: not removed")(n.Uninstall(t.Context(), r))
	n.beside("memory/agent.lock", "")
	n.ends("nothing to do")(n.uninstall()) // without --purge
	n.ends("nothing to do; " + n.dir + "/memory was removed")(n.Uninstall(t.Context(), r))
	assert.Is(t, assert.Err(os.Stat(n.dir+"/memory")), os.ErrNotExist, "it is left")
}

func TestSELinuxLabelIsChecked(t *testing.T) {
	dir := t.TempDir()
	program, enforce := filepath.Join(dir, "evenkeel-agent"), filepath.Join(dir, "enforce")
	assert.NoError(t, errors.Join(os.WriteFile(program, []byte("x"), 0o755), os.WriteFile(enforce, []byte("1"), 0o644)))
	p := Program{Path: program, BinDir: dir, Enforce: enforce}
	_, err := p.Place(false)
	want := "SELinux enforces, and " + program + " has no label (no data available): restorecon " + program
	assert.That(t, err != nil && strings.HasPrefix(err.Error(), want), "no label: %v", err)
	for label, words := range map[string]string{
		"system_u:object_r:bin_t:s0":             "",
		"system_u:object_r:kubelet_exec_t:s0":    "",
		"unconfined_u:object_r:var_lib_t:s0\x00": "SELinux enforces, and " + program + " is labelled unconfined_u:object_r:var_lib_t:s0, which systemd may not run: take --bin-dir=/usr/local/bin, or make it bin_t (semanage fcontext -a -t bin_t '" + dir + "(/.*)?' && restorecon -R " + dir + ")",
	} {
		if err := unix.Setxattr(program, "security.selinux", []byte(label), 0); errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOTSUP) {
			t.Skip("needs root, and a file system that stores labels: ", err)
		} else if err != nil {
			t.Fatal(err)
		}

		path, err := p.Place(false)
		assert.That(t, (words != "" || err == nil && path == program) && (words == "" || err != nil && err.Error() == words),
			"%q: %s, %v, want %q", label, path, err, words)
	}

	assert.NoError(t, os.WriteFile(enforce, []byte("0"), 0o644))
	assert.NoError(t, assert.Err(p.Place(false)), "permissive")
}
