package e2e

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/kubeadm"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
)

// byKubeadm has the real kubeadm upload its configurations.
func (n *node) byKubeadm() {
	n.t.Helper()
	const settings = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: v1.37.1\n"
	err := n.Cluster.Kubeadm(n.t.Context(), localcluster.KubeadmConfig("192.0.2.10", settings),
		"init phase upload-config all", "init phase addon kube-proxy")
	if err != nil {
		n.t.Fatal(err)
	}
}

// controlled starts a controller, which ends with the test.
func (n *node) controlled() {
	n.t.Helper()
	controller, err := n.Controller(n.t.Context())
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() {
		if err := controller.Stop(time.Minute); err != nil {
			n.t.Error(err)
		}
		if log, err := os.ReadFile(controller.Log); n.t.Failed() {
			n.t.Logf("the controller said (%v):\n%s", err, log)
		}
	})
}

// evenkeel runs `kubectl evenkeel`, which must exit with code and say all the words.
func (n *node) evenkeel(code int, args []string, words ...string) {
	n.t.Helper()
	var out bytes.Buffer
	got, err := n.Evenkeel(n.t.Context(), &out, args...)
	if err != nil || got != code {
		n.t.Fatalf("%q: exit code %d, %v; want %d:\n%s", args, got, err, code, &out)
	}
	for _, w := range words {
		if !strings.Contains(out.String(), w) {
			n.t.Errorf("%q does not say %q but:\n%s", args, w, &out)
		}
	}
}

// file writes a file and returns its path.
func (n *node) file(content string) string {
	n.t.Helper()
	path := filepath.Join(n.t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		n.t.Fatal(err)
	}
	return path
}

// upgrade applies a user's kubelet configuration, and hands it to a rollout, which must report these words.
func (n *node) upgrade(kubelet, words string) {
	n.t.Helper()
	n.evenkeel(0, []string{"upgrade", "apply", "v1.37.1", "--config=" + n.file(kubelet), "--rollout=workers", "--all-nodes", "--yes",
		"--component-binary=kubelet=" + tool("kubelet")}, "\nstored: kube-system/kubelet-config", words)
	if cm := n.uploaded(); cm.Data["kubelet"] != kubelet || len(cm.Annotations) > 0 {
		n.t.Errorf("kubelet-config, annotated %v, holds %q, want %q, unsigned", cm.Annotations, cm.Data, kubelet)
	}
}

// uploaded is the ConfigMap that kubeadm gives to nodes.
func (n *node) uploaded() *corev1.ConfigMap {
	n.t.Helper()
	cm, err := n.Kube.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(n.t.Context(), "kubelet-config", getOptions)
	if err != nil {
		n.t.Fatal(err)
	}
	return cm
}

// undone undoes an upgrade, and expects the ConfigMap's former content.
func (n *node) undone(was *corev1.ConfigMap) {
	n.t.Helper()
	n.evenkeel(0, []string{"upgrade", "undo", "--yes"}, "restored")
	if is := n.uploaded(); !maps.Equal(is.Data, was.Data) || !maps.Equal(is.Annotations, was.Annotations) {
		n.t.Errorf("kubelet-config is %q %q, was %q %q", is.Annotations, is.Data, was.Annotations, was.Data)
	}
}

// rolled follows the rollout to its end.
func (n *node) rolled(code int, words ...string) {
	n.t.Helper()
	n.evenkeel(code, []string{"rollout", "status", "workers", "-w", "--timeout=" + patience.String()}, words...)
}

func TestAnUpgradesKubeletConfigurationReachesARealNodeAndComesBack(t *testing.T) {
	n := newCluster(t, "upgraded", "--config-trial-duration=2s", "--crash-loop-threshold=0")
	n.byKubeadm()
	n.controlled()
	n.up()
	n.is(localInit)
	its := map[string]any{ // in its own file alone
		"containerRuntimeEndpoint": n.Node.RuntimeEndpoint(), "healthzPort": n.Node.HealthzPort(),
		"resolvConf": filepath.Join(n.Node.Dir(), "resolv.conf"),
	}
	local := n.kubeletHas(its)
	hasIt := func() {
		t.Helper()
		want := maps.Clone(its)
		want["maxPods"], want["registryBurst"] = 95, 21
		n.differ(n.kubeletHas(want), local, "maxPods", "registryBurst")
		n.eventually("the Node has room for 95 pods", func(ctx context.Context) error {
			got, err := n.MaxPods(ctx)
			if err == nil && got != 95 {
				err = fmt.Errorf("it has room for %d", got)
			}
			return err
		})
	}
	generated := n.uploaded()
	if origin, why := kubeadm.OriginOf(generated); origin != kubeadm.Generated {
		t.Fatalf("kubeadm's upload is %s (%s)", origin, why)
	}
	const team = "# the platform team's\n" + upstream + "maxPods:   95 # as agreed\nregistryBurst: 21\n"

	// The first revision: an undo has nothing to go back to, and says what has.
	n.upgrade(team, "rollout workers created; ")
	n.rolled(0, "Complete", "1/1")
	hasIt()
	kubelet := n.steady()
	n.undone(generated)
	const nothing = `rollout "workers" has no revision that succeeded before revision 1: push another configuration`
	n.evenkeel(1, []string{"rollout", "undo", "workers"},
		nothing+"; kubectl evenkeel rollout abort workers --rollback returns the nodes to their previous configuration\n")
	kubelet.end(t)
	n.evenkeel(0, []string{"rollout", "abort", "workers", "--rollback"}, "revision 1 stops, and its nodes roll back")
	n.rolled(2, "RolledBack")
	n.is(localInit)
	n.differ(n.kubeletHas(map[string]any{"maxPods": 110}), local)
	n.evenkeel(1, []string{"rollout", "undo", "workers"}, nothing+"\n")

	// The same configuration is stored again; the command says that it does not reach the nodes, and what to do.
	n.upgrade(team, "rollout workers already has this configuration: nothing changes; it is rolled back at revision 1 (Aborted): "+
		"push a fixed configuration, or kubectl evenkeel rollout retry workers\n")
	n.evenkeel(0, []string{"rollout", "retry", "workers"})
	n.rolled(0, "Complete", "1/1")
	hasIt()
	stored := n.uploaded()

	// No kubelet objects to these without a node. The first is refused in the dry run on the node, the second passes it.
	for i, c := range []struct{ fields, reason, words string }{
		{"evictionHard: {memory.available: banana}\n",
			v1alpha1.ReasonValidationFailed, "quantities must match the regular expression"},
		{"kubeReserved: {memory: 100Ti}\n",
			v1alpha1.ReasonCrashLooped, "crash-looped: 1 start in its trial, last: exit status 1"},
	} {
		kubelet := n.steady()
		n.upgrade(upstream+c.fields, "rollout workers updated; ")
		n.rolled(2, "Halted", n.Node.Name()+" "+c.reason)
		n.evenkeel(0, []string{"node", n.Node.Name()}, c.reason, c.words)
		if c.reason == v1alpha1.ReasonValidationFailed {
			kubelet.end(t)
		}
		hasIt()
		n.undone(stored)
		n.evenkeel(0, []string{"rollout", "undo", "workers"}, fmt.Sprintf("the configuration of revision %d is the target", 1+2*i))
		n.rolled(0, "Complete", "1/1")
		hasIt()
	}
}

// containerdHas is what containerd knows, besides images.
func containerdHas(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, list := range []string{"containers ls", "tasks ls", "leases ls", "snapshots ls"} {
		ctr := exec.CommandContext(t.Context(), "ctr", append([]string{"--namespace=k8s.io"}, strings.Fields(list)...)...)
		out, err := ctr.CombinedOutput()
		if err != nil {
			t.Fatalf("ctr %s: %v: %s", list, err, out)
		}
		all.Write(out)
	}
	return all.String()
}

func TestTheKubeProxyOfAnImageValidatesAnUpgrade(t *testing.T) {
	const image = "registry.k8s.io/kube-proxy:v1.37.1"
	n := newNode(t, "image")
	n.byKubeadm()
	if err := n.Node.ImportImage(t.Context(), image, "/usr/local/bin/kube-proxy", tool("kube-proxy")); err != nil {
		t.Fatal(err)
	}
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	t.Setenv("CONTAINERD_ADDRESS", strings.TrimPrefix(n.Node.RuntimeEndpoint(), "unix://"))
	t.Setenv("CONTAINERD_SNAPSHOTTER", "overlayfs")
	t.Setenv("CONTAINERD_NAMESPACE", "")
	before := containerdHas(t)

	const by = "--component-image=kube-proxy=" + image
	const words = "KubeProxyConfiguration.KubeProxyLinuxConfiguration.OOMScoreAdj: Invalid value: 2000: " +
		"must be within the range [-1000, 1000]"
	good, bad := n.file(proxyHeader+"mode: nftables\n"), n.file(proxyHeader+"oomScoreAdj: 2000\n")
	n.evenkeel(0, []string{"upgrade", "plan", by}, "Component configurations for v1.37.1", "Nothing must be migrated by hand")
	n.evenkeel(0, []string{"upgrade", "plan", by, "--config=" + good}, "Nothing must be migrated by hand")
	n.evenkeel(2, []string{"upgrade", "plan", by, "--config=" + bad},
		"  the configuration of --config is rejected by kube-proxy v1.37.1:\n    "+words, "To migrate by hand before the upgrade: kube-proxy.")
	n.evenkeel(0, []string{"config", "validate", by, good}, ": kube-proxy v1.37.1: accepted\n")
	n.evenkeel(1, []string{"config", "validate", by, bad}, ": kube-proxy v1.37.1: rejected: "+words)

	if after := containerdHas(t); after != before {
		t.Errorf("containerd has\n%s\nand had\n%s", after, before)
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
