// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"bytes"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
)

// slowRoad stands between a controller and the API server, and keeps its
// assignments after the first few on their way.
type slowRoad struct {
	kubeconfig string
	first      int           // assignments that arrive at once
	kept       chan struct{} // closed when one is kept
	arrive     chan struct{} // to be closed: they arrive
	mu         sync.Mutex
	came       int
}

func newSlowRoad(t *testing.T, first int) *slowRoad {
	t.Helper()
	config := cluster.AdminConfig()
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:evenkeel-system:evenkeel-controller",
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:evenkeel-system", "system:authenticated"},
	}
	r := &slowRoad{first: first, kept: make(chan struct{}), arrive: make(chan struct{})}
	proxy := assert.Value(localcluster.StartProxy(config, filepath.Join(t.TempDir(), "kubeconfig"), func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
			if request.Method == http.MethodPatch && strings.Contains(request.URL.Path, "/nodeconfigs/") && strings.Contains(request.Header.Get("Content-Type"), "json-patch") {
				r.delay(request)
			}

			next.ServeHTTP(w, request)
		})
	}))(t)
	t.Cleanup(proxy.Close)
	r.kubeconfig = proxy.Kubeconfig

	return r
}

func (r *slowRoad) delay(request *http.Request) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return
	}

	request.Body = io.NopCloser(bytes.NewReader(body))
	r.mu.Lock()
	r.came++
	n := r.came
	r.mu.Unlock()
	if n <= r.first {
		return
	}
	if n == r.first+1 {
		close(r.kept)
	}

	<-r.arrive
}

func TestAFrozenLeaderDoesNotAssignAStoppedRevision(t *testing.T) { // not parallel: it stops the shared controller
	s := play(t, "frozen", 8)
	alone(t)
	road := newSlowRoad(t, 2)
	former := s.controller("--writers=2", "--kubeconfig="+road.kubeconfig)
	s.until("it leads", func() (string, bool) {
		return former.said(""), strings.Contains(former.said(""), "all watches are synced")
	})
	next := s.controller("--writers=2")
	r := s.roll("maxPods: 101", `strategy: {maxUnavailable: 100%, steps: [{nodes: 100%}]}`)
	select {
	case <-road.kept:
	case <-t.Context().Done():
		t.Fatal("nothing was assigned")
	}

	s.do(former.Cmd.Process.Signal(syscall.SIGSTOP))
	// End its lease now, without waiting for it to expire.
	lease := &coordinationv1.Lease{}
	s.do(kube.Get(t.Context(), types.NamespacedName{Namespace: v1alpha1.SystemNamespace, Name: v1alpha1.ControllerLease}, lease))
	s.do(kube.Patch(t.Context(), lease, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"holderIdentity":""}}`))))
	s.until("the next one leads", func() (string, bool) { return next.said(""), strings.Contains(next.said(""), "all watches are synced") })
	r.edit(func(s *v1alpha1.NodeConfigRolloutSpec) { s.Abort = &v1alpha1.RolloutAbort{Revision: 1} })
	ref := r.await(at(1, v1alpha1.RolloutHalted)).UpdateRevision.ConfigMapRef
	r.looked()
	had := s.everGiven(ref)
	assert.Must(t, len(had) <= 2, "%v were assigned it before: the test shows nothing", had)

	close(road.arrive)
	refused := func(nc *v1alpha1.NodeConfig) bool {
		c := meta.FindStatusCondition(nc.Status.Conditions, v1alpha1.ConditionConfigOK)
		return c != nil && c.Reason == v1alpha1.ReasonStaleAssignment
	}
	s.until("nodes have refused what arrived late", func() (string, bool) { return s.table(), s.most(refused) > 0 })
	s.do(former.Cmd.Process.Signal(syscall.SIGCONT))
	s.until("the former leader ends", func() (string, bool) {
		select {
		case <-former.Done:
			return "", true
		default:
			return former.said(""), false
		}
	})
	if said := former.said(""); former.Cmd.ProcessState.ExitCode() != 1 || !strings.Contains(said, "this controller is no longer the leader") {
		t.Errorf("it ended with %s, and said:\n%s", former.Cmd.ProcessState, said)
	}

	s.until("what was refused is taken back", func() (string, bool) { return s.table(), len(s.those(refused)) == 0 && len(s.given(ref)) <= len(had) })
	ran := map[string]bool{}
	s.replay(func(name string, now map[string]*v1alpha1.NodeConfig) {
		if nc := now[name]; nc != nil && runs(nc, ref.UID) {
			ran[name] = true
		}
	})
	assert.That(t, len(ran) <= len(had), "%v ran the stopped revision, which only %v were assigned before", ran, had)
	st := r.looked()
	assert.That(t, st.Phase == v1alpha1.RolloutHalted && st.Nodes.Failed == 0, "the status says %+v", st)
	s.do(next.stop()) // it gives the lease up
}
