// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Cluster is the state of a cluster's kubeadm and component configurations.
type Cluster struct {
	Configuration    *ClusterConfiguration        // nil if there is none, or it cannot be parsed
	ConfigurationErr error                        // why kubeadm-config cannot be parsed; nil if it can be, or does not exist
	ConfigMaps       map[string]*corev1.ConfigMap // existing ones of kubeadm-config, coredns and those of Components, by name
	ProxyImage       string                       // of the DaemonSet kube-proxy; "" if it does not exist
	ProxyServer      string                       // host:port in kube-proxy's kubeconfig; "" if there is none
	// host:port of the API server's EndpointSlice; "" if there is none, or the
	// user may not read it
	Endpoint string
}

// Gather reads the state of a cluster. Missing objects are not an error.
func Gather(ctx context.Context, c client.Reader) (*Cluster, error) {
	names := []string{KubeadmConfigMap, CoreDNSConfigMap}
	for _, component := range Components() {
		names = append(names, component.ConfigMap)
	}

	found := &Cluster{ConfigMaps: map[string]*corev1.ConfigMap{}}
	for _, name := range names {
		cm, err := readConfigMap(ctx, c, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: name})
		if err != nil {
			return nil, err
		}
		if cm != nil {
			found.ConfigMaps[name] = cm
		}
	}

	if cm := found.ConfigMaps[KubeadmConfigMap]; cm != nil {
		if text, ok := cm.Data[KubeadmConfigKey]; ok {
			found.Configuration, found.ConfigurationErr = parseClusterConfiguration([]byte(text))
		} else {
			found.ConfigurationErr = fmt.Errorf("it has no key %s", KubeadmConfigKey)
		}
	}

	proxy := &appsv1.DaemonSet{}
	if _, err := getObject(ctx, c, "DaemonSet", client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "kube-proxy"}, proxy); err != nil {
		return nil, err
	}

	for _, container := range proxy.Spec.Template.Spec.Containers {
		if container.Name == "kube-proxy" || found.ProxyImage == "" {
			found.ProxyImage = container.Image
		}
	}

	if cm := found.ConfigMaps["kube-proxy"]; cm != nil {
		found.ProxyServer = serverOf(cm.Data[proxyKubeconfig])
	}

	var err error
	found.Endpoint, err = endpoint(ctx, c)

	return found, err
}

// endpoint returns host:port from the API server's EndpointSlice.
func endpoint(ctx context.Context, c client.Reader) (string, error) {
	slice := &discoveryv1.EndpointSlice{}
	found, err := getObject(ctx, c, "EndpointSlice", client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "kubernetes"}, slice)
	if apierrors.IsForbidden(err) { // generate fails if it needs the endpoint
		return "", nil
	}
	if !found {
		return "", err
	}

	for _, port := range slice.Ports {
		for _, e := range slice.Endpoints {
			if port.Port != nil && len(e.Addresses) > 0 {
				return net.JoinHostPort(e.Addresses[0], strconv.Itoa(int(*port.Port))), nil
			}
		}
	}

	return "", nil
}

// serverOf returns host:port of the API server in a kubeconfig; "" if there is
// none.
func serverOf(kubeconfig string) string {
	config, err := clientcmd.Load([]byte(kubeconfig))
	if err != nil || config.Contexts[config.CurrentContext] == nil {
		return ""
	}

	cluster := config.Clusters[config.Contexts[config.CurrentContext].Cluster]
	if cluster == nil {
		return ""
	}

	server, err := url.Parse(cluster.Server)
	if err != nil || server.Port() == "" {
		return ""
	}

	return server.Host
}

// getObject reads an object; found is false if it does not exist.
func getObject(ctx context.Context, c client.Reader, kind string, key client.ObjectKey, into client.Object) (found bool, err error) {
	err = c.Get(ctx, key, into)
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read %s %s: %w", kind, key, err)
	}

	return true, nil
}

func nameOf(cm *corev1.ConfigMap) string { return client.ObjectKeyFromObject(cm).String() }
