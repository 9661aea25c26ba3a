// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/testkit/bed"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
	"github.com/evenkeel/evenkeel/testkit/must"
	"github.com/evenkeel/evenkeel/testkit/vm"
)

// nodeName is the name of the node in the API.
const nodeName = "vm"

// The deadlines. An emulated machine is several times slower than this one, and
// ten times slower again beside other work.
const (
	patience = 40 * time.Minute // for a boot, a trial, a rollback
	prompt   = 4 * time.Minute  // for a command
)

// lab is what the steps share: a cluster on the host, and a machine with a node
// of it.
type lab struct {
	cache, kubelet    string
	previous, release string
	pause             time.Duration
	cuts              int
	seed              uint64

	from, to string // directories with the programs of two versions of Kubernetes
	dir      string
	accel    string
	image    *vm.Image
	cluster  *localcluster.Cluster // on the host; nil until a step needs it
	admin    string                // the administrator's kubeconfig, of whichever cluster the step uses
	machine  *vm.Machine           // nil until a step needs it, and after a failure
	count    int                   // of machines
}

// open builds the image.
func (l *lab) open(ctx context.Context) {
	l.dir = must.Get(os.MkdirTemp("", "evkvm-"))
	begin := time.Now()
	l.image = must.Get(vm.Build(ctx, l.cache, l.kubelet, os.Stdout))
	fmt.Printf("disk: %s after %s\nfiles of this run: %s\n", l.image.Disk, time.Since(begin).Round(time.Second), l.dir)
	var reason string
	l.accel, reason = vm.Accel(ctx, l.image)
	fmt.Printf("accelerator: %s (%s)\n", l.accel, reason)
}

// hostCluster starts the cluster of the host, or uses it again.
func (l *lab) hostCluster(ctx context.Context) {
	if l.cluster == nil {
		l.cluster = must.Get(localcluster.Start(ctx, localcluster.Options{Dir: filepath.Join(l.dir, "cluster")}))
	}

	l.admin = l.cluster.AdminKubeconfig()
}

// close stops everything. The files stay if a machine was discarded after a
// failure.
func (l *lab) close() error {
	l.discard()
	var err error
	if l.cluster != nil {
		err = l.cluster.Stop()
	}
	if left, globErr := filepath.Glob(filepath.Join(l.dir, "failed-*")); globErr == nil && len(left) == 0 {
		err = errors.Join(err, os.RemoveAll(l.dir))
	}

	return err
}

// node returns the machine whose kubelet is a Ready node; it makes a new one if
// there is none.
func (l *lab) node(ctx context.Context) *vm.Machine {
	l.hostCluster(ctx)
	if l.machine == nil {
		l.machine = l.boot(ctx, vm.Options{})
		l.join(ctx, l.machine)
	}

	return l.machine
}

// boot starts a machine with a disk of its own.
func (l *lab) boot(ctx context.Context, o vm.Options) *vm.Machine {
	l.count++
	o.Dir = filepath.Join(l.dir, fmt.Sprintf("m%d", l.count))
	must.OK(os.MkdirAll(o.Dir, 0o755))
	if o.Root.File == "" {
		o.Root = must.Get(l.image.Overlay(ctx, filepath.Join(o.Dir, "root.qcow2")))
	}

	o.Image, o.Accel = l.image, l.accel
	begin := time.Now()
	m := must.Get(vm.Start(ctx, o))
	fmt.Printf("  machine %d answers after %s\n", l.count, time.Since(begin).Round(time.Second))

	return m
}

// discard ends the shared machine.
func (l *lab) discard() {
	if l.machine != nil {
		l.machine.Kill()
		l.machine = nil
	}
}

// join makes the machine a node of the cluster, whose kubelet is configured
// like kubeadm's, and waits until it is Ready.
func (l *lab) join(ctx context.Context, m *vm.Machine) {
	begin := time.Now()
	kubeconfig := must.Get(os.ReadFile(must.Get(l.cluster.NodeKubeconfig(nodeName))))
	// The machine reaches the API server under an address that its certificate
	// does not have.
	server := regexp.MustCompile(`server: https://127\.0\.0\.1:(\d+)`)
	kubeconfig = server.ReplaceAll(kubeconfig, []byte("server: https://"+vm.Host+":$1\n    tls-server-name: localhost"))
	for path, content := range map[string][]byte{
		"/etc/kubernetes/kubelet.conf":       kubeconfig,
		"/etc/kubernetes/pki/ca.crt":         must.Get(os.ReadFile(filepath.Join(l.cluster.Dir(), "pki", "ca.crt"))),
		"/var/lib/kubelet/config.yaml":       []byte(kubeletConfig),
		"/var/lib/kubelet/kubeadm-flags.env": fmt.Appendf(nil, "KUBELET_KUBEADM_ARGS=\"--hostname-override=%s --node-ip=%s\"\n", nodeName, vm.IP),
	} {
		must.OK(m.PutFile(ctx, path, 0o600, content))
	}

	must.Get(m.Run(ctx, "mkdir -p /etc/kubernetes/manifests && systemctl enable --now kubelet && sync"))
	l.ready(ctx)
	fmt.Printf("  the node is Ready after %s\n", time.Since(begin).Round(time.Second))
}

// kubeletConfig is like kubeadm's, with images that cannot be pulled again.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: /etc/kubernetes/pki/ca.crt}
authorization: {mode: Webhook}
cgroupDriver: systemd
clusterDNS: [10.96.0.10]
clusterDomain: cluster.local
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
healthzBindAddress: 127.0.0.1
healthzPort: 10248
staticPodPath: /etc/kubernetes/manifests
rotateCertificates: false
imageGCHighThresholdPercent: 100
failSwapOn: false
makeIPTablesUtilChains: false
maxPods: 110
evictionHard: {memory.available: 50Mi, nodefs.available: 1%, nodefs.inodesFree: 1%, imagefs.available: 1%}
`

// ready waits until the API says that the node is Ready.
func (l *lab) ready(ctx context.Context) {
	bed.Await(ctx, patience, func(ctx context.Context) {
		n := l.object(ctx)
		must.That(fleet.IsReady(n), "the node's conditions are %+v", n.Status.Conditions)
	})
}

// object reads the Node. What waits for a change reads often: a kubectl for
// each read would take processor time from the machine.
func (l *lab) object(ctx context.Context) *corev1.Node {
	return must.Get(l.client().CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{}))
}

// config reads the NodeConfig of the steps' node.
func (l *lab) config(ctx context.Context) *v1alpha1.NodeConfig {
	return l.configOf(ctx, nodeName)
}

// configOf reads a node's NodeConfig.
func (l *lab) configOf(ctx context.Context, name string) *v1alpha1.NodeConfig {
	raw := must.Get(l.client().RESTClient().Get().AbsPath("apis", v1alpha1.GroupVersion.String(), "nodeconfigs", name).DoRaw(ctx))
	nc := &v1alpha1.NodeConfig{}
	must.OK(json.Unmarshal(raw, nc))

	return nc
}

// client returns a client with the administrator's rights. Connections are
// shared by all of them.
func (l *lab) client() *kubernetes.Clientset {
	return must.Get(kubernetes.NewForConfig(must.Get(clientcmd.BuildConfigFromFlags("", l.admin))))
}

// kubectl runs kubectl as the administrator, and returns what it printed.
func (l *lab) kubectl(ctx context.Context, args ...string) string {
	return must.Get(l.program(ctx, "bin/tools/kubectl", args...))
}

// evenkeel runs kubectl evenkeel as the administrator, and returns what it
// printed and its exit code.
func (l *lab) evenkeel(ctx context.Context, args ...string) (out string, code int) {
	out, err := l.program(ctx, "bin/kubectl-evenkeel", args...)
	if exit, is := errors.AsType[*exec.ExitError](err); is && exit.Exited() && !passes.MatchString(out) {
		return out, exit.ExitCode()
	}

	must.OK(err)

	return out, 0
}

// passes matches the errors of an API server that restarts, and of a machine
// that is too busy for a dry run of the kubelet. Until an API server has read
// the roles, it refuses everybody.
var passes = regexp.MustCompile(`(?mi)^error: .*(the API server cannot be reached|forbidden|not yet ready to handle request|etcdserver:)|` +
	`^error from server( \((forbidden|timeout|serviceunavailable|toomanyrequests)\)|: etcdserver)|` +
	`^unable to connect to the server|^the connection to the server .* was refused|it did not exit within \S+ and was killed`)

// program runs a program as the administrator, again after errors that pass by
// themselves.
func (l *lab) program(ctx context.Context, path string, args ...string) (out string, err error) {
	_ = bed.Eventually(ctx, patience, func(ctx context.Context) error {
		cmd := exec.CommandContext(ctx, path, args...)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+l.admin)
		printed, failed := cmd.CombinedOutput()
		out, err = string(printed), failed
		if err != nil && passes.MatchString(out) {
			return err
		}

		return nil
	})
	if err != nil {
		err = fmt.Errorf("%s %s: %w: %s", filepath.Base(path), strings.Join(args, " "), err, strings.TrimSpace(out))
	}

	return out, err
}

// explained runs a part of a step, and saves evidence if it fails.
func (l *lab) explained(ctx context.Context, name string, run func()) {
	if err := must.Try(run); err != nil {
		l.evidence(ctx, name)
		must.OK(err)
	}
}

// evidence saves what explains a failure, and says where.
func (l *lab) evidence(ctx context.Context, step string) {
	dir := filepath.Join(l.dir, "failed-"+step)
	err := os.MkdirAll(dir, 0o755)
	if err == nil && l.machine != nil {
		ctx, cancel := context.WithTimeout(ctx, prompt)
		defer cancel()
		out, runErr := l.machine.Run(ctx, "journalctl --no-pager -o short-precise -n 3000; systemctl status --no-pager kubelet containerd; evenkeel-agent status --dynamic-config-dir=/var/lib/evenkeel; df; ps ax; true")
		err = os.WriteFile(filepath.Join(dir, "machine.log"), fmt.Appendln([]byte(out), runErr), 0o644)
	}
	if err != nil {
		fmt.Println("  no evidence:", err)
	}

	fmt.Printf("  evidence: %s, and the consoles in %s\n", dir, l.dir)
}
