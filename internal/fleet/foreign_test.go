// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

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

func TestAnInvalidTemplateSaysWhatIsWrong(t *testing.T) {
	for field, want := range map[string]string{
		`"resolvConf":"resolv.conf"`: `resolvConf is the relative path "resolv.conf"`,
		`"registerWithTaints":` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000): "nested more than 50 levels deep",
		`"kubeletCgroups":"/` + strings.Repeat("a", 1<<20) + `"`:                        "larger than",
	} {
		r := &v1alpha1.NodeConfigRollout{}
		r.Spec.Template.Kubelet = &runtime.RawExtension{Raw: []byte(
			`{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration",` + field + `}`)}
		err := TemplateOf(r, nil, nil).Err
		assert.ErrorHas(t, err, "spec.template.kubelet: ")
		assert.ErrorHas(t, err, want)
		assert.ErrorHas(t, err, "; nothing changes until the template is corrected")
	}
}
