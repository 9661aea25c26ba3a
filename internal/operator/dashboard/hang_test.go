// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/internal/operator/query"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// hanging never answers to reads, as an API server that is stopped, or behind a
// network that drops packets.
func hanging(api client.WithWatch) client.WithWatch {
	return interceptor.NewClient(api, interceptor.Funcs{
		Get: func(ctx context.Context, _ client.WithWatch, _ client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
			<-ctx.Done()
			return ctx.Err()
		},
		List: func(ctx context.Context, _ client.WithWatch, _ client.ObjectList, _ ...client.ListOption) error {
			<-ctx.Done()
			return ctx.Err()
		},
	})
}

func TestASnapshotDoesNotWaitForAnAPIServerThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := served(t, true, waiting())
		w := s.clusters[0].cache
		known(w, waiting(), nodeOf("worker", "z", true), configOf("worker", metav1.ConditionTrue, "AllChecksPassed"))
		w.snapshot(t.Context(), time.Now())
		w.api = hanging(w.api)
		time.Sleep(2 * cacheDuration) // of the synthetic clock: what is cached must be read again
		w.record(kindAPI, context.DeadlineExceeded)
		p := w.snapshot(t.Context(), time.Now())
		assert.That(t, len(p.Trouble) == 1 && p.Trouble[0].Away, "the trouble is %+v", p.Trouble)
		assert.That(t, p.Cells["worker"].Position == describe.PositionWaiting && len(p.Notes) == 0,
			"the node is %+v, the notes are %q: it must stay as it was", p.Cells["worker"], p.Notes)
	})
}

func TestSnapshotsReadTheConfigMapOfATemplateRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := served(t, true)
		reads := 0
		r := cachedReader{s.clusters[0].cache}
		r.api = interceptor.NewClient(r.api, interceptor.Funcs{
			Get: func(_ context.Context, _ client.WithWatch, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
				reads++
				o.SetName(key.Name)
				o.(*corev1.ConfigMap).Data = map[string]string{"kubelet": fmt.Sprint(reads)}
				return nil
			},
		})
		read := func(name string) string {
			cm := &corev1.ConfigMap{}
			assert.OK(t, r.Get(t.Context(), client.ObjectKey{Namespace: "platform", Name: name}, cm))
			return cm.Name + " " + cm.Data["kubelet"]
		}
		for range 10 {
			a, b := read("a"), read("b")
			assert.Must(t, a == "a 1" && b == "b 2", "read %q and %q after %d reads", a, b, reads)
			time.Sleep(time.Second)
		}

		time.Sleep(cacheDuration)
		assert.Equal(t, read("a"), "a 3", "later, read again")
		for i := range 100 {
			read(fmt.Sprint("c", i))
			time.Sleep(cacheDuration)
		}

		assert.That(t, len(r.answers) <= 10, "%d objects are kept", len(r.answers))
	})
}

func TestCachedRevisionsHaveAllTheirPages(t *testing.T) {
	s, _ := served(t, true)
	reads := 0
	r := cachedReader{s.clusters[0].cache}
	r.api = interceptor.NewClient(r.api, interceptor.Funcs{
		List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			reads++
			o := client.ListOptions{}
			if o.ApplyOptions(options); o.Continue == "" {
				list.SetContinue("second")
			}

			list.(*corev1.ConfigMapList).Items = []corev1.ConfigMap{{ObjectMeta: metav1.ObjectMeta{Name: "page " + o.Continue}}}

			return nil
		},
	})
	for range 2 {
		var names []string
		for cm, err := range query.Pages[*corev1.ConfigMap](t.Context(), r, &corev1.ConfigMapList{}, client.HasLabels{v1alpha1.LabelRollout}) {
			assert.OK(t, err)
			names = append(names, cm.Name)
		}

		assert.Equal(t, strings.Join(names, ", "), "page , page second")
	}

	assert.Equal(t, reads, 2)
}

func TestReadsEndIfTheAPIServerHangs(t *testing.T) {
	for _, path := range []string{"rollouts/workers", "rollouts/workers/log", "nodes/worker"} {
		synctest.Test(t, func(t *testing.T) {
			s, _ := served(t, true, waiting())
			c := s.clusters[0]
			c.api = hanging(c.api)
			c.cache.api = c.api
			code, body := answer(s, asked(http.MethodGet, "/api/clusters/0/"+path, ""))
			assert.That(t, code == http.StatusBadGateway && (strings.Contains(body, "deadline exceeded") || strings.Contains(body, "did not answer")),
				"%s answers %d %s", path, code, body)
		})
	}
}
