// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestATemplatesErrorNamesNothingOfAForeignConfigMap(t *testing.T) {
	for namespace, shown := range map[string]bool{"kube-system": false, v1alpha1.SystemNamespace: true} {
		for word, data := range map[string]map[string]string{
			"database-host": {"database-host": "10.7.7.7"}, "readOnlyPort": {"kubelet": "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nreadOnlyPort: 1\nreadOnlyPort: 2\n"},
		} {
			template := v1alpha1.RolloutTemplate{ConfigMapRef: &v1alpha1.TemplateConfigMap{Namespace: namespace, Name: "a"}}
			_, err := ContentOf(template, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a"}, Data: data})
			assert.Must(t, err != nil, "%v of %s is accepted", data, namespace)
			assert.That(t, strings.Contains(err.Error(), word) == shown && strings.HasPrefix(err.Error(), "ConfigMap "+namespace+"/a: "), "%v", err)
		}
	}
}
