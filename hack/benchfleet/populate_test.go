package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestStoredObjectsAreCopiedForOtherNodes(t *testing.T) {
	scheme := runtime.NewScheme()
	assert.NoError(t, corev1.AddToScheme(scheme))
	codec := protobuf.NewSerializer(scheme, scheme)
	first := realisticNode(nodeName(0), 0)
	first.TypeMeta.APIVersion, first.TypeMeta.Kind, first.UID = "v1", "Node", "u"
	var stored bytes.Buffer
	assert.NoError(t, codec.Encode(first, &stored))
	raw := assert.Value(copyNode(stored.Bytes(), nodeName(7), 7))(t)
	o, _, err := codec.Decode(raw, nil, nil)
	assert.NoError(t, err)
	n := o.(*corev1.Node)
	if n.Name != nodeName(7) || n.UID == "u" || n.UID == "" || n.Labels[corev1.LabelHostname] != nodeName(7) || n.Labels[corev1.LabelTopologyZone] != "zone-1" || len(n.Status.Images) != 40 {
		t.Errorf("the copy is %s, UID %q, labels %v, %d images", n.Name, n.UID, n.Labels, len(n.Status.Images))
	}
	assert.That(t, assert.Err(copyNode([]byte("{}"), "x", 1)) != nil, "a Node in another encoding is accepted")

	raw, err = copyNodeConfig([]byte(`{"kind":"NodeConfig","metadata":{"name":"a","uid":"u","generation":2},"spec":{"revoked":["x"]}}`), "b")
	assert.NoError(t, err)
	var nc struct {
		Kind     string
		Metadata struct {
			Name, UID  string
			Generation int
		}
		Spec struct{ Revoked []string }
	}
	assert.NoError(t, json.Unmarshal(raw, &nc))
	if nc.Kind != "NodeConfig" || nc.Metadata.Name != "b" || nc.Metadata.UID == "u" || nc.Metadata.UID == "" || nc.Metadata.Generation != 2 || len(nc.Spec.Revoked) != 1 {
		t.Errorf("the copy is %s", raw)
	}
	for _, broken := range []string{"{", "{}"} {
		assert.That(t, assert.Err(copyNodeConfig([]byte(broken), "b")) != nil, "%s is copied", broken)
	}
}

func TestEtcdIsFoundAndWritten(t *testing.T) {
	var put []byte
	answers := map[string]string{
		"/v3/kv/range": `{"kvs":[{"key":"a2V5","value":"dmFsdWU="}]}`, // key, value
		"/v3/kv/txn":   `{"succeeded":true}`,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path == "/v3/kv/txn" {
			put = body
		}
		if answers[r.URL.Path] == "" {
			w.WriteHeader(http.StatusTooManyRequests)
		}
		_, _ = io.WriteString(w, answers[r.URL.Path])
	}))
	defer server.Close()
	s := assert.Value(storeOf([]string{"kube-apiserver", "--etcd-servers=" + server.URL}))(t)
	value, err := s.get(t.Context(), "key")
	assert.That(t, string(value) == "value" && err == nil, "the value is %q (%v)", value, err)
	assert.OK(t, s.put(t.Context(), []keyValue{{[]byte("key"), []byte("value")}}))
	want := `{"success":[{"requestPut":{"key":"a2V5","value":"dmFsdWU="}}]}`
	assert.That(t, string(put) == want, "the transaction is %s, want %s", put, want)

	answers["/v3/kv/range"], answers["/v3/kv/txn"] = `{}`, `{}`
	assert.ErrorHas(t, assert.Err(s.get(t.Context(), "key")), "no key key", "a missing key")
	assert.That(t, s.put(t.Context(), nil) != nil, "a transaction that was not carried out is accepted")
	answers["/v3/kv/range"] = ""
	assert.ErrorHas(t, assert.Err(s.get(t.Context(), "key")), "429", "a refused request")
	assert.That(t, assert.Err(storeOf([]string{"kube-apiserver"})) != nil, "an etcd is found without the flag")
}
