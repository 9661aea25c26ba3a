// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/evenkeel/evenkeel/testkit/must"
	"github.com/evenkeel/evenkeel/testkit/vm"
)

// applyRelease applies the installer of a release to the cluster, and imports
// its image into the machine, which has no registry.
func (l *lab) applyRelease(ctx context.Context, m *vm.Machine, release string) (version string, err error) {
	defer must.Catch(&err)

	if release == "" {
		return "", errors.New("this step needs -previous and -release: run make vm, or see the Makefile")
	}

	version = filepath.Base(release)
	manifest := must.Get(os.ReadFile(filepath.Join(release, "evenkeel-installer-"+version+".yaml")))
	tag := must.Get(tagScript(manifest, "agent", version))
	archive := must.Get(os.ReadFile(filepath.Join(release, "evenkeel-agent-"+version+"-amd64.tar")))
	must.OK(m.PutFile(ctx, "/root/agent.tar", 0o644, archive))
	if out, err := l.run(ctx, m, "set -e; ctr --namespace k8s.io images import /root/agent.tar; "+tag+"; rm /root/agent.tar", 4*prompt); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}

	file := must.Get(l.file("installer.yaml", patientInstaller(string(manifest))))
	_, err = l.kubectl(ctx, "apply", "-f", file)

	return version, err
}

// tagScript returns a script that gives an imported image the name that the
// manifests of a release use: its digest.
func tagScript(manifest []byte, name, version string) (string, error) {
	digest := regexp.MustCompile(`evenkeel\.dev/` + name + `:\S+@(sha256:[0-9a-f]{64})`).FindSubmatch(manifest)
	if digest == nil {
		return "", fmt.Errorf("the manifests of %s name no image of the %s with a digest", version, name)
	}

	return fmt.Sprintf("ctr --namespace k8s.io images tag --force evenkeel.dev/%s:%s evenkeel.dev/%[1]s@%[3]s", name, version, digest[1]), nil
}

// patientInstaller gives the installer of a manifest more than its default of
// two minutes, which an emulated kubelet needs.
func patientInstaller(manifest string) string {
	return strings.ReplaceAll(manifest, "- --stay\n", "- --stay\n        - --timeout=25m\n")
}

// clusterInstalled returns a machine whose agent kubectl evenkeel has
// installed.
func (l *lab) clusterInstalled(ctx context.Context) (_ *vm.Machine, err error) {
	defer must.Catch(&err)

	m := must.Get(l.node(ctx))
	runs := must.Get(l.runsAgent(ctx, m))
	if runs {
		out, err := l.run(ctx, m, "systemctl cat kubelet", prompt)
		if err != nil || strings.Contains(out, "/var/lib/evenkeel-bin/") {
			return m, err
		}

		must.Get(l.run(ctx, m, "dpkg --remove evenkeel-agent", patience))
		must.OK(l.ready(ctx))
	}

	must.OK(l.cluster.StartControllers(ctx))
	version := must.Get(l.applyRelease(ctx, m, l.previous))

	return m, l.plugin(ctx, "1 of 1 node installed", "install", nodeName, "--yes", "--timeout=60m", "--agent-version="+version)
}

// plugin runs kubectl evenkeel, and requires success and words.
func (l *lab) plugin(ctx context.Context, words string, args ...string) error {
	out, code, err := l.evenkeel(ctx, args...)
	if err == nil && (code != 0 || !strings.Contains(out, words)) {
		err = fmt.Errorf("kubectl evenkeel %s ended with %d: %s", strings.Join(args, " "), code, out)
	}

	return err
}

func clusterInstalls(ctx context.Context, l *lab) error {
	m := must.Get(l.clusterInstalled(ctx))
	must.Get(l.run(ctx, m, processes, prompt))
	checked("kubectl evenkeel install: the kubelet is the agent's child, the node is Ready and its agent reports")
	must.OK(l.change(ctx, 190))
	checked("the first change is promoted, with the agent's default flags")
	must.OK(l.assign(ctx, 2, crashes, "proven", "--trial-duration=15s"))
	must.OK(l.becomesHealthy(ctx, m))
	must.OK(l.runsWith(ctx, 190))
	checked("a change that crashes is rolled back")

	return nil
}

func clusterUpgrades(ctx context.Context, l *lab) (err error) {
	defer must.Catch(&err)

	m := must.Get(l.clusterInstalled(ctx))
	_, pods := must.Get2(l.proven(ctx))
	before := must.Get(l.run(ctx, m, processes, prompt))
	version := must.Get(l.applyRelease(ctx, m, l.release))
	after, err := l.run(ctx, m, processes, prompt)
	if err == nil && before != after {
		err = fmt.Errorf("applying the manifests changed the processes from %s to %s", before, after)
	}
	if err != nil {
		return err
	}

	checked("applying the manifests of %s restarts nothing", version)
	must.OK(l.plugin(ctx, "1 of 1 node installed", "install", "--yes", "--timeout=60m", "--agent-version="+version))
	must.OK(l.ready(ctx))
	must.OK(l.promoted(ctx, pods))
	must.OK(l.runsRelease(ctx, version))
	checked("the node runs the agent %s, with the same configuration", version)

	return nil
}

func clusterUninstalls(ctx context.Context, l *lab) error {
	m := must.Get(l.clusterInstalled(ctx))
	must.OK(l.plugin(ctx, "1 of 1 node uninstalled", "uninstall", "--yes", "--timeout=60m"))
	if runs, err := l.runsAgent(ctx, m); err != nil || runs {
		return errors.Join(errors.New("the kubelet's unit still runs the agent"), err)
	}

	files, _, err := l.unit(ctx, m)
	if err == nil && strings.Contains(files, "evenkeel") {
		err = fmt.Errorf("the unit's files are %s", files)
	}
	if err != nil {
		return err
	}

	must.OK(l.ready(ctx))
	checked("kubectl evenkeel uninstall restores the plain kubelet, and the node is Ready")

	return nil
}
