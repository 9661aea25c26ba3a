package localcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestTwoStockKubeletsRunPodsSideBySideAndLeaveNothing(t *testing.T) {
	c := startCluster(t, Options{})
	client := admin(t, c)
	var nodes []*Node
	for _, name := range []string{"node-a", "node-b"} {
		n := startNode(t, c, name)
		begin := time.Now()
		kubelet := assert.Value(runKubelet(t.Context(), n, client))(t)
		t.Cleanup(func() { kubelet.stop(time.Second) })
		t.Log(name, "is Ready after", time.Since(begin))
		begin = time.Now()
		assert.NoError(t, runPod(t.Context(), client, name, "default", "sleeper-"+name))
		t.Log("a pod runs after", time.Since(begin))
		nodes = append(nodes, n)
	}
	first, second := nodes[0], nodes[1]
	assert.OK(t, fetch(t.Context(), fmt.Sprintf("http://127.0.0.1:%d/healthz", first.HealthzPort())), "healthz")
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
	assert.ErrorHas(t, first.StartRuntime(t.Context()), "node node-a is stopped", "StartRuntime after Stop")
	assert.OK(t, runPod(t.Context(), client, "node-b", "default", "another"), "the other node runs no more pods")
	again := startNode(t, c, "node-a")
	assert.NoError(t, c.Stop())
	for _, n := range []*Node{again, second} {
		assert.OK(t, traces(n.Dir(), n.bridge, n.cgroup), "after the cluster's Stop")
	}
}

func TestPodsOutliveTheRuntime(t *testing.T) {
	c := startCluster(t, Options{})
	client := admin(t, c)
	n := startNode(t, c, "node-a")
	kubelet := assert.Value(runKubelet(t.Context(), n, client))(t)
	t.Cleanup(func() { kubelet.stop(time.Second) })
	assert.NoError(t, runPod(t.Context(), client, "node-a", "default", "sleeper"))
	before, err := cgroupPIDs(n)
	assert.Must(t, err == nil && len(before) == 2, "processes of the pod: %v, %v; want the program and the pause", before, err)
	for range 2 {
		assert.NoError(t, n.StopRuntime())
	}
	assert.That(t, n.ctr(t.Context(), "version") != nil, "containerd answers after StopRuntime")
	for range 2 {
		assert.NoError(t, n.StartRuntime(t.Context()))
	}
	after, err := cgroupPIDs(n)
	assert.That(t, err == nil && slices.Equal(before, after), "processes of the pod: %v, before %v (%v)", after, before, err)
	// The program ends at once when it is told to; else this would take the grace of 30 s.
	begin := time.Now()
	assert.NoError(t, client.CoreV1().Pods("default").Delete(t.Context(), "sleeper", metav1.DeleteOptions{}))
	eventually(t, 25*time.Second, func(ctx context.Context) error {
		pids, err := cgroupPIDs(n)
		if err == nil && len(pids) > 0 {
			err = fmt.Errorf("processes %v", pids)
		}
		return err
	})
	t.Log("the pod is gone after", time.Since(begin))
}

func TestANodeNeedsAShortDirectory(t *testing.T) {
	c := startCluster(t, Options{Dir: filepath.Join(t.TempDir(), strings.Repeat("long", 20))})
	if n, err := c.NewNode(t.Context(), "node-a"); errors.Is(err, ErrNoNode) {
		t.Skip(err)
	} else if err == nil || !strings.Contains(err.Error(), "too long for the sockets") {
		t.Errorf("NewNode: %v, %v", n, err)
	}
}

func TestANodeWhoseRuntimeDoesNotStartLeavesNothing(t *testing.T) {
	c := startCluster(t, Options{})
	bin := t.TempDir()
	assert.NoError(t, os.WriteFile(filepath.Join(bin, "containerd"), []byte("#!/bin/sh\necho no luck today; exit 3\n"), 0o755))
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	_, err := c.NewNode(t.Context(), "node-a")
	if errors.Is(err, ErrNoNode) {
		t.Skip(err)
	}
	assert.That(t, err != nil && strings.Contains(err.Error(), "no luck today") && strings.Contains(err.Error(), "start node node-a"),
		"NewNode: %v", err)
	dir := filepath.Join(c.Dir(), "nodes", "node-a")
	bridge := assert.Value(os.ReadFile(filepath.Join(dir, "bridge")))(t)
	assert.OK(t, traces(dir, string(bridge), strings.Replace(string(bridge), "evkbr", "evk", 1)))
}

func TestMissingRequirementsOfANodeAreNamed(t *testing.T) {
	empty := t.TempDir()
	_, err := findPrograms(1000, []string{empty}, []string{empty})
	assert.Must(t, errors.Is(err, ErrNoNode), "findPrograms: %v, want ErrNoNode", err)
	for _, want := range []string{"root", "containerd", "ctr", "runc", "containerd-shim-runc-v2", "CNI plugins"} {
		assert.That(t, strings.Contains(err.Error(), want), "%v: lacks %q", err, want)
	}
	c := &Cluster{tools: empty}
	if _, err := c.NewNode(t.Context(), "node-a"); err == nil || errors.Is(err, ErrNoNode) || !strings.Contains(err.Error(), "run `make tools`") {
		t.Errorf("without a kubelet: %v, want an error that names `make tools`", err)
	}
}

// cgroupPIDs are the processes of the node's pods.
func cgroupPIDs(n *Node) ([]string, error) {
	var pids []string
	for _, root := range []string{"/sys/fs/cgroup/pids", "/sys/fs/cgroup"} {
		err := filepath.WalkDir(filepath.Join(root, n.cgroup), func(path string, entry os.DirEntry, err error) error {
			if errors.Is(err, os.ErrNotExist) {
				return nil
			}
			if err != nil || entry.Name() != "cgroup.procs" {
				return err
			}
			data, err := os.ReadFile(path)
			pids = append(pids, strings.Fields(string(data))...)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	slices.Sort(pids)
	return pids, nil
}

func fetch(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || string(body) != "ok" {
		return fmt.Errorf("%s: %s, %w", response.Status, body, err)
	}
	return nil
}
