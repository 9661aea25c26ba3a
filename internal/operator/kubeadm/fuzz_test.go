// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"bytes"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// A file has the documents that kubeadm's reader finds in it, with every byte;
// errors name the file.
func FuzzFile(f *testing.F) {
	for _, text := range []string{
		kubeletDocument + "maxPods: 7\n---\n" + kubeProxyDocument, kubeadms("v1beta4", "ClusterConfiguration", "networking: {dnsDomain: cluster.local}\n"),
		kubeadms("v1beta3", "InitConfiguration", "localAPIEndpoint: {advertiseAddress: ::1, bindPort: 6443}\n") + "--- # c\r\n" + kubeletDocument,
		"--- text\na: 1", "...\n---\n---\n# only\n", "\ufeff" + kubeletDocument, kubeadms("v1beta2", "JoinConfiguration", ""), `{"apiVersion":"v1","kind":"ConfigMap"}`, "a: b\n---", "",
	} {
		f.Add([]byte(text))
	}

	f.Fuzz(func(t *testing.T, data []byte) {
		texts := split(data)
		rest := data
		for _, text := range texts {
			i := bytes.Index(rest, text)
			assert.Must(t, i >= 0, "%q has the document %q", data, text)
			rest = rest[i+len(text):]
		}

		input, err := ParseFile("f.yaml", data)
		if err != nil {
			words := err.Error()
			assert.That(t, strings.Contains(words, "f.yaml") && len(words) <= 3000+10*len(data), "%q is refused with %q", data, words)
			return
		}

		theirs := assert.Value(readAsKubeadm(data))(t, "as kubeadm reads it")
		assert.That(t, len(theirs) == len(texts), "kubeadm finds %d documents in %q, not %d", len(theirs), data, len(texts))
		for name, d := range input.Configs {
			c, ok := d.Component()
			assert.That(t, ok && c.Name == name && bytes.Contains(data, d.Text), "%q has for %s: %+v", data, name, d)
		}
	})
}

func FuzzClusterConfiguration(f *testing.F) {
	for _, more := range []string{
		"", "networking: {serviceSubnet: 10.96.0.0/12, podSubnet: \"10.244.0.0/16,fd00::/48\", dnsDomain: a.b}\n", "networking: {serviceSubnet: 10.0.0.0/30}\n",
		"controlPlaneEndpoint: \"[::1]:6443\"\ncertificatesDir: /a\nkubernetesVersion: v1.36.3\n", "proxy: {disabled: true}\n", "unknown: {a: 1}\nnetworking: null\n", "certificatesDir: a\n", "networking: {serviceSubnet: \"::/0\"}",
	} {
		f.Add([]byte(kubeadms("v1beta4", "ClusterConfiguration", more)))
		f.Add([]byte(kubeadms("v1beta3", "ClusterConfiguration", more)))
	}

	f.Fuzz(func(t *testing.T, data []byte) {
		cc, err := parseClusterConfiguration(data)
		if err != nil {
			words := err.Error()
			assert.That(t, len(words) <= 3000+10*len(data), "%q is refused with %d bytes", data, len(words))
			return
		}

		address, err := cc.dnsAddress()
		assert.That(t, err == nil && address != nil, "%q was accepted, but has no DNS address: %v", data, err)
		assert.That(t, cc.check() == nil && cc.DNSDomain != "" && strings.HasPrefix(cc.CertificatesDir, "/"), "%q was accepted as %+v", data, cc)
	})
}

// A record is decoded as it was encoded; a damaged one is refused with its name
// and what to do.
func FuzzUndoRecord(f *testing.F) {
	r := &UndoRecord{Name: "record-1", Why: "v1.37", saved: []savedConfigMap{{Namespace: "kube-system", Name: "kubelet-config", Written: []string{"a"}}}}
	cm := assert.Value(r.encode())(f)
	saved := cm.BinaryData[keySaved]
	for _, data := range [][]byte{saved, saved[:len(saved)/2], nil, []byte("\x1f\x8b\x08"), append(append([]byte{}, saved...), saved...)} {
		f.Add(data, cm.Data[keyTime], "v1.37", "written")
	}

	f.Fuzz(func(t *testing.T, saved []byte, at, why, progress string) {
		cm := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "record-1"},
			Data:       map[string]string{keyFormat: recordFormat, keyTime: at, keyWhy: why, keyProgress: progress}, BinaryData: map[string][]byte{keySaved: saved},
		}
		r, err := decode(cm)
		if err != nil {
			words := err.Error()
			assert.That(t, strings.Contains(words, "kube-system/record-1 is damaged") && strings.Contains(words, "delete configmap record-1"), "%q is refused with %q", saved, words)
			return
		}

		encoded, err := r.encode()
		if err != nil {
			return // larger than a ConfigMap
		}

		again, err := decode(encoded)
		assert.That(t, err == nil && again.Why == r.Why && again.progress == r.progress && len(again.saved) == len(r.saved) && again.Time.Equal(r.Time), "%+v is read again as %+v, %v", r, again, err)
	})
}
