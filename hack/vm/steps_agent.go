// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/must"
	"github.com/evenkeel/evenkeel/testkit/vm"
)

// checks runs the dry run before the agent is installed.
func checks(ctx context.Context, l *lab) {
	m := l.node(ctx)
	l.putPackage(ctx, m, l.previous)
	_, before := l.unit(ctx, m)
	const kubelet = " -- /usr/bin/kubelet --config=/var/lib/kubelet/config.yaml --kubeconfig=/etc/kubernetes/kubelet.conf --hostname-override=vm --node-ip=10.0.2.15"
	const file = "printf 'apiVersion: kubelet.config.k8s.io/v1beta1\\nkind: KubeletConfiguration\\n%s\\n' '"
	for _, c := range []struct {
		what, script string
		code         int
		words        string
	}{
		{"the package is installed and changes nothing", "dpkg --install /root/evenkeel-agent.deb", 0, "this node was not changed"},
		{"check accepts a drop-in", file + "maxPods: 99' | evenkeel-agent check --drop-in -" + kubelet, 0, ""},
		{"check rejects a wrong value", file + "maxPods: -1' | evenkeel-agent check --drop-in -" + kubelet, 1, "maxPods"},
		{"install --dry-run prints the drop-in", "evenkeel-agent install --dry-run", 0, "ExecStart=/usr/bin/evenkeel-agent"},
	} {
		out := l.run(ctx, m, "("+c.script+"); echo exit code $?", 4*prompt)
		must.That(strings.HasSuffix(out, fmt.Sprintf("exit code %d\n", c.code)) && strings.Contains(out, c.words),
			"%s: want exit code %d and %q: %s", c.what, c.code, c.words, out)
		checked("%s", c.what)
	}

	_, after := l.unit(ctx, m)
	must.That(before == after, "the kubelet's process was %s and is %s", before, after)
	checked("the kubelet's process is still %s", after)
}

// unit returns the files of the kubelet's unit and its main process.
func (l *lab) unit(ctx context.Context, m *vm.Machine) (files, pid string) {
	files = l.run(ctx, m, "systemctl cat kubelet", prompt)
	pid = l.run(ctx, m, "systemctl show --property=MainPID --value kubelet", prompt)

	return files, strings.TrimSpace(pid)
}

func installs(ctx context.Context, l *lab) {
	m := l.installed(ctx)
	must.That(l.runsAgent(ctx, m), "the kubelet's unit does not run the agent")
	l.run(ctx, m, processes, prompt)
	checked("evenkeel-agent install of the package: the kubelet is the agent's child, the node is Ready")
	files, pid := l.unit(ctx, m)
	const list = "ls /run/systemd/system/kubelet.service.d/ /etc/systemd/system/kubelet.service.d/ 2>&1; true"
	before := l.run(ctx, m, list, prompt)
	must.That(!strings.Contains(before, "trial") && !strings.Contains(before, ".tmp") && strings.Contains(before, "90-evenkeel.conf"),
		"after the install: %s", before)
	out := l.run(ctx, m, "evenkeel-agent install", patience)
	after := l.run(ctx, m, list, prompt)
	filesNow, pidNow := l.unit(ctx, m)
	must.That(filesNow == files && pidNow == pid && after == before,
		"a second install changes the unit: process %s, then %s; files %s, then %s", pid, pidNow, before, after)
	checked("only 90-evenkeel.conf is left, and a second install changes nothing: %s", lastLine(out))
}

func lastLine(out string) string {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	return lines[len(lines)-1]
}

func changes(ctx context.Context, l *lab) {
	l.installed(ctx)
	l.change(ctx, 120)
	checked("the first change is on trial, promoted, and in effect: the node has room for 120 pods")
}

// sizes is a configuration with small values that depend on the machine.
const sizes = `apiVersion: evenkeel.dev/v1alpha1
kind: KubeletConfiguration
resources:
  maxPods: {perCPU: 61, perGiB: 67}
  reservations: {kubeReserved: {cpu: {percent: 5}, memory: {percent: 1}, ephemeral-storage: {percent: 1}}}`

func resolvesRules(ctx context.Context, l *lab) {
	l.installed(ctx)
	l.assign(ctx, 0, sizes, "proven", "--trial-duration=15s")
	p := must.Get(payload.Decode(payload.KeyKubeletDropin, []byte(sizes)))
	node, nc := l.object(ctx), l.config(ctx)
	want := must.Get(p.Resolve(payload.CapacityOf(node.Status.Capacity)))
	must.That(slices.Equal(nc.Status.ResolvedValues, want.Values),
		"the agent resolved %v, but the capacity of the Node gives %v", nc.Status.ResolvedValues, want.Values)
	checked("the rules give what the Node's capacity gives: %v", want.Values)
}

// crashes is a configuration that passes the dry run: the kubelet compares it
// with the machine only when it starts.
const crashes = "kubeReserved: {ephemeral-storage: 100Ti}"

func rollsBack(ctx context.Context, l *lab) {
	m, pods := l.proven(ctx)
	l.assign(ctx, 2, crashes, "proven", "--trial-duration=15s")
	s := l.config(ctx).Status
	must.That(len(s.BadConfigs) > 0 && s.Active != nil && s.LastKnownGood != nil && s.Active.UID == s.LastKnownGood.UID,
		"active %+v, last-known-good %+v, bad %+v", s.Active, s.LastKnownGood, s.BadConfigs)
	l.becomesHealthy(ctx, m)
	l.runsWith(ctx, pods)
	checked("a kubelet that crashes with the change is rolled back, and runs with room for %d pods: %s", pods, s.BadConfigs[len(s.BadConfigs)-1].Reason)
}

func journals(ctx context.Context, l *lab) {
	m := l.installed(ctx)
	out := l.run(ctx, m, "journalctl --unit=kubelet --boot --no-pager --output=cat | tail -n 4000", prompt)
	own, kubelet := 0, 0
	for line := range strings.Lines(out) {
		if strings.Contains(line, "level=INFO") || strings.Contains(line, "level=WARN") {
			own++
		}
		if len(line) > 5 && line[0] == 'I' && line[5] == ' ' {
			kubelet++
		}
	}

	must.That(own > 0 && kubelet > 0, "journalctl -u kubelet has %d lines of the agent and %d of the kubelet", own, kubelet)
	checked("journalctl -u kubelet has %d lines of the agent and %d of the kubelet", own, kubelet)
}

// hardening compares the unit as systemd runs it with the settings that
// docs/install.md lists.
func hardening(ctx context.Context, l *lab) {
	m := l.installed(ctx)
	out := l.run(ctx, m, "systemctl show kubelet; echo RunMode=$(stat -c %a /run/evenkeel); "+
		"echo StateMode=$(stat -c %a /var/lib/evenkeel); echo Adj=$(cat /proc/$(systemctl show --property=MainPID --value kubelet)/oom_score_adj)", prompt)
	for _, want := range []string{
		"Type=notify", "NotifyAccess=main", "KillMode=mixed", "Restart=always", "RestartUSec=1s", "StartLimitIntervalUSec=0", "OOMPolicy=continue",
		"OOMScoreAdjust=-999", "TimeoutStopUSec=1min", "RuntimeDirectoryMode=0700", "StateDirectoryMode=0700",
		"RuntimeDirectory=evenkeel", "StateDirectory=evenkeel", "RunMode=700", "StateMode=700", "Adj=-999",
		// Sandbox settings would apply to the kubelet too.
		"PrivateTmp=no", "ProtectSystem=no", "NoNewPrivileges=no",
	} {
		must.That(strings.Contains("\n"+out, "\n"+want+"\n"), "systemctl show kubelet does not have %s", want)
	}

	checked("systemd has the settings of docs/install.md, without a sandbox, and applies them")
	out = l.run(ctx, m, "systemd-analyze verify kubelet.service 2>&1 | grep -i evenkeel; true", prompt)
	must.That(out == "", "systemd-analyze verify says %s", out)
	checked("systemd-analyze verify finds nothing about evenkeel's settings")
}

// duringTrial does something to the node in a trial and requires that the
// trial's configuration is promoted afterwards.
func (l *lab) duringTrial(ctx context.Context, disturb func(m *vm.Machine)) {
	m, pods := l.proven(ctx)
	pods++
	bad := l.bad(ctx)
	l.assign(ctx, 0, fmt.Sprintf("maxPods: %d", pods), "trial", "--trial-duration=1m")
	must.That(l.config(ctx).Status.Trial != nil, "the trial has ended before it was disturbed")
	disturb(m)
	l.becomesHealthy(ctx, m)
	checked("the kubelet is healthy")
	l.promotedOnly(ctx, pods, bad, "the trial went on, and its configuration is last-known-good")
}

func restarts(ctx context.Context, l *lab) {
	l.duringTrial(ctx, func(m *vm.Machine) { l.run(ctx, m, "systemctl restart kubelet", patience) })
}

func reloads(ctx context.Context, l *lab) {
	l.duringTrial(ctx, func(m *vm.Machine) {
		out := l.run(ctx, m, "a=$(systemctl show --property=MainPID --value kubelet); for i in 1 2 3 4 5; do systemctl daemon-reload || exit; done; b=$(systemctl show --property=MainPID --value kubelet); echo $a $b; [ $a = $b ]", patience)
		checked("five times daemon-reload leave the agent's process as it is: %s", strings.TrimSpace(out))
	})
}

func reboots(ctx context.Context, l *lab) {
	l.duringTrial(ctx, func(m *vm.Machine) { l.again(ctx, m, "systemctl --no-block reboot") })
}

// again executes a script that makes the machine boot again, and waits for
// that.
func (l *lab) again(ctx context.Context, m *vm.Machine, script string) {
	before := must.Get(m.BootID(ctx))
	if err := must.Try(func() { l.run(ctx, m, script, 10*time.Second) }); err != nil {
		fmt.Printf("  the machine's last words: %v\n", err) // a panic leaves no time for an answer
	}

	begin := time.Now()
	must.Get(m.WaitBoot(ctx, before))
	checked("the machine is back after %s", time.Since(begin).Round(time.Second))
}

// barks stops the agent with SIGSTOP under a watchdog.
func barks(ctx context.Context, l *lab) {
	m, pods := l.proven(ctx)
	script := `mkdir -p /etc/systemd/system/kubelet.service.d
printf '[Service]\nWatchdogSec=%s\n' 60 >/etc/systemd/system/kubelet.service.d/95-local.conf
systemctl daemon-reload && systemctl restart kubelet`
	l.run(ctx, m, script, patience)
	l.becomesHealthy(ctx, m)
	before := l.run(ctx, m, processes, prompt)
	// The kubelet must not outlive the agent.
	script = `set -- ` + strings.TrimSpace(before) + `
kill -STOP $1
for i in $(seq 400); do [ -e /proc/$1 ] || [ -e /proc/$2 ] || exit 0; sleep 1; done
echo "agent $1 or kubelet $2 is still there"; exit 1`
	l.run(ctx, m, script, patience)
	checked("systemd kills the stopped agent, and its kubelet dies with it")
	l.becomesHealthy(ctx, m)
	const named = "journalctl --unit=kubelet --boot --no-pager | grep -F 'Watchdog timeout' || { echo the journal names no watchdog; exit 1; }"
	out := l.run(ctx, m, named, prompt)
	l.run(ctx, m, "rm /etc/systemd/system/kubelet.service.d/95-local.conf; systemctl daemon-reload; systemctl restart kubelet", patience)
	l.ready(ctx)
	l.promoted(ctx, pods)
	checked("the kubelet is healthy again with last-known-good: %s", lastLine(out))
}

func upgrades(ctx context.Context, l *lab) {
	m, pods := l.proven(ctx)
	l.putPackage(ctx, m, l.release)
	_, before := l.unit(ctx, m)
	out := l.run(ctx, m, "dpkg --install /root/evenkeel-agent.deb", prompt)
	_, after := l.unit(ctx, m)
	must.That(before == after && strings.Contains(out, "systemctl restart kubelet.service"),
		"the package's upgrade: process %s, then %s: %s", before, after, out)
	checked("the newer package restarts nothing, and says what to do")
	out = l.run(ctx, m, "evenkeel-agent install --timeout=25m", patience+prompt)
	l.ready(ctx)
	l.promoted(ctx, pods)
	l.runsRelease(ctx, filepath.Base(l.release))
	checked("the agent %s runs the kubelet with the same configuration: %s", filepath.Base(l.release), lastLine(out))
}

// runsRelease requires that the agent reports this version.
func (l *lab) runsRelease(ctx context.Context, version string) {
	got := l.config(ctx).Status.AgentVersion
	must.That(got == version, "the agent reports version %q, want %s", got, version)
}

func uninstalls(ctx context.Context, l *lab) {
	m := l.installed(ctx)
	out := l.run(ctx, m, "dpkg --remove evenkeel-agent", patience)
	l.isRestored(ctx, m, out)
	checked("removing the package restores the plain kubelet, and the node is Ready")
}

// isRestored requires that nothing of evenkeel is left in the kubelet's unit,
// and that the node is Ready. said is what the removal printed.
func (l *lab) isRestored(ctx context.Context, m *vm.Machine, said string) {
	must.That(!l.runsAgent(ctx, m), "the kubelet's unit still runs the agent: %s", said)
	files, _ := l.unit(ctx, m)
	must.That(!strings.Contains(files, "evenkeel"), "the unit's files are %s", files)
	l.ready(ctx)
}
