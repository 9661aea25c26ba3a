// Package e2e tests the agent end to end, with a real etcd, kube-apiserver, containerd and stock kubelets.
package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/bed"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
)

// shared is the cluster of all tests that leave the API server alone.
var shared struct {
	once    sync.Once
	cluster *localcluster.Cluster
	err     error
}

func TestMain(m *testing.M) {
	flag.Parse()
	var err error
	if underTest, err = askKubelet(*kubeletFlag); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if shared.cluster != nil {
		if err := shared.cluster.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// node is a real node with an agent, which is not started yet.
type node struct {
	*bed.Bed
	*bed.Agent
	t *testing.T
}

// newNode adds a node to the shared cluster.
func newNode(t *testing.T, name string, flags ...string) *node {
	t.Helper()
	shared.once.Do(func() {
		shared.cluster, shared.err = localcluster.Start(context.Background(), localcluster.Options{Kubelet: underTest.path, APIServer: *apiServerFlag})
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return nodeOn(t, shared.cluster, name, flags...)
}

// newCluster starts a cluster of the test's own, with a node.
func newCluster(t *testing.T, name string, flags ...string) *node {
	t.Helper()
	cluster := localcluster.StartForTest(t, localcluster.Options{Kubelet: underTest.path, APIServer: *apiServerFlag})
	return nodeOn(t, cluster, name, flags...)
}

func nodeOn(t *testing.T, cluster *localcluster.Cluster, name string, flags ...string) *node {
	t.Helper()
	b, err := bed.On(t.Context(), cluster, name)
	if errors.Is(err, localcluster.ErrNoNode) {
		t.Skip("no real node can run here: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	a, err := b.Agent(flags...)
	if err != nil {
		t.Fatal(err)
	}
	n := &node{b, a, t}
	t.Cleanup(func() {
		if err := a.Stop(time.Minute); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			n.showLog()
		}
		if err := b.Node.Stop(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// showLog prints what the agent, not the kubelet, said.
func (n *node) showLog() {
	raw, err := os.ReadFile(n.Log)
	if err != nil {
		n.t.Log(err)
		return
	}
	for line := range strings.Lines(string(raw)) {
		if strings.HasPrefix(line, "time=") || strings.HasPrefix(line, "evenkeel-agent:") {
			n.t.Logf("%.700s", strings.TrimSpace(line))
		}
	}
	n.t.Log("agent and kubelet said more in ", filepath.Base(n.Log))
}

// up starts the agent and waits until the kubelet is healthy, and its node
// Ready and with a NodeConfig.
func (n *node) up() {
	n.t.Helper()
	if err := n.Start(); err != nil {
		n.t.Fatal(err)
	}
	n.eventually("the node is Ready", func(ctx context.Context) error {
		if err := n.Healthy(ctx); err != nil {
			return err
		}
		if err := n.ready(ctx); err != nil {
			return err
		}
		_, err := n.Get(ctx)
		return err
	})
}

func (n *node) ready(ctx context.Context) error {
	obj, err := n.Kube.CoreV1().Nodes().Get(ctx, n.Node.Name(), getOptions)
	if err != nil {
		return err
	}
	for _, c := range obj.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return nil
		}
	}
	return errors.New("not Ready")
}

// patience limits how long a test waits for a condition, on a busy machine. How long it
// does take is for hack/bench to say.
const patience = 3 * time.Minute

func (n *node) eventually(what string, check func(context.Context) error) {
	n.t.Helper()
	if err := bed.Eventually(n.t.Context(), patience, check); err != nil {
		n.t.Fatalf("%s: %v", what, err)
	}
}

// configMap creates a ConfigMap with the node's configuration and changes.
func (n *node) configMap(name string, changes map[string]any) *corev1.ConfigMap {
	n.t.Helper()
	data, err := n.Config(changes)
	if err != nil {
		n.t.Fatal(err)
	}
	return n.create(name, map[string]string{"kubelet": data})
}

func (n *node) create(name string, data map[string]string) *corev1.ConfigMap {
	n.t.Helper()
	cm, err := n.Create(n.t.Context(), n.Node.Name()+"-"+name, data)
	if err != nil {
		n.t.Fatal(err)
	}
	return cm
}

// assign assigns a ConfigMap; nil: local.
func (n *node) assign(cm *corev1.ConfigMap) {
	n.t.Helper()
	var source *v1alpha1.NodeConfigSource
	if cm != nil {
		source = bed.Ref(cm)
	}
	if err := n.Assign(n.t.Context(), source); err != nil {
		n.t.Fatal(err)
	}
}

// says waits until ConfigOK has the status and the reason, and its message
// holds words. It returns the NodeConfig.
func (n *node) says(status, reason, words string) *v1alpha1.NodeConfig {
	n.t.Helper()
	var nc *v1alpha1.NodeConfig
	n.eventually(fmt.Sprintf("ConfigOK is %s, %s, %q", status, reason, words), func(ctx context.Context) (err error) {
		if nc, err = n.Get(ctx); err != nil {
			return err
		}
		c := bed.ConfigOK(nc)
		if string(c.Status) != status || c.Reason != reason || !strings.Contains(c.Message, words) {
			return fmt.Errorf("is %s, %s, %q; error %q", c.Status, c.Reason, c.Message, nc.Status.Error)
		}
		return nil
	})
	return nc
}

// lastKnownGood waits until a ConfigMap is last-known-good.
func (n *node) lastKnownGood(cm *corev1.ConfigMap) {
	n.t.Helper()
	n.eventually(cm.Name+" is last-known-good", func(ctx context.Context) error {
		nc, err := n.Get(ctx)
		if err != nil {
			return err
		}
		if l := nc.Status.LastKnownGood; l == nil || l.UID != cm.UID {
			return fmt.Errorf("last-known-good is %+v, ConfigOK %+v", l, bed.ConfigOK(nc))
		}
		return nil
	})
}
