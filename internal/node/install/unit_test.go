// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/machine"
)

// keeps requires that the kubelet has its command line with an agent, which
// gets these flags, and without it again, and that the installer expands the
// command line as systemd does. It returns the drop-in.
func (n *node) keeps(flags ...string) (dropIn string) {
	n.t.Helper()
	before, tree := n.command(), n.digest()
	r := n.request()
	r.Flags, r.Keep = flags, false
	expanded := ""
	n.Check = func(ctx context.Context, flags, kubelet []string, plain bool) (Checked, error) {
		expanded = strings.Join(kubelet, "|")
		return n.check(ctx, flags, kubelet, plain)
	}
	assert.NoError(n.t, assert.Err(n.Install(n.t.Context(), r)))
	assert.Equal(n.t, expanded, before, "as the installer expands it")
	assert.Equal(n.t, n.command(), n.dir+"/evenkeel-agent|"+strings.Join(r.Flags, "|")+"|--|"+before)
	dropIn = n.dropIn()
	n.verified()
	assert.NoError(n.t, assert.Err(n.uninstall()))
	n.is(before, tree)

	return dropIn
}

// verified requires that systemd-analyze accepts the unit.
func (n *node) verified() {
	n.t.Helper()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		n.t.Skip("no systemd-analyze here")
	}

	cmd := exec.CommandContext(n.t.Context(), analyze, "verify", "--man=no", n.unit)
	var dirs []string
	for _, d := range []string{machine.Etc, machine.Run, machine.Lib} {
		dirs = append(dirs, n.m.Path(d))
	}

	cmd.Env = append(os.Environ(), "SYSTEMD_UNIT_PATH="+strings.Join(dirs, ":"))
	out, err := cmd.CombinedOutput()
	assert.That(n.t, err == nil && len(out) == 0, "systemd-analyze verify: %v\n%s", err, out)
	settings := n.systemctl("show", n.unit, "--property=Type,NotifyAccess,KillMode,Restart,OOMPolicy,OOMScoreAdjust,StartLimitIntervalUSec,TimeoutStopUSec,TimeoutStartUSec,StateDirectory,StateDirectoryMode,RuntimeDirectoryMode")
	for _, want := range []string{
		"Type=notify", "NotifyAccess=main", "KillMode=mixed", "Restart=always", "OOMPolicy=continue", "OOMScoreAdjust=-999", "StartLimitIntervalUSec=0",
		"TimeoutStopUSec=1min", "TimeoutStartUSec=10min", "StateDirectory=evenkeel", "StateDirectoryMode=0700", "RuntimeDirectoryMode=0700",
	} {
		assert.That(n.t, strings.Contains("\n"+settings+"\n", "\n"+want+"\n"), "%s is missing in\n%s", want, settings)
	}
}

func TestAnUpgradeFollowsTheFlagsAndTheUnit(t *testing.T) {
	n := newNode(t)
	n.installs()
	old := n.command()
	r := n.request()
	r.Flags, r.Keep = []string{"--new"}, false
	assert.NoError(t, assert.Err(n.Install(t.Context(), r)))
	assert.Equal(t, n.command(), strings.Replace(old, "|--|", "|--new|--|", 1))
	// Without flags, the present ones stay.
	n.ends("nothing to do")(n.install())

	// The kubelet's own unit gets another flag: the next install updates the
	// drop-in.
	own := machine.Lib + "/" + n.unit + ".d/10-kubeadm.conf"
	n.write(own, "[Service]\nExecStart=\nExecStart=DIR/kubelet --kubeconfig=k --healthz=HEALTHZ --newer\n")
	n.systemctl("daemon-reload")
	assert.NoError(t, assert.Err(n.install()))
	assert.Equal(t, n.command(), fmt.Sprintf("%s/evenkeel-agent|--new|--|%[1]s/kubelet|--kubeconfig=k|--healthz=%s|--newer", n.dir, n.healthz))
	running := n.invocation()
	n.write(own, "[Service]\nExecStart=\nExecStart=DIR/kubelet --healthz=HEALTHZ --bad=1\n")
	n.systemctl("daemon-reload")
	assert.ErrorHas(t, assert.Err(n.install()), "the agent refuses the kubelet's new command line: bad is no flag of a kubelet")
	assert.Equal(t, n.invocation(), running, "the invocation")
}
