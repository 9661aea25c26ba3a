// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package podguard_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
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
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
	"github.com/evenkeel/evenkeel/testkit/must"
	"github.com/evenkeel/evenkeel/testkit/nodetest"
)

// node is a real node whose kubelet the test starts and stops. No agent runs.
type node struct {
	*nodetest.Subject
	kubelet kubelet
	base    map[string]any // the KubeletConfiguration of a stock node
	client  *http.Client   // of the API server

	world *world // in which the node is; nil: none yet
	// dryRunner runs the dry runs of the node's kubelet.
	dryRunner *component.DryRunner
	process   *localcluster.Process // the running kubelet, or nil
}

func newNode(t *testing.T, k kubelet) *node {
	t.Helper()
	n := &node{Subject: nodetest.New(t, cluster, fmt.Sprintf("adm-%d", k.minor)), kubelet: k}
	t.Cleanup(func() {
		n.stop()
		if t.Failed() {
			t.Logf("%s", n.log())
		}

		assert.OK(t, n.Node.Stop())
	})
	raw := assert.Value(os.ReadFile(n.Node.KubeletConfig()))(t)
	assert.NoError(t, yaml.Unmarshal(raw, &n.base))
	n.client = assert.Value(rest.HTTPClientFor(cluster.AdminConfig()))(t)
	n.dryRunner = component.NewDryRunner(n.parsed(), t.TempDir(), slog.New(slog.DiscardHandler))
	n.dryRunner.Deadline = time.Minute

	return n
}

// parsed is the kubelet's command line.
func (n *node) parsed() *component.Kubelet {
	n.T.Helper()
	return assert.Value(component.ParseKubelet(append([]string{n.kubelet.path}, n.Node.KubeletArgs()...)))(n.T)
}

// log returns the lines of the kubelet's log that are about admission, and its
// end.
func (n *node) log() []byte {
	raw, err := os.ReadFile(filepath.Join(n.Node.Dir(), "log", "kubelet.log"))
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

// configure writes the configuration of a stock node with changes.
func (n *node) configure(changes map[string]any) {
	n.T.Helper()
	config := maps.Clone(n.base)
	maps.Copy(config, changes)
	assert.NoError(n.T, os.WriteFile(n.Node.KubeletConfig(), []byte(asYAML(config)), 0o644))
}

// restart starts the kubelet with the configuration of a world, after it has
// stopped the running one.
func (n *node) restart(w world) {
	n.T.Helper()
	n.stop()
	n.configure(w.config)
	n.process = assert.Value(localcluster.StartProcess("kubelet", filepath.Join(n.Node.Dir(), "log", "kubelet.log"),
		exec.Command(n.kubelet.path, n.Node.KubeletArgs()...)))(n.T)
}

// admitted waits until the started kubelet has admitted or rejected every pod
// of the node: a canary, which is a pod that every kubelet rejects, was created
// last, so the kubelet rejects it last. It returns those of the named pods that
// the kubelet has rejected, with reason and message of the kubelet's Event: a
// running pod is Failed in the API only after its containers have ended.
func (n *node) admitted(names ...string) (lost map[string]string) {
	n.T.Helper()
	pods := n.Kube.CoreV1().Pods(namespace)
	canary := localcluster.SleepingPod(fmt.Sprintf("canary-%s-%d", n.Node.Name(), n.process.Pid()))
	canary.Spec.NodeName, canary.Spec.NodeSelector = n.Node.Name(), map[string]string{"evenkeel.test/canary": "never"}
	assert.NoError(n.T, assert.Err(pods.Create(n.T.Context(), canary, metav1.CreateOptions{})))
	n.Eventually("the kubelet has admitted all pods", func(ctx context.Context) error {
		select {
		case <-n.process.Done:
			n.T.Fatalf("the kubelet ended: %s\n%s", n.process.Cmd.ProcessState, n.log())
		default:
		}

		events, err := n.Kube.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "source=kubelet,type=Warning"})
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
		return errors.Join(err, assert.Unless(counted == len(lost), "the kubelet counts %d losses, its Events are of %v", counted, lost))
	})
	delete(lost, canary.Name)
	if err := pods.Delete(n.T.Context(), canary.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil && !apierrors.IsNotFound(err) {
		n.T.Fatal(err)
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
	raw, err := n.AskKubelet(ctx, "metrics")
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

// configz returns the configuration of the running kubelet.
func (n *node) configz(ctx context.Context) (component.Effective, error) {
	return component.Configz(ctx, n.client, cluster.URL()+"/api/v1/nodes/"+n.Node.Name()+"/proxy")
}

// with returns an effective configuration with the fields of a world.
func with(e component.Effective, w world) (_ component.Effective, err error) {
	defer must.Catch(&err)

	out := maps.Clone(e)
	for name, value := range must.Get(payload.DecodeMapping(must.Get(json.Marshal(w.config)))) {
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

// reports waits until the Node has the allocatable of a world, which the
// kubelet writes after its start.
func (n *node) reports(w world) {
	n.T.Helper()
	n.Eventually("the Node has its new allocatable", func(context.Context) error {
		status := assert.Value(n.Object(n.T.Context()))(n.T).Status
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

// pods returns the pods of the node.
func (n *node) pods(ctx context.Context) (pods []*corev1.Pod, err error) {
	all, err := n.Pods(ctx)
	for i := range all {
		pods = append(pods, &all[i])
	}

	return pods, err
}

// set changes the labels and taints of the Node to those of a world.
func (n *node) set(w world) {
	n.T.Helper()
	labels := map[string]any{}
	for _, name := range []string{tierLabel, genLabel, gpuLabel} {
		labels[name] = nil
		if v, ok := w.labels[name]; ok {
			labels[name] = v
		}
	}

	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}, "spec": map[string]any{"taints": w.taints}})
	assert.NoError(n.T, err)
	n.Eventually("the Node is changed", func(ctx context.Context) error {
		if _, err := n.Kube.CoreV1().Nodes().Patch(ctx, n.Node.Name(), types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return err
		}

		return n.setExtended(ctx, w.extended)
	})
}

// remove deletes the pods of a pair and their Events, and waits until they are
// gone. Lost pods are deleted at once, because the kubelet ends their
// containers anyway.
func (n *node) remove(names []string, lost map[string]string) {
	n.T.Helper()
	pods := n.Kube.CoreV1().Pods(namespace)
	for _, name := range names {
		if err := os.Remove(n.manifest(name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			n.T.Fatal(err)
		}

		grace := int64(1)
		if lost[name] != "" {
			grace = 0
		}
		if err := pods.Delete(n.T.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &grace}); err != nil && !apierrors.IsNotFound(err) {
			n.T.Fatal(err)
		}
	}

	n.Eventually("the pods are gone", func(ctx context.Context) error {
		left, err := n.pods(ctx)
		return errors.Join(err, assert.Unless(len(left) == 0, "%d are left", len(left)))
	})
}
