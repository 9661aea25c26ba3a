// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/controller/notify"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// webhook receives the controller's notifications.
type webhook struct {
	mu     sync.Mutex
	events []notify.Event
}

func (w *webhook) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	var e notify.Event
	if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
		http.Error(out, err.Error(), http.StatusInternalServerError)
		return
	}

	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, e)
}

// of returns the events of a kind about a rollout.
func (w *webhook) of(rollout string, kind notify.Kind) []notify.Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(w.events), func(e notify.Event) bool { return e.Subject != rollout || e.Data.Kind != kind })
}

func TestNotificationsReachAWebhook(t *testing.T) { // not parallel: it stops the shared controller
	s := play(t, "notify", 3, faulty("crashloop,field=maxPods:7"))
	alone(t)
	hook := &webhook{}
	server := httptest.NewServer(hook)
	t.Cleanup(server.Close)
	begin := func() *process {
		return s.controller("--leader-elect=false", "--notify=ops="+server.URL+"/a-secret", "--notify=down=http://127.0.0.1:1/a-secret")
	}
	await := func(kind notify.Kind, n int) notify.Event {
		t.Helper()
		s.until(fmt.Sprintf("%d notifications of kind %s", n, kind), func() (string, bool) {
			got := hook.of(s.name, kind)
			return fmt.Sprint(got), len(got) == n
		})

		return hook.of(s.name, kind)[n-1]
	}

	canary := s.node(0) // without a selector, it is not the first one
	s.do(kube.Patch(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: canary}},
		client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"canary":"yes"}}}`))))
	c := begin()
	r := s.roll("maxPods: 101", `
strategy: {maxUnavailable: 100%, canarySelector: {canary: "yes"}, steps: [{nodes: 1}, {pause: {}}, {nodes: 100%}]}`)
	st := r.await(at(1, v1alpha1.RolloutAwaitingApproval))
	s.same("have the revision first", s.everGiven(st.UpdateRevision.ConfigMapRef), []string{canary})
	e := await(notify.AwaitingApproval, 1)
	assert.That(t, e.Time.Equal(st.StepTime.Time) && e.Data.Revision == 1 && e.Data.Message == st.Message, "got %+v, the status is %+v", e, st)
	r.approve(1, 1)
	r.complete(1)
	await(notify.Complete, 1)

	r.push("maxPods: 7")
	st = r.await(at(2, v1alpha1.RolloutHalted))
	first := await(notify.Halted, 1)
	assert.That(t, first.Data.Reason == v1alpha1.HaltTooManyFailures && first.Data.Revision == 2 && first.Time.Equal(st.Halt.Time.Time),
		"got %+v, the stop is %+v", first, st.Halt)

	// The next leader sends the present state again, under the same ID.
	c.Kill()
	next := begin()
	second := await(notify.Halted, 2)
	assert.That(t, second.ID == first.ID && second.Time.Equal(first.Time), "got %+v, want %+v again", second, first)
	r.looked()
	await(notify.Halted, 2)
	await(notify.AwaitingApproval, 1)
	await(notify.Complete, 1)
	log := c.Said() + next.Said()
	assert.That(t, strings.Contains(log, "cannot send notifications") && strings.Contains(log, "connection refused"),
		"the log does not say that a receiver is down")
	assert.That(t, !strings.Contains(log, "a-secret"), "the log has the URL of a receiver")
}
