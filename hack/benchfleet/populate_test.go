package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
)

func TestStoredObjectsAreCopiedForOtherNodes(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	codec := protobuf.NewSerializer(scheme, scheme)
	first := realisticNode(nodeName(0), 0)
	first.TypeMeta.APIVersion, first.TypeMeta.Kind, first.UID = "v1", "Node", "u"
	var stored bytes.Buffer
	if err := codec.Encode(first, &stored); err != nil {
		t.Fatal(err)
	}
	raw, err := copyNode(stored.Bytes(), nodeName(7), 7)
	if err != nil {
		t.Fatal(err)
	}
	o, _, err := codec.Decode(raw, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	n := o.(*corev1.Node)
	if n.Name != nodeName(7) || n.UID == "u" || n.UID == "" || n.Labels[corev1.LabelHostname] != nodeName(7) || n.Labels[corev1.LabelTopologyZone] != "zone-1" || len(n.Status.Images) != 40 {
		t.Errorf("the copy is %s, UID %q, labels %v, %d images", n.Name, n.UID, n.Labels, len(n.Status.Images))
	}
	if _, err := copyNode([]byte("{}"), "x", 1); err == nil {
		t.Error("a Node in another encoding is accepted")
	}

	raw, err = copyNodeConfig([]byte(`{"kind":"NodeConfig","metadata":{"name":"a","uid":"u","generation":2},"spec":{"revoked":["x"]}}`), "b")
	if err != nil {
		t.Fatal(err)
	}
	var nc struct {
		Kind     string
		Metadata struct {
			Name, UID  string
			Generation int
		}
		Spec struct{ Revoked []string }
	}
	if err := json.Unmarshal(raw, &nc); err != nil {
		t.Fatal(err)
	}
	if nc.Kind != "NodeConfig" || nc.Metadata.Name != "b" || nc.Metadata.UID == "u" || nc.Metadata.UID == "" || nc.Metadata.Generation != 2 || len(nc.Spec.Revoked) != 1 {
		t.Errorf("the copy is %s", raw)
	}
	for _, broken := range []string{"{", "{}"} {
		if _, err := copyNodeConfig([]byte(broken), "b"); err == nil {
			t.Errorf("%s is copied", broken)
		}
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
	s, err := storeOf([]string{"kube-apiserver", "--etcd-servers=" + server.URL})
	if err != nil {
		t.Fatal(err)
	}
	if value, err := s.get(t.Context(), "key"); string(value) != "value" || err != nil {
		t.Errorf("the value is %q (%v)", value, err)
	}
	if err := s.put(t.Context(), []keyValue{{[]byte("key"), []byte("value")}}); err != nil {
		t.Error(err)
	}
	if want := `{"success":[{"requestPut":{"key":"a2V5","value":"dmFsdWU="}}]}`; string(put) != want {
		t.Errorf("the transaction is %s, want %s", put, want)
	}

	answers["/v3/kv/range"], answers["/v3/kv/txn"] = `{}`, `{}`
	if _, err := s.get(t.Context(), "key"); err == nil || !strings.Contains(err.Error(), "no key key") {
		t.Errorf("a missing key: %v", err)
	}
	if err := s.put(t.Context(), nil); err == nil {
		t.Error("a transaction that was not carried out is accepted")
	}
	answers["/v3/kv/range"] = ""
	if _, err := s.get(t.Context(), "key"); err == nil || !strings.Contains(err.Error(), "429") {
		t.Errorf("a refused request: %v", err)
	}
	if _, err := storeOf([]string{"kube-apiserver"}); err == nil {
		t.Error("an etcd is found without the flag")
	}
}
