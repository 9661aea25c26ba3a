// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/testkit/bed"
	"github.com/evenkeel/evenkeel/testkit/must"
	"github.com/evenkeel/evenkeel/testkit/vm"
)

func panics(ctx context.Context, l *lab) {
	l.duringTrial(ctx, func(m *vm.Machine) {
		l.again(ctx, m, "echo 1 >/proc/sys/kernel/sysrq; echo c >/proc/sysrq-trigger")
	})
}

// fillsDisk fills the only file system. Nothing may stop, and nothing new may
// be adopted.
func fillsDisk(ctx context.Context, l *lab) {
	m, pods := l.proven(ctx)
	bad := l.bad(ctx)
	script := `fallocate -l $(df --output=avail --block-size=1 / | tail -1) /ballast 2>/dev/null; dd if=/dev/zero of=/ballast2 bs=4k 2>/dev/null
df --output=avail / | tail -1; ! echo x >/probe`
	out := l.run(ctx, m, script, 4*prompt)
	checked("the disk is full: %s KiB are available", strings.Fields(out)[0])
	l.unrecorded(ctx, m, pods, bad, true, func() {
		l.run(ctx, m, "rm -f /ballast /ballast2 /probe; systemctl restart containerd", prompt)
	})
}

// unrecorded requires that a node whose agent cannot write keeps its kubelet
// and adopts nothing, and that it adopts the assignment after the repair.
func (l *lab) unrecorded(ctx context.Context, m *vm.Machine, pods, bad int, restart bool, repair func()) {
	before := l.run(ctx, m, processes, prompt)
	l.assign(ctx, 0, fmt.Sprintf("maxPods: %d", pods+1), "assigned", "--trial-duration=15s", "--force")
	bed.Await(ctx, patience, func(ctx context.Context) {
		nc := l.config(ctx)
		ok := bed.ConfigOK(nc)
		must.That(nc.Status.Error != "" && ok.Status != "True", "ConfigOK is %s: %s; the error is %q", ok.Status, ok.Message, nc.Status.Error)
		checked("the status says why nothing is adopted: %s", nc.Status.Error)
	})
	l.sameProcesses(ctx, m, before)
	l.becomesHealthy(ctx, m)
	l.runsWith(ctx, pods)
	checked("agent and kubelet run on, with room for %d pods", pods)
	if restart {
		l.run(ctx, m, "systemctl restart --no-block kubelet", patience)
		bed.Await(ctx, patience, func(ctx context.Context) {
			must.That(l.run(ctx, m, processes, prompt) != before, "it was not restarted yet")
		})
		checked("after a restart of the unit, the agent starts the kubelet")
	}

	repair()
	l.becomesHealthy(ctx, m)
	l.promotedOnly(ctx, pods+1, bad, "after the repair the assignment is adopted and promoted")
}

// failsIO puts the agent's directory on a device that begins to fail; ext4 then
// makes it read-only.
func failsIO(ctx context.Context, l *lab) {
	m, pods := l.proven(ctx)
	bad := l.bad(ctx)
	script := `set -e
systemctl stop kubelet
truncate -s 64M /srv/state.img
loop=$(losetup --find --show /srv/state.img)
echo "0 131072 linear $loop 0" >/run/good.table
dmsetup create state /run/good.table
mkfs.ext4 -q -e remount-ro /dev/mapper/state
mount /dev/mapper/state /mnt && cp -a /var/lib/evenkeel/. /mnt/ && umount /mnt
mount /dev/mapper/state /var/lib/evenkeel && chmod 700 /var/lib/evenkeel
systemctl start --no-block kubelet`
	l.run(ctx, m, script, patience)
	l.becomesHealthy(ctx, m)
	l.promoted(ctx, pods)
	l.run(ctx, m, "dmsetup suspend --nolockfs --noflush state && dmsetup load state --table '0 131072 error' && dmsetup resume state", prompt)
	checked("every read and write of the agent's disk fails")
	l.unrecorded(ctx, m, pods, bad, false, func() {
		out := l.run(ctx, m,
			"touch /var/lib/evenkeel/probe 2>&1; sync -f /var/lib/evenkeel 2>&1; touch /var/lib/evenkeel/probe2 2>&1 || true", prompt)
		// /proc/mounts may not say ro yet; the journal finds the error when it
		// is written.
		must.That(strings.Contains(out, "Read-only file system"), "the file system is not read-only: %s", out)
		checked("the kernel has made the file system read-only after I/O errors")
		script := `set -e
systemctl stop kubelet
umount /var/lib/evenkeel
dmsetup suspend --nolockfs --noflush state; dmsetup load state /run/good.table; dmsetup resume state
e2fsck -p /dev/mapper/state || [ $? = 1 ]
mount /dev/mapper/state /var/lib/evenkeel
systemctl start --no-block kubelet`
		l.run(ctx, m, script, patience)
	})
	l.run(ctx, m, "systemctl stop kubelet; cp -a /var/lib/evenkeel /srv/evenkeel && umount /var/lib/evenkeel && cp -a /srv/evenkeel/. /var/lib/evenkeel/ && dmsetup remove state && systemctl start --no-block kubelet", patience)
	l.becomesHealthy(ctx, m)
}

// twoYears sets the clock back. The certificates are then not valid yet.
const twoYears = `systemctl stop systemd-timesyncd; date -s "$(date -d '-2 years' '+%F %T')"`

// clockRight sets the machine's clock to this one's.
func (l *lab) clockRight(ctx context.Context, m *vm.Machine, ahead time.Duration) {
	l.run(ctx, m, fmt.Sprintf("date -s @%d", time.Now().Add(ahead).Unix()), prompt)
}

func clockBefore(ctx context.Context, l *lab) {
	m, pods := l.proven(ctx)
	bad := l.bad(ctx)
	l.run(ctx, m, twoYears, prompt)
	l.assign(ctx, 0, fmt.Sprintf("maxPods: %d", pods+1), "assigned", "--trial-duration=15s", "--force")
	l.run(ctx, m, "systemctl restart --no-block kubelet", prompt)
	l.becomesHealthy(ctx, m)
	checked("two years back, and after a restart of the unit, the kubelet is healthy")
	l.clockRight(ctx, m, 0)
	l.promotedOnly(ctx, pods+1, bad, "with the right clock, what was assigned in between is promoted")
}

func clockDuring(ctx context.Context, l *lab) {
	l.duringTrial(ctx, func(m *vm.Machine) {
		l.run(ctx, m, twoYears, prompt)
		l.becomesHealthy(ctx, m)
		out := l.run(ctx, m, "evenkeel-agent status --dynamic-config-dir=/var/lib/evenkeel", prompt)
		checked("two years back, the node says: %s", strings.SplitN(strings.TrimSpace(out), "\n", 2)[0])
		l.clockRight(ctx, m, 0)
	})
}

// pauses stops the machine in a trial. Its hardware clock follows the host's;
// its system clock does not until it is set, as a time service does.
func pauses(ctx context.Context, l *lab) {
	l.duringTrial(ctx, func(m *vm.Machine) {
		before := l.run(ctx, m, processes, prompt)
		must.OK(m.Pause(ctx))
		must.OK(bed.Pause(ctx, l.pause))
		must.OK(m.Continue(ctx))
		l.clockRight(ctx, m, max(0, 10*time.Minute-l.pause))
		l.sameProcesses(ctx, m, before)
		checked("after a pause of %s and a jump of the clock by ten minutes, agent and kubelet are the same processes", l.pause)
		l.clockRight(ctx, m, 0)
	})
}

// runsOut makes a program take all memory while the kubelet changes.
func runsOut(ctx context.Context, l *lab) {
	m, pods := l.proven(ctx)
	before := l.run(ctx, m, processes, prompt)
	// In units of their own: systemd stops a service of which the OOM killer
	// ends a process.
	l.run(ctx, m,
		`dmesg --clear; for i in 1 2 3; do systemd-run --quiet --wait tail /dev/zero; done; dmesg | grep -i 'killed process'`, patience)
	out := l.run(ctx, m, "dmesg | grep -i 'killed process' | sed 's/.*Killed/Killed/'", prompt)
	must.That(!strings.Contains(out, "kubelet") && !strings.Contains(out, "evenkeel"), "the OOM killer has killed: %s", out)
	l.sameProcesses(ctx, m, before)
	checked("the OOM killer ended %d programs, and neither the agent nor the kubelet", strings.Count(out, "\n"))
	l.becomesHealthy(ctx, m)
	l.ready(ctx)
	l.change(ctx, pods+1)
	checked("the kubelet is healthy, and a change is promoted")
}
