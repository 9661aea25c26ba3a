// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/testkit/bed"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
	"github.com/evenkeel/evenkeel/testkit/must"
	"github.com/evenkeel/evenkeel/testkit/vm"
)

// whole is a cluster that kubeadm makes of two machines. The node of the
// control plane is called nodeName, as that of the other steps.
type whole struct {
	*lab
	old, new kubernetesRelease
	data     vm.Disk
	server   string      // the API server's address on the host
	wire     [2]int      // the ports of the machines' Ethernet
	root     vm.Disk     // of the control plane's machine
	worker   *vm.Machine // the lab's machine has the control plane

	files, configs string // what the control plane had before kubeadm upgrade
}

// The machines are connected by an Ethernet of their own; each has a range of
// pod addresses.
const (
	workerName = "vm2"
	controlIP  = "10.99.0.1"
	workerIP   = "10.99.0.2"
)

// part is a part of the step: what it does for a user.
type part struct {
	what string
	run  func(ctx context.Context, w *whole)
}

var parts = []part{
	{"kubeadm init", initializes},
	{"kubeadm join, with the startup taint", joins},
	{"evenkeel by install.yaml and the DaemonSet", installsOnBoth},
	{"a change and a bad change, by a rollout", rollsOut},
	{"a change that needs a drain", drains},
	{"plan of the upgrade", plansUpgrade},
	{"kubeadm upgrade apply, into a power cut", losesPower},
	{"kubeadm upgrade apply, again", upgradesControlPlane},
	{"the new kubelet on the control plane", replacesKubelet},
	{"a self-hosted kubelet", hostsItself},
	{"kubeadm upgrade node, and the new kubelet", upgradesWorker},
	{"component apply", storesComponents},
	{"reset", resets},
}

// wholeCluster runs the parts in their order.
func wholeCluster(ctx context.Context, l *lab) {
	w := &whole{lab: l}
	l.discard()
	err := must.Try(func() {
		w.prepare(ctx)
		for _, p := range parts {
			fmt.Printf("  %s\n", p.what)
			begin := time.Now()
			must.About(p.what, func() { p.run(ctx, w) })
			fmt.Printf("  done after %s\n", time.Since(begin).Round(time.Second))
		}
	})
	if w.worker != nil {
		w.worker.Kill()
	}
	if err == nil { // otherwise its logs are collected first
		l.discard()
	}

	must.OK(err)
}

// prepare makes the disk with the programs of both versions and the images of
// evenkeel's release.
func (w *whole) prepare(ctx context.Context) {
	must.That(w.release != "" && w.from != "" && w.to != "", "this step needs -release, -from and -to: run make vm, or see the Makefile")
	w.old, w.new = releaseIn(ctx, w.from), releaseIn(ctx, w.to)
	w.server = must.Get(localcluster.FreeAddress())
	for i := range w.wire {
		_, port, _ := strings.Cut(must.Get(localcluster.FreeAddress()), ":")
		w.wire[i] = must.Get(strconv.Atoi(port))
	}

	dir, tables := filepath.Join(w.dir, "data"), filepath.Join(w.dir, "tables.tar")
	tablesOf(ctx, filepath.Join(w.cache, "debian"), tables)
	for _, r := range []kubernetesRelease{w.old, w.new} {
		r.pack(ctx, filepath.Join(dir, r.version), filepath.Join(w.cache, "sleep"), tables)
		w.kubeletImage(r, filepath.Join(dir, "kubelet-"+r.version+".tar"))
	}

	for _, name := range []string{"agent", "controller"} {
		archive := fmt.Sprintf("evenkeel-%s-%s-amd64.tar", name, filepath.Base(w.release))
		must.OK(os.Link(filepath.Join(w.release, archive), filepath.Join(dir, name+".tar")))
	}

	w.data.File = filepath.Join(w.dir, "data.raw")
	succeeds(ctx, "mkfs.ext4", "-q", "-F", "-L", "data", "-d", dir, w.data.File, "3G")
	must.OK(os.RemoveAll(dir))
}

// kubeadmConfig is for kubeadm init. What an emulated machine needs: patience,
// and certificates that are cheap to use. Everything else is kubeadm's default.
const kubeadmConfig = `apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {advertiseAddress: ` + controlIP + `}
nodeRegistration:
  name: ` + nodeName + `
  kubeletExtraArgs: [{name: node-ip, value: ` + controlIP + `}]
patches: {directory: /root/patches}
` + timeouts + `---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: %s
encryptionAlgorithm: ECDSA-P256
networking: {podSubnet: 10.85.0.0/16}
apiServer: {certSANs: [127.0.0.1]}
controllerManager:
  extraArgs: [{name: leader-elect-lease-duration, value: 300s}, {name: leader-elect-renew-deadline, value: 240s}]
scheduler:
  extraArgs: [{name: leader-elect-lease-duration, value: 300s}, {name: leader-elect-renew-deadline, value: 240s}]
`

const timeouts = `timeouts: {controlPlaneComponentHealthCheck: 40m, kubeletHealthCheck: 40m, kubernetesAPICall: 20m, etcdAPICall: 20m, tlsBootstrap: 40m, discovery: 40m, upgradeManifests: 40m}
`

// joinConfig is for kubeadm join: the token and the hash of the CA are missing.
const joinConfig = `apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
nodeRegistration:
  name: ` + workerName + `
  kubeletExtraArgs: [{name: node-ip, value: ` + workerIP + `}]
  taints: [{key: evenkeel.dev/unconfigured, effect: NoSchedule}]
discovery:
  bootstrapToken: {apiServerEndpoint: "` + controlIP + `:6443", token: %s, caCertHashes: ["%s"]}
` + timeouts

// probes gives the probes of the control plane time: on an emulated machine,
// kubelets would kill it.
const probes = `mkdir -p /root/patches
for name in etcd kube-apiserver kube-controller-manager kube-scheduler; do
  ready=', readinessProbe: {periodSeconds: 20, timeoutSeconds: 60}'
  [ $name != kube-controller-manager ] || ready= # it has no such probe
  echo "{spec: {containers: [{name: $name, livenessProbe: {failureThreshold: 200, timeoutSeconds: 60}$ready}]}}" >/root/patches/$name+strategic.yaml
done
`

// newNode boots a machine and makes it what a node is before kubeadm: programs,
// kernel settings, a network for pods, and images.
func (w *whole) newNode(ctx context.Context, name, ip string, number int, o vm.Options) *vm.Machine {
	m := w.boot(ctx, o)
	other := 1 - number
	script := fmt.Sprintf(`set -e
resize2fs /dev/vda
hostnamectl hostname %[1]s
echo '127.0.0.1 localhost %[1]s' >/etc/hosts
printf '[Match]\nName=eth1\n[Network]\nAddress=%[2]s/24\nConfigureWithoutCarrier=yes\n[Route]\nDestination=10.85.%[4]d.0/24\nGateway=10.99.0.%[5]d\n' >/etc/systemd/network/20-eth1.network
networkctl reload
sed -i 's#10.85.0.0/24#10.85.%[3]d.0/24#; s#"isGateway"#"isDefaultGateway"#' /etc/cni/net.d/10-bridge.conflist
echo br_netfilter >/etc/modules-load.d/kubernetes.conf
echo net.ipv4.ip_forward=1 >/etc/sysctl.d/kubernetes.conf
modprobe br_netfilter
sysctl --quiet --system
mkdir /data
echo '/dev/vdb /data ext4 ro 0 0' >>/etc/fstab
mount /data
cp /data/%[6]s/kubeadm /data/%[6]s/kubelet /data/%[6]s/kubectl /usr/bin/
for archive in /data/%[6]s/*.tar /data/*.tar; do ctr --namespace k8s.io images import $archive; done
`+probes, name, ip, number, other, other+1, w.old.version)
	w.run(ctx, m, script, patience)

	return m
}

func (w *whole) controlOptions() vm.Options {
	return vm.Options{Memory: 3072, Root: w.root, Data: w.data, Wire: w.wire, Forward: map[string]int{w.server: 6443}}
}

func initializes(ctx context.Context, w *whole) {
	w.root = must.Get(w.image.Overlay(ctx, filepath.Join(w.dir, "control.qcow2")))
	w.machine = w.newNode(ctx, nodeName, controlIP, 0, w.controlOptions())
	must.OK(w.machine.PutFile(ctx, "/root/kubeadm.yaml", 0o600, fmt.Appendf(nil, kubeadmConfig, w.old.version)))
	out := w.run(ctx, w.machine, "systemctl enable kubelet && kubeadm init --config /root/kubeadm.yaml 2>&1", 2*patience)
	must.That(strings.Contains(out, "initialized successfully"), "kubeadm init says %s", out)
	admin := w.run(ctx, w.machine, "cat /etc/kubernetes/admin.conf", prompt)
	w.admin = filepath.Join(w.dir, "admin.conf")
	must.OK(os.WriteFile(w.admin, []byte(strings.Replace(admin, controlIP+":6443", w.server, 1)), 0o600))
	w.ready(ctx)
	checked("kubeadm init %s: the node of the control plane is Ready", w.old.version)
}

func joins(ctx context.Context, w *whole) {
	w.worker = w.newNode(ctx, workerName, workerIP, 1, vm.Options{Data: w.data, Wire: [2]int{w.wire[1], w.wire[0]}})
	command := w.run(ctx, w.machine, "kubeadm token create --print-join-command", patience)
	found := regexp.MustCompile(`--token (\S+) --discovery-token-ca-cert-hash (\S+)`).FindStringSubmatch(command)
	must.That(found != nil, "kubeadm token create says %s", command)
	must.OK(w.worker.PutFile(ctx, "/root/join.yaml", 0o600, fmt.Appendf(nil, joinConfig, found[1], found[2])))
	w.run(ctx, w.worker, "systemctl enable kubelet && kubeadm join --config /root/join.yaml 2>&1", 2*patience)
	w.comesBack(ctx, workerName, w.old.version)
	checked("kubeadm join: the worker is Ready, with the startup taint")
	w.available(ctx, "kube-system", "coredns")
	w.run(ctx, w.worker, "until iptables-save --table nat | grep -q 'kube-system/kube-dns:dns .*--mode random'; do sleep 1; done", patience)
	checked("kube-proxy and CoreDNS run: the worker has rules for both pods of CoreDNS")
}

// eventually waits for a condition. An API server that does not answer in time
// is asked again.
func (w *whole) eventually(ctx context.Context, what string, check func(context.Context)) {
	bed.Await(ctx, patience, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, prompt)
		defer cancel()
		must.About(what, func() { check(ctx) })
	})
}

// available waits until all pods of a Deployment are available.
func (w *whole) available(ctx context.Context, namespace, name string) {
	w.eventually(ctx, name+" is available", func(ctx context.Context) {
		d := must.Get(w.client().AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{}))
		must.That(d.Status.ObservedGeneration >= d.Generation && d.Status.AvailableReplicas == *d.Spec.Replicas && d.Status.UpdatedReplicas == *d.Spec.Replicas,
			"the status is %+v", d.Status)
	})
}

// containers returns the IDs of the containers of the control plane, by pod.
func (w *whole) containers(ctx context.Context) (ids map[string]string) {
	w.eventually(ctx, "read the control plane's pods", func(ctx context.Context) {
		pods := w.pods(ctx, "kube-system", metav1.ListOptions{LabelSelector: "tier=control-plane"})
		ids = map[string]string{}
		for _, p := range pods {
			for _, c := range p.Status.ContainerStatuses {
				ids[p.Name] = c.ContainerID
			}
		}

		must.That(len(ids) == 4, "there are %d: %v", len(ids), ids)
	})
	return ids
}

// sameControlPlane requires that no container of the control plane was
// replaced.
func (w *whole) sameControlPlane(ctx context.Context, before map[string]string) {
	after := w.containers(ctx)
	must.That(maps.Equal(before, after), "the control plane's containers were %v and are %v", before, after)
	checked("every pod of the control plane has kept its container")
}

// applies applies manifests of the release, also to an API server that is slow.
func (w *whole) applies(ctx context.Context, file string) {
	w.eventually(ctx, "apply "+filepath.Base(file), func(ctx context.Context) {
		w.kubectl(ctx, "apply", "--server-side", "--validate=false", "-f", file)
	})
}

func installsOnBoth(ctx context.Context, w *whole) {
	before := w.containers(ctx)
	version := filepath.Base(w.release)
	manifest := must.Get(os.ReadFile(filepath.Join(w.release, "install.yaml")))
	for _, name := range []string{"agent", "controller"} {
		script := tagScript(manifest, name, version)
		for _, m := range []*vm.Machine{w.machine, w.worker} {
			w.run(ctx, m, script, prompt)
		}
	}

	w.applies(ctx, w.file("install.yaml", patient(string(manifest))))
	w.applies(ctx, filepath.Join(w.release, "evenkeel-startup-taint-"+version+".yaml"))
	w.available(ctx, "evenkeel-system", "evenkeel-controller")
	checked("install.yaml of %s: both pods of the controller are available", version)
	w.plugin(ctx, "2 of 2 nodes installed", "install", nodeName, workerName, "--yes", "--timeout=60m", "--agent-version="+version)
	checked("kubectl evenkeel install: both kubelets run under the agent")
	w.eventually(ctx, "the startup taint is removed", func(ctx context.Context) {
		n := must.Get(w.client().CoreV1().Nodes().Get(ctx, workerName, metav1.GetOptions{}))
		must.That(len(n.Spec.Taints) == 0, "the taints are %+v", n.Spec.Taints)
	})
	checked("the controller has removed the startup taint from the worker")
	w.findsNothing(ctx)
	w.sameControlPlane(ctx, before)
}

// findsNothing waits until doctor finds no problem in the whole cluster.
func (w *whole) findsNothing(ctx context.Context) {
	w.eventually(ctx, "doctor finds nothing", func(ctx context.Context) { w.plugin(ctx, "no problems", "doctor") })
	checked("kubectl evenkeel doctor finds nothing")
}

// patient gives the controller, the installer and the agents of a manifest the
// time that an emulated control plane needs.
func patient(manifest string) string {
	return strings.NewReplacer(
		"        name: installer\n", "        name: installer\n        args: [--, "+strings.Join(strings.Fields(agentFlags), ", ")+"]\n",
		"        name: controller\n", "        name: controller\n        args: [--agent-timeout=20m, --not-ready-grace=20m, --leader-elect-lease-duration=60s]\n",
	).Replace(patientInstaller(manifest))
}
