package localcluster

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

const anyCluster = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: v1.37.2\n"

func TestKubeadmUploadsItsConfigurations(t *testing.T) {
	c := startCluster(t, Options{})
	assert.NoError(t, c.Kubeadm(t.Context(), KubeadmConfig("192.0.2.10", anyCluster),
		"init phase upload-config all", "init phase addon kube-proxy", "init phase addon coredns"))
	for name, key := range map[string]string{
		"kubeadm-config": "ClusterConfiguration", "kubelet-config": "kubelet", "kube-proxy": "config.conf", "coredns": "Corefile",
	} {
		cm, err := admin(t, c).CoreV1().ConfigMaps("kube-system").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil || cm.Data[key] == "" {
			t.Errorf("%s: no %s, %v: %v", name, key, cm.Data, err)
		}
	}
}

func TestErrorsOfKubeadmHaveItsOutput(t *testing.T) {
	c := startCluster(t, Options{APIServerLater: true})
	bad := strings.Replace(anyCluster, "v1.37.2", "latest-but-one", 1)
	err := c.Kubeadm(t.Context(), KubeadmConfig("192.0.2.10", bad), "init phase upload-config kubeadm")
	if err == nil || !strings.Contains(err.Error(), "kubeadm init phase upload-config kubeadm: exit status") || !strings.Contains(err.Error(), "latest-but-one") {
		t.Error(err)
	}
	err = c.Kubeadm(t.Context(), "", "config print no-such-defaults")
	assert.ErrorHas(t, err, "no-such-defaults")
}
