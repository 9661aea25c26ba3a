// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// clientOf makes a client that has no need to ask the API server what there is.
func clientOf(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	config.QPS = -1
	return assert.Value(client.New(config, client.Options{Mapper: admin.RESTMapper()}))(t)
}

// The ConfigMaps of these tests, and what they hold: contents by name.
var managed = []string{"kubelet-config", "kube-proxy", "kubeadm-config"}

type contents map[string]string

// world is kube-system with these contents, and no records. What a test makes
// in it goes with the test.
func world(t *testing.T, has contents) client.Client {
	t.Helper()
	clean := func() {
		ctx := context.Background()
		for _, name := range managed {
			assert.NoError(t, client.IgnoreNotFound(admin.Delete(ctx, &corev1.ConfigMap{ObjectMeta: system(name)})))
		}

		deleteRecords(t)
	}
	clean()
	t.Cleanup(clean)
	for name, text := range has {
		assert.NoError(t, admin.Create(t.Context(), configMap(name, text)))
	}

	return admin
}

func deleteRecords(t *testing.T) {
	t.Helper()
	records := []client.DeleteAllOfOption{client.InNamespace(metav1.NamespaceSystem), client.HasLabels{LabelUndoRecord}}
	assert.NoError(t, admin.DeleteAllOf(context.Background(), &corev1.ConfigMap{}, records...))
}

func system(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: name}
}

// configMap is one with data, binaryData, labels, signatures and an annotation
// of somebody's.
func configMap(name, text string) *corev1.ConfigMap {
	cm := &corev1.ConfigMap{
		ObjectMeta: system(name),
		Data:       map[string]string{"config": text, "other": "ü \n"}, BinaryData: map[string][]byte{"bytes": {0, 255, '\n'}},
	}
	cm.Labels, cm.Annotations = map[string]string{"app": name}, map[string]string{"somebody.example/says": "mine"}
	if !strings.HasPrefix(text, "user") {
		Sign(cm)
	}

	return cm
}

// to returns the writes from what is there now to these contents; an empty one
// is none.
func to(t *testing.T, c client.Client, desired contents) []Write {
	t.Helper()
	var writes []Write
	for _, name := range managed {
		text, found := desired[name]
		if !found {
			continue
		}

		old := assert.Value(readConfigMap(t.Context(), c, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: name}))(t)
		w := Write{Old: old}
		if text != "" {
			w.New = configMap(name, text)
		}

		writes = append(writes, w)
	}

	return writes
}

// upgraded is a world after its first upgrade.
func upgraded(t *testing.T) client.Client {
	t.Helper()
	c := world(t, oldest)
	store(t, c, "v1.36.0", before)

	return c
}

func store(t *testing.T, c client.Client, why string, desired contents) {
	t.Helper()
	assert.NoError(t, Store(t.Context(), c, why, to(t, c, desired)))
}

// snapshot returns the ConfigMaps of these tests that there are, without what
// the API server adds.
func snapshot(t *testing.T, c client.Client) map[string]*corev1.ConfigMap {
	t.Helper()
	all := map[string]*corev1.ConfigMap{}
	for _, name := range managed {
		cm := assert.Value(readConfigMap(t.Context(), c, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: name}))(t)
		if cm != nil {
			all[name] = withoutServerFields(cm)
		}
	}

	return all
}

// has fails unless these are the contents, wholly.
func has(t *testing.T, c client.Client, want contents) {
	t.Helper()
	all := map[string]*corev1.ConfigMap{}
	for name, text := range want {
		if text != "" {
			all[name] = withoutServerFields(configMap(name, text))
		}
	}

	assert.NoDiff(t, cmp.Diff(all, snapshot(t, c)), "other than wanted")
}

// recorded fails unless these are the records, by name and reason, the oldest
// first.
func recorded(t *testing.T, c client.Client, want ...string) {
	t.Helper()
	all := assert.Value(listUndoRecords(t.Context(), c))(t)
	var got []string
	for _, cm := range all {
		got = append(got, strings.TrimPrefix(cm.Name, recordPrefix)+" "+cm.Data[keyWhy]+" "+cm.Data[keyProgress])
	}

	assert.NoDiff(t, cmp.Diff(want, got), "other records")
}

// undo is the command.
func undo(ctx context.Context, c client.Client, overwrite bool) error {
	r, err := LatestUndoRecord(ctx, c)
	if err != nil {
		return err
	}
	if r == nil {
		return errors.New("nothing to undo")
	}

	writes, err := r.Undo(ctx, c, overwrite)
	if err != nil {
		return err
	}

	return Restore(ctx, c, r, writes)
}

// says fails unless an error has all of these words.
func says(t *testing.T, err error, words ...string) {
	t.Helper()
	assert.Must(t, err != nil, "no error; want one that says %q", words)
	for _, w := range words {
		assert.That(t, strings.Contains(err.Error(), w), "no %q in: %v", w, err)
	}
}

// between is an administrator's client that calls a function before its first
// request that writes a ConfigMap of this name. If that returns an error, it is
// the request's, which is not made.
func between(t *testing.T, name string, f func() error) client.Client {
	t.Helper()
	return over(t, &line{before: func(r *http.Request) error {
		text, write, err := written(r)
		about := strings.HasSuffix(r.URL.Path, "/"+name) || r.Method == http.MethodPost && strings.Contains(text, name)
		if err != nil || !write || !about || f == nil {
			return err
		}

		once := f
		f = nil

		return once()
	}})
}

// edit is what somebody else does to a ConfigMap.
func edit(t *testing.T, c client.Client, name string, change func(*corev1.ConfigMap)) {
	t.Helper()
	cm := &corev1.ConfigMap{}
	assert.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: name}, cm))
	change(cm)
	assert.NoError(t, c.Update(t.Context(), cm))
}

// replace is what somebody else does to the content of a ConfigMap.
func replace(t *testing.T, c client.Client, name, text string) {
	t.Helper()
	edit(t, c, name, func(cm *corev1.ConfigMap) { replaceContent(cm, configMap(name, text)) })
}

// late is a client before whose first write of a ConfigMap somebody else
// replaces its content.
func late(t *testing.T, c client.Client, name, text string) client.Client {
	t.Helper()
	return between(t, name, func() error {
		replace(t, c, name, text)
		return nil
	})
}
