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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
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
			t.Log(n.log())
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

// log returns the lines of the kubelet's log that are about admission.
func (n *node) log() string {
	raw, err := os.ReadFile(filepath.Join(n.Node.Dir(), "log", "kubelet.log"))
	return fmt.Sprintf("%s\n%v", bytes.Join(admissionLine.FindAll(raw, -1), []byte("\n")), err)
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
	canary := localcluster.SleepingPod(fmt.Sprintf("canary-%s-%d", n.Node.Name(), n.process.Pid()))
	canary.Spec.NodeName, canary.Spec.NodeSelector = n.Node.Name(), map[string]string{"evenkeel.test/canary": "never"}
	assert.NoError(n.T, assert.Err(n.Kube.CoreV1().Pods(namespace).Create(n.T.Context(), canary, metav1.CreateOptions{})))
	n.Eventually("the kubelet has admitted all pods", func(ctx context.Context) (err error) {
		defer must.Catch(&err)

		select {
		case <-n.process.Done:
			n.T.Fatalf("the kubelet ended: %s\n%s%s", n.process.Cmd.ProcessState, n.log(), n.process.Tail())
		default:
		}

		lost = map[string]string{}
		events := must.Get(n.Kube.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "source=kubelet,type=Warning"}))
		for _, e := range events.Items {
			name := e.InvolvedObject.Name
			if lossReason.MatchString(e.Reason) && (name == canary.Name || slices.Contains(names, name)) {
				lost[name] = e.Reason + ": " + e.Message
			}
		}

		must.That(lost[canary.Name] != "", "the canary is not rejected yet")
		counted := must.Get(n.losses(ctx))
		must.That(counted == len(lost), "the kubelet counts %d losses, its Events are of %v", counted, lost)

		return nil
	})
	delete(lost, canary.Name)
	n.delete(canary.Name, 0)

	return lost
}

// delete deletes a pod, which may be gone.
func (n *node) delete(name string, grace int64) {
	n.T.Helper()
	err := n.Kube.CoreV1().Pods(namespace).Delete(n.T.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &grace})
	assert.NoError(n.T, client.IgnoreNotFound(err))
}

// lossReason matches the reasons of the kubelet's Events about a rejected,
// preempted or evicted pod.
var lossReason = regexp.MustCompile(`^(OutOf.*|NodeAffinity|NodeName|NodePorts|TaintToleration|SysctlForbidden|UnexpectedAdmissionError|` +
	`TopologyAffinityError|SMTAlignmentError|PodLevelResourcesNotSupported|PodFeatureUnsupported|AppArmor|Preempting|Evicted)$`)

// losses is the number of pods of which the running kubelet says that it
// rejected or ended them.
func (n *node) losses(ctx context.Context) (sum int, err error) {
	defer must.Catch(&err)

	for _, m := range lossMetric.FindAllSubmatch(must.Get(n.AskKubelet(ctx, "metrics")), -1) {
		sum += int(must.Get(strconv.ParseFloat(string(m[1]), 64)))
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

	change := map[string]any{"metadata": map[string]any{"labels": labels}, "spec": map[string]any{"taints": w.taints}}
	patch := assert.Value(json.Marshal(change))(n.T)
	n.Eventually("the Node is changed", func(ctx context.Context) error {
		_, err := n.Kube.CoreV1().Nodes().Patch(ctx, n.Node.Name(), types.MergePatchType, patch, metav1.PatchOptions{})
		return errors.Join(err, n.setExtended(ctx, w.extended))
	})
}

// remove deletes the pods of a pair and their Events, and waits until they are
// gone. Lost pods are deleted at once, because the kubelet ends their
// containers anyway.
func (n *node) remove(names []string, lost map[string]string) {
	n.T.Helper()
	for _, name := range names {
		assert.NoError(n.T, os.RemoveAll(n.manifest(name))) // other pods than static ones have none
		grace := map[bool]int64{true: 0, false: 1}[lost[name] != ""]
		n.delete(name, grace)
	}

	n.Eventually("the pods are gone", func(ctx context.Context) error {
		left, err := n.pods(ctx)
		return errors.Join(err, assert.Unless(len(left) == 0, "%d are left", len(left)))
	})
}
