// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package simapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Fate is what happens to a request on its way. The zero value is an answer
// without any delay.
type Fate struct {
	Before, After time.Duration // until the server has the request, and until the client has the answer
	Refused       bool          // the connection is refused; the server does not have the request
	LostBefore    bool          // the server never has the request, and the client no answer
	LostAfter     bool          // the server carries it out, and the client has no answer
	Delayed       time.Duration // the server carries it out only after this time, and the client has no answer; 0: no
	Reset         bool          // with LostBefore, LostAfter or Delayed: the connection breaks instead of being silent
	Late          bool          // the server has the request even if the client has given up meanwhile
	Instant       bool          // the answer or the refusal comes at once, without any virtual time, unless the request is lost
	Code          int           // an error that the server answers without carrying out the request; 0: none
	RetryAfter    time.Duration // with Code 429

	// Stale is how old a list is, the list with which a watch begins, and one
	// object that is read with a resource version: as from a server whose cache
	// lags behind.
	Stale time.Duration

	// Of a watch, after it has begun:
	Ends time.Duration // it ends; 0: when its time is over
	Gone bool          // it ends with an error in the stream (410)
}

// Transport is how one client reaches the server. Several requests may be made
// at once.
type Transport struct {
	Server *Server
	Client string // its name
	// Fate decides what happens to a request. It is called when the request is
	// made.
	Fate func(r *http.Request) Fate
	// Lag returns the delay of an event of a watch.
	Lag func() time.Duration
	// Gate is called before a request or an event passes, in either direction.
	// It returns when it may, or an error if it never will or ctx has ended
	// first.
	Gate func(ctx context.Context) error
}

var errReset = fmt.Errorf("read: %w", syscall.ECONNRESET)

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx := r.Context()
	c := call{method: r.Method, url: r.URL, contentType: r.Header.Get("Content-Type")}
	c.by, c.dry = t.Client, r.URL.Query().Get("dryRun") != ""
	if r.Body != nil {
		body, err := io.ReadAll(r.Body)
		if err := errors.Join(err, r.Body.Close()); err != nil {
			return nil, err
		}

		c.body = body
	}

	f := t.Fate(r)
	began := time.Now()
	arriving := ctx
	if f.Late {
		arriving = context.WithoutCancel(ctx)
	}

	if !f.Instant {
		if err := t.pass(arriving, f.Before); err != nil {
			return nil, err
		}
	}

	if f.Refused {
		return nil, fmt.Errorf("dial tcp: connect: %w", syscall.ECONNREFUSED)
	}
	if f.LostBefore {
		return nil, t.lose(ctx, f)
	}

	if f.Delayed > 0 {
		time.AfterFunc(f.Delayed, func() { t.Server.serve(c) })
		return nil, t.lose(ctx, f)
	}

	if timeout, err := time.ParseDuration(r.URL.Query().Get("timeout")); err == nil && time.Since(began) > timeout && f.Code == 0 {
		f.Code = http.StatusGatewayTimeout
	}
	if f.Code != 0 {
		return t.refuse(r, f, answerOf(f.Code))
	}

	c.stale = min(f.Stale, MaxStale)
	if r.URL.Query().Get("watch") == "true" {
		return t.watch(r, c, f)
	}

	code, body := t.Server.serve(c)
	if f.LostAfter {
		return nil, t.lose(ctx, f)
	}

	return t.answer(r, f, code, body)
}

// pass waits for the network.
func (t *Transport) pass(ctx context.Context, d time.Duration) error {
	if err := sleep(ctx, d); err != nil {
		return err
	}

	return t.Gate(ctx)
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// lose is the end of a request without an answer.
func (t *Transport) lose(ctx context.Context, f Fate) error {
	if f.Reset {
		if err := t.pass(ctx, f.After); err != nil {
			return err
		}

		return errReset
	}

	if err := sleep(ctx, HealthCheck); err != nil {
		return err
	}

	return errReset
}

// HealthCheck is after what time a client notices that a connection is dead:
// the health check of HTTP/2 in client-go.
const HealthCheck = 45 * time.Second

// refuse answers with an error.
func (t *Transport) refuse(r *http.Request, f Fate, err error) (*http.Response, error) {
	code, body := refusal(err)
	return t.answer(r, f, code, body)
}

func (t *Transport) answer(r *http.Request, f Fate, code int, body []byte) (*http.Response, error) {
	if !f.Instant {
		if err := t.pass(r.Context(), f.After); err != nil {
			return nil, err
		}
	}

	response := t.respond(r, code, io.NopCloser(bytes.NewReader(body)))
	response.ContentLength = int64(len(body))
	if f.RetryAfter > 0 {
		response.Header.Set("Retry-After", strconv.Itoa(int(f.RetryAfter/time.Second)))
	}

	return response, nil
}

func (t *Transport) respond(r *http.Request, code int, body io.ReadCloser) *http.Response {
	return &http.Response{
		Status: http.StatusText(code), StatusCode: code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r, Body: body,
		Header: http.Header{"Content-Type": {"application/json"}, "Date": {t.Server.Clock().UTC().Format(http.TimeFormat)}},
	}
}

func (t *Transport) watch(r *http.Request, c call, f Fate) (*http.Response, error) {
	w, err := t.Server.openWatch(c)
	if err != nil {
		return t.refuse(r, f, err)
	}

	w.transport, w.ctx = t, r.Context()
	if end := time.Now().Add(f.Ends); f.Ends > 0 && (w.ends.IsZero() || end.Before(w.ends)) {
		w.ends, w.expires = end, f.Gone
	}

	if err := t.pass(r.Context(), f.After); err != nil {
		_ = w.Close() // returns nil
		return nil, err
	}

	return t.respond(r, http.StatusOK, w), nil
}

// stream is an open watch: the body of its answer.
type stream struct {
	selection
	server    *Server
	transport *Transport
	ctx       context.Context // of the request, whose body outlives RoundTrip
	ends      time.Time       // zero: it does not
	expires   bool            // it ends with an error
	ready     chan struct{}
	closed    chan struct{}
	close     sync.Once

	mu    sync.Mutex
	queue []frame

	rest []byte // of the frame that is read
	over bool
}

type frame struct {
	at   time.Time // when it was sent
	data []byte
}

// encodeFrame returns an event as it is sent.
func encodeFrame(event string, object []byte) []byte {
	return fmt.Appendf(make([]byte, 0, len(object)+40), `{"type":"%s","object":%s}`+"\n", event, object)
}

// change sends the change of an object after a delay, if the watch selects it.
func (w *stream) change(was, is *object, delay time.Duration) {
	before, after := was != nil && w.selects(was), !is.gone && w.selects(is)
	switch {
	case before && after:
		w.push("MODIFIED", is.raw, delay)
	case after:
		w.push("ADDED", is.raw, delay)
	case before && is.gone:
		w.push("DELETED", is.raw, delay)
	case before: // it is selected no more
		w.push("DELETED", was.goneAt(is.version).raw, delay)
	}
}

// push sends an event after a delay.
func (w *stream) push(event string, object []byte, delay time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = append(w.queue, frame{time.Now().Add(delay), encodeFrame(event, object)})
	select {
	case w.ready <- struct{}{}:
	default:
	}
}

// Read implements io.Reader. It returns one event at most.
func (w *stream) Read(p []byte) (int, error) {
	if len(w.rest) == 0 {
		data, err := w.next()
		if err != nil {
			return 0, err
		}

		w.rest = data
	}

	n := copy(p, w.rest)
	w.rest = w.rest[n:]

	return n, nil
}

func (w *stream) next() ([]byte, error) {
	if w.over {
		return nil, io.EOF
	}

	var limit <-chan time.Time
	if !w.ends.IsZero() {
		timer := time.NewTimer(time.Until(w.ends))
		defer timer.Stop()
		limit = timer.C
	}

	for {
		w.mu.Lock()
		var f frame
		if len(w.queue) > 0 {
			f = w.queue[0]
			w.queue = w.queue[1:]
		}

		w.mu.Unlock()
		if f.data != nil {
			if err := w.transport.pass(w.ctx, time.Until(f.at.Add(w.transport.Lag()))); err != nil {
				return nil, err
			}

			return f.data, nil
		}

		select {
		case <-w.ready:
		case <-w.closed:
			return nil, errReset
		case <-w.ctx.Done():
			return nil, w.ctx.Err()
		case <-limit:
			if err := w.transport.Gate(w.ctx); err != nil {
				return nil, err
			}

			w.over = true
			if w.expires {
				_, raw := refusal(apierrors.NewResourceExpired("too old resource version"))
				return encodeFrame("ERROR", raw), nil
			}

			return nil, io.EOF
		}
	}
}

// Close implements io.Closer.
func (w *stream) Close() error {
	w.close.Do(func() {
		close(w.closed)
		w.server.mu.Lock()
		w.server.watches = slices.DeleteFunc(w.server.watches, func(other *stream) bool { return other == w })
		w.server.mu.Unlock()
	})
	return nil
}
