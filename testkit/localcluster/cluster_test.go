// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package localcluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/localcluster/sweep"
	"github.com/evenkeel/evenkeel/testkit/must"
)

func TestAProgramThatStopsAtStartIsReportedWithItsLogAndNothingRuns(t *testing.T) {
	wrong := []string{"--no-such-flag"}
	for program, o := range map[string]Options{"etcd": {EtcdFlags: wrong}, "kube-apiserver": {APIServerFlags: wrong}} {
		o.Dir = filepath.Join(t.TempDir(), "cluster")
		err := assert.Err(Start(t.Context(), o))
		for _, want := range []string{program + " stopped: unexpected end: exit status ", "no-such-flag"} {
			assert.ErrorHas(t, err, want)
		}

		assert.OK(t, traces(o.Dir, "none", "none"), "a broken", program)
	}
}

func TestTwoStockKubeletsRunPodsSideBySideAndLeaveNothing(t *testing.T) {
	c := startCluster(t)
	client := admin(t, c)
	var nodes []*Node
	for _, name := range []string{"node-a", "node-b"} {
		n := startNode(t, c, name)
		begin := time.Now()
		kubelet := assert.Value(runKubelet(t.Context(), n, client))(t)
		t.Cleanup(func() { _ = kubelet.Stop(time.Second) })
		t.Log(name, "is Ready after", time.Since(begin))
		begin = time.Now()
		assert.NoError(t, runPod(t.Context(), client, name, "default", "sleeper-"+name))
		t.Log("a pod runs after", time.Since(begin))
		nodes = append(nodes, n)
	}

	first, second := nodes[0], nodes[1]
	assert.OK(t, Probe(t.Context(), fmt.Sprintf("http://127.0.0.1:%d/healthz", first.HealthzPort())), "healthz")
	configz, err := client.CoreV1().RESTClient().Get().AbsPath("/api/v1/nodes/node-a/proxy/configz").DoRaw(t.Context())
	assert.That(t, err == nil && strings.Contains(string(configz), `"maxPods":110`),
		"configz through the API server: %v, %.200s", err, configz)
	assert.ErrorHas(t, assert.Err(c.NewNode(t.Context(), "node-a")), "has a node of this name", "a second node-a")

	shared := sharedFiles(t, first)
	assert.That(t, len(shared) >= 2, "files outside of the node's directory: %v, want a socket and a result", shared)
	assert.NoError(t, first.Stop())
	for _, path := range shared {
		assert.Is(t, assert.Err(os.Stat(path)), os.ErrNotExist, "left after Stop:", path)
	}

	assert.OK(t, traces(first.Dir(), first.bridge, first.cgroup), "after Stop, with the kubelet still running")
	assert.OK(t, first.Stop(), "the second Stop")
	assert.ErrorHas(t, first.StartRuntime(t.Context()), "its cluster or node is stopped", "StartRuntime after Stop")
	assert.OK(t, runPod(t.Context(), client, "node-b", "default", "another"), "the other node runs no more pods")
	again := startNode(t, c, "node-a")
	assert.NoError(t, c.Stop())
	for _, n := range []*Node{again, second} {
		assert.OK(t, traces(n.Dir(), n.bridge, n.cgroup), "after the cluster's Stop")
	}
}

// victimEnv makes this test binary a process that runs a cluster, tells where,
// and waits to be killed.
const victimEnv = "LOCALCLUSTER_VICTIM"

func runVictim(ctx context.Context) (err error) {
	defer must.Catch(&err)

	c := must.Get(Start(ctx, Options{Manifests: os.Getenv(victimEnv)}))
	client := must.Get(kubernetes.NewForConfig(c.AdminConfig()))
	n, failed := c.NewNode(ctx, "node-a")
	if errors.Is(failed, ErrNoNode) {
		fmt.Println("ready", c.Dir(), "none", "none")
		return nil
	}

	must.OK(failed)
	must.Get(runKubelet(ctx, n, client))
	// Not a child with a parent-death signal, as an agent that a test starts is
	// not.
	stray := exec.Command("tail", "-f", n.KubeletConfig())
	must.OK(stray.Start())
	must.OK(runPod(ctx, client, "node-a", "default", "sleeper"))
	fmt.Println("ready", c.Dir(), n.bridge, n.cgroup)

	return nil
}

func TestNothingOutlivesAProcessThatIsKilled(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), victimEnv+"="+t.TempDir())
	out := assert.Value(cmd.StdoutPipe())(t)
	cmd.Stderr = os.Stderr
	assert.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	words := strings.Fields(line)
	if err != nil || len(words) != 4 || words[0] != "ready" {
		_ = cmd.Process.Kill()
		t.Fatalf("the victim says %q, %v, %v", line, err, cmd.Wait())
	}

	dir, bridge, cgroup := words[1], words[2], words[3]
	before := sweep.Processes(dir)
	assert.Must(t, len(before) >= 3, "processes of the cluster: %v", before)
	assert.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait() // killed
	begin := time.Now()
	eventually(t, 30*time.Second, func(context.Context) error {
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("directory %s is still there: %v", dir, err)
		}

		return traces(dir, bridge, cgroup)
	})
	t.Logf("%d processes and all else are gone after %v", len(before), time.Since(begin))
}

// What several of the tests need; and the process that one of them kills.

func TestMain(m *testing.M) {
	if os.Getenv(victimEnv) != "" {
		if err := runVictim(context.Background()); err != nil {
			fmt.Println("error:", strings.ReplaceAll(err.Error(), "\n", " "))
			os.Exit(1)
		}

		select {}
	}

	os.Exit(m.Run())
}

// startCluster borrows or starts a cluster without manifests that ends with the
// test.
func startCluster(t *testing.T) *Cluster {
	t.Helper()
	c := assert.Value(Borrow(t.Context(), Options{Manifests: NoManifests}))(t)
	t.Cleanup(func() { assert.OK(t, c.Stop()) })

	return c
}

func startNode(t *testing.T, c *Cluster, name string) *Node {
	t.Helper()
	n, err := c.NewNode(t.Context(), name)
	if errors.Is(err, ErrNoNode) {
		t.Skip(err)
	}

	assert.NoError(t, err)

	return n
}

func admin(t *testing.T, c *Cluster) *kubernetes.Clientset {
	t.Helper()
	return assert.Value(kubernetes.NewForConfig(c.AdminConfig()))(t)
}

// eventually polls until check is happy.
func eventually(t *testing.T, within time.Duration, check func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	if err := retry(ctx, check, always); err != nil {
		t.Fatalf("after %v: %v", within, err)
	}
}

// runKubelet runs the node's stock kubelet until the node is Ready.
func runKubelet(ctx context.Context, n *Node, client kubernetes.Interface) (*Process, error) {
	p, err := StartProcess("kubelet", filepath.Join(n.Dir(), "log", "kubelet.log"), exec.Command(n.KubeletPath(), n.KubeletArgs()...))
	if err != nil {
		return nil, err
	}

	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()

	return p, p.Wait(ctx, func(ctx context.Context) error {
		node, err := client.CoreV1().Nodes().Get(ctx, n.Name(), metav1.GetOptions{})
		return errors.Join(err, assert.Unless(slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}), "not Ready: %v", node.Status.Conditions))
	})
}

// runPod binds a pod that sleeps to a node and waits until it runs.
func runPod(ctx context.Context, client kubernetes.Interface, node, namespace, name string) error {
	pods := client.CoreV1().Pods(namespace)
	pod := SleepingPod(name)
	pod.Spec.NodeName = node
	if _, err := pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()

	return retry(ctx, func(ctx context.Context) error {
		pod, err := pods.Get(ctx, name, metav1.GetOptions{})
		return errors.Join(err, assert.Unless(pod.Status.Phase == corev1.PodRunning, "%s", pod.Status.String()))
	}, always)
}

// traces are everything on this machine that can be told to belong to this
// directory and this bridge and cgroup.
func traces(dir, bridge, cgroup string) (err error) {
	defer must.Catch(&err)

	var found []string
	for _, p := range sweep.Processes(dir) {
		found = append(found, fmt.Sprintf("process %d: %q", p.PID, p.Argv))
	}

	for _, m := range must.Get(sweep.Mounts()) {
		if strings.HasPrefix(m.Path, dir+"/") {
			found = append(found, "mount "+m.Path)
		}
	}

	for _, pattern := range []string{
		"/sys/class/net/" + bridge, "/sys/fs/cgroup/*/" + cgroup, "/sys/fs/cgroup/" + cgroup,
		"/var/lib/cni/results/" + bridge + "-*",
	} {
		found = append(found, must.Get(filepath.Glob(pattern))...)
	}

	for _, link := range must.Get(filepath.Glob("/var/log/containers/*")) {
		if target, err := os.Readlink(link); err == nil && strings.HasPrefix(target, dir+"/") {
			found = append(found, link)
		}
	}

	if len(found) > 0 {
		return fmt.Errorf("left of %s:\n%s", dir, strings.Join(found, "\n"))
	}

	return nil
}

// sharedFiles are the files of this node's pods in directories that all nodes
// of a machine share: the sockets of shims, and the results of the loopback
// network.
func sharedFiles(t *testing.T, n *Node) []string {
	t.Helper()
	var paths []string
	for _, file := range assert.Value(filepath.Glob(filepath.Join(n.dir, "containerd/state/io.containerd.runtime.v2.task/*/*/address")))(t) {
		address := assert.Value(os.ReadFile(file))(t)
		paths = append(paths, strings.TrimPrefix(string(address), "unix://"))
	}

	for _, sandbox := range assert.Value(filepath.Glob(filepath.Join(n.dir, "containerd/state/io.containerd.grpc.v1.cri/sandboxes/*")))(t) {
		paths = append(paths, "/var/lib/cni/results/cni-loopback-"+filepath.Base(sandbox)+"-lo")
	}

	for _, path := range paths {
		assert.OK(t, assert.Err(os.Stat(path)), "while the node runs")
	}

	return paths
}
