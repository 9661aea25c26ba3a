// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/evenkeel/evenkeel/testkit/must"
	"github.com/evenkeel/evenkeel/testkit/vm"
)

// resets ends the cluster: kubeadm reset and the removal of the agent, in both
// orders.
func resets(ctx context.Context, w *whole) {
	// The worker first: its removal through the cluster would need the kubelet
	// that kubeadm reset stops.
	w.run(ctx, w.worker, "kubeadm reset --force 2>&1", patience)
	// Without --force it refuses, because no kubelet can run without the files
	// that kubeadm has removed.
	w.run(ctx, w.worker, "/var/lib/evenkeel-bin/evenkeel-agent uninstall --purge --force", patience)
	w.initializesAgain(ctx, w.worker, workerName, workerIP)
	checked("kubeadm reset, evenkeel-agent uninstall, and kubeadm init work on the worker")

	w.plugin(ctx, "1 of 1 node uninstalled", "uninstall", nodeName, "--retry", "--yes", "--timeout=60m")
	w.run(ctx, w.machine, "kubeadm reset --force 2>&1", patience)
	w.initializesAgain(ctx, w.machine, nodeName, controlIP)
	checked("kubectl evenkeel uninstall, kubeadm reset, and kubeadm init work on the control plane")
}

// initializesAgain makes a new cluster of a machine that was reset, with a
// plain kubelet.
func (w *whole) initializesAgain(ctx context.Context, m *vm.Machine, name, ip string) {
	runs := w.run(ctx, m, "systemctl cat kubelet", prompt)
	must.That(!strings.Contains(runs, "evenkeel"), "the kubelet's unit is still %s", runs)
	config := strings.NewReplacer(controlIP, ip, "name: "+nodeName+"\n", "name: "+name+"\n").Replace(fmt.Sprintf(kubeadmConfig, w.new.version))
	must.OK(m.PutFile(ctx, "/root/again.yaml", 0o600, []byte(config)))
	out := w.run(ctx, m, "kubeadm init --config /root/again.yaml 2>&1", 2*patience)
	must.That(strings.Contains(out, "initialized successfully"), "kubeadm init says %s", out)
	w.becomesHealthy(ctx, m)
}
