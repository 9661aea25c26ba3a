// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/testkit/bed"
	"github.com/evenkeel/evenkeel/testkit/must"
	"github.com/evenkeel/evenkeel/testkit/vm"
)

// removedGate is a feature gate that kubelets up to 1.36 know.
const removedGate = "featureGates: {PodLifecycleSleepAction: true}"

const upgradeConfig = `apiVersion: kubeadm.k8s.io/v1beta4
kind: UpgradeConfiguration
apply: {kubernetesVersion: %s, forceUpgrade: true, patches: {directory: /root/patches}}
node: {patches: {directory: /root/patches}}
` + timeouts

// plansUpgrade finds a feature gate that the new version does not have, before anything is upgraded.
func plansUpgrade(ctx context.Context, w *whole) (err error) {
	binaries := []string{"--component-binary=kubelet=" + filepath.Join(w.to, "kubelet"), "--component-binary=kube-proxy=" + filepath.Join(w.to, "kube-proxy")}
	plan := append([]string{"component", "plan", w.new.version}, binaries...)
	must.OK(w.plugin(ctx, "Nothing must be migrated by hand", plan...))
	client := must.Get(w.client())
	stored := must.Get(client.CoreV1().ConfigMaps("kube-system").Get(ctx, "kubelet-config", metav1.GetOptions{}))
	original := stored.Data["kubelet"]
	must.OK(w.storeKubeletConfig(ctx, original+removedGate+"\n"))
	out, code := must.Get2(w.evenkeel(ctx, plan...))
	if code != 2 || !strings.Contains(out, "PodLifecycleSleepAction") {
		return fmt.Errorf("component plan ended with %d: %s", code, out)
	}
	checked("component plan finds the gate in kubelet-config, which %s does not have", w.new.version)
	must.OK(w.storeKubeletConfig(ctx, original))

	must.OK(w.push(ctx, 0, "maxPods: 121\n"+removedGate))
	out, code = must.Get2(w.evenkeel(ctx, "survey", binaries[0]))
	if code != 2 || !strings.Contains(out, "2 would not: unrecognized feature gate: PodLifecycleSleepAction") {
		return fmt.Errorf("survey ended with %d: %s", code, out)
	}
	checked("survey says that both nodes would not start with kubelet %s, because of the gate in their active configuration", w.new.version)
	return nil
}

func (w *whole) storeKubeletConfig(ctx context.Context, content string) error {
	return w.eventually(ctx, "write kubelet-config", func(ctx context.Context) error {
		client := must.Get(w.client())
		patch := must.Get(json.Marshal(map[string]any{"data": map[string]string{"kubelet": content}}))
		_, err := client.CoreV1().ConfigMaps("kube-system").Patch(ctx, "kubelet-config", types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	})
}

// written prints the digests of the files that kubeadm writes on a node, and the names of its backups.
const written = `cd /var/lib/kubelet && sha256sum config.yaml instance-config.yaml kubeadm-flags.env 2>/dev/null
find /etc/kubernetes -type f ! -name '*.key' ! -path '*/tmp/*' | sort | xargs sha256sum; ls -d /etc/kubernetes/tmp/* /var/lib/kubelet/*backup* 2>/dev/null; true`

// changedLines returns the last words of the lines of after that before does not have.
func changedLines(before, after string) (names []string) {
	for line := range strings.Lines(after) {
		if !strings.Contains(before, line) {
			fields := strings.Fields(line)
			names = append(names, fields[len(fields)-1])
		}
	}
	return names
}

// upgradesControlPlane runs kubeadm upgrade apply, first into a power cut. The node's active configuration has the removed gate.
func upgradesControlPlane(ctx context.Context, w *whole) (err error) {
	must.OK(w.newPrograms(ctx, w.machine))
	before := must.Get(w.run(ctx, w.machine, written, prompt))
	maps := must.Get(w.configMaps(ctx))
	must.Get(w.run(ctx, w.machine, "systemd-run --quiet --unit=upgrade kubeadm upgrade apply --config=/root/upgrade.yaml", prompt))
	must.OK(bed.Eventually(ctx, patience, func(ctx context.Context) error {
		_, err := w.run(ctx, w.machine, "grep -q :"+w.new.version+" /etc/kubernetes/manifests/kube-apiserver.yaml", prompt)
		if failed, _ := w.run(ctx, w.machine, "systemctl is-failed upgrade && journalctl --unit=upgrade --no-pager --output=cat | tail -n 20", prompt); strings.HasPrefix(failed, "failed") {
			return errors.New(failed)
		}
		return err
	}))
	must.OK(w.cutPower(ctx))
	must.OK(w.comesBack(ctx, nodeName, w.old.version))
	checked("a power cut after kubeadm has replaced the API server: the node comes back on the configuration with the gate")
	must.OK(w.activeSays(ctx, nodeName, "True"))
	out := must.Get(w.run(ctx, w.machine, "kubeadm upgrade apply --config=/root/upgrade.yaml 2>&1", 2*patience))
	if !strings.Contains(out, "SUCCESS") {
		return fmt.Errorf("kubeadm upgrade apply says %s", out)
	}
	after := must.Get(w.run(ctx, w.machine, written, prompt))
	checked("kubeadm upgrade apply to %s passes when it is repeated; on the node it has written %s", w.new.version, strings.Join(changedLines(before, after), " "))
	checked("in the API it has written %s", strings.Join(changedLines(maps, must.Get(w.configMaps(ctx))), " "))
	must.OK(w.activeSays(ctx, nodeName, "True"))

	must.OK(w.replaceKubelet(ctx, w.machine, nodeName))
	must.OK(w.activeSays(ctx, nodeName, "False"))
	nc := must.Get(w.config(ctx))
	checked("kubelet %s does not know the gate: the node goes back to its own file and is Ready: %s", w.new.version, bed.ConfigOK(nc).Message)
	processesBefore := must.Get(w.run(ctx, w.machine, processes, prompt))
	must.OK(w.push(ctx, 2, "maxPods: 123\n"+removedGate, "--preflight=require", "--max-failures=1"))
	if now := must.Get(w.run(ctx, w.machine, processes, prompt)); now != processesBefore {
		return fmt.Errorf("a refused preflight has changed the processes from %s to %s", processesBefore, now)
	}
	checked("a preflight finds the gate before anything stops")
	must.OK(w.push(ctx, 0, "maxPods: 122"))
	must.OK(w.runsWith(ctx, 122))
	checked("a configuration without the gate is rolled out to the new kubelet and to the old one")
	return nil
}

// upgradesWorker runs kubeadm upgrade node. The active configuration suits the new kubelet.
func upgradesWorker(ctx context.Context, w *whole) (err error) {
	must.OK(w.newPrograms(ctx, w.worker))
	before := must.Get(w.run(ctx, w.worker, written, prompt))
	must.Get(w.run(ctx, w.worker, "kubeadm upgrade node --config=/root/upgrade.yaml 2>&1", 2*patience))
	after := must.Get(w.run(ctx, w.worker, written, prompt))
	checked("kubeadm upgrade node has written %s", strings.Join(changedLines(before, after), " "))
	must.OK(w.replaceKubelet(ctx, w.worker, workerName))
	must.OK(w.activeSays(ctx, workerName, "True"))
	checked("the active configuration has passed a new trial with kubelet %s", w.new.version)
	return w.findsNothing(ctx)
}

// newPrograms imports the images of the new version, and replaces kubeadm, as its documentation describes.
func (w *whole) newPrograms(ctx context.Context, m *vm.Machine) (err error) {
	defer must.Catch(&err)

	must.OK(m.PutFile(ctx, "/root/upgrade.yaml", 0o600, fmt.Appendf(nil, upgradeConfig, w.new.version)))
	_, err = w.run(ctx, m, fmt.Sprintf(`set -e
for archive in /data/%[1]s/*.tar; do ctr --namespace k8s.io images import $archive; done
install /data/%[1]s/kubeadm /data/%[1]s/kubectl /usr/bin/`, w.new.version), patience)
	return err
}

// replaceKubelet does what a package does, and waits until the node is Ready with the new version.
func (w *whole) replaceKubelet(ctx context.Context, m *vm.Machine, name string) (err error) {
	defer must.Catch(&err)

	must.Get(w.run(ctx, m, "install /data/"+w.new.version+"/kubelet /usr/bin/kubelet && systemctl daemon-reload && systemctl restart kubelet", patience))
	must.OK(w.becomesHealthy(ctx, m))
	return w.comesBack(ctx, name, w.new.version)
}

// comesBack waits until a node is Ready with a kubelet of this version.
func (w *whole) comesBack(ctx context.Context, name, version string) error {
	return w.eventually(ctx, name+" is Ready", func(ctx context.Context) error {
		client := must.Get(w.client())
		n := must.Get(client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{}))
		if n.Status.NodeInfo.KubeletVersion != version || !fleet.IsReady(n) {
			return fmt.Errorf("it has kubelet %s, want %s; its conditions are %+v", n.Status.NodeInfo.KubeletVersion, version, n.Status.Conditions)
		}
		return nil
	})
}

// activeSays waits until a node's ConfigOK has this status and no trial runs.
func (w *whole) activeSays(ctx context.Context, name, status string) error {
	return w.eventually(ctx, fmt.Sprintf("ConfigOK of %s is %s", name, status), func(ctx context.Context) error {
		nc := must.Get(w.configOf(ctx, name))
		if ok := bed.ConfigOK(nc); string(ok.Status) != status || nc.Status.Trial != nil {
			return fmt.Errorf("ConfigOK is %s: %s; trial %+v", ok.Status, ok.Message, nc.Status.Trial)
		}
		return nil
	})
}

// cutPower ends the machine of the control plane at once, and boots it again.
func (w *whole) cutPower(ctx context.Context) (err error) {
	must.OK(w.machine.Kill())
	w.machine, err = w.boot(ctx, w.controlOptions())
	return err
}

// configMaps lists kubeadm's ConfigMaps with their annotations and versions, one in a line.
func (w *whole) configMaps(ctx context.Context) (lines string, err error) {
	err = w.eventually(ctx, "read kubeadm's ConfigMaps", func(ctx context.Context) error {
		client := must.Get(w.client())
		lines = ""
		for _, name := range []string{"kubeadm-config", "kubelet-config", "kube-proxy", "coredns"} {
			cm := must.Get(client.CoreV1().ConfigMaps("kube-system").Get(ctx, name, metav1.GetOptions{}))
			lines += fmt.Sprintf("%s %v %s\n", cm.ResourceVersion, cm.Annotations, name)
		}
		return nil
	})
	return lines, err
}
