// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/testkit/bed"
	"github.com/evenkeel/evenkeel/testkit/must"
	"github.com/evenkeel/evenkeel/testkit/vm"
)

// removedGate is a feature gate that kubelets up to 1.36 know.
const removedGate = "featureGates: {PodLifecycleSleepAction: true}"

const upgradeConfig = `apiVersion: kubeadm.k8s.io/v1beta4
kind: UpgradeConfiguration
# The Job of the preflight check CreateJob has a minute, which is too short here.
apply: {kubernetesVersion: %s, forceUpgrade: true, ignorePreflightErrors: [CreateJob], patches: {directory: /root/patches}}
node: {patches: {directory: /root/patches}}
` + timeouts

// plansUpgrade finds a feature gate that the new version does not have, before
// anything is upgraded.
func plansUpgrade(ctx context.Context, w *whole) {
	plan := append([]string{"component", "plan", w.new.version}, w.binaries()...)
	w.plugin(ctx, "Nothing must be migrated by hand", plan...)
	original := w.stored(ctx, "kubelet-config").Data["kubelet"]
	w.storeKubeletConfig(ctx, original+removedGate+"\n")
	out, code := w.evenkeel(ctx, plan...)
	must.That(code == 2 && strings.Contains(out, "PodLifecycleSleepAction"), "component plan ended with %d: %s", code, out)
	checked("component plan finds the gate in kubelet-config, which %s does not have", w.new.version)
	w.storeKubeletConfig(ctx, original)

	w.push(ctx, 0, "maxPods: 121\n"+removedGate)
	out, code = w.evenkeel(ctx, "survey", w.binaries()[0])
	must.That(code == 2 && strings.Contains(out, "2 would not: unrecognized feature gate: PodLifecycleSleepAction"),
		"survey ended with %d: %s", code, out)
	checked("survey says that both nodes would not start with kubelet %s, because of the gate in their active configuration", w.new.version)
}

// binaries are the flags that name the programs of the new version.
func (w *whole) binaries() []string {
	return []string{"--component-binary=kubelet=" + filepath.Join(w.to, "kubelet"), "--component-binary=kube-proxy=" + filepath.Join(w.to, "kube-proxy")}
}

// stored returns one of kubeadm's ConfigMaps.
func (w *whole) stored(ctx context.Context, name string) (cm *corev1.ConfigMap) {
	w.eventually(ctx, "read "+name, func(ctx context.Context) {
		cm = must.Get(w.client().CoreV1().ConfigMaps("kube-system").Get(ctx, name, metav1.GetOptions{}))
	})
	return cm
}

func (w *whole) storeKubeletConfig(ctx context.Context, content string) {
	w.eventually(ctx, "write kubelet-config", func(ctx context.Context) {
		patch := must.Get(json.Marshal(map[string]any{"data": map[string]string{"kubelet": content}}))
		must.Get(w.client().CoreV1().ConfigMaps("kube-system").Patch(ctx, "kubelet-config", types.MergePatchType, patch, metav1.PatchOptions{}))
	})
}

// written prints the digests of the files that kubeadm writes on a node, and
// the names of its backups.
const written = `cd /var/lib/kubelet && sha256sum config.yaml instance-config.yaml kubeadm-flags.env 2>/dev/null
find /etc/kubernetes -type f ! -name '*.key' ! -path '*/tmp/*' | sort | xargs sha256sum; ls -d /etc/kubernetes/tmp/* /var/lib/kubelet/*backup* 2>/dev/null; true`

// changedLines returns the last words of the lines of after that before does
// not have.
func changedLines(before, after string) (names []string) {
	for line := range strings.Lines(after) {
		if !strings.Contains(before, line) {
			fields := strings.Fields(line)
			names = append(names, fields[len(fields)-1])
		}
	}

	return names
}

// losesPower cuts the power of the control plane in the middle of kubeadm
// upgrade apply. The node's active configuration has the removed gate.
func losesPower(ctx context.Context, w *whole) {
	w.newPrograms(ctx, w.machine)
	w.files, w.configs = w.run(ctx, w.machine, written, prompt), w.configMaps(ctx)
	w.run(ctx, w.machine, "systemd-run --quiet --collect --unit=upgrade kubeadm upgrade apply --config=/root/upgrade.yaml", prompt)
	w.run(ctx, w.machine, `until grep -q :`+w.new.version+` /etc/kubernetes/manifests/kube-apiserver.yaml; do
  systemctl is-active --quiet upgrade || { journalctl --unit=upgrade --no-pager --output=cat | tail -n 20; exit 1; }
  sleep 1
done
sync # kubeadm does not: it would lose the certificates that it has just renewed`, patience)
	w.cutPower(ctx)
	w.becomesHealthy(ctx, w.machine)
	w.comesBack(ctx, nodeName, w.old.version)
	w.activeSays(ctx, nodeName, "True")
	checked("a power cut after kubeadm has replaced the API server: the node comes back on the configuration with the gate")
}

// upgradesControlPlane repeats kubeadm upgrade apply.
func upgradesControlPlane(ctx context.Context, w *whole) {
	w.kubeadmUpgrades(ctx, w.machine, "apply")
	files := changedLines(w.files, w.run(ctx, w.machine, written, prompt))
	checked("kubeadm upgrade apply to %s passes when it is repeated; on the node it has written %s", w.new.version, strings.Join(files, " "))
	checked("in the API it has written %s", strings.Join(changedLines(w.configs, w.configMaps(ctx)), " "))
	w.activeSays(ctx, nodeName, "True")
	w.prints(ctx, nodeName, "after kubeadm upgrade apply")
}

// replacesKubelet gives the node of the control plane the new kubelet, which
// does not know the gate of its configuration.
func replacesKubelet(ctx context.Context, w *whole) {
	w.replaceKubelet(ctx, w.machine, nodeName)
	w.activeSays(ctx, nodeName, "False")
	nc := w.reportOf(ctx, nodeName)
	checked("kubelet %s does not know the gate: the node goes back to its own file and is Ready: %s", w.new.version, bed.ConfigOK(nc).Message)
	before := w.run(ctx, w.machine, processes, prompt)
	w.push(ctx, 2, "maxPods: 125\n"+removedGate, "--preflight=require", "--max-failures=1")
	out, _ := w.evenkeel(ctx, "rollout", "status", rolloutName)
	must.That(strings.Contains(out, "PreflightRefused") && strings.Contains(out, "PodLifecycleSleepAction"),
		"the rollout of a removed gate was stopped by something else: %s", out)
	w.sameProcesses(ctx, w.machine, before)
	checked("a preflight finds the gate before anything stops")
	w.push(ctx, 0, "maxPods: 122")
	w.runsWith(ctx, 122)
	checked("a configuration without the gate is rolled out to the new kubelet and to the old one")
}

// upgradesWorker runs kubeadm upgrade node after an edit of kubelet-config. The
// active configuration suits the new kubelet.
func upgradesWorker(ctx context.Context, w *whole) {
	w.newPrograms(ctx, w.worker)
	w.storeKubeletConfig(ctx, w.stored(ctx, "kubelet-config").Data["kubelet"]+"containerLogMaxFiles: 6\n")
	before := w.run(ctx, w.worker, written, prompt)
	w.kubeadmUpgrades(ctx, w.worker, "node")
	after := w.run(ctx, w.worker, written, prompt)
	checked("kubeadm upgrade node has written %s", strings.Join(changedLines(before, after), " "))
	w.says(ctx, workerName, v1alpha1.ConditionDrifted, metav1.ConditionTrue)
	w.prints(ctx, workerName, "after kubeadm upgrade node")
	w.replaceKubelet(ctx, w.worker, workerName)
	w.activeSays(ctx, workerName, "True")
	checked("the active configuration has passed a new trial with kubelet %s", w.new.version)
	w.says(ctx, workerName, v1alpha1.ConditionDrifted, metav1.ConditionFalse)
	w.prints(ctx, workerName, "with the new kubelet")
	w.findsNothing(ctx)
}

// readsConfigz waits until the kube-proxy of a machine says that it runs with
// the changed field.
const readsConfigz = `until timeout 20 bash -c 'exec 3<>/dev/tcp/127.0.0.1/10249 && printf "GET /configz HTTP/1.0\r\n\r\n" >&3 && grep -q "\"minSyncPeriod\":\"2s\"" <&3'
do sleep 1; done`

// storesComponents changes the stored configuration of kube-proxy, which its
// pods read when they start.
func storesComponents(ctx context.Context, w *whole) {
	apply := append([]string{"component", "apply", w.new.version, "--yes"}, w.binaries()...)
	before, restarts := w.configMaps(ctx), w.proxyRestarts(ctx)
	w.plugin(ctx, "", apply...)
	after := w.configMaps(ctx)
	must.That(after == before, "component apply has written %s", strings.Join(changedLines(before, after), " "))
	checked("component apply writes nothing after kubeadm's upgrade")

	changed := strings.Replace(w.stored(ctx, "kube-proxy").Data["config.conf"], "minSyncPeriod: 0s", "minSyncPeriod: 2s", 1)
	file := w.file("kube-proxy.yaml", changed)
	w.plugin(ctx, "", append(apply, "--config="+file)...)
	for _, m := range []*vm.Machine{w.machine, w.worker} {
		w.run(ctx, m, `until grep -q 'minSyncPeriod: 2s' /var/lib/kubelet/pods/*/volumes/kubernetes.io~configmap/kube-proxy/config.conf
do sleep 1; done`, patience)
	}

	must.OK(bed.Pause(ctx, time.Minute)) // a restart would follow at once
	now := w.proxyRestarts(ctx)
	must.That(maps.Equal(now, restarts), "the restarts of kube-proxy were %v and are %v", restarts, now)
	checked("component apply of kube-proxy's configuration: the nodes have it, and no kube-proxy restarts because of it")
	w.kubectl(ctx, "--namespace=kube-system", "rollout", "restart", "daemonset/kube-proxy")
	w.kubectl(ctx, "--namespace=kube-system", "rollout", "status", "daemonset/kube-proxy", "--timeout=40m")
	w.run(ctx, w.worker, readsConfigz, patience)
	checked("a restart of the DaemonSet brings it to the kube-proxies")
	w.plugin(ctx, "", "component", "undo", "--yes")
}

// proxyRestarts returns how often the kube-proxy of each node was restarted, as
// soon as all are Ready.
func (w *whole) proxyRestarts(ctx context.Context) (restarts map[string]int32) {
	w.eventually(ctx, "every kube-proxy is Ready", func(ctx context.Context) {
		pods := w.pods(ctx, "kube-system", metav1.ListOptions{LabelSelector: "k8s-app=kube-proxy"})
		restarts = map[string]int32{}
		for _, p := range pods {
			for _, c := range p.Status.ContainerStatuses {
				must.That(c.Ready, "pod %s is not Ready: %+v", p.Name, c)
				restarts[p.Spec.NodeName] = c.RestartCount
			}
		}
	})
	return restarts
}

// reportOf returns a node's NodeConfig, also while the API server restarts.
func (w *whole) reportOf(ctx context.Context, name string) (nc *v1alpha1.NodeConfig) {
	w.eventually(ctx, "read the NodeConfig of "+name, func(ctx context.Context) { nc = w.configOf(ctx, name) })
	return nc
}

// prints prints what a node reports, for the record.
func (w *whole) prints(ctx context.Context, name, when string) {
	for _, c := range w.reportOf(ctx, name).Status.Conditions {
		fmt.Printf("  %s %s: %s=%s %s: %s\n", name, when, c.Type, c.Status, c.Reason, c.Message)
	}
}

// kubeadmUpgrades runs kubeadm upgrade apply or node, as often as an
// administrator would: kubeadm has timeouts of its own, such as two seconds for
// containerd, and may be run again.
func (w *whole) kubeadmUpgrades(ctx context.Context, m *vm.Machine, command string) {
	w.run(ctx, m, fmt.Sprintf(`for attempt in 1 2 3 4 5; do
  kubeadm upgrade %s --config=/root/upgrade.yaml >/root/upgrade.log 2>&1 && exit
  sleep 30
done
tail -n 20 /root/upgrade.log; exit 1`, command), 2*patience)
}

// newPrograms imports the images of the new version, and replaces kubeadm, as
// its documentation describes.
func (w *whole) newPrograms(ctx context.Context, m *vm.Machine) {
	must.OK(m.PutFile(ctx, "/root/upgrade.yaml", 0o600, fmt.Appendf(nil, upgradeConfig, w.new.version)))
	w.run(ctx, m, fmt.Sprintf(`set -e
for archive in /data/%[1]s/*.tar; do ctr --namespace k8s.io images import $archive; done
install /data/%[1]s/kubeadm /data/%[1]s/kubectl /usr/bin/`, w.new.version), patience)
}

// replaceKubelet does what a package does, and waits until the node is Ready
// with the new version.
func (w *whole) replaceKubelet(ctx context.Context, m *vm.Machine, name string) {
	w.run(ctx, m, "install /data/"+w.new.version+"/kubelet /usr/bin/kubelet && systemctl daemon-reload && systemctl restart kubelet", patience)
	w.becomesHealthy(ctx, m)
	w.comesBack(ctx, name, w.new.version)
}

// comesBack waits until a node is Ready with a kubelet of this version.
func (w *whole) comesBack(ctx context.Context, name, version string) {
	w.eventually(ctx, name+" is Ready", func(ctx context.Context) {
		n := must.Get(w.client().CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{}))
		must.That(n.Status.NodeInfo.KubeletVersion == version && fleet.IsReady(n),
			"it has kubelet %s, want %s; its conditions are %+v", n.Status.NodeInfo.KubeletVersion, version, n.Status.Conditions)
	})
}

// activeSays waits until a node's ConfigOK has this status and no trial runs.
func (w *whole) activeSays(ctx context.Context, name string, status metav1.ConditionStatus) {
	w.says(ctx, name, v1alpha1.ConditionConfigOK, status)
}

// says waits until a condition of a node has this status and no trial runs.
func (w *whole) says(ctx context.Context, name, condition string, status metav1.ConditionStatus) {
	w.eventually(ctx, fmt.Sprintf("%s of %s is %s", condition, name, status), func(ctx context.Context) {
		nc := w.configOf(ctx, name)
		c := meta.FindStatusCondition(nc.Status.Conditions, condition)
		must.That(c != nil && c.Status == status && nc.Status.Trial == nil, "it is %+v; trial %+v", c, nc.Status.Trial)
	})
}

// cutPower ends the machine of the control plane at once, and boots it again.
func (w *whole) cutPower(ctx context.Context) {
	w.machine.Kill()
	w.machine = w.boot(ctx, w.controlOptions())
}

// configMaps lists kubeadm's ConfigMaps with their annotations and versions,
// one in a line.
func (w *whole) configMaps(ctx context.Context) (lines string) {
	for _, name := range []string{"kubeadm-config", "kubelet-config", "kube-proxy", "coredns"} {
		cm := w.stored(ctx, name)
		lines += fmt.Sprintf("%s %v %s\n", cm.ResourceVersion, cm.Annotations, name)
	}

	return lines
}
