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
)

func TestTwoStockKubeletsRunPodsSideBySideAndLeaveNothing(t *testing.T) {
	c := startCluster(t, Options{})
	client := admin(t, c)
	var nodes []*Node
	for _, name := range []string{"node-a", "node-b"} {
		n := startNode(t, c, name)
		begin := time.Now()
		kubelet, err := runKubelet(t.Context(), n, client)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { kubelet.stop(time.Second) })
		t.Log(name, "is Ready after", time.Since(begin))
		begin = time.Now()
		if err := runPod(t.Context(), client, name, "default", "sleeper-"+name); err != nil {
			t.Fatal(err)
		}
		t.Log("a pod runs after", time.Since(begin))
		nodes = append(nodes, n)
	}
	first, second := nodes[0], nodes[1]
	if err := fetch(t.Context(), fmt.Sprintf("http://127.0.0.1:%d/healthz", first.HealthzPort())); err != nil {
		t.Errorf("healthz: %v", err)
	}
	configz, err := client.CoreV1().RESTClient().Get().AbsPath("/api/v1/nodes/node-a/proxy/configz").DoRaw(t.Context())
	if err != nil || !strings.Contains(string(configz), `"maxPods":110`) {
		t.Errorf("configz through the API server: %v, %.200s", err, configz)
	}
	if _, err := c.NewNode(t.Context(), "node-a"); err == nil || !strings.Contains(err.Error(), "has a node of this name") {
		t.Errorf("a second node-a: %v", err)
	}

	shared := sharedFiles(t, first)
	if len(shared) < 2 {
		t.Errorf("files outside of the node's directory: %v, want a socket and a result", shared)
	}
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	for _, path := range shared {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("left after Stop: %s, %v", path, err)
		}
	}
	if err := traces(first.Dir(), first.bridge, first.cgroup); err != nil {
		t.Errorf("after Stop, with the kubelet still running: %v", err)
	}
	if err := first.Stop(); err != nil {
		t.Errorf("the second Stop: %v", err)
	}
	if err := first.StartRuntime(t.Context()); err == nil || !strings.Contains(err.Error(), "node node-a is stopped") {
		t.Errorf("StartRuntime after Stop: %v", err)
	}
	if err := runPod(t.Context(), client, "node-b", "default", "another"); err != nil {
		t.Errorf("the other node runs no more pods: %v", err)
	}
	again := startNode(t, c, "node-a")
	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
	for _, n := range []*Node{again, second} {
		if err := traces(n.Dir(), n.bridge, n.cgroup); err != nil {
			t.Errorf("after the cluster's Stop: %v", err)
		}
	}
}

func TestPodsOutliveTheRuntime(t *testing.T) {
	c := startCluster(t, Options{})
	client := admin(t, c)
	n := startNode(t, c, "node-a")
	kubelet, err := runKubelet(t.Context(), n, client)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kubelet.stop(time.Second) })
	if err := runPod(t.Context(), client, "node-a", "default", "sleeper"); err != nil {
		t.Fatal(err)
	}
	before, err := cgroupPIDs(n)
	if err != nil || len(before) != 2 {
		t.Fatalf("processes of the pod: %v, %v; want the program and the pause", before, err)
	}
	for range 2 {
		if err := n.StopRuntime(); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.ctr(t.Context(), "version"); err == nil {
		t.Error("containerd answers after StopRuntime")
	}
	for range 2 {
		if err := n.StartRuntime(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	after, err := cgroupPIDs(n)
	if err != nil || !slices.Equal(before, after) {
		t.Errorf("processes of the pod: %v, before %v (%v)", after, before, err)
	}
	// The program ends at once when it is told to; else this would take the grace of 30 s.
	begin := time.Now()
	if err := client.CoreV1().Pods("default").Delete(t.Context(), "sleeper", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
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
	if err := os.WriteFile(filepath.Join(bin, "containerd"), []byte("#!/bin/sh\necho no luck today; exit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	_, err := c.NewNode(t.Context(), "node-a")
	if errors.Is(err, ErrNoNode) {
		t.Skip(err)
	}
	if err == nil || !strings.Contains(err.Error(), "no luck today") || !strings.Contains(err.Error(), "start node node-a") {
		t.Errorf("NewNode: %v", err)
	}
	dir := filepath.Join(c.Dir(), "nodes", "node-a")
	bridge, err := os.ReadFile(filepath.Join(dir, "bridge"))
	if err != nil {
		t.Fatal(err)
	}
	if err := traces(dir, string(bridge), strings.Replace(string(bridge), "evkbr", "evk", 1)); err != nil {
		t.Error(err)
	}
}

func TestMissingRequirementsOfANodeAreNamed(t *testing.T) {
	empty := t.TempDir()
	_, err := findPrograms(1000, []string{empty}, []string{empty})
	if !errors.Is(err, ErrNoNode) {
		t.Fatalf("findPrograms: %v, want ErrNoNode", err)
	}
	for _, want := range []string{"root", "containerd", "ctr", "runc", "containerd-shim-runc-v2", "CNI plugins"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v: lacks %q", err, want)
		}
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
