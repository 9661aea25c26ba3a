// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/util/cert"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// at returns a client of one server with the name main.
func at(t *testing.T, s Server, timeout time.Duration) *Servers {
	t.Helper()
	s.Name = "main"
	return assert.Value(New([]Server{s}, timeout))(t)
}

// answering starts a server that answers every query with a text.
func answering(t *testing.T, status int, body string) *Servers {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(server.Close)

	return at(t, Server{URL: server.URL}, 5*time.Second)
}

func success(kind, result string) string {
	return fmt.Sprintf(`{"status":"success","data":{"resultType":%q,"result":%s}}`, kind, result)
}

func TestAnAnswerIsOneNumberOrNone(t *testing.T) {
	for _, test := range []struct {
		name, body string
		want       Result
	}{
		{"scalar", success("scalar", `[1,"0.25"]`), Result{Value: 0.25}},
		{"vector", success("vector", `[{"metric":{"a":"b"},"value":[1,"7"]}]`), Result{Value: 7}},
		{"infinite", success("scalar", `[1,"+Inf"]`), Result{Value: math.Inf(1)}},
		{"empty", success("vector", `[]`), Result{NoData: true}},
		{"not a number", success("vector", `[{"metric":{},"value":[1,"NaN"]}]`), Result{NoData: true}},
	} {
		assert.Returns(t, test.want, test.name)(answering(t, 200, test.body).Query(t.Context(), "main", "up", nil))
	}
}

func TestAnAnswerThatIsNotANumberIsAnError(t *testing.T) {
	for _, test := range []struct {
		name   string
		status int
		body   string
		want   string
	}{
		{"several elements", 200, success("vector", `[{"metric":{},"value":[1,"7"]},{"metric":{"a":"b"},"value":[1,"7"]}]`), "the result has 2 elements instead of one"},
		{"matrix", 200, success("matrix", `[{"metric":{},"values":[[1,"7"]]}]`), "the result is a matrix"},
		{"histogram", 200, success("vector", `[{"metric":{},"histogram":[1,{"count":"1","sum":"2"}]}]`), "the result is a histogram"},
		{"null element", 200, success("vector", `[null]`), "histogram"},
		{"unknown type", 200, success("poem", `[]`), "poem"},
		{"no result", 200, `{"status":"success","data":{}}`, ""},
		{"null", 200, success("vector", `null`), ""},
		{"number that is a text", 200, success("scalar", `[1,"seven"]`), "seven"},
		{"warning", 200, `{"status":"success","warnings":["store 3 did not answer"],"data":{"resultType":"scalar","result":[1,"7"]}}`, "store 3 did not answer"},
		{"a login page", 200, `<html>login</html>`, "main: a proxy or a login page answers in its place (a web page, HTTP 200): --prometheus-server needs the address of the API"},
		{"a proxy", 502, `<html>bad gateway</html>`, "main: a proxy or a login page answers in its place (a web page, HTTP 502)"},
		{"deep JSON", 200, strings.Repeat("[", 500_000), "bad_response"},
		{"error of the query", 400, `{"status":"error","errorType":"bad_data","error":"parse error: unexpected end of input"}`, "bad_data: parse error"},
		{"error of the server", 500, `nothing works`, "server_error"},
		{"unauthorized", 401, `secret`, "client error: 401"},
		{"control characters", 400, `{"status":"error","errorType":"bad_data","error":"\u001b[2Jevil\nline"}`, `\x1b[2Jevil line`},
		{"long error", 400, `{"status":"error","errorType":"bad_data","error":"` + strings.Repeat("x", 100_000) + `"}`, "xxx … xxx"},
	} {
		got, err := answering(t, test.status, test.body).Query(t.Context(), "main", "up", nil)
		said := fmt.Sprint(err)
		assert.That(t, strings.HasPrefix(said, "Prometheus server main: ") && strings.Contains(said, test.want) && len(said) <= 400,
			"%s: got %v; want %q", test.name, err, test.want)
		assert.Equal(t, got, Result{}, test.name)
	}
}

func TestOnlyConfiguredServersAreAsked(t *testing.T) {
	servers := answering(t, 200, success("scalar", `[1,"7"]`))
	assert.ErrorHas(t, assert.Err(servers.Query(t.Context(), "http://169.254.169.254", "up", nil)), "there is no Prometheus server")
	names := servers.Names()
	assert.That(t, len(names) == 1 && names[0] == "main", "the names are %v", names)
	none, err := New(nil, time.Second)
	assert.That(t, err == nil && len(none.Names()) == 0, "without servers: %v, %v", none.Names(), err)
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	var followed atomic.Bool
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		followed.Store(true)
		_, _ = io.WriteString(w, success("scalar", `[1,"7"]`))
	}))
	defer other.Close()
	for _, status := range []int{301, 302, 303, 307, 308} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL+"/latest/meta-data", status)
		}))
		_, err := at(t, Server{URL: server.URL}, 5*time.Second).Query(t.Context(), "main", "up", nil)
		assert.ErrorHas(t, err, "redirect", status)
		assert.That(t, !followed.Load(), "%d was followed", status)
		server.Close()
	}
}

func TestHostileServersCostLittle(t *testing.T) {
	const timeout = 500 * time.Millisecond
	for _, test := range []struct {
		name   string
		answer http.HandlerFunc
		want   string
	}{
		{"1 GiB", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(1<<30))
			pour(w, 1<<30)
		}, "more than 1048576 bytes"},
		{"endless body", func(w http.ResponseWriter, _ *http.Request) { pour(w, math.MaxInt) }, "more than 1048576 bytes"},
		{"body that never ends", func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			for r.Context().Err() == nil {
				_, _ = io.WriteString(w, " ")
				w.(http.Flusher).Flush()
				time.Sleep(10 * time.Millisecond)
			}
		}, "no answer within 500ms"},
		{"no headers", hang, "no answer within 500ms"},
		{"large headers", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("x", 1<<20)) }, "header"},
		{"compressed", func(w http.ResponseWriter, r *http.Request) {
			assert.That(t, r.Header.Get("Accept-Encoding") == "", "compressed answers are accepted")
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write([]byte{0x1f, 0x8b, 8, 0})
		}, "bad_response"},
		{"closed", func(w http.ResponseWriter, _ *http.Request) {
			if c, _, err := w.(http.Hijacker).Hijack(); err == nil {
				_ = c.Close()
			}
		}, "EOF"},
	} {
		t.Run(test.name, func(t *testing.T) {
			server := httptest.NewServer(test.answer)
			defer server.Close()
			servers := at(t, Server{URL: server.URL}, timeout)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := servers.Query(t.Context(), "main", "up", nil)
			runtime.ReadMemStats(&after)
			assert.That(t, err != nil && strings.Contains(err.Error(), test.want), "got %v, want %q", err, test.want)
			used := after.TotalAlloc - before.TotalAlloc
			assert.That(t, used <= 32<<20, "it allocated %d bytes", used)
		})
	}
}

// hang answers when the client has gone.
func hang(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // only then the server notices that the client goes
	<-r.Context().Done()
}

// pour writes many bytes, until nobody reads them.
func pour(w io.Writer, n int) {
	chunk := []byte(strings.Repeat(" ", 1<<16))
	for written := 0; written < n; written += len(chunk) {
		if _, err := w.Write(chunk); err != nil {
			return
		}
	}
}

func TestAServerThatHangsDoesNotDelayOthers(t *testing.T) {
	hanging := httptest.NewServer(http.HandlerFunc(hang))
	defer hanging.Close()
	well := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, success("scalar", `[1,"7"]`)) }))
	defer well.Close()
	servers := assert.Value(New([]Server{{Name: "hang", URL: hanging.URL}, {Name: "well", URL: well.URL}}, time.Minute))(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	var sent atomic.Int32
	for range 2 * maxAtOnce {
		go func() {
			_, err := servers.Query(ctx, "hang", "up", func() { sent.Add(1) })
			ended <- err
		}()
	}

	assert.Eventually(t, "the most requests at once are sent", func() bool { return sent.Load() >= maxAtOnce })
	assert.Returns(t, Result{Value: 7})(servers.Query(t.Context(), "well", "up", nil))
	assert.Equal(t, sent.Load(), maxAtOnce, "requests at once")
	cancel()
	for range 2 * maxAtOnce {
		assert.That(t, <-ended != nil, "a query that was interrupted has a result")
	}
}

func TestTokenAndCAAreReadAgain(t *testing.T) {
	var token atomic.Value
	token.Store("first")
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+token.Load().(string) {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}

		_, _ = io.WriteString(w, success("scalar", `[1,"7"]`))
	}))
	defer server.Close()
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	another, _, err := cert.GenerateSelfSignedCertKey("another", nil, nil)
	assert.NoError(t, err)
	dir := t.TempDir()
	s := Server{URL: server.URL, TokenFile: filepath.Join(dir, "token"), CAFile: filepath.Join(dir, "ca.crt")}
	servers := at(t, s, 5*time.Second)
	for _, step := range []struct {
		name, file, content, server, want string
	}{
		{name: "no files", want: "read the CA certificates"},
		{name: "no token", file: s.CAFile, content: ca, want: "read the token"},
		{name: "well", file: s.TokenFile, content: "first\n"},
		{name: "the server's token has changed", server: "second", want: "401"},
		{name: "the file has changed too", file: s.TokenFile, content: "second"},
		{name: "token with a line break", file: s.TokenFile, content: "sec\r\nX-Evil: 1", want: "invalid header"},
		{name: "empty token", file: s.TokenFile, content: " \n", want: "is empty"},
		{name: "large token", file: s.TokenFile, content: strings.Repeat("x", maxFile+1), want: "larger than the limit"},
		{name: "token again", file: s.TokenFile, content: "second"},
		{name: "no certificate", file: s.CAFile, content: "nothing", want: "has no PEM certificate"},
		{name: "another certificate", file: s.CAFile, content: string(another), want: "certificate"},
		{name: "certificate again", file: s.CAFile, content: ca},
	} {
		if step.file != "" {
			assert.NoError(t, os.WriteFile(step.file, []byte(step.content), 0o600))
		}
		if step.server != "" {
			token.Store(step.server)
		}

		got, err := servers.Query(t.Context(), "main", "up", nil)
		switch {
		case step.want == "" && (err != nil || got.Value != 7), step.want != "" && (err == nil || !strings.Contains(err.Error(), step.want)):
			t.Errorf("%s: got %+v, %v; want %q", step.name, got, err, step.want)
		case err != nil && (strings.Contains(err.Error(), "second") || strings.Contains(err.Error(), "X-Evil")):
			t.Errorf("%s: the error has the token: %v", step.name, err)
		}
	}
}

func TestServersThatCannotBeReached(t *testing.T) {
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	defer secure.Close()
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	for url, want := range map[string]string{
		secure.URL: "certificate", // an unknown one
		strings.Replace(secure.URL, "https:", "http:", 1): "", // it speaks TLS only
		closed.URL: "refused",
	} {
		assert.ErrorHas(t, assert.Err(at(t, Server{URL: url}, 5*time.Second).Query(t.Context(), "main", "up", nil)), want, url)
	}
}

// FuzzAnswers lets servers answer anything.
func FuzzAnswers(f *testing.F) {
	for _, body := range []string{
		success("scalar", `[1,"7"]`), success("vector", `[{"metric":{"a":"b"},"value":[1,"NaN"]}]`), success("matrix", `[{"values":[[1,"2"]]}]`),
		success("vector", `[{"metric":{},"histogram":[1,{"count":"1","sum":"2","buckets":[[0,"1","2","3"]]}]}]`), success("string", `[1,"x"]`), `{}`, `[]`, ``,
	} {
		f.Add(200, body)
	}

	f.Add(400, `{"status":"error","errorType":"bad_data","error":"x"}`)
	var status atomic.Int64
	var body atomic.Value
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(int(status.Load()))
		_, _ = io.WriteString(w, body.Load().(string))
	}))
	f.Cleanup(server.Close)
	servers := assert.Value(New([]Server{{Name: "main", URL: server.URL}}, 5*time.Second))(f)
	f.Fuzz(func(t *testing.T, code int, text string) {
		if code < 200 || code > 999 {
			code = 200
		}

		status.Store(int64(code))
		body.Store(text)
		got, err := servers.Query(t.Context(), "main", "up", nil)
		assert.That(t, (err == nil || got == (Result{})) && (err != nil || !math.IsNaN(got.Value) && (!got.NoData || got.Value == 0)),
			"got %+v, %v", got, err)
	})
}

// A server that is accepted has an http or https URL with a host, and no secret
// in it.
func FuzzServer(f *testing.F) {
	for _, text := range []string{"a=https://b:9090/c,token-file=/d,ca-file=/e", "a=http://b", "a=https://u:p@b", "a=https://b?q=1", "=", "a=https://b,token-file=", "a=https://b,ca-file=x,ca-file=y", "a=https://%zz"} {
		f.Add(text)
	}

	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseServer(text)
		if err != nil {
			return
		}

		u, err := url.Parse(s.URL)
		if err != nil || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || s.TokenFile != "" && u.Scheme != "https" || s.Name == "" {
			t.Errorf("%q was accepted as %+v", text, s)
		}
	})
}

func TestServersAreParsedFromTheFlag(t *testing.T) {
	for text, want := range map[string]Server{
		"main=http://localhost:9090":                          {Name: "main", URL: "http://localhost:9090"},
		"a-1=https://thanos.example/prefix/,token-file=/t":    {Name: "a-1", URL: "https://thanos.example/prefix/", TokenFile: "/t"},
		"b=https://[::1]:9090,ca-file=/c=d,token-file=/run/t": {Name: "b", URL: "https://[::1]:9090", CAFile: "/c=d", TokenFile: "/run/t"},
	} {
		assert.Returns(t, want, text)(ParseServer(text))
	}

	for text, want := range map[string]string{
		"":                                     "must be name=URL",
		"http://localhost:9090":                "must be name=URL",
		"Main=http://localhost":                "must be name=URL",
		strings.Repeat("a", 64) + "=http://a":  "must be name=URL",
		"main=":                                "is not a URL",
		"main=localhost:9090":                  "is not a URL",
		"main=file:///etc/passwd":              "is not a URL",
		"main=http://":                         "is not a URL",
		"main=http://:9090":                    "is not a URL",
		"main=https://user:secret@localhost":   "the URL has a user",
		"main=http://localhost?query=1":        "no query",
		"main=http://localhost#x":              "no fragment",
		"main=http://localhost,token-file=/t":  "need an https URL",
		"main=http://localhost,ca-file=/t":     "need an https URL",
		"main=https://a,ca-file=/t,ca-file=/u": "one ca-file=FILE",
		"main=https://a,ca-file=":              "one ca-file=FILE",
		"main=https://a,key=/t":                "one ca-file=FILE",
		"main=https://a,token-file=/t,ok":      "one ca-file=FILE",
	} {
		err := assert.Err(ParseServer(text))
		assert.ErrorHas(t, err, want, text)
		assert.That(t, !strings.Contains(fmt.Sprint(err), "secret"), "the error has the password: %v", err)
	}
}
