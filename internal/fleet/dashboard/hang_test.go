package dashboard

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/evenkeel/evenkeel/internal/fleet/describe"
)

// hanging never answers to reads, as an API server that is stopped, or behind a network that drops packets.
func hanging(api client.WithWatch) client.WithWatch {
	return interceptor.NewClient(api, interceptor.Funcs{
		Get: func(ctx context.Context, _ client.WithWatch, _ client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
			<-ctx.Done()
			return ctx.Err()
		},
		List: lost,
	})
}

func lost(ctx context.Context, _ client.WithWatch, _ client.ObjectList, _ ...client.ListOption) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestASnapshotDoesNotWaitForAnAPIServerThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := served(t, true, waiting())
		w := s.clusters[0].cache
		known(w, waiting(), nodeOf("worker", "z", true), configOf("worker", metav1.ConditionTrue, "AllChecksPassed"))
		w.snapshot(t.Context(), time.Now())
		api, before := w.api, w.configMaps["evenkeel-system/workers"]
		w.api = hanging(api)
		time.Sleep(2 * cacheDuration) // of the synthetic clock: what is cached must be read again
		w.record(kindAPI, context.DeadlineExceeded)
		p := w.snapshot(t.Context(), time.Now())
		if len(p.Trouble) != 1 || !p.Trouble[0].Away {
			t.Errorf("the trouble is %+v", p.Trouble)
		}
		if c := p.Cells["worker"]; c.Rollout != "" || len(p.Notes) != 1 {
			t.Errorf("the node is %+v, the notes are %q", c, p.Notes)
		}
		w.api = interceptor.NewClient(api, interceptor.Funcs{List: lost}) // what was listed before is known
		w.configMaps["evenkeel-system/workers"] = before
		p = w.snapshot(t.Context(), time.Now())
		if c := p.Cells["worker"]; c.Position != describe.PositionWaiting || len(p.Notes) > 0 {
			t.Errorf("the node is %+v, the notes are %q: it must stay as it was", c, p.Notes)
		}
	})
}

func TestReadsEndIfTheAPIServerHangs(t *testing.T) {
	for _, path := range []string{"rollouts/workers", "rollouts/workers/diff?from=0&to=1", "rollouts/workers/timeline", "rollouts/workers/log", "nodes/worker", "nodes/worker/config"} {
		synctest.Test(t, func(t *testing.T) {
			s, _ := served(t, true, waiting())
			c := s.clusters[0]
			c.api = hanging(c.api)
			c.cache.api = c.api
			code, body := answer(s, asked(http.MethodGet, "/api/clusters/0/"+path, ""))
			if code != http.StatusBadGateway || !strings.Contains(body, "deadline exceeded") && !strings.Contains(body, "did not answer") {
				t.Errorf("%s answers %d %s", path, code, body)
			}
		})
	}
}
