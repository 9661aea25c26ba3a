// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package podguard_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/bed"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// patience limits how long a test waits for a condition on a busy machine.
const patience = 3 * time.Minute

// node is a real node whose kubelet the test starts and stops.
type node struct {
	t       *testing.T
	host    *localcluster.Node
	kubelet kubelet
	base    map[string]any // the KubeletConfiguration of a stock node

	world *world // in which the node is; nil: none yet
	// dryRunner runs the dry runs of the node's kubelet; nil: none yet.
	dryRunner *component.DryRunner
	process   *localcluster.Process // the running kubelet, or nil
}

func newNode(t *testing.T, k kubelet) *node {
	t.Helper()
	name := fmt.Sprintf("adm-%d", k.minor)
	host, err := shared.cluster.NewNode(t.Context(), name)
	if errors.Is(err, localcluster.ErrNoNode) {
		t.Skip("no real node can run here: ", err)
	}

	assert.NoError(t, err)
	n := &node{t: t, host: host, kubelet: k}
	t.Cleanup(func() {
		n.stop()
		assert.OK(t, n.host.Stop())
	})
	raw := assert.Value(os.ReadFile(host.KubeletConfig()))(t)
	assert.NoError(t, yaml.Unmarshal(raw, &n.base))
	assert.NoError(t, host.ImportImage(t.Context(), onceImage, "/once", shared.once))

	return n
}

func (n *node) eventually(what string, check func(context.Context) error) {
	n.t.Helper()
	if err := bed.Eventually(n.t.Context(), patience, check); err != nil {
		n.t.Fatalf("%s: %v\n%s", what, err, n.log())
	}
}

// log returns the lines of the kubelet's log that are about admission, and its
// end.
func (n *node) log() []byte {
	raw, err := os.ReadFile(filepath.Join(n.host.Dir(), "log", "kubelet.log"))
	if err != nil {
		return []byte(err.Error())
	}

	lines := admissionLine.FindAll(raw, -1)
	lines = lines[max(0, len(lines)-60):]

	return append(bytes.Join(lines, []byte("\n")), raw[max(0, len(raw)-2000):]...)
}

var admissionLine = regexp.MustCompile(`(?m)^.*(?:SyncLoop ADD|denied|reempt|victed|evict).*$`)

// stop ends the kubelet, if it runs. Containers keep running.
func (n *node) stop() {
	_ = n.process.Stop(20 * time.Second) // otherwise it is killed
	n.process = nil
}

// restart starts the kubelet with the configuration of a world, after it has
// stopped the running one.
func (n *node) restart(w world) {
	n.t.Helper()
	n.stop()
	config := maps.Clone(n.base)
	maps.Copy(config, w.config)
	raw, err := yaml.Marshal(config)
	assert.NoError(n.t, err)
	assert.NoError(n.t, os.WriteFile(n.host.KubeletConfig(), raw, 0o644))
	n.process = assert.Value(localcluster.StartProcess("kubelet", filepath.Join(n.host.Dir(), "log", "kubelet.log"),
		exec.Command(n.kubelet.path, n.host.KubeletArgs()...)))(n.t)
}

// admitted waits until the started kubelet has admitted or rejected every pod
// of the node: a canary, which is a pod that every kubelet rejects, was created
// last, so the kubelet rejects it last. It returns those of the named pods that
// the kubelet has rejected, with reason and message of the kubelet's Event: a
// running pod is Failed in the API only after its containers have ended.
func (n *node) admitted(names ...string) (lost map[string]string) {
	n.t.Helper()
	pods := shared.kube.CoreV1().Pods(namespace)
	canary := assert.Value(pods.Create(n.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("canary-%s-%d", n.host.Name(), n.process.Pid())},
		Spec: corev1.PodSpec{
			NodeName:                     n.host.Name(),
			NodeSelector:                 map[string]string{"evenkeel.test/canary": "never"},
			AutomountServiceAccountToken: new(bool),
			Containers:                   []corev1.Container{{Name: "c", Image: localcluster.SleepImage, ImagePullPolicy: corev1.PullNever}},
		},
	}, metav1.CreateOptions{}))(n.t)
	n.eventually("the kubelet has admitted all pods", func(ctx context.Context) error {
		select {
		case <-n.process.Done:
			n.t.Fatalf("the kubelet ended: %s\n%s", n.process.Cmd.ProcessState, n.log())
		default:
		}

		events, err := shared.kube.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "source=kubelet,type=Warning"})
		if err != nil {
			return err
		}

		lost = map[string]string{}
		for _, e := range events.Items {
			name := e.InvolvedObject.Name
			if lossReason.MatchString(e.Reason) && (name == canary.Name || slices.Contains(names, name)) {
				lost[name] = e.Reason + ": " + e.Message
			}
		}

		if lost[canary.Name] == "" {
			return errors.New("the canary is not rejected yet")
		}

		counted, err := n.losses(ctx)
		if err == nil && counted != len(lost) {
			err = fmt.Errorf("the kubelet counts %d losses, its Events are of %v", counted, lost)
		}

		return err
	})
	delete(lost, canary.Name)
	if err := pods.Delete(n.t.Context(), canary.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil && !apierrors.IsNotFound(err) {
		n.t.Fatal(err)
	}

	return lost
}

// lossReason matches the reasons of the kubelet's Events about a rejected,
// preempted or evicted pod.
var lossReason = regexp.MustCompile(`^(OutOf.*|NodeAffinity|NodeName|NodePorts|TaintToleration|SysctlForbidden|UnexpectedAdmissionError|` +
	`TopologyAffinityError|SMTAlignmentError|PodLevelResourcesNotSupported|PodFeatureUnsupported|AppArmor|Preempting|Evicted)$`)

// losses is the number of pods of which the running kubelet says that it
// rejected or ended them.
func (n *node) losses(ctx context.Context) (sum int, err error) {
	raw, err := n.proxy(ctx, "metrics")
	if err != nil {
		return 0, err
	}

	for _, m := range lossMetric.FindAllSubmatch(raw, -1) {
		v, err := strconv.ParseFloat(string(m[1]), 64)
		if err != nil {
			return 0, err
		}

		sum += int(v)
	}

	return sum, nil
}

// lossMetric matches the metrics in which a kubelet counts the pods that it
// rejects, preempts and evicts.
var lossMetric = regexp.MustCompile(`(?m)^kubelet_(?:admission_rejections_total|preemptions|evictions)(?:\{[^}]*\})? (\S+)$`)

func (n *node) proxy(ctx context.Context, path string) ([]byte, error) {
	return shared.kube.CoreV1().RESTClient().Get().Resource("nodes").Name(n.host.Name()).SubResource("proxy").Suffix(path).Do(ctx).Raw()
}

// configz returns the configuration of the running kubelet.
func (n *node) configz(ctx context.Context) (component.Effective, error) {
	raw, err := n.proxy(ctx, "configz")
	if err != nil {
		return nil, err
	}

	return decodeConfigz(raw)
}

func decodeConfigz(raw []byte) (component.Effective, error) {
	var out struct {
		Config component.Effective `json:"kubeletconfig"`
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	err := d.Decode(&out)

	return out.Config, err
}

// with returns an effective configuration with the fields of a world.
func with(e component.Effective, w world) (_ component.Effective, err error) {
	defer must.Catch(&err)

	raw := must.Get(json.Marshal(map[string]any{"kubeletconfig": w.config}))
	changes := must.Get(decodeConfigz(raw))
	out := maps.Clone(e)
	for name, value := range changes {
		out[name] = value
		if isEmpty(value) { // the kubelet omits it
			delete(out, name)
		}
	}

	return out, nil
}

func isEmpty(value any) bool {
	switch v := value.(type) {
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	case json.Number:
		return v == "0"
	}

	return false
}

// object returns the Node.
func (n *node) object() *corev1.Node {
	n.t.Helper()
	obj := assert.Value(shared.kube.CoreV1().Nodes().Get(n.t.Context(), n.host.Name(), metav1.GetOptions{}))(n.t)
	return obj
}

// reports waits until the Node has the allocatable of a world, which the
// kubelet writes after its start.
func (n *node) reports(w world) {
	n.t.Helper()
	n.eventually("the Node has its new allocatable", func(context.Context) error {
		status := n.object().Status
		if got, want := status.Allocatable.Pods().Value(), int64(w.pods(status.Capacity.Cpu().Value())); got != want {
			return fmt.Errorf("pods are %d, want %d", got, want)
		}

		for name, want := range w.allocatable(status.Capacity) {
			got := status.Allocatable[name]
			value, rounding := got.Value(), int64(2<<20)
			switch name {
			case corev1.ResourceCPU:
				value, rounding = got.MilliValue(), 0
			case extended:
				rounding = 0
			}

			if value < want-rounding || value > want+rounding {
				return fmt.Errorf("%s is %d, want %d", name, value, want)
			}
		}

		return nil
	})
}

// pods returns all pods of the node.
func (n *node) pods(ctx context.Context) ([]*corev1.Pod, error) {
	list, err := shared.kube.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + n.host.Name()})
	if err != nil {
		return nil, err
	}

	var pods []*corev1.Pod
	for i := range list.Items {
		pods = append(pods, &list.Items[i])
	}

	return pods, nil
}

// set changes the labels and taints of the Node to those of a world.
func (n *node) set(w world) {
	n.t.Helper()
	labels := map[string]any{}
	for _, name := range []string{tierLabel, genLabel, gpuLabel} {
		labels[name] = nil
		if v, ok := w.labels[name]; ok {
			labels[name] = v
		}
	}

	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}, "spec": map[string]any{"taints": w.taints}})
	assert.NoError(n.t, err)
	n.eventually("the Node is changed", func(ctx context.Context) error {
		if _, err := shared.kube.CoreV1().Nodes().Patch(ctx, n.host.Name(), types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return err
		}

		return n.setExtended(ctx, w.extended)
	})
}

// remove deletes the pods of a pair and their Events, and waits until they are
// gone. Lost pods are deleted at once, because the kubelet ends their
// containers anyway.
func (n *node) remove(names []string, lost map[string]string) {
	n.t.Helper()
	pods := shared.kube.CoreV1().Pods(namespace)
	for _, name := range names {
		if err := os.Remove(n.manifest(name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			n.t.Fatal(err)
		}

		grace := int64(1)
		if lost[name] != "" {
			grace = 0
		}
		if err := pods.Delete(n.t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &grace}); err != nil && !apierrors.IsNotFound(err) {
			n.t.Fatal(err)
		}
	}

	n.eventually("the pods are gone", func(ctx context.Context) error {
		left, err := n.pods(ctx)
		if err != nil {
			return err
		}
		if len(left) > 0 {
			return fmt.Errorf("%s left, the first is %s", printable.Count(len(left), "pod"), left[0].Name)
		}

		return nil
	})
}
