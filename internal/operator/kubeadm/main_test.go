// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"context"
	"flag"
	"os"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
)

// What the tests share: a bare API server, into which the real kubeadm uploads.
var (
	cluster *localcluster.Cluster
	admin   client.Client
)

func TestMain(m *testing.M) {
	flag.Parse()
	if flag.Lookup("test.fuzz").Value.String() != "" { // fuzz targets need no cluster, and their workers are processes of this program
		os.Exit(m.Run())
	}

	os.Exit(localcluster.RunTests(localcluster.Options{}, func(ctx context.Context, c *localcluster.Cluster) (_ int, err error) {
		cluster = c
		ctrllog.SetLogger(logr.Discard())
		klog.SetLogger(logr.Discard())
		config := cluster.AdminConfig()
		config.QPS = -1
		if admin, err = client.New(config, client.Options{}); err != nil {
			return 0, err
		}

		return m.Run(), nil
	}))
}

// The addresses of the control plane that kubeadm is told of.
const (
	addressV4 = "192.0.2.10"
	addressV6 = "2001:db8::10"
)

// v1beta4 is a ClusterConfiguration with these fields more.
func v1beta4(more string) string {
	return "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: v1.37.2\n" + more
}

// kubeadmMaps are the ConfigMaps that the real kubeadm uploads, and uploads the
// copies of them by the configuration file. Each test gets what kubeadm
// uploaded of its file, but kubeadm runs only once for each file: it needs more
// time than the rest of a test.
var (
	kubeadmMaps = []string{KubeadmConfigMap, "kubelet-config", "kube-proxy"}
	uploads     = map[string][]*corev1.ConfigMap{}
)

// upload has the real kubeadm upload what it generates of its configuration
// file, and returns it by the names of the ConfigMaps, which go with the test.
func upload(t *testing.T, config string) map[string]*corev1.ConfigMap {
	t.Helper()
	t.Cleanup(func() {
		for _, name := range kubeadmMaps {
			cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: name}}
			assert.OK(t, client.IgnoreNotFound(admin.Delete(context.Background(), cm)))
		}
	})
	for _, cm := range uploads[config] {
		assert.NoError(t, admin.Create(t.Context(), cm.DeepCopy()))
	}
	if uploads[config] != nil {
		return configMaps(t)
	}

	assert.NoError(t, cluster.Kubeadm(t.Context(), config, "init phase upload-config all", "init phase addon kube-proxy"))
	found := configMaps(t)
	for _, name := range kubeadmMaps {
		if cm := found[name].DeepCopy(); cm != nil {
			cm.ResourceVersion, cm.UID = "", ""
			uploads[config] = append(uploads[config], cm)
		}
	}

	return found
}

// configMaps returns those of kube-system by their names.
func configMaps(t *testing.T) map[string]*corev1.ConfigMap {
	t.Helper()
	list := &corev1.ConfigMapList{}
	assert.NoError(t, admin.List(t.Context(), list, client.InNamespace(metav1.NamespaceSystem)))
	found := map[string]*corev1.ConfigMap{}
	for i, cm := range list.Items {
		found[cm.Name] = &list.Items[i]
	}

	return found
}
