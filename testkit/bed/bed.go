// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bed is the environment of the end-to-end tests, the demo and the
// benchmarks: a local cluster with a real node, and evenkeel's programs as
// processes (agent, controller, kubectl plugin).
//
// The package must not know what its users expect.
package bed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// Bed is a cluster with one node.
type Bed struct {
	Cluster *localcluster.Cluster
	Node    *localcluster.Node
	Kube    kubernetes.Interface
	Binary  string // of evenkeel-agent

	configs rest.Interface
}

// Up starts a cluster and a node; Down stops them. The error wraps
// localcluster.ErrNoNode if this machine cannot run a node.
func Up(ctx context.Context, name string) (*Bed, error) {
	cluster, err := localcluster.Start(ctx, localcluster.Options{})
	if err != nil {
		return nil, err
	}

	b, err := On(ctx, cluster, name)
	if err != nil {
		return nil, errors.Join(err, cluster.Stop())
	}

	return b, nil
}

// On adds a node to a cluster.
func On(ctx context.Context, cluster *localcluster.Cluster, name string) (_ *Bed, err error) {
	defer must.Catch(&err)

	b := &Bed{Cluster: cluster}
	admin := rest.CopyConfig(cluster.AdminConfig())
	admin.QPS = -1 // polling in tests is bounded by deadlines
	b.Binary = filepath.Join(must.Get(localcluster.ModuleRoot()), "bin", "evenkeel-agent")
	b.Kube = must.Get(kubernetes.NewForConfig(admin))
	scheme := runtime.NewScheme()
	must.OK(v1alpha1.AddToScheme(scheme))
	config := rest.CopyConfig(admin)
	config.GroupVersion, config.APIPath = &v1alpha1.GroupVersion, "/apis"
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	b.configs = must.Get(rest.RESTClientFor(config))
	b.Node, err = cluster.NewNode(ctx, name)

	return b, err
}

// Down stops everything.
func (b *Bed) Down() error { return b.Cluster.Stop() }

// Program returns the path of one of evenkeel's programs, as built by `make
// build`.
func Program(name string) (_ string, err error) {
	defer must.Catch(&err)

	path := filepath.Join(must.Get(localcluster.ModuleRoot()), "bin", name)
	_, missing := os.Stat(path)
	must.That(missing == nil, "%w; run make build", missing)

	return path, nil
}

// Config returns the node's own configuration as a payload, with changed
// top-level fields; a nil value removes a field.
func (b *Bed) Config(changes map[string]any) (_ string, err error) {
	defer must.Catch(&err)

	config := map[string]any{}
	must.OK(yaml.Unmarshal(must.Get(os.ReadFile(b.Node.KubeletConfig())), &config))
	maps.Copy(config, changes)
	maps.DeleteFunc(config, func(_ string, v any) bool { return v == nil })
	out, err := yaml.Marshal(config)

	return string(out), err
}

// Create creates a ConfigMap with data in evenkeel-system.
func (b *Bed) Create(ctx context.Context, name string, data map[string]string) (*corev1.ConfigMap, error) {
	return b.Kube.CoreV1().ConfigMaps(v1alpha1.SystemNamespace).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: v1alpha1.SystemNamespace}, Data: data,
	}, metav1.CreateOptions{})
}

// Ref returns a reference to a ConfigMap for a NodeConfig.
func Ref(cm *corev1.ConfigMap) *v1alpha1.NodeConfigSource {
	return &v1alpha1.NodeConfigSource{ConfigMapRef: &v1alpha1.ConfigMapReference{Namespace: cm.Namespace, Name: cm.Name, UID: cm.UID}}
}

// Assign writes the node's spec.configSource; nil is `local: {}`.
func (b *Bed) Assign(ctx context.Context, source *v1alpha1.NodeConfigSource) error {
	if source == nil {
		source = &v1alpha1.NodeConfigSource{Local: &v1alpha1.LocalSource{}}
	}

	return b.SetSpec(ctx, v1alpha1.NodeConfigSpec{ConfigSource: source})
}

// Get returns the node's NodeConfig.
func (b *Bed) Get(ctx context.Context) (*v1alpha1.NodeConfig, error) {
	nc := &v1alpha1.NodeConfig{}
	err := b.configs.Get().Resource("nodeconfigs").Name(b.Node.Name()).Do(ctx).Into(nc)
	return nc, err
}

// ConfigOK returns the condition, zero if the NodeConfig does not have it.
func ConfigOK(nc *v1alpha1.NodeConfig) metav1.Condition {
	if c := meta.FindStatusCondition(nc.Status.Conditions, v1alpha1.ConditionConfigOK); c != nil {
		return *c
	}

	return metav1.Condition{}
}

// Healthy returns nil if the node's kubelet is healthy.
func (b *Bed) Healthy(ctx context.Context) error {
	return localcluster.Probe(ctx, fmt.Sprintf("http://127.0.0.1:%d/healthz", b.Node.HealthzPort()))
}

// Object returns the Node.
func (b *Bed) Object(ctx context.Context) (*corev1.Node, error) {
	return b.Kube.CoreV1().Nodes().Get(ctx, b.Node.Name(), metav1.GetOptions{})
}

// Pods returns the node's pods in the namespace default.
func (b *Bed) Pods(ctx context.Context) ([]corev1.Pod, error) {
	list, err := b.Kube.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + b.Node.Name()})
	return list.Items, err
}

// Containers returns the containers of the node's pods in the namespace
// default, as ContainersOf has them.
func (b *Bed) Containers(ctx context.Context) (map[string]string, error) {
	pods, err := b.Pods(ctx)
	return ContainersOf(pods), err
}

// ContainersOf returns a text for each pod, by its name. The text changes if the
// pod is replaced, if its phase changes, or if one of its containers restarts.
func ContainersOf(pods []corev1.Pod) map[string]string {
	out := map[string]string{}
	for _, pod := range pods {
		out[pod.Name] = fmt.Sprintf("%s, UID %s", strings.TrimSpace(string(pod.Status.Phase)+" "+pod.Status.Reason), pod.UID)
		for _, c := range pod.Status.ContainerStatuses {
			out[pod.Name] += fmt.Sprintf(", %s restarted %d times", c.ContainerID, c.RestartCount)
		}
	}

	return out
}

// MaxPods returns the capacity that the node reports for pods.
func (b *Bed) MaxPods(ctx context.Context) (int64, error) {
	node, err := b.Object(ctx)
	return node.Status.Capacity.Pods().Value(), err
}

// AskKubelet asks the running kubelet through the API's node proxy.
func (b *Bed) AskKubelet(ctx context.Context, path string) ([]byte, error) {
	return b.Kube.CoreV1().RESTClient().Get().Resource("nodes").Name(b.Node.Name()).SubResource("proxy").Suffix(path).Do(ctx).Raw()
}

// KubeletConfigz returns the configuration of the running kubelet.
func (b *Bed) KubeletConfigz(ctx context.Context) (_ map[string]any, err error) {
	defer must.Catch(&err)

	var out struct {
		Config map[string]any `json:"kubeletconfig"`
	}
	must.OK(json.Unmarshal(must.Get(b.AskKubelet(ctx, "configz")), &out))

	return out.Config, nil
}

// Eventually calls check until it returns nil; after the time within, it
// returns check's last error, which may also be one that package must was
// given. It calls it forty times a second at first, and later ten times: what
// it waits for needs the processor too.
func Eventually(ctx context.Context, within time.Duration, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var last error
	for pause := 25 * time.Millisecond; ; pause = min(pause*5/4, 100*time.Millisecond) {
		err := must.Try(func() { must.OK(check(ctx)) })
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil { // the error of a check after the deadline is the deadline's
			last = err
		}

		select {
		case <-ctx.Done():
			return fmt.Errorf("not within %s: %w", within, last)
		case <-time.After(pause):
		}
	}
}

// Await is Eventually for a program that ends at its first error. What check
// fails with is no such error, but the reason to check again.
func Await(ctx context.Context, within time.Duration, check func(context.Context)) {
	must.OK(Eventually(ctx, within, func(ctx context.Context) error { check(ctx); return nil }))
}

// Pause waits, and returns the context's error if it ends earlier.
func Pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// SetSpec replaces the spec of the node's NodeConfig.
func (b *Bed) SetSpec(ctx context.Context, spec v1alpha1.NodeConfigSpec) (err error) {
	defer must.Catch(&err)

	patch := must.Get(json.Marshal([]map[string]any{{"op": "add", "path": "/spec", "value": spec}}))

	return b.configs.Patch(types.JSONPatchType).Resource("nodeconfigs").Name(b.Node.Name()).Body(patch).Do(ctx).Error()
}

// ListNodeConfigs returns the NodeConfigs of all nodes.
func (b *Bed) ListNodeConfigs(ctx context.Context) ([]v1alpha1.NodeConfig, error) {
	list := &v1alpha1.NodeConfigList{}
	err := b.configs.Get().Resource("nodeconfigs").Do(ctx).Into(list)
	return list.Items, err
}

// GetRollout returns a rollout.
func (b *Bed) GetRollout(ctx context.Context, name string) (*v1alpha1.NodeConfigRollout, error) {
	r := &v1alpha1.NodeConfigRollout{}
	err := b.configs.Get().Resource("nodeconfigrollouts").Name(name).Do(ctx).Into(r)
	return r, err
}
