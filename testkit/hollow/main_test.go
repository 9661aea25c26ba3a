// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package hollow

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/bed"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
)

// One API server for all tests; each has a fleet with a prefix of its own.
var (
	cluster *localcluster.Cluster
	kube    client.WithWatch
	fleets  atomic.Int64
)

func TestMain(m *testing.M) {
	flag.Parse()
	if flag.Lookup("test.fuzz").Value.String() != "" { // fuzz targets need no cluster, and their workers are processes of this program
		os.Exit(m.Run())
	}

	os.Exit(localcluster.RunTests(localcluster.Options{}, func(ctx context.Context, c *localcluster.Cluster) (_ int, err error) {
		cluster = c
		if kube, err = cluster.Client(v1alpha1.AddToScheme, corev1.AddToScheme); err != nil {
			return 0, err
		}

		return m.Run(), nil
	}))
}

// options are those of a small, quick fleet.
func options(nodes int) Options {
	return Options{
		Config: cluster.AdminConfig(), Nodes: nodes, Prefix: fmt.Sprintf("fleet%d-", fleets.Add(1)),
		Limits: trial.Limits{TrialDuration: time.Second, CrashLoopThreshold: 1, HealthTimeout: 2 * time.Second, ReadyTimeout: 3 * time.Second},
	}
}

// start starts a fleet that ends with the test and leaves nothing.
func start(t *testing.T, o Options) *Fleet {
	t.Helper()
	if testing.Verbose() {
		o.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
		o.AgentLog = o.Log
	}

	f := assert.Value(Start(t.Context(), o))(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		assert.OK(t, errors.Join(f.Stop(), f.Cleanup(ctx)))
	})

	return f
}

// configMap makes a payload, and returns the reference to it.
func configMap(t *testing.T, text string) v1alpha1.ConfigMapReference {
	t.Helper()
	return created(t, "kubelet", "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"+text+"\n")
}

// ruled makes a drop-in whose values depend on the machine.
func ruled(t *testing.T) v1alpha1.ConfigMapReference {
	t.Helper()
	return created(t, "kubelet-dropin", "apiVersion: evenkeel.dev/v1alpha1\nkind: KubeletConfiguration\nresources: {maxPods: {perCPU: 10}}\n")
}

func created(t *testing.T, key, text string) v1alpha1.ConfigMapReference {
	t.Helper()
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, GenerateName: "hollow-"}, Immutable: new(true),
		Data: map[string]string{key: text},
	}
	assert.NoError(t, kube.Create(t.Context(), cm))

	return v1alpha1.ConfigMapReference{Namespace: cm.Namespace, Name: cm.Name, UID: cm.UID}
}

// assign writes what a node shall run.
func assign(t *testing.T, node string, ref v1alpha1.ConfigMapReference) {
	t.Helper()
	nc := &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: node}}
	patch := fmt.Sprintf(`{"spec":{"configSource":{"configMapRef":{"namespace":%q,"name":%q,"uid":%q}}}}`, ref.Namespace, ref.Name, ref.UID)
	err := kube.Patch(t.Context(), nc, client.RawPatch("application/merge-patch+json", []byte(patch)))
	if apierrors.IsNotFound(err) { // its agent is silent
		nc.Spec.ConfigSource = &v1alpha1.NodeConfigSource{ConfigMapRef: &ref}
		err = kube.Create(t.Context(), nc)
	}

	assert.NoError(t, err)
}

// until waits until check returns nil.
func until(t *testing.T, what string, check func() error) {
	t.Helper()
	assert.NoError(t, bed.Eventually(t.Context(), 40*time.Second, func(context.Context) error { return check() }), what)
}

// await waits until the API shows a status of a node that has no trial, and of
// which so is true.
func await(t *testing.T, node, what string, so func(*v1alpha1.NodeConfigStatus) bool) v1alpha1.NodeConfigStatus {
	t.Helper()
	nc := &v1alpha1.NodeConfig{}
	until(t, node+" has "+what, func() error {
		if err := kube.Get(t.Context(), client.ObjectKey{Name: node}, nc); err != nil {
			return err
		}

		return assert.Unless(nc.Status.Trial == nil && so(&nc.Status), "%+v", nc.Status)
	})

	return nc.Status
}

// configOK waits for a reason and, in the error, for some words.
func configOK(t *testing.T, node, reason, words string) v1alpha1.NodeConfigStatus {
	t.Helper()
	return await(t, node, "the reason "+reason, func(st *v1alpha1.NodeConfigStatus) bool {
		return slices.ContainsFunc(st.Conditions, func(c metav1.Condition) bool { return c.Reason == reason }) && strings.Contains(st.Error, words)
	})
}

// lastKnownGood waits until a node has a configuration as last-known-good.
func lastKnownGood(t *testing.T, node string, ref v1alpha1.ConfigMapReference) {
	t.Helper()
	await(t, node, ref.Name+" as last-known-good", func(st *v1alpha1.NodeConfigStatus) bool {
		return st.LastKnownGood != nil && st.LastKnownGood.UID == ref.UID
	})
}

// awaitNode waits until a Node has this condition Ready. From then on, it must
// be cordoned or not.
func awaitNode(t *testing.T, name string, ready corev1.ConditionStatus, cordoned bool) {
	t.Helper()
	node := &corev1.Node{}
	until(t, name+" is Ready "+string(ready), func() error {
		if err := kube.Get(t.Context(), client.ObjectKey{Name: name}, node); err != nil {
			return err
		}

		is := slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady && c.Status == ready })

		return assert.Unless(is, "%+v", node.Status.Conditions)
	})
	assert.Equal(t, node.Spec.Unschedulable, cordoned, name, "is Ready", ready, "and cordoned")
}
