// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
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
func (l *lab) installed(ctx context.Context) (_ *vm.Machine, err error) {
	defer must.Catch(&err)

	m := must.Get(l.node(ctx))
	if runs, err := l.runsAgent(ctx, m); err != nil || runs {
		return m, err
	}

	must.OK(l.putPackage(ctx, m, l.previous))
	script := "dpkg --install /root/evenkeel-agent.deb && evenkeel-agent install --timeout=25m -- " + agentFlags
	must.Get(l.run(ctx, m, script, patience+prompt))

	return m, l.ready(ctx)
}

// putPackage copies the agent's package of a release to the machine.
func (l *lab) putPackage(ctx context.Context, m *vm.Machine, release string) (err error) {
	defer must.Catch(&err)

	if release == "" {
		return errors.New("this step needs -previous and -release: run make vm, or see the Makefile")
	}

	files, err := filepath.Glob(filepath.Join(release, "evenkeel-agent_*_amd64.deb"))
	if err == nil && len(files) != 1 {
		err = fmt.Errorf("there are %d packages of the agent in %s, want 1", len(files), release)
	}
	if err != nil {
		return err
	}

	content := must.Get(os.ReadFile(files[0]))

	return m.PutFile(ctx, "/root/evenkeel-agent.deb", 0o644, content)
}

// run executes a script in the machine within a time.
func (l *lab) run(ctx context.Context, m *vm.Machine, script string, within time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return m.Run(ctx, script)
}

// runsAgent reports whether the kubelet's unit runs the agent.
func (l *lab) runsAgent(ctx context.Context, m *vm.Machine) (_ bool, err error) {
	defer must.Catch(&err)

	out := must.Get(l.run(ctx, m, "basename $(readlink /proc/$(systemctl show --property=MainPID --value kubelet)/exe)", prompt))
	name := strings.TrimSpace(out)
	if name != "kubelet" && !strings.HasPrefix(name, "evenkeel-agent") {
		return false, fmt.Errorf("the kubelet's unit runs %q", name)
	}

	return name != "kubelet", nil
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
func (l *lab) becomesHealthy(ctx context.Context, m *vm.Machine) error {
	return bed.Eventually(ctx, patience, func(ctx context.Context) error {
		_, err := l.run(ctx, m, healthy, prompt)
		return err
	})
}

// kubeletConfiguration returns a file of the upstream form with these fields.
func kubeletConfiguration(fields string) string {
	return "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n" + fields + "\n"
}

// file writes a file of the run, and returns its path.
func (l *lab) file(name, content string) (string, error) {
	path := filepath.Join(l.dir, name)
	return path, os.WriteFile(path, []byte(content), 0o600)
}

// assign assigns a drop-in, of the upstream form if it has no apiVersion, waits
// for an outcome (proven, trial, assigned), and requires this exit code.
func (l *lab) assign(ctx context.Context, code int, dropIn, until string, flags ...string) error {
	content := dropIn + "\n"
	if !strings.HasPrefix(dropIn, "apiVersion: ") {
		content = kubeletConfiguration(dropIn)
	}

	file, err := l.file("dropin.yaml", content)
	if err != nil {
		return err
	}

	args := []string{
		"assign", nodeName, "--filename=" + file, "--drop-in", "--yes", "--wait-for=" + until,
		"--agent-timeout=15m", "--timeout=60m", "--crash-loop-threshold=1",
	}
	out, got, err := l.evenkeel(ctx, append(args, flags...)...)
	if err == nil && got != code {
		err = fmt.Errorf("assign of %q ended with %d, want %d: %s", dropIn, got, code, out)
	}

	return err
}

// change assigns another number of pods with a short trial, and requires that
// it is promoted.
func (l *lab) change(ctx context.Context, pods int) error {
	if err := l.assign(ctx, 0, fmt.Sprintf("maxPods: %d", pods), "proven", "--trial-duration=15s"); err != nil {
		return err
	}

	return l.promoted(ctx, pods)
}

// beginTrial assigns another number of pods with a trial of this length, and
// returns when it runs on trial.
func (l *lab) beginTrial(ctx context.Context, pods int, length time.Duration) error {
	return l.assign(ctx, 0, fmt.Sprintf("maxPods: %d", pods), "trial", "--trial-duration="+length.String())
}

// proven returns a machine with the agent whose kubelet runs a last-known-good
// configuration, and its number of pods. A change is made only if there was
// none.
func (l *lab) proven(ctx context.Context) (m *vm.Machine, pods int, err error) {
	defer must.Catch(&err)

	m = must.Get(l.installed(ctx))
	nc := must.Get(l.config(ctx))
	n := must.Get(l.object(ctx))
	pods = int(n.Status.Capacity.Pods().Value())
	if nc.Status.LastKnownGood != nil && nc.Status.Trial == nil && bed.ConfigOK(nc).Status == "True" {
		return m, pods, nil
	}

	pods++

	return m, pods, l.change(ctx, pods)
}

// promoted waits until the kubelet runs with this number of pods, and its
// configuration is last-known-good.
func (l *lab) promoted(ctx context.Context, pods int) error {
	return bed.Eventually(ctx, patience+patience, func(ctx context.Context) (err error) {
		defer must.Catch(&err)

		nc := must.Get(l.config(ctx))
		s := nc.Status
		ok := bed.ConfigOK(nc)
		if s.Active == nil || s.LastKnownGood == nil || s.Active.UID != s.LastKnownGood.UID || s.Assigned == nil || s.Active.UID != s.Assigned.UID || ok.Status != "True" {
			return fmt.Errorf("assigned %+v, active %+v, last-known-good %+v, trial %+v, ConfigOK is %s: %s", s.Assigned, s.Active, s.LastKnownGood, s.Trial, ok.Status, ok.Message)
		}

		return l.runsWith(ctx, pods)
	})
}

// runsWith requires that the node reports this capacity.
func (l *lab) runsWith(ctx context.Context, pods int) error {
	n, err := l.object(ctx)
	if err == nil && n.Status.Capacity.Pods().Value() != int64(pods) {
		err = fmt.Errorf("the node has room for %s pods, want %d", n.Status.Capacity.Pods(), pods)
	}

	return err
}

// noBad requires that no configuration was recorded as bad since the node had
// this many.
func (l *lab) noBad(ctx context.Context, before int) error {
	nc, err := l.config(ctx)
	if err == nil && len(nc.Status.BadConfigs) > before {
		err = fmt.Errorf("recorded as bad: %+v", nc.Status.BadConfigs[before:])
	}

	return err
}

// promotedOnly requires that the node promotes what it was assigned, with this
// many pods, and records nothing more as bad. It reports that in these words.
func (l *lab) promotedOnly(ctx context.Context, pods, bad int, words string) (err error) {
	defer must.Catch(&err)

	must.OK(l.promoted(ctx, pods))
	must.OK(l.noBad(ctx, bad))
	checked("%s", words)

	return nil
}

// bad returns how many configurations are recorded as bad.
func (l *lab) bad(ctx context.Context) (_ int, err error) {
	defer must.Catch(&err)

	nc := must.Get(l.config(ctx))
	return len(nc.Status.BadConfigs), nil
}
