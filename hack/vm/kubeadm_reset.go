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
func resets(ctx context.Context, w *whole) (err error) {
	// The worker first: its removal through the cluster would need the kubelet
	// that kubeadm reset stops.
	must.Get(w.run(ctx, w.worker, "kubeadm reset --force 2>&1", patience))
	// Without --force it refuses, because no kubelet can run without the files
	// that kubeadm has removed.
	must.Get(w.run(ctx, w.worker, "/var/lib/evenkeel-bin/evenkeel-agent uninstall --purge --force", patience))
	must.OK(w.initializesAgain(ctx, w.worker, workerName, workerIP))
	checked("kubeadm reset, evenkeel-agent uninstall, and kubeadm init work on the worker")

	must.OK(w.plugin(ctx, "1 of 1 node uninstalled", "uninstall", nodeName, "--retry", "--yes", "--timeout=60m"))
	must.Get(w.run(ctx, w.machine, "kubeadm reset --force 2>&1", patience))
	must.OK(w.initializesAgain(ctx, w.machine, nodeName, controlIP))
	checked("kubectl evenkeel uninstall, kubeadm reset, and kubeadm init work on the control plane")

	return nil
}

// initializesAgain makes a new cluster of a machine that was reset, with a
// plain kubelet.
func (w *whole) initializesAgain(ctx context.Context, m *vm.Machine, name, ip string) (err error) {
	defer must.Catch(&err)

	if runs := must.Get(w.run(ctx, m, "systemctl cat kubelet", prompt)); strings.Contains(runs, "evenkeel") {
		return fmt.Errorf("the kubelet's unit is still %s", runs)
	}

	config := strings.NewReplacer(controlIP, ip, "name: "+nodeName+"\n", "name: "+name+"\n").Replace(fmt.Sprintf(kubeadmConfig, w.new.version))
	must.OK(m.PutFile(ctx, "/root/again.yaml", 0o600, []byte(config)))
	out := must.Get(w.run(ctx, m, "kubeadm init --config /root/again.yaml 2>&1", 2*patience))
	if !strings.Contains(out, "initialized successfully") {
		return fmt.Errorf("kubeadm init says %s", out)
	}

	return w.becomesHealthy(ctx, m)
}
