// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package support

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// object decodes JSON.
func object(t *testing.T, text string) map[string]any {
	t.Helper()
	var o map[string]any
	assert.NoError(t, json.Unmarshal([]byte(text), &o), text)
	return o
}

func TestSecretValuesAreMaskedAndTheRestStays(t *testing.T) {
	for _, tt := range []struct {
		name     string
		mask     func(map[string]any) map[string]any
		in, want string
	}{
		{"annotations of others and managed fields", maskObject,
			`{"metadata": {"name": "a", "managedFields": [1], "labels": {"l": "v"}, "annotations": {"evenkeel.dev/term": "3", "kubectl.kubernetes.io/last-applied-configuration": "S", "not-evenkeel.dev/x": "S"}}}`,
			`{"metadata": {"name": "a", "labels": {"l": "v"}, "annotations": {"evenkeel.dev/term": "3"}}}`},
		{"a template's annotations", maskObject,
			`{"spec": {"template": {"metadata": {"annotations": {"vault/token": "S"}}}}}`, `{"spec": {"template": {"metadata": {"annotations": {}}}}}`},
		{"environment variables", maskObject,
			`{"containers": [{"env": [{"name": "A", "value": "S"}, {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]}]}`,
			`{"containers": [{"env": [{"name": "A", "value": "masked"}, {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]}]}`},
		{"headers of probes", maskObject, `{"httpHeaders": [{"name": "Authorization", "value": "S"}]}`, `{"httpHeaders": [{"name": "Authorization", "value": "masked"}]}`},
		{"command lines", maskObject,
			`{"args": ["--log-format=json", "--notify=chat=https://hooks.example.com/services/S,key-file=/k", "--token=S", "--api-key", "S", "--password", "--v=2"], "command": ["curl", "https://example.com/?x=S"]}`,
			`{"args": ["--log-format=json", "--notify=chat=https://hooks.example.com/masked,key-file=/k", "--token=masked", "--api-key", "masked", "--password", "--v=2"], "command": ["curl", "https://example.com/masked"]}`},
		{"headers in command lines", maskObject, `{"args": ["--manifest-url-header=X:S"]}`, `{"args": ["--manifest-url-header=masked"]}`},
		{"fields of a configuration at any depth", maskObject,
			`{"spec": {"template": {"kubelet": {"maxPods": 7, "staticPodURL": "https://example.com/S", "staticPodURLHeader": {"X": ["S"]}}}}}`,
			`{"spec": {"template": {"kubelet": {"maxPods": 7, "staticPodURL": "https://example.com/masked", "staticPodURLHeader": {"X": ["masked"]}}}}}`},
		{"fields that are named as credentials", maskObject, `{"bootstrapToken": "S", "password": "S", "a": {"apiKey": "S"}, "empty": {"token": ""}, "automountServiceAccountToken": false, "secretName": "s"}`,
			`{"bootstrapToken": "masked", "password": "masked", "a": {"apiKey": "masked"}, "empty": {"token": ""}, "automountServiceAccountToken": false, "secretName": "s"}`},
		{"messages", maskObject, `{"status": {"error": "exit status 1: bad token=S at 12", "list": ["password=S"]}}`, `{"status": {"error": "exit status 1: bad token=masked at 12", "list": ["password=masked"]}}`},
		{"a payload", maskConfigMap,
			`{"metadata": {"name": "workers-1"}, "data": {"kubelet": "kind: KubeletConfiguration\nmaxPods: 7\nstaticPodURLHeader: {X: [S]}\n"}}`,
			`{"metadata": {"name": "workers-1"}, "data": {"kubelet": {"kind": "KubeletConfiguration", "maxPods": 7, "staticPodURLHeader": {"X": ["masked"]}}}}`},
		{"a grouped payload", maskConfigMap,
			`{"data": {"kubelet-dropin": "staticPods: {staticPodURLHeader: {X: [S]}}\n"}}`, `{"data": {"kubelet-dropin": {"staticPods": {"staticPodURLHeader": {"X": ["masked"]}}}}}`},
		{"text that cannot be decoded", maskConfigMap, `{"data": {"kubelet": "staticPodURLHeader: {X: [S"}}`, `{"data": {"kubelet": "left out, cannot be decoded: 26 bytes"}}`},
		{"other data", maskConfigMap, `{"data": {"S.crt": "S"}, "binaryData": {"kubelet": "UyBTIFM="}}`,
			`{"data": {"S.crt": "left out, no configuration: 1 byte"}, "binaryData": {"kubelet": "left out, no configuration: 8 bytes"}}`},
		{"a Node", maskNode,
			`{"kind": "Node", "metadata": {"name": "a", "labels": {"pool": "p"}, "annotations": {"csi/token": "S", "evenkeel.dev/agent-failed": "no systemd"}},
			 "spec": {"podCIDR": "S", "taints": [{"key": "k"}]}, "status": {"addresses": ["S"], "images": ["S"], "nodeInfo": {"kubeletVersion": "v1"}}}`,
			`{"apiVersion": null, "kind": "Node", "metadata": {"name": "a", "labels": {"pool": "p"}, "annotations": {"evenkeel.dev/agent-failed": "no systemd"}},
			 "spec": {"taints": [{"key": "k"}]}, "status": {"nodeInfo": {"kubeletVersion": "v1"}}}`},
	} {
		text := assert.Value(encode(tt.mask(object(t, tt.in))))(t)
		assert.NoDiff(t, cmp.Diff(object(t, tt.want), object(t, string(text))), tt.name)
	}
}

func TestDeepTextIsNotIndented(t *testing.T) {
	const depth = 5000
	deep := strings.Repeat(`{"a":`, depth) + "1" + strings.Repeat("}", depth)
	var value any
	assert.NoError(t, json.Unmarshal([]byte(deep), &value))
	text := assert.Value(encode(value))(t)
	assert.That(t, string(text) == deep, "%d bytes, want %d", len(text), len(deep))
}
