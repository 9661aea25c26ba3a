// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
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
func (l *lab) applyRelease(ctx context.Context, m *vm.Machine, release string) (version string) {
	must.That(release != "", "this step needs -previous and -release: run make vm, or see the Makefile")
	version = filepath.Base(release)
	manifest := must.Get(os.ReadFile(filepath.Join(release, "evenkeel-installer-"+version+".yaml")))
	tag := tagScript(manifest, "agent", version)
	archive := must.Get(os.ReadFile(filepath.Join(release, "evenkeel-agent-"+version+"-amd64.tar")))
	must.OK(m.PutFile(ctx, "/root/agent.tar", 0o644, archive))
	l.run(ctx, m, "set -e; ctr --namespace k8s.io images import /root/agent.tar; "+tag+"; rm /root/agent.tar", 4*prompt)
	l.kubectl(ctx, "apply", "-f", l.file("installer.yaml", patientInstaller(string(manifest))))

	return version
}

// tagScript returns a script that gives an imported image the name that the
// manifests of a release use: its digest.
func tagScript(manifest []byte, name, version string) string {
	digest := regexp.MustCompile(`evenkeel\.dev/` + name + `:\S+@(sha256:[0-9a-f]{64})`).FindSubmatch(manifest)
	must.That(digest != nil, "the manifests of %s name no image of the %s with a digest", version, name)

	return fmt.Sprintf("ctr --namespace k8s.io images tag --force evenkeel.dev/%s:%s evenkeel.dev/%[1]s@%[3]s", name, version, digest[1])
}

// patientInstaller gives the installer of a manifest more than its default of
// two minutes, which an emulated kubelet needs.
func patientInstaller(manifest string) string {
	return strings.ReplaceAll(manifest, "- --stay\n", "- --stay\n        - --timeout=25m\n")
}

// clusterInstalled returns a machine whose agent kubectl evenkeel has
// installed.
func (l *lab) clusterInstalled(ctx context.Context) *vm.Machine {
	m := l.node(ctx)
	if l.runsAgent(ctx, m) {
		if files, _ := l.unit(ctx, m); strings.Contains(files, "/var/lib/evenkeel-bin/") {
			return m
		}

		l.run(ctx, m, "dpkg --remove evenkeel-agent", patience)
		l.ready(ctx)
	}

	must.OK(l.cluster.StartControllers(ctx))
	version := l.applyRelease(ctx, m, l.previous)
	l.plugin(ctx, "1 of 1 node installed", "install", nodeName, "--yes", "--timeout=60m", "--agent-version="+version)

	return m
}

// plugin runs kubectl evenkeel, and requires success and words.
func (l *lab) plugin(ctx context.Context, words string, args ...string) {
	out, code := l.evenkeel(ctx, args...)
	must.That(code == 0 && strings.Contains(out, words), "kubectl evenkeel %s ended with %d: %s", strings.Join(args, " "), code, out)
}

func clusterInstalls(ctx context.Context, l *lab) {
	m := l.clusterInstalled(ctx)
	l.run(ctx, m, processes, prompt)
	checked("kubectl evenkeel install: the kubelet is the agent's child, the node is Ready and its agent reports")
	l.change(ctx, 190)
	checked("the first change is promoted, with the agent's default flags")
	l.assign(ctx, 2, crashes, "proven", "--trial-duration=15s")
	l.becomesHealthy(ctx, m)
	l.runsWith(ctx, 190)
	checked("a change that crashes is rolled back")
}

func clusterUpgrades(ctx context.Context, l *lab) {
	m := l.clusterInstalled(ctx)
	_, pods := l.proven(ctx)
	before := l.run(ctx, m, processes, prompt)
	version := l.applyRelease(ctx, m, l.release)
	l.sameProcesses(ctx, m, before)
	checked("applying the manifests of %s restarts nothing", version)
	l.plugin(ctx, "1 of 1 node installed", "install", "--yes", "--timeout=60m", "--agent-version="+version)
	l.ready(ctx)
	l.promoted(ctx, pods)
	l.runsRelease(ctx, version)
	checked("the node runs the agent %s, with the same configuration", version)
}

func clusterUninstalls(ctx context.Context, l *lab) {
	m := l.clusterInstalled(ctx)
	l.plugin(ctx, "1 of 1 node uninstalled", "uninstall", "--yes", "--timeout=60m")
	l.isRestored(ctx, m, "")
	checked("kubectl evenkeel uninstall restores the plain kubelet, and the node is Ready")
}
