package componentconfig

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

// Cluster is what a cluster has of kubeadm's configurations.
type Cluster struct {
	Configuration *ClusterConfiguration        // nil: there is no ConfigMap kubeadm-config
	ConfigMaps    map[string]*corev1.ConfigMap // what there is of kubeadm-config, coredns and those of Components, by name
	ProxyImage    string                       // of the DaemonSet kube-proxy; "" if there is none
	Endpoint      string                       // host:port of the control plane, as far as the cluster tells; "" if it does not
}

// Gather reads what a cluster has. What is missing is no error; what cannot be read is, and so is a kubeadm-config that
// makes no sense.
func Gather(ctx context.Context, c client.Reader) (*Cluster, error) {
	names := []string{KubeadmConfigMap, CoreDNSConfigMap}
	for _, component := range Components() {
		names = append(names, component.ConfigMap)
	}
	found := &Cluster{ConfigMaps: map[string]*corev1.ConfigMap{}}
	for _, name := range names {
		cm, err := read(ctx, c, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: name})
		if err != nil {
			return nil, err
		}
		if cm != nil {
			found.ConfigMaps[name] = cm
		}
	}
	if cm := found.ConfigMaps[KubeadmConfigMap]; cm != nil {
		text, ok := cm.Data[KubeadmConfigKey]
		if !ok {
			return nil, fmt.Errorf("ConfigMap %s has no key %s: it is none of kubeadm's, or it was damaged", nameOf(cm), KubeadmConfigKey)
		}
		var err error
		if found.Configuration, err = parseClusterConfiguration([]byte(text)); err != nil {
			return nil, fmt.Errorf("ConfigMap %s: %w", nameOf(cm), err)
		}
	}
	proxy := &appsv1.DaemonSet{}
	if _, err := get(ctx, c, "DaemonSet", client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "kube-proxy"}, proxy); err != nil {
		return nil, err
	}
	for _, container := range proxy.Spec.Template.Spec.Containers {
		if container.Name == "kube-proxy" || found.ProxyImage == "" {
			found.ProxyImage = container.Image
		}
	}
	var err error
	found.Endpoint, err = endpoint(ctx, c, found.ConfigMaps["kube-proxy"])
	return found, err
}

// endpoint returns where the control plane is: as the kube-proxies are told, else as the API server says of itself.
func endpoint(ctx context.Context, c client.Reader, proxy *corev1.ConfigMap) (string, error) {
	if proxy != nil {
		if host := serverOf(proxy.Data[proxyKubeconfig]); host != "" {
			return host, nil
		}
	}
	slice := &discoveryv1.EndpointSlice{}
	if there, err := get(ctx, c, "EndpointSlice", client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "kubernetes"}, slice); !there {
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

// serverOf returns host:port of the API server that a kubeconfig names; "" if it cannot be told.
func serverOf(kubeconfig string) string {
	config, err := clientcmd.Load([]byte(kubeconfig))
	if err != nil {
		return ""
	}
	for _, cluster := range config.Clusters {
		if server, err := url.Parse(cluster.Server); err == nil && server.Port() != "" {
			return server.Host
		}
	}
	return ""
}

// get reads an object; there is false if there is none.
func get(ctx context.Context, c client.Reader, kind string, key client.ObjectKey, into client.Object) (there bool, err error) {
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
