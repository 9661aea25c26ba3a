// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/bed"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
	"github.com/evenkeel/evenkeel/testkit/procs"
)

// master is a node whose static pods are its API server.
type master struct {
	*node
	manifests string            // the init file's staticPodPath
	object    *corev1.ConfigMap // of its own, as edit left it
}

// newMaster makes a node that finds no API server yet: it has minimal flags and
// an init file.
func newMaster(t *testing.T, name string, flags ...string) *master {
	t.Helper()
	cluster := localcluster.StartForTest(t, localcluster.Options{APIServerLater: true, Kubelet: underTest.path})
	n := nodeOn(t, cluster, name, flags...)
	m := &master{node: n, manifests: filepath.Join(n.Node.Dir(), "manifests")}
	init := filepath.Join(n.Node.Dir(), "init")
	assert.NoError(t, os.Mkdir(init, 0o755))
	config := n.text(map[string]any{"fileCheckFrequency": "1s"}) // it may miss what is placed while it starts
	for _, file := range []string{n.Node.KubeletConfig(), filepath.Join(init, "kubelet")} {
		assert.NoError(t, os.WriteFile(file, []byte(config), 0o600))
	}

	n.Flags = append(n.Flags, "--config-source=configmap", "--config-namespace=kube-system", "--init-config-dir="+init)
	n.Kubelet = slices.DeleteFunc(n.Kubelet, func(arg string) bool { return strings.HasPrefix(arg, "--config=") })

	return m
}

// place puts a static pod's manifest where the init file says: whole, or not at
// all.
func (m *master) place(pod *corev1.Pod) {
	m.t.Helper()
	pod.APIVersion, pod.Kind, pod.Namespace = "v1", "Pod", metav1.NamespaceSystem
	raw := assert.Value(json.Marshal(pod))(m.t)
	file := m.manifest(pod.Name)
	assert.NoError(m.t, os.WriteFile(filepath.Join(m.Node.Dir(), "manifest"), raw, 0o600))
	assert.NoError(m.t, os.Rename(filepath.Join(m.Node.Dir(), "manifest"), file))
}

func (m *master) manifest(pod string) string { return filepath.Join(m.manifests, pod+".json") }

// apiServer is the cluster's API server as a static pod: the program and its
// keys are the machine's own.
func (m *master) apiServer() *corev1.Pod {
	argv, now := m.Cluster.APIServerArgv(), int64(1)
	tools, keys := filepath.Dir(argv[0]), filepath.Join(m.Cluster.Dir(), "pki")
	host := func(path string) corev1.VolumeSource {
		return corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path}}
	}

	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "kube-apiserver"},
		Spec: corev1.PodSpec{
			HostNetwork: true, TerminationGracePeriodSeconds: &now, PriorityClassName: "system-node-critical",
			Containers: []corev1.Container{{
				Name: "kube-apiserver", Image: localcluster.SleepImage, Command: argv,
				VolumeMounts: []corev1.VolumeMount{{Name: "tools", MountPath: tools, ReadOnly: true}, {Name: "keys", MountPath: keys, ReadOnly: true}},
			}},
			Volumes: []corev1.Volume{{Name: "tools", VolumeSource: host(tools)}, {Name: "keys", VolumeSource: host(keys)}},
		},
	}
}

// apiServerPID is the process ID of the API server.
func (m *master) apiServerPID() (int, error) {
	for _, p := range procs.All("/proc") {
		if slices.Equal(p.Argv, m.Cluster.APIServerArgv()) {
			return p.PID, nil
		}
	}

	return 0, errors.New("no API server runs")
}

// serves waits until there is an API server.
func (m *master) serves() {
	m.t.Helper()
	m.Eventually("the API server is ready", func(ctx context.Context) error {
		return m.Kube.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
}

// A master comes up with minimal flags and an init file, and its API server
// with it; then it is configured as any node.
func TestAControlPlaneNodeStartsBeforeItsAPIServer(t *testing.T) {
	t.Parallel()
	m := newMaster(t, "master", "--config-trial-duration=2s", "--crash-loop-threshold=0")
	const unread = "using current (%s): failed to sync, desired config unclear, cause: ConfigMap kube-system/kubelet-master cannot be read: "

	// No server listens at the kubeconfig's address; the init file's static
	// pods run.
	m.place(localcluster.SleepingPod("first"))
	m.start()
	m.healthyOn("/init/kubelet")
	if z := m.AgentSays("Unknown", "SyncFailed", fmt.Sprintf(unread, "init")+"the API server refuses connections ("); z.Source.Kind != "init" || z.Effective["maxPods"] != 110.0 {
		t.Errorf("the source is %+v, maxPods %v", z.Source, z.Effective["maxPods"])
	}

	m.Eventually("the first static pod runs", func(context.Context) error {
		logs, err := filepath.Glob(filepath.Join(m.Node.Dir(), "log", "pods", "kube-system_first-master_*", "sleep", "0.log"))
		return errors.Join(err, assert.Unless(len(logs) == 1, "its logs are %q", logs))
	})
	if pid, err := m.apiServerPID(); err == nil {
		t.Fatalf("an API server runs already, process %d", pid)
	}

	// The API server is one of them. It has to be given evenkeel's kinds, and
	// the node the right to read its ConfigMap.
	kubelet := m.SteadyFromNow()
	m.place(m.apiServer())
	m.serves()
	assert.NoError(t, m.Cluster.SetUp(t.Context()))
	m.Eventually("the node is Ready", m.Ready)
	m.Says("Unknown", "SyncFailed", fmt.Sprintf(unread, "init")+
		"forbidden to this node (403): allow user system:node:master to get, list and watch it, or apply config/configmap-source")
	m.rights()
	nc := m.Says("True", "LocalInit", localInit.message+": "+localInit.cause)
	m.Eventually("the Node says so too", func(ctx context.Context) error { return m.nodeSays(ctx, localInit) })
	assert.That(t, nc.Status.RemoteConfig == v1alpha1.RemoteConfigConfigMap && nc.Status.Active == nil,
		"remoteConfig is %s, active %+v", nc.Status.RemoteConfig, nc.Status.Active)
	server := assert.Value(m.apiServerPID())(t)

	// Its administrator configures it. The API server does not notice that its
	// kubelet is restarted.
	kubelet.End(t)
	first := m.edit(map[string]any{"maxPods": 120})
	m.runsRevision(first, 120)
	m.promoted(first)
	second := m.edit(map[string]any{"maxPods": 121})
	m.runsRevision(second, 121)
	m.promoted(second)

	// An edit that would cost the master its API server is refused; one that
	// only shows when it runs is rolled back.
	kubelet = m.Steady()
	refused := m.edit(map[string]any{"staticPodPath": nil})
	m.Says("False", "ProtectedFields", fmt.Sprintf("using last-known-good %s: refused current %s: protected field staticPodPath would be ", label(second), label(refused)))
	kubelet.End(t)
	crash := m.edit(overReserved(122))
	m.Says("False", "CrashLooped", fmt.Sprintf("using last-known-good %s: current %s crash-looped: 1 start in its trial", label(second), label(crash)))
	m.healthyOn(second)
	m.runsRevision(m.edit(map[string]any{"maxPods": 121}), 121)
	m.recorded(second, second)
	assert.Returns(t, server, "the API server is process")(m.apiServerPID())

	// The machine goes down, and comes up without its API server: it runs what
	// its ConfigMap said.
	m.stop()
	assert.NoError(t, os.Rename(m.manifest("kube-apiserver"), m.manifest("kube-apiserver")+".away"))
	assert.NoError(t, syscall.Kill(server, syscall.SIGKILL))
	m.start()
	m.healthyOn(second)
	m.AgentSays("Unknown", "SyncFailed", fmt.Sprintf(unread, strings.Trim(label(second), "()"))+"the API server refuses connections (")
	m.recorded(second, second)
	kubelet = m.SteadyFromNow()
	m.place(m.apiServer())
	m.serves()
	m.AgentSays("True", "AllChecksPassed", "using current "+label(second)+": all checks passed")
	m.runsRevision(second, 121)
	kubelet.End(t)

	m.remove()
	nc = m.Says("True", "LocalInit", localInit.message)
	assert.That(t, nc.Status.Active == nil && nc.Status.LastKnownGood == nil,
		"in the end active is %+v, last-known-good %+v", nc.Status.Active, nc.Status.LastKnownGood)
	m.healthyOn("/init/kubelet")
}

// overReserved is a configuration that every dry run accepts and with which the
// kubelet ends when it starts its container manager. The pod guard allows it,
// because no pod here requests storage.
func overReserved(maxPods int) map[string]any {
	return map[string]any{"maxPods": maxPods, "kubeReserved": map[string]string{"ephemeral-storage": "100Ti"}}
}

// rights gives the node the rights of docs/sources.md.
func (m *master) rights() {
	m.t.Helper()
	own := "kubelet-" + m.Node.Name()
	m.kubectl("create", "role", own, "--namespace=kube-system", "--verb=get,list,watch", "--resource=configmaps", "--resource-name="+own)
	m.kubectl("create", "rolebinding", own, "--namespace=kube-system", "--role="+own, "--user=system:node:"+m.Node.Name())
}

// edit gives the ConfigMap the node's configuration with changes, creating it
// if there is none. It returns the revision.
func (m *master) edit(changes map[string]any) string {
	m.t.Helper()
	data := map[string]string{payload.KeyKubelet: m.text(changes)}
	configMaps := m.Kube.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	applied := applycorev1.ConfigMap("kubelet-"+m.Node.Name(), metav1.NamespaceSystem).WithData(data)
	m.object = assert.Value(configMaps.Apply(m.t.Context(), applied, metav1.ApplyOptions{FieldManager: "e2e"}))(m.t)

	return string(m.object.UID) + "-" + payload.Digest(payload.KeyKubelet, []byte(data[payload.KeyKubelet]))[:12]
}

// label names a revision as messages do: by the UID of the ConfigMap, and its
// content.
func label(revision string) string {
	const uid = len("7f1d2c3b-0000-4000-8000-0123456789ab")
	return fmt.Sprintf("(UID: %s, content: %s)", revision[:uid], revision[uid+1:])
}

// remove deletes the ConfigMap.
func (m *master) remove() {
	m.t.Helper()
	assert.NoError(m.t, m.Kube.CoreV1().ConfigMaps(metav1.NamespaceSystem).Delete(m.t.Context(), m.object.Name, metav1.DeleteOptions{}))
}

// runsRevision waits until the node is content with a revision, and its kubelet
// has maxPods.
func (m *master) runsRevision(revision string, maxPods float64) {
	m.t.Helper()
	nc := m.Says("True", "AllChecksPassed", "using current "+label(revision)+": all checks passed")
	if a := nc.Status.Active; a == nil || revisionOf(*a) != revision || a.UID != m.object.UID || a.Name != m.object.Name ||
		nc.Status.RemoteConfig != v1alpha1.RemoteConfigConfigMap {
		m.t.Errorf("active is %+v, from a %s, want %s", a, nc.Status.RemoteConfig, revision)
	}

	m.KubeletHas("maxPods", maxPods)
}

func revisionOf(c v1alpha1.ConfigRevision) string {
	return string(c.UID) + "-" + c.SHA256[:min(len(c.SHA256), 12)]
}

// promoted waits until a revision is last-known-good.
func (m *master) promoted(revision string) {
	m.t.Helper()
	m.Awaits(revision+" is last-known-good", func(nc *v1alpha1.NodeConfig) error {
		lkg := nc.Status.LastKnownGood
		return assert.Unless(lkg != nil && revisionOf(lkg.ConfigRevision) == revision,
			"last-known-good is %+v, ConfigOK %+v", lkg, bed.ConfigOK(nc))
	})
}
