// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package localcluster

import (
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
	if err := retry(ctx, check, func(error) bool { return true }); err != nil {
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
	}, func(error) bool { return true })
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
