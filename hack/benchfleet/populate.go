// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// Where the API server stores objects in etcd.
const (
	nodeKey   = "/registry/minions/"
	configKey = "/registry/" + v1alpha1.GroupName + "/nodeconfigs/"
)

// batch is the number of nodes in one transaction: etcd allows 128 operations, and 1.5 MiB.
const batch = 50

// populate creates the Nodes and NodeConfigs of a range of numbers. The first ones are created through the API server, the others
// are copies of them that are written to etcd: 65,000 nodes would take an hour through the API server.
func (w *world) populate(ctx context.Context, from, to int) (err error) {
	defer must.Catch(&err)

	if from == 0 {
		must.OK(w.makeFirst(ctx))
		from = 1
	}
	store := must.Get(storeOf(w.cluster.APIServerArgv()))
	node := must.Get(store.get(ctx, nodeKey+nodeName(0)))
	config := must.Get(store.get(ctx, configKey+nodeName(0)))
	for first := from; first < to; first += batch {
		var puts []keyValue
		for i := first; i < min(first+batch, to); i++ {
			name := nodeName(i)
			n := must.Get(copyNode(node, name, i))
			c := must.Get(copyNodeConfig(config, name))
			puts = append(puts, keyValue{[]byte(nodeKey + name), n}, keyValue{[]byte(configKey + name), c})
		}
		must.OK(store.put(ctx, puts))
	}
	return nil
}

// copyNode returns a stored Node as another one.
func copyNode(stored []byte, name string, i int) ([]byte, error) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	codec := protobuf.NewSerializer(scheme, scheme)
	o, _, err := codec.Decode(stored, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("decode the stored Node: %w", err)
	}
	n := o.(*corev1.Node)
	other := realisticNode(name, i)
	n.Name, n.UID, n.Labels, n.Spec.ProviderID = name, uuid.NewUUID(), other.Labels, other.Spec.ProviderID
	var out bytes.Buffer
	err = codec.Encode(n, &out)
	return out.Bytes(), err
}

// copyNodeConfig returns a stored NodeConfig as that of another node.
func copyNodeConfig(stored []byte, name string) ([]byte, error) {
	var o map[string]any
	if err := json.Unmarshal(stored, &o); err != nil {
		return nil, fmt.Errorf("decode the stored NodeConfig: %w", err)
	}
	meta, ok := o["metadata"].(map[string]any)
	if !ok {
		return nil, errors.New("the stored NodeConfig has no metadata")
	}
	meta["name"], meta["uid"] = name, uuid.NewUUID()
	meta["creationTimestamp"] = metav1.Now()
	return json.Marshal(o)
}

// store is etcd, by its JSON interface.
type store struct{ url string }

// storeOf returns the etcd of an API server.
func storeOf(argv []string) (store, error) {
	const flag = "--etcd-servers="
	i := slices.IndexFunc(argv, func(arg string) bool { return strings.HasPrefix(arg, flag) })
	if i < 0 {
		return store{}, errors.New("the API server has no flag " + flag)
	}
	return store{strings.TrimPrefix(argv[i], flag)}, nil
}

// keyValue is encoded in base64, as etcd expects.
type keyValue struct {
	Key   []byte `json:"key"`
	Value []byte `json:"value"`
}

func (s store) get(ctx context.Context, key string) ([]byte, error) {
	var answer struct {
		Kvs []keyValue `json:"kvs"`
	}
	if err := s.call(ctx, "range", map[string]any{"key": []byte(key)}, &answer); err != nil {
		return nil, err
	}
	if len(answer.Kvs) != 1 {
		return nil, fmt.Errorf("etcd has no key %s", key)
	}
	return answer.Kvs[0].Value, nil
}

// put writes values in one transaction.
func (s store) put(ctx context.Context, values []keyValue) error {
	var operations []map[string]any
	for _, kv := range values {
		operations = append(operations, map[string]any{"requestPut": kv})
	}
	var answer struct {
		Succeeded bool `json:"succeeded"`
	}
	if err := s.call(ctx, "txn", map[string]any{"success": operations}, &answer); err != nil {
		return err
	}
	if !answer.Succeeded {
		return errors.New("etcd did not carry out a transaction")
	}
	return nil
}

func (s store) call(ctx context.Context, what string, body, into any) (err error) {
	defer must.Catch(&err)

	raw := must.Get(json.Marshal(body))
	r := must.Get(http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v3/kv/"+what, bytes.NewReader(raw)))
	answer := must.Get(http.DefaultClient.Do(r))
	defer answer.Body.Close()
	raw = must.Get(io.ReadAll(answer.Body))
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("etcd: %s: %.500s", answer.Status, raw)
	}
	return json.Unmarshal(raw, into)
}
