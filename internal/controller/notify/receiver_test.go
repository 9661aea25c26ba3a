// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestParseReceiver(t *testing.T) {
	for text, want := range map[string]Receiver{
		"ops=https://example.com/hook":             {Name: "ops", URL: "https://example.com/hook"},
		"ops=http://10.0.0.1:8080":                 {Name: "ops", URL: "http://10.0.0.1:8080"},
		"o-1=https://e/?a=b,c=d":                   {Name: "o-1", URL: "https://e/?a=b,c=d"},
		"ops=https://e/,key-file=/k":               {Name: "ops", URL: "https://e/", KeyFile: "/k"},
		"ops=https://e/,ca-file=/c,key-file=/k":    {Name: "ops", URL: "https://e/", KeyFile: "/k", CAFile: "/c"},
		"ops=https://e/a,b,key-file=/k,ca-file=/c": {Name: "ops", URL: "https://e/a,b", KeyFile: "/k", CAFile: "/c"},
	} {
		assert.Returns(t, want, text)(ParseReceiver(text))
	}

	for text, want := range map[string]string{
		"":                                  "must be NAME=URL",
		"https://secret.example.com":        "must be NAME=URL",
		"=https://e":                        "must be NAME=URL",
		"Ops=https://e":                     "lower-case",
		"ops=ftp://secret":                  "ops: the URL must begin with https://",
		"ops=https:///secret":               "have a host",
		"ops=https://e/#secret":             "no fragment",
		"ops=https://e%zz/secret":           "the URL must begin",
		"ops=https://e,key-file=":           "ops: key-file must name one file",
		"ops=https://e,ca-file=a,ca-file=b": "ops: ca-file must name one file",
		"ops=http://e,ca-file=/c":           "ops: a ca-file needs an https:// URL",
	} {
		_, err := ParseReceiver(text)
		assert.That(t, err != nil && strings.Contains(err.Error(), want) && !strings.Contains(err.Error(), "secret"),
			"%s: error %v, want %q", text, err, want)
	}
}

// write writes a file of a test and returns its path.
func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	rewrite(t, path, content)
	return path
}

func rewrite(t *testing.T, path, content string) {
	t.Helper()
	assert.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}

// sender returns a client for a handler, and a function that returns what it
// received last.
func sender(t *testing.T, r Receiver, answer http.HandlerFunc) (*client, func() (*http.Request, string)) {
	t.Helper()
	var last atomic.Pointer[http.Request]
	var body atomic.Value
	body.Store("")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		body.Store(string(data))
		last.Store(r)
		answer(w, r)
	}))
	t.Cleanup(server.Close)
	r.URL = server.URL + "/a-secret"
	c := &client{receiver: r, agent: "evenkeel-controller/v1"}

	return c, func() (*http.Request, string) { return last.Load(), body.Load().(string) }
}

func answers(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

func TestAnEventArrivesWithItsSignature(t *testing.T) {
	const body, secret = `{"id":"1"}`, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	key := write(t, "key", secret+"\n")
	c, received := sender(t, Receiver{KeyFile: key}, answers(http.StatusAccepted))
	assert.NoError(t, c.send(t.Context(), "uid.1", []byte(body)))
	r, got := received()
	assert.Equal(t, r.Header.Get("Content-Type"), "application/cloudevents+json; charset=utf-8")
	assert.That(t, r.Method == http.MethodPost && got == body && r.UserAgent() == "evenkeel-controller/v1",
		"got %s %q with %v", r.Method, got, r.Header)
	stamp := r.Header.Get("webhook-timestamp")
	sent := assert.Value(strconv.ParseInt(stamp, 10, 64))(t)
	assert.That(t, r.Header.Get("webhook-id") == "uid.1" && time.Since(time.Unix(sent, 0)) < time.Minute, "got %v", r.Header)
	signature := r.Header.Get("webhook-signature")
	assert.Equal(t, signature, sign(assert.Value(readKey(key))(t), "uid.1", stamp, []byte(body)), "the signature")
	rewrite(t, key, "whsec_"+base64.StdEncoding.EncodeToString([]byte("another key, of more bytes")))
	assert.NoError(t, c.send(t.Context(), "uid.1", []byte(body)))
	r, _ = received()
	assert.That(t, r.Header.Get("webhook-signature") != signature, "the changed key is not used")

	c, received = sender(t, Receiver{}, answers(http.StatusOK))
	assert.NoError(t, c.send(t.Context(), "uid.1", nil))
	r, _ = received()
	assert.That(t, r.Header.Get("webhook-signature") == "" && r.Header.Get("webhook-id") == "uid.1", "without a key: %v", r.Header)
}

// The example of the specification of Standard Webhooks, which its libraries
// test too.
func TestTheSignatureIsThatOfStandardWebhooks(t *testing.T) {
	key := assert.Value(readKey(write(t, "key", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")))(t)
	got := sign(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", []byte(`{"test": 2432232314}`))
	assert.Equal(t, got, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", "the signature")
}

func TestWithoutAUsableKeyNothingIsSent(t *testing.T) {
	for name, tt := range map[string]struct{ file, want string }{
		"missing":   {filepath.Join(t.TempDir(), "none"), "no such file"},
		"short":     {write(t, "key", "whsec_dG9vIHNob3J0\n"), "must contain whsec_ and a key of 24 to 64 bytes in base64: create one with: echo whsec_$(openssl rand -base64 32)"},
		"bare":      {write(t, "key", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n"), "must contain whsec_"},
		"no base64": {write(t, "key", "whsec_0123456789abcdef0123456789abcdef!\n"), "must contain whsec_"},
		"empty":     {write(t, "key", "\n"), "must contain whsec_"},
		"directory": {t.TempDir(), "is not a regular file"},
		"large":     {write(t, "key", strings.Repeat("k", mostFileBytes+1)), "is larger than the limit of 1048576 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			c, received := sender(t, Receiver{KeyFile: tt.file}, answers(http.StatusOK))
			err := c.send(t.Context(), "1", nil)
			assert.ErrorHas(t, err, "sign the event: ")
			assert.ErrorHas(t, err, tt.want)
			r, _ := received()
			assert.That(t, !errors.Is(err, errRejected) && r == nil, "error %v; an unsigned event was sent: %v", err, r)
		})
	}
}

func TestAnswersOfReceivers(t *testing.T) {
	for name, tt := range map[string]struct {
		answer   http.HandlerFunc
		want     string // of the error; empty: it has arrived
		rejected bool
	}{
		"200": {answers(200), "", false},
		"204": {answers(204), "", false},
		"302": {func(w http.ResponseWriter, r *http.Request) {
			assert.That(t, r.URL.Path == "/a-secret", "the redirect was followed")
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		}, "the receiver answered 302 Found: redirects are not followed, configure the final URL", false},
		"307": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}, "the receiver answered 307 Temporary Redirect", false},
		"400": {answers(400), "the receiver rejected the event: 400 Bad Request", true},
		"401": {answers(401), "the receiver answered 401 Unauthorized", false},
		"404": {answers(404), "the receiver answered 404 Not Found", false},
		"413": {answers(413), "the receiver rejected the event: 413", true},
		"429": {answers(429), "the receiver answered 429 Too Many Requests", false},
		"500": {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "\x1b[31mwords of the receiver", 500) }, "the receiver answered 500 Internal Server Error", false},
		"an answer without end": {func(w http.ResponseWriter, _ *http.Request) {
			for chunk := make([]byte, 64<<10); ; {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		}, "", false},
		"huge headers": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Long", strings.Repeat("h", 2*mostHeaders))
		}, "server response headers exceeded 65536 bytes", false},
		"a broken connection": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "EOF", false},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := sender(t, Receiver{}, tt.answer)
			err := c.send(t.Context(), "1", []byte("{}"))
			if tt.want == "" {
				assert.NoError(t, err)
				return
			}

			assert.Must(t, err != nil, "no error, want %q", tt.want)
			assert.ErrorHas(t, err, tt.want)
			assert.Equal(t, errors.Is(err, errRejected), tt.rejected, "rejected")
			assert.That(t, !strings.Contains(err.Error(), "a-secret") && !strings.Contains(err.Error(), "words of"),
				"the error has the URL or words of the receiver: %v", err)
		})
	}
}

// transport answers instead of a receiver.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestASlowReceiverIsGivenUpAfterTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &client{transport: transport(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}), receiver: Receiver{URL: "http://slow"}}
		began := time.Now()
		err := c.send(t.Context(), "1", nil)
		took := time.Since(began)
		assert.That(t, errors.Is(err, context.DeadlineExceeded) && took == requestTime, "error %v after %s", err, took)
	})
}

func TestTheServersCertificateIsVerified(t *testing.T) {
	server := httptest.NewTLSServer(answers(200))
	defer server.Close()
	own := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	c := &client{receiver: Receiver{URL: server.URL}}
	assert.ErrorHas(t, c.send(t.Context(), "1", nil), "certificate", "an unknown certificate")
	file := write(t, "ca", own)
	c = &client{receiver: Receiver{URL: server.URL, CAFile: file}}
	assert.OK(t, c.send(t.Context(), "1", nil))
	rewrite(t, file, "no certificate")
	assert.ErrorHas(t, c.send(t.Context(), "1", nil), "contains no PEM certificate", "garbage")
	assert.NoError(t, os.Remove(file))
	assert.ErrorHas(t, c.send(t.Context(), "1", nil), "read the CA certificates: ", "missing")
	rewrite(t, file, own+"\n")
	assert.OK(t, c.send(t.Context(), "1", nil), "restored")
}

// A receiver that is accepted has an http or https URL with a host; an error
// does not show the URL, which can have a secret.
func FuzzReceiver(f *testing.F) {
	for _, text := range []string{"a=https://b/c?d=e,f,key-file=/g,ca-file=/h", "a=http://b", "a=ftp://b", "=", "a=https://b,key-file=", "a=https://b,ca-file=x,ca-file=y", "a=http://b,ca-file=x", "a=https://%zz"} {
		f.Add(text)
	}

	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseReceiver(text)
		if err != nil {
			return
		}

		u, err := url.Parse(r.URL)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || r.CAFile != "" && u.Scheme != "https" || r.Name == "" {
			t.Errorf("%q was accepted as %+v", text, r)
		}
	})
}
