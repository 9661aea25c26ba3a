// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/testkit/bed"
	"github.com/evenkeel/evenkeel/testkit/must"
	"github.com/evenkeel/evenkeel/testkit/vm"
)

// agentFlags are for an emulated machine, on which a kubelet needs a minute to
// become healthy.
const agentFlags = "--health-timeout=20m --ready-timeout=20m --sync-timeout=10s"

// installed returns a machine whose kubelet runs under the agent of the
// previous release's package.
func (l *lab) installed(ctx context.Context) *vm.Machine {
	m := l.node(ctx)
	if l.runsAgent(ctx, m) {
		return m
	}

	l.putPackage(ctx, m, l.previous)
	script := "dpkg --install /root/evenkeel-agent.deb && evenkeel-agent install --timeout=25m -- " + agentFlags
	l.run(ctx, m, script, patience+prompt)

	l.ready(ctx)

	return m
}

// putPackage copies the agent's package of a release to the machine.
func (l *lab) putPackage(ctx context.Context, m *vm.Machine, release string) {
	must.That(release != "", "this step needs -previous and -release: run make vm, or see the Makefile")
	files := must.Get(filepath.Glob(filepath.Join(release, "evenkeel-agent_*_amd64.deb")))
	must.That(len(files) == 1, "there are %d packages of the agent in %s, want 1", len(files), release)
	must.OK(m.PutFile(ctx, "/root/evenkeel-agent.deb", 0o644, must.Get(os.ReadFile(files[0]))))
}

// run executes a script in the machine within a time, and requires success.
func (l *lab) run(ctx context.Context, m *vm.Machine, script string, within time.Duration) string {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return must.Get(m.Run(ctx, script))
}

// runsAgent reports whether the kubelet's unit runs the agent.
func (l *lab) runsAgent(ctx context.Context, m *vm.Machine) bool {
	out := l.run(ctx, m, "basename $(readlink /proc/$(systemctl show --property=MainPID --value kubelet)/exe)", prompt)
	name := strings.TrimSpace(out)
	must.That(name == "kubelet" || strings.HasPrefix(name, "evenkeel-agent"), "the kubelet's unit runs %q", name)

	return name != "kubelet"
}

// processes prints the process IDs of the agent and of its kubelet.
const processes = `agent=$(systemctl show --property=MainPID --value kubelet)
for child in $(cat /proc/$agent/task/*/children); do
  tr '\0' '\n' </proc/$child/cmdline | grep -q '^--kubeconfig=' && echo $agent $child && exit
done
echo "process $agent has no kubelet"; exit 1`

// healthy is a script that fails unless the kubelet's /healthz is ok.
const healthy = `timeout 20 bash -c 'exec 3<>/dev/tcp/127.0.0.1/10248 && printf "GET /healthz HTTP/1.0\r\n\r\n" >&3 && grep -q "^ok" <&3'`

// becomesHealthy waits until the kubelet is healthy.
func (l *lab) becomesHealthy(ctx context.Context, m *vm.Machine) {
	bed.Await(ctx, patience, func(ctx context.Context) { l.run(ctx, m, healthy, prompt) })
}

// sameProcesses requires that agent and kubelet are the processes that they
// were.
func (l *lab) sameProcesses(ctx context.Context, m *vm.Machine, before string) {
	after := l.run(ctx, m, processes, prompt)
	must.That(before == after, "agent and kubelet were the processes %s and are %s", before, after)
}

// kubeletConfiguration returns a file of the upstream form with these fields.
func kubeletConfiguration(fields string) string {
	return "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n" + fields + "\n"
}

// file writes a file of the run, and returns its path.
func (l *lab) file(name, content string) string {
	path := filepath.Join(l.dir, name)
	must.OK(os.WriteFile(path, []byte(content), 0o600))

	return path
}

// assign assigns a drop-in, of the upstream form if it has no apiVersion, waits
// for an outcome (proven, trial, assigned), and requires this exit code.
func (l *lab) assign(ctx context.Context, code int, dropIn, until string, flags ...string) {
	content := dropIn + "\n"
	if !strings.HasPrefix(dropIn, "apiVersion: ") {
		content = kubeletConfiguration(dropIn)
	}

	args := []string{
		"assign", nodeName, "--filename=" + l.file("dropin.yaml", content), "--drop-in", "--yes", "--wait-for=" + until,
		"--agent-timeout=15m", "--timeout=60m", "--crash-loop-threshold=1",
	}
	out, got := l.evenkeel(ctx, append(args, flags...)...)
	must.That(got == code, "assign of %q ended with %d, want %d: %s", dropIn, got, code, out)
}

// change assigns another number of pods with a short trial, and requires that
// it is promoted.
func (l *lab) change(ctx context.Context, pods int) {
	l.assign(ctx, 0, fmt.Sprintf("maxPods: %d", pods), "proven", "--trial-duration=15s")
	l.promoted(ctx, pods)
}

// proven returns a machine with the agent whose kubelet runs a last-known-good
// configuration, and its number of pods. A change is made only if there was
// none.
func (l *lab) proven(ctx context.Context) (m *vm.Machine, pods int) {
	m = l.installed(ctx)
	nc := l.config(ctx)
	pods = int(l.object(ctx).Status.Capacity.Pods().Value())
	if nc.Status.LastKnownGood == nil || nc.Status.Trial != nil || bed.ConfigOK(nc).Status != "True" {
		pods++
		l.change(ctx, pods)
	}

	return m, pods
}

// promoted waits until the kubelet runs with this number of pods, and its
// configuration is last-known-good.
func (l *lab) promoted(ctx context.Context, pods int) {
	bed.Await(ctx, patience+patience, func(ctx context.Context) {
		nc := l.config(ctx)
		s := nc.Status
		ok := bed.ConfigOK(nc)
		must.That(s.Active != nil && s.LastKnownGood != nil && s.Active.UID == s.LastKnownGood.UID && s.Assigned != nil && s.Active.UID == s.Assigned.UID && ok.Status == "True",
			"assigned %+v, active %+v, last-known-good %+v, trial %+v, ConfigOK is %s: %s", s.Assigned, s.Active, s.LastKnownGood, s.Trial, ok.Status, ok.Message)
		l.runsWith(ctx, pods)
	})
}

// runsWith requires that the node reports this capacity.
func (l *lab) runsWith(ctx context.Context, pods int) {
	room := l.object(ctx).Status.Capacity.Pods()
	must.That(room.Value() == int64(pods), "the node has room for %s pods, want %d", room, pods)
}

// promotedOnly requires that the node promotes what it was assigned, with this
// many pods, and records nothing more as bad. It reports that in these words.
func (l *lab) promotedOnly(ctx context.Context, pods, bad int, words string) {
	l.promoted(ctx, pods)
	all := l.config(ctx).Status.BadConfigs
	must.That(len(all) <= bad, "recorded as bad: %+v, of which %d are older", all, bad)
	checked("%s", words)
}

// bad returns how many configurations are recorded as bad.
func (l *lab) bad(ctx context.Context) int { return len(l.config(ctx).Status.BadConfigs) }
