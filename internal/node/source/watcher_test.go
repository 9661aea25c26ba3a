// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestWatcherAppliesChangesBeforeTheListIsComplete(t *testing.T) {
	configMap := func(name, version string, annotations map[string]string) map[string]any {
		return map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name, "namespace": "n", "resourceVersion": version, "annotations": annotations}}
	}
	end := map[string]any{"type": "BOOKMARK", "object": configMap("", "10", map[string]string{"k8s.io/initial-events-end": "true"})}
	event := func(change, name, version string) map[string]any {
		return map[string]any{"type": change, "object": configMap(name, version, nil)}
	}
	events := []map[string]any{
		event("ADDED", "edited", "1"), event("ADDED", "deleted", "2"), event("ADDED", "again", "3"),
		event("MODIFIED", "edited", "4"), event("DELETED", "deleted", "5"),
		event("DELETED", "again", "6"), event("ADDED", "again", "7"), event("MODIFIED", "again", "8"),
		event("MODIFIED", "unannounced", "9"), end,
	}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for _, e := range events {
			_ = json.NewEncoder(w).Encode(e)
		}

		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	defer api.Close()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	writeKubeconfig(t, path, api.URL)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var got []string
	f := &watcher{
		client: newClient(t, path), gv: corev1.SchemeGroupVersion, namespace: "n", resource: "configmaps",
		replace: func(objects []runtime.Object) {
			for _, o := range objects {
				cm := o.(*corev1.ConfigMap)
				got = append(got, fmt.Sprint(cm.Name, cm.ResourceVersion))
			}

			cancel()
		},
		apply: func(change watch.EventType, o runtime.Object) {
			t.Errorf("unexpected call of apply: %s of %v", change, o)
		},
	}
	synced, err := f.once(ctx)
	assert.Must(t, synced, "%v", err)

	slices.Sort(got)
	assert.Equal(t, strings.Join(got, " "), "again8 edited4 unannounced9", "objects")
}
