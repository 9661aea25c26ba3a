package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/evenkeel/evenkeel/testkit/vm"
)

// agentImage is how the manifests of a release name the agent's image.
var agentImage = regexp.MustCompile(`evenkeel\.dev/agent:\S+@(sha256:[0-9a-f]{64})`)

// applyRelease applies the installer of a release to the cluster, and imports its image into the machine, which has no registry.
func (l *lab) applyRelease(ctx context.Context, m *vm.Machine, release string) (version string, err error) {
	if release == "" {
		return "", errors.New("this step needs -previous and -release: run make vm, or see the Makefile")
	}
	version = filepath.Base(release)
	manifest, err := os.ReadFile(filepath.Join(release, "evenkeel-installer-"+version+".yaml"))
	if err != nil {
		return "", err
	}
	image := agentImage.FindSubmatch(manifest)
	if image == nil {
		return "", fmt.Errorf("the installer of %s names no image", release)
	}
	archive, err := os.ReadFile(filepath.Join(release, "evenkeel-agent-"+version+"-amd64.tar"))
	if err != nil {
		return "", err
	}
	if err := m.PutFile(ctx, "/root/agent.tar", 0o644, archive); err != nil {
		return "", err
	}
	script := fmt.Sprintf("set -e; ctr() { command ctr --namespace k8s.io images $*; }; ctr import /root/agent.tar; ctr tag --force evenkeel.dev/agent:%s evenkeel.dev/agent@%s; rm /root/agent.tar", version, image[1])
	if out, err := l.run(ctx, m, script, 4*prompt); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	// An emulated kubelet needs more than the default of two minutes.
	patient := strings.ReplaceAll(string(manifest), "- --stay\n", "- --stay\n        - --timeout=25m\n")
	file := filepath.Join(l.dir, "installer.yaml")
	if err := os.WriteFile(file, []byte(patient), 0o600); err != nil {
		return "", err
	}
	_, err = l.kubectl(ctx, "apply", "-f", file)
	return version, err
}

// clusterInstalled returns a machine whose agent kubectl evenkeel has installed.
func (l *lab) clusterInstalled(ctx context.Context) (*vm.Machine, error) {
	m, err := l.node(ctx)
	if err != nil {
		return nil, err
	}
	runs, err := l.runsAgent(ctx, m)
	if err != nil {
		return nil, err
	}
	if runs {
		out, err := l.run(ctx, m, "systemctl cat kubelet", prompt)
		if err != nil || strings.Contains(out, "/var/lib/evenkeel-bin/") {
			return m, err
		}
		if _, err := l.run(ctx, m, "dpkg --remove evenkeel-agent", patience); err != nil {
			return nil, err
		}
		if err := l.ready(ctx); err != nil {
			return nil, err
		}
	}
	if err := l.cluster.StartControllers(ctx); err != nil {
		return nil, err
	}
	version, err := l.applyRelease(ctx, m, l.previous)
	if err != nil {
		return nil, err
	}
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
	m := got(l.clusterInstalled(ctx))
	got(l.run(ctx, m, processes, prompt))
	checked("kubectl evenkeel install: the kubelet is the agent's child, the node is Ready and its agent reports")
	must(l.change(ctx, 190))
	checked("the first change is promoted, with the agent's default flags")
	must(l.assign(ctx, 2, crashes, "proven", "--trial-duration=15s"))
	must(l.becomesHealthy(ctx, m))
	must(l.runsWith(ctx, 190))
	checked("a change that crashes is rolled back")
	return nil
}

func clusterUpgrades(ctx context.Context, l *lab) error {
	m := got(l.clusterInstalled(ctx))
	_, pods, err := l.proven(ctx)
	if err != nil {
		return err
	}
	before := got(l.run(ctx, m, processes, prompt))
	version := got(l.applyRelease(ctx, m, l.release))
	after, err := l.run(ctx, m, processes, prompt)
	if err == nil && before != after {
		err = fmt.Errorf("applying the manifests changed the processes from %s to %s", before, after)
	}
	if err != nil {
		return err
	}
	checked("applying the manifests of %s restarts nothing", version)
	must(l.plugin(ctx, "1 of 1 node installed", "install", "--yes", "--timeout=60m", "--agent-version="+version))
	must(l.ready(ctx))
	must(l.promoted(ctx, pods))
	must(l.runsRelease(ctx, version))
	checked("the node runs the agent %s, with the same configuration", version)
	return nil
}

func clusterUninstalls(ctx context.Context, l *lab) error {
	m := got(l.clusterInstalled(ctx))
	must(l.plugin(ctx, "1 of 1 node uninstalled", "uninstall", "--yes", "--timeout=60m"))
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
	must(l.ready(ctx))
	checked("kubectl evenkeel uninstall restores the plain kubelet, and the node is Ready")
	return nil
}
