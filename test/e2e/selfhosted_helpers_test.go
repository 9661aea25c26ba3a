// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/build/image"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
	"github.com/evenkeel/evenkeel/testkit/must"
	"github.com/evenkeel/evenkeel/testkit/procs"
)

// The self-hosted kubelet's versions before and after an update; the bootstrap
// kubelet is the node's own.
const (
	versionOne = "v1.33.13"
	versionTwo = "v1.37.2"
)

// pivot is a node whose first process plays the init system: it runs containerd
// and, as the unit says, the bootstrap agent. It has a /var/lib that lasts, a
// /run that does not, and the paths of the unit and of the DaemonSet.
type pivot struct {
	*node
	dir   string   // of the node
	first int      // its first process, as it is seen outside
	flags []string // of every agent of this node, beside those of the unit and the DaemonSet
	argv  []string // of the kubelet, without its path
	boots int

	current *corev1.ConfigMap // that is assigned
	worker  string            // the container of the workload, which runs all the time
}

func newPivot(t *testing.T, name string, flags ...string) *pivot {
	t.Helper()
	n := newCluster(t, name)
	p := &pivot{node: n, flags: append(flags, "--listen="+n.Listen), dir: n.Node.Dir()}
	p.argv = append(n.Node.KubeletArgs(),
		"--node-labels=evenkeel.dev/kubelet=self-hosted", "--register-with-taints=component=kubelet:NoSchedule")
	p.Dir, p.Log = filepath.Join(p.dir, "var-lib", "evenkeel"), filepath.Join(p.dir, "bootstrap.log")
	assert.NoError(t, errors.Join(os.Mkdir(filepath.Join(p.dir, "var-lib"), 0o755), n.Cluster.StartControllers(t.Context())))
	p.importImages()
	n.Node.StopRuntime() // it is started again inside
	t.Cleanup(func() {
		if t.Failed() {
			p.showPods()
		}
	})

	return p
}

func (p *pivot) in(t *testing.T) *pivot {
	q := *p
	q.node = p.node.in(t)
	return &q
}

// importImages gives the node the image of `make image`, of each version.
func (p *pivot) importImages() {
	p.t.Helper()
	for tag, kubelet := range map[string]string{
		versionOne: "../../bin/tools/kubelets/" + versionOne + "/kubelet", versionTwo: "../../bin/tools/kubelet",
	} {
		i := image.Image{
			References: []string{"evenkeel.dev/kubelet:" + tag},
			Programs:   []image.Program{{Path: "/evenkeel-agent", File: p.Binary}, {Path: "/kubelet", File: kubelet}},
		}
		archive, _, err := i.Archive()
		assert.NoError(p.t, err)
		file := filepath.Join(p.t.TempDir(), "kubelet.tar")
		assert.NoError(p.t, errors.Join(os.WriteFile(file, archive, 0o644), p.Node.ImportArchive(p.t.Context(), file)))
	}
}

// initSystem is the machine's first process. A boot is one that the kernel
// tells from others.
const initSystem = `dir=$0 delay=$1; shift
mount --make-rprivate /; mount -t proc none /proc
mount --bind "$dir/boot_id" /proc/sys/kernel/random/boot_id
mount --bind "$dir/var-lib" /var/lib; mount -t tmpfs -o mode=755 none /run
mkdir -m 700 /run/evenkeel /run/evenkeel/lock /run/evenkeel/probe
containerd --config "$dir/containerd.toml" >>"$dir/log/containerd.log" 2>&1 &
export RUNTIME_DIRECTORY=/run/evenkeel:/run/evenkeel/lock:/run/evenkeel/probe
while :; do
	"$@" && code=0 || code=$?
	echo "init: the bootstrap agent ended with $code"
	sleep "$delay"
done`

// unit returns the agent's flags in the bootstrap unit, and its RestartSec.
func (p *pivot) unit() (flags []string, restart string) {
	p.t.Helper()
	raw := assert.Value(os.ReadFile("../../config/systemd/evenkeel-bootstrap.service"))(p.t)
	_, line, _ := strings.Cut(strings.ReplaceAll(string(raw), "\\\n", ""), "\nExecStart=/usr/local/bin/evenkeel-agent ")
	line, _, found := strings.Cut(line, " -- ")
	_, restart, _ = strings.Cut(string(raw), "\nRestartSec=")
	restart, _, _ = strings.Cut(restart, "\n")
	assert.Must(p.t, found && restart != "", "the unit has the flags %q and RestartSec=%s", line, restart)

	return strings.Fields(line), restart
}

// boot starts the node, and with it its bootstrap agent alone.
func (p *pivot) boot() {
	p.t.Helper()
	p.boots++
	id := fmt.Sprintf("00000000-0000-4000-8000-%012d\n", p.boots)
	log, err := os.OpenFile(p.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	assert.NoError(p.t, errors.Join(err, os.WriteFile(filepath.Join(p.dir, "boot_id"), []byte(id), 0o644)))
	defer log.Close()
	flags, restart := p.unit()
	argv := append([]string{"-ec", initSystem, p.dir, restart, p.Binary}, append(flags, p.flags...)...)
	argv = append(append(argv, "--", p.Node.KubeletPath()), p.argv...)
	cmd := exec.Command("/bin/sh", argv...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
	assert.NoError(p.t, cmd.Start())
	p.first = cmd.Process.Pid
}

// powerOff ends all processes of the node at once; the content of /run is lost.
func (p *pivot) powerOff() {
	p.t.Helper()
	if p.first == 0 {
		return
	}

	assert.NoError(p.t, syscall.Kill(p.first, syscall.SIGKILL))
	assert.NoError(p.t, assert.Err(syscall.Wait4(p.first, nil, 0, nil)))
	p.first = 0
	assert.NoError(p.t, os.RemoveAll(filepath.Join(p.dir, "containerd", "state")))
}

// apply gives the cluster the DaemonSet for this node's kubelet.
func (p *pivot) apply(tag string) {
	p.t.Helper()
	args := append([]string{"/kubelet"}, p.argv...)
	for i, arg := range args {
		args[i] = strings.Replace(arg, "--hostname-override="+p.Node.Name(), "--hostname-override=$(NODE_NAME)", 1)
	}

	patch := []any{map[string]any{"op": "replace", "path": "/spec/template/spec/containers/0/args", "value": args}}
	for _, flag := range p.flags { // before the agent's first flag
		patch = append(patch, map[string]any{"op": "add", "path": "/spec/template/spec/containers/0/command/5", "value": flag})
	}

	said := assert.Value(json.Marshal(patch))(p.t)
	p.applyKustomization("self-hosted", map[string]any{
		"images":  []any{map[string]any{"name": "evenkeel.dev/kubelet", "newTag": tag}},
		"patches": []any{map[string]any{"target": map[string]any{"kind": "DaemonSet"}, "patch": string(said)}},
	})
}

// daemonSetAvailable waits until the DaemonSet's pod has been ready for its
// minReadySeconds.
func (p *pivot) daemonSetAvailable() {
	p.t.Helper()
	p.Eventually("the DaemonSet's pod is available", func(ctx context.Context) error {
		ds, err := p.Kube.AppsV1().DaemonSets("kube-system").Get(ctx, "evenkeel-kubelet", getOptions)
		return errors.Join(err, assert.Unless(ds.Status.NumberAvailable == 1, "its status is %s", ds.Status.String()))
	})
}

// labelled gives the node the label that calls for the pod, or takes it away.
func (p *pivot) labelled(yes bool) {
	p.t.Helper()
	p.patchNode(`{"metadata":{"labels":{"evenkeel.dev/kubelet":%s}}}`, map[bool]string{true: `"self-hosted"`, false: `null`}[yes])
}

// pods are the self-hosted kubelets of an image's tag.
func (p *pivot) pods(ctx context.Context, tag string) ([]corev1.Pod, error) {
	ours := metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=evenkeel-kubelet"}
	list, err := p.Kube.CoreV1().Pods("kube-system").List(ctx, ours)
	return slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool { return !strings.HasSuffix(pod.Spec.Containers[0].Image, ":"+tag) }), err
}

// podReady waits until one pod of a tag is there, and ready, and returns its
// UID.
func (p *pivot) podReady(tag string) types.UID {
	p.t.Helper()
	var uid types.UID
	p.Eventually("a pod of "+tag+" is ready", func(ctx context.Context) error {
		pods := must.Get(p.pods(ctx, tag))
		must.That(len(pods) == 1, "%s", printable.Count(len(pods), "pod"))
		uid = pods[0].UID

		return assert.Unless(isReady(&pods[0]), "its status is %s", pods[0].Status.String())
	})

	return uid
}

// podsGo waits until no pod of a tag is left.
func (p *pivot) podsGo(tag string) {
	p.t.Helper()
	p.Eventually("no pod of "+tag+" is left", func(ctx context.Context) error {
		pods, err := p.pods(ctx, tag)
		return errors.Join(err, assert.Unless(len(pods) == 0, "%d are left", len(pods)))
	})
}

// neverRestarted requires that no kubelet's container ended before its pod. A
// container that never started does not count: its pod was deleted and its
// kubelet ended before containerd had started it. A container that left only a
// log file does not count either, although the kubelet counts it: containers
// that have ended stay listed.
func (p *pivot) neverRestarted() {
	p.t.Helper()
	for _, tag := range []string{versionOne, versionTwo} {
		for _, pod := range assert.Value(p.pods(p.t.Context(), tag))(p.t) {
			for _, c := range pod.Status.ContainerStatuses {
				if last := c.LastTerminationState.Terminated; c.RestartCount > 0 && last != nil && last.Reason != "StartError" {
					p.t.Errorf("%s was restarted %d times, last: %+v", pod.Name, c.RestartCount, c.LastTerminationState.Terminated)
				}
			}
		}
	}
}

// runBy waits until the node's kubelet is healthy, a pod's (without a UID:
// bootstrap's), and runs with a ConfigMap (nil: the local configuration).
func (p *pivot) runBy(uid types.UID, cm *corev1.ConfigMap) {
	p.t.Helper()
	want := "--config=" + p.Node.KubeletConfig()
	if cm != nil {
		want = string(cm.UID)
	}

	p.Eventually(fmt.Sprintf("the kubelet of %q is healthy with %s", uid, want), func(ctx context.Context) error {
		running := p.processesOf("kubelet")
		must.That(len(running) == 1 && belongsTo(running[0], uid) && strings.Contains(strings.Join(running[0].Argv, " "), want),
			"there are %+v", running)

		return p.Healthy(ctx)
	})
}

// isRun waits until the configuration runs in this mode, and until the API
// reports it.
func (p *pivot) isRun(mode v1alpha1.RunMode, uid types.UID, cm *corev1.ConfigMap) {
	p.t.Helper()
	p.runBy(uid, cm)
	p.Awaits("the node is Ready and run as "+string(mode), func(nc *v1alpha1.NodeConfig) error {
		return errors.Join(assert.Unless(nc.Status.RunMode == mode, "the run mode is %s", nc.Status.RunMode), p.Ready(p.t.Context()))
	})
}

// isVersion waits until the API has the kubelet's version.
func (p *pivot) isVersion(want string) {
	p.t.Helper()
	p.Awaits("the kubelet is "+want, func(nc *v1alpha1.NodeConfig) error {
		return assert.Unless(nc.Status.ComponentVersion == want, "it is %s", nc.Status.ComponentVersion)
	})
}

// bootstrapWaits waits until the bootstrap agent, brought back, waits for a
// pod's agent.
func (p *pivot) bootstrapWaits() {
	p.t.Helper()
	const want = "waiting for the lock /run/evenkeel/lock/kubelet.lock, held by process "
	p.Eventually("bootstrap waits", func(ctx context.Context) error {
		out, err := exec.CommandContext(ctx, "nsenter", fmt.Sprintf("--target=%d", p.first), "--pid", "--mount",
			p.Binary, "probe", "--ready", "--socket=/run/evenkeel/probe/bootstrap.sock").CombinedOutput()
		waits := strings.HasPrefix(string(out), want) && strings.Contains(string(out), "(evenkeel-agent")

		return errors.Join(err, assert.Unless(waits, "it says %q", out))
	})
}

// startsWork creates a pod that must keep running while kubelets restart.
func (p *pivot) startsWork() {
	p.t.Helper()
	p.Eventually("the pod is created", func(ctx context.Context) error {
		err := assert.Err(p.Kube.CoreV1().Pods("default").Create(ctx, localcluster.SleepingPod("work"), metav1.CreateOptions{}))
		return assert.Unless(err == nil || apierrors.IsAlreadyExists(err), "%w", err)
	})
}

// work is the ID of its container, which runs.
func (p *pivot) work(ctx context.Context) (container string, err error) {
	defer must.Catch(&err)

	status := must.Get(p.Kube.CoreV1().Pods("default").Get(ctx, "work", getOptions)).Status
	containers := status.ContainerStatuses
	must.That(status.Phase == corev1.PodRunning && len(containers) == 1 && containers[0].State.Running != nil,
		"it does not run: %s", status.String())

	return containers[0].ContainerID, nil
}

// untouched requires that the workload is still the same container.
func (p *pivot) untouched() {
	p.t.Helper()
	assert.Returns(p.t, p.worker, "the workload")(p.work(p.t.Context()))
}

// showPods prints what the agents in pods, and on-host, said.
func (p *pivot) showPods() {
	files, _ := filepath.Glob(filepath.Join(p.dir, "log/pods/kube-system_*/*/*.log"))
	for _, file := range files {
		raw, _ := os.ReadFile(file)
		for line := range strings.Lines(string(raw)) {
			if strings.Contains(line, " F time=") || strings.Contains(line, " F evenkeel-agent:") {
				p.t.Logf("%s: %.500s", strings.TrimPrefix(file, p.dir+"/log/pods/kube-system_")[:28], strings.TrimSpace(line))
			}
		}
	}
}

// processesOf are those of the node whose program's name begins with this,
// without the children of such: what a program starts looks like the program
// itself at first.
func (p *pivot) processesOf(name string) []procs.Process {
	found := slices.DeleteFunc(procs.All("/proc"), func(q procs.Process) bool {
		ours := slices.Contains(q.Argv, "--kubeconfig="+p.Node.Kubeconfig()) // a dry run has none
		return !ours || !strings.HasPrefix(filepath.Base(q.Argv[0]), name)
	})

	return slices.DeleteFunc(slices.Clone(found), func(q procs.Process) bool {
		parent := procs.Parent(q.PID) // 0 if it has ended
		return parent == 0 || slices.ContainsFunc(found, func(p procs.Process) bool { return p.PID == parent })
	})
}

// belongsTo reports whether a process is a pod's; without a UID, whether it is
// of no pod.
func belongsTo(q procs.Process, uid types.UID) bool {
	cgroup, err := os.ReadFile(q.Dir + "/cgroup")
	if uid == "" {
		return err == nil && !strings.Contains(string(cgroup), "/pod")
	}

	return strings.Contains(string(cgroup), "/pod"+string(uid))
}

// watchKubelets looks for two kubelets of the node that run at the same time.
// The function that it returns ends that, and requires that there were none.
func (p *pivot) watchKubelets() (neverTwo func()) {
	ctx, end := context.WithCancel(context.Background())
	var all sync.WaitGroup
	var seen []string
	all.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			if running := p.processesOf("kubelet"); len(running) > 1 {
				seen = append(seen, fmt.Sprintf("%+v", running))
			}

			<-tick.C
		}
	})

	return func() {
		p.t.Helper()
		end()
		all.Wait()
		assert.That(p.t, len(seen) == 0, "two kubelets at once, %d times: %q", len(seen), seen)
	}
}
