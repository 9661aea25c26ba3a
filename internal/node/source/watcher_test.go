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
	end := map[string]any{"type": "BOOKMARK", "object": configMap("", "9", map[string]string{"k8s.io/initial-events-end": "true"})}
	event := func(change, name, version string) map[string]any {
		return map[string]any{"type": change, "object": configMap(name, version, nil)}
	}
	for _, tt := range []struct {
		what   string
		events []map[string]any
		want   string
	}{
		{"an edit", []map[string]any{event("ADDED", "a", "1"), event("ADDED", "b", "2"), event("MODIFIED", "a", "3")}, "a3 b2"},
		{"a deletion", []map[string]any{event("ADDED", "a", "1"), event("ADDED", "b", "2"), event("DELETED", "a", "3")}, "b2"},
		{"both, and created again", []map[string]any{event("ADDED", "a", "1"), event("DELETED", "a", "2"), event("ADDED", "a", "3"), event("MODIFIED", "a", "4")}, "a4"},
		{"an edit without an addition", []map[string]any{event("MODIFIED", "a", "3")}, "a3"},
	} {
		t.Run(tt.what, func(t *testing.T) {
			api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				for _, e := range append(tt.events, end) {
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
			assert.Equal(t, strings.Join(got, " "), tt.want, "objects")
		})
	}
}
