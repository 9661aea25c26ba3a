// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"strings"

	"github.com/evenkeel/evenkeel/testkit/bed"
	"github.com/evenkeel/evenkeel/testkit/must"
)

var steps = []step{
	{"boot", "Debian boots, with systemd as the first process and cgroup v2, and its kubelet is a Ready node", boots},
	{"check", "the package, the dry run and install --dry-run on cgroup v2 change nothing", checks},
	{"install", "evenkeel-agent install of the package", installs},
	{"change", "the first change is promoted", changes},
	{"sizes", "values that depend on the machine come from the kubelet's own capacity, on cgroup v2", resolvesRules},
	{"bad-change", "a change that passes the dry run and crashes is rolled back", rollsBack},
	{"journal", "journalctl -u kubelet has the log of both", journals},
	{"unit", "systemd applies the unit's settings", hardening},
	{"restart", "systemctl restart during a trial", restarts},
	{"daemon-reload", "systemctl daemon-reload during a trial", reloads},
	{"reboot", "systemctl reboot during a trial", reboots},
	{"watchdog", "systemd's watchdog restarts an agent that hangs", barks},
	{"panic", "a kernel panic during a trial", panics},
	{"full-disk", "the only file system is full", fillsDisk},
	{"io-errors", "the disk of the agent's directory fails and becomes read-only", failsIO},
	{"clock-before", "the clock is two years slow before a change", clockBefore},
	{"clock-during", "the clock is set back two years during a trial", clockDuring},
	{"pause", "the machine stands still during a trial", pauses},
	{"memory", "a program takes all memory", runsOut},
	{"upgrade", "a newer package", upgrades},
	{"uninstall", "removing the package", uninstalls},
	{"cluster-install", "kubectl evenkeel install, a change, and one that is rolled back", clusterInstalls},
	{"cluster-upgrade", "kubectl evenkeel install of a newer release", clusterUpgrades},
	{"cluster-uninstall", "kubectl evenkeel uninstall", clusterUninstalls},
	{"kubeadm", "a whole cluster of kubeadm, of two machines", wholeCluster},
	{"cuts", "the power fails at random moments, and the node comes up by itself", cutsPower},
}

func boots(ctx context.Context, l *lab) {
	m := l.node(ctx)
	out := must.Get(m.Run(ctx, "cat /proc/1/comm; stat -f -c %T /sys/fs/cgroup; uname -r; systemctl is-active containerd kubelet"))
	fields := strings.Fields(out)
	must.That(len(fields) == 5 && fields[0] == "systemd" && fields[1] == "cgroup2fs" && fields[3] == "active" && fields[4] == "active",
		"the machine says %q", out)
	checked("the first process is systemd, cgroups are of version 2, the kernel is %s, containerd and the kubelet are active", fields[2])
	bed.Await(ctx, patience, func(ctx context.Context) {
		if _, err := m.Run(ctx, "systemctl is-system-running"); err != nil { // it still starts, or a unit has failed
			failed, _ := m.Run(ctx, "systemctl --failed --no-legend")
			must.That(failed == "", "failed units: %s", failed)
			must.OK(err)
		}
	})
	took := must.Get(m.Run(ctx, "systemd-analyze time | head -1"))
	checked("no unit has failed: %s", strings.TrimSpace(took))
}
