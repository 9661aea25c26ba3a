// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/evenkeel/evenkeel/build/image"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// agent is the path of the release's agent.
func (w *whole) agent() string {
	return filepath.Join(w.release, fmt.Sprintf("evenkeel-agent-%s-linux-amd64", filepath.Base(w.release)))
}

// kubeletImage packs the agent of the release and a kubelet, as `make image
// IMAGES=kubelet` does.
func (w *whole) kubeletImage(r kubernetesRelease, file string) {
	archive, _ := must.Get2(image.Image{
		References: []string{"evenkeel.dev/kubelet:" + r.version},
		Programs:   []image.Program{{Path: "/evenkeel-agent", File: w.agent()}, {Path: "/kubelet", File: filepath.Join(r.dir, "kubelet")}},
	}.Archive())
	must.OK(os.WriteFile(file, archive, 0o644))
}

// hostsItself gives the worker a kubelet in a pod, as docs/self-hosted.md
// describes, upgrades it, and goes back.
func hostsItself(ctx context.Context, w *whole) {
	w.plugin(ctx, "1 of 1 node uninstalled", "uninstall", workerName, "--retry", "--yes", "--timeout=60m")
	unit := string(must.Get(os.ReadFile("config/systemd/evenkeel-bootstrap.service")))
	unit = strings.Replace(unit, " --bootstrap ", " --bootstrap "+agentFlags+" ", 1)
	must.OK(w.worker.PutFile(ctx, "/etc/systemd/system/evenkeel-bootstrap.service", 0o644, []byte(unit)))
	must.OK(w.worker.PutFile(ctx, "/usr/local/bin/evenkeel-agent", 0o755, must.Get(os.ReadFile(w.agent()))))
	w.run(ctx, w.worker, "systemctl disable --now kubelet && systemctl mask kubelet && systemctl enable --now evenkeel-bootstrap", patience)
	w.becomesHealthy(ctx, w.worker)
	w.hosting(ctx, "Bootstrap", w.old.version)
	checked("the bootstrap kubelet runs under evenkeel-bootstrap.service")

	manifest := string(must.Get(os.ReadFile(filepath.Join(w.release, "evenkeel-self-hosted-"+filepath.Base(w.release)+".yaml"))))
	manifest = strings.Replace(manifest, "evenkeel.dev/kubelet:"+w.new.version, "evenkeel.dev/kubelet:"+w.old.version, 1)
	manifest = strings.Replace(manifest, "- --hostname-override=$(NODE_NAME)\n", "- --hostname-override=$(NODE_NAME)\n        - --node-ip="+workerIP+"\n", 1)
	manifest = strings.Replace(manifest, "        - /evenkeel-agent\n        - --lock-file", "        - /evenkeel-agent\n        - "+strings.ReplaceAll(agentFlags, " ", "\n        - ")+"\n        - --lock-file", 1)
	w.applies(ctx, w.file("self-hosted.yaml", manifest))
	w.kubectl(ctx, "label", "node", workerName, "evenkeel.dev/kubelet=self-hosted")
	w.hosting(ctx, "SelfHosted", w.old.version)
	checked("the DaemonSet's kubelet %s has taken the node over", w.old.version)

	w.kubectl(ctx, "--namespace=kube-system", "set", "image", "daemonset/evenkeel-kubelet", "kubelet=evenkeel.dev/kubelet:"+w.new.version)
	w.hosting(ctx, "SelfHosted", w.new.version)
	checked("the DaemonSet has upgraded the kubelet to %s", w.new.version)

	must.OK(w.machine.Pause(ctx))
	w.again(ctx, w.worker, "systemctl --no-block reboot")
	w.becomesHealthy(ctx, w.worker)
	must.OK(w.machine.Continue(ctx))
	checked("after a reboot without the API server a kubelet is healthy")
	w.hosting(ctx, "SelfHosted", w.new.version)

	w.kubectl(ctx, "label", "node", workerName, "evenkeel.dev/kubelet-")
	w.hosting(ctx, "Bootstrap", w.old.version)
	w.run(ctx, w.worker, "systemctl disable --now evenkeel-bootstrap && systemctl unmask kubelet && systemctl enable --now kubelet && rm /etc/systemd/system/evenkeel-bootstrap.service", patience)
	w.becomesHealthy(ctx, w.worker)
	w.plugin(ctx, "1 of 1 node installed", "install", workerName, "--yes", "--timeout=60m", "--agent-version="+filepath.Base(w.release))
	w.activeSays(ctx, workerName, "True")
	checked("the way back: a plain kubelet, and then the agent in front of it again")
}

// hosting waits until the worker is Ready with a kubelet of this version, run
// as kubectl evenkeel nodes -o wide says.
func (w *whole) hosting(ctx context.Context, how, version string) {
	w.comesBack(ctx, workerName, version)
	w.eventually(ctx, "the kubelet is "+how, func(ctx context.Context) {
		w.plugin(ctx, how, "nodes", "--selector=kubernetes.io/hostname="+workerName, "--output=wide")
	})
}
