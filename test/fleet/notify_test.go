// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/controller/notify"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// webhook receives the controller's notifications.
type webhook struct {
	*httptest.Server
	key []byte

	mu     sync.Mutex
	broken int // answers of 500 that are left
	events []notify.Event
	wrong  []string
}

func openWebhook(t *testing.T, key string, broken int) *webhook {
	w := &webhook{key: []byte(key), broken: broken}
	w.Server = httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		defer w.mu.Unlock()
		body, err := io.ReadAll(r.Body)
		var e notify.Event
		if err == nil {
			err = json.Unmarshal(body, &e)
		}

		mac := hmac.New(sha256.New, w.key)
		fmt.Fprintf(mac, "%s.%s.%s", r.Header.Get("webhook-id"), r.Header.Get("webhook-timestamp"), body)
		if err != nil || r.Header.Get("webhook-id") != e.ID || r.Header.Get("webhook-signature") != "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)) {
			w.wrong = append(w.wrong, fmt.Sprintf("%v %s: %v", r.Header, body, err))
		}

		if w.broken > 0 {
			w.broken--
			out.WriteHeader(http.StatusInternalServerError)
			return
		}

		w.events = append(w.events, e)
	}))
	t.Cleanup(w.Close)

	return w
}

// of returns the events of a kind about a rollout.
func (w *webhook) of(rollout string, kind notify.Kind) (out []notify.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.events {
		if e.Subject == rollout && e.Data.Kind == kind {
			out = append(out, e)
		}
	}

	return out
}

// TestNotificationsReachAWebhook with a receiver that fails at first, beside
// two that never work: one is down, one redirects.
func TestNotificationsReachAWebhook(t *testing.T) { // not parallel: it stops the shared controller
	const key = "the key of this test, of 32 bytes"
	s := play(t, "notify", 3, faulty("crashloop,field=maxPods:7"))
	alone(t)
	hook := openWebhook(t, key, 2)
	redirect := httptest.NewServer(http.RedirectHandler(hook.URL, http.StatusTemporaryRedirect))
	defer redirect.Close()
	file := filepath.Join(t.TempDir(), "key")
	s.do(os.WriteFile(file, []byte("whsec_"+base64.StdEncoding.EncodeToString([]byte(key))+"\n"), 0o600))
	flags := []string{
		"--leader-elect=false", "--notify=down=http://127.0.0.1:1/a-secret", "--notify=elsewhere=" + redirect.URL + "/a-secret",
		"--notify=ops=" + hook.URL + "/a-secret,key-file=" + file,
	}
	c := s.controller(flags...)

	await := func(kind notify.Kind, n int) notify.Event {
		t.Helper()
		s.until(fmt.Sprintf("%d notifications of kind %s", n, kind), func() (string, bool) {
			got := hook.of(s.name, kind)
			return fmt.Sprint(got), len(got) == n
		})

		return hook.of(s.name, kind)[n-1]
	}
	r := s.roll("maxPods: 101", `strategy: {maxUnavailable: 100%, steps: [{nodes: 1}, {pause: {}}, {nodes: 100%}]}`)
	st := r.await(at(1, v1alpha1.RolloutAwaitingApproval))
	e := await(notify.AwaitingApproval, 1)
	if e.Type != "dev.evenkeel.rollout.awaitingapproval" || !e.Time.Equal(st.StepTime.Time) || e.Data.Revision != 1 || e.Data.Message != st.Message {
		t.Errorf("got %+v, the status is %+v", e, st)
	}

	r.approve(1, 1)
	r.complete(1)
	await(notify.Complete, 1)

	r.push("maxPods: 7")
	st = r.await(at(2, v1alpha1.RolloutHalted))
	first := await(notify.Halted, 1)
	if first.Data.Reason != v1alpha1.HaltTooManyFailures || first.Data.Revision != 2 || !first.Time.Equal(st.Halt.Time.Time) || len(first.Data.FailedNodes) != 1 {
		t.Errorf("got %+v, the stop is %+v", first, st.Halt)
	}

	// The next leader sends the present state again, under the same ID.
	c.Kill()
	c = s.controller(flags...)
	second := await(notify.Halted, 2)
	assert.That(t, second.ID == first.ID && second.Time.Equal(first.Time), "got %+v, want %+v again", second, first)
	r.looked()
	await(notify.Halted, 2)
	await(notify.AwaitingApproval, 1)
	await(notify.Complete, 1)
	hook.mu.Lock()
	defer hook.mu.Unlock()
	assert.That(t, len(hook.wrong) == 0, "not as they have to be: %q", hook.wrong)
	metrics := strings.Split(metricsOf(t, c), "\n")
	for _, want := range []string{
		`evenkeel_notification_attempts_total{receiver="ops",result="ok"} 1`, `evenkeel_notifications_pending{receiver="ops"} 0`,
		`evenkeel_notification_attempts_total{receiver="elsewhere",result="ok"} 0`, `evenkeel_notifications_pending{receiver="down"} 1`,
	} {
		assert.That(t, slices.Contains(metrics, want), "the metrics lack %s", want)
	}

	log, err := os.ReadFile(c.Log)
	s.do(err)
	for _, want := range []string{"cannot send notifications; retrying", "connection refused", "307 Temporary Redirect: redirects are not followed"} {
		assert.That(t, strings.Contains(string(log), want), "the log lacks %q", want)
	}

	assert.That(t, !strings.Contains(string(log), "a-secret"), "the log has the URL of a receiver")
}
