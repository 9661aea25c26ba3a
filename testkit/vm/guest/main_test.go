package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/vm/guest/protocol"
)

func ask(t *testing.T, method, path string, query url.Values, body string) *httptest.ResponseRecorder {
	t.Helper()
	answer := httptest.NewRecorder()
	handler().ServeHTTP(answer, httptest.NewRequest(method, path+"?"+query.Encode(), strings.NewReader(body)))
	return answer
}

func TestAScriptReturnsItsOutputAndExitCode(t *testing.T) {
	for script, want := range map[string]protocol.Result{
		"echo out; echo err >&2": {Output: "out\nerr\n"},
		"exit 7":                 {Code: 7},
		"kill -9 $$":             {Code: -1},
		"sleep 60 & echo left":   {Output: "left\n"},
	} {
		answer := ask(t, http.MethodPost, protocol.RunPath, nil, script)
		var got protocol.Result
		err := json.Unmarshal(answer.Body.Bytes(), &got)
		assert.That(t, err == nil && got == want, "%q: %+v, %v, want %+v", script, got, err, want)
	}
}

func TestAScriptEndsWithItsRequest(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "pid")
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for ctx.Err() == nil { // until the script runs
			if raw, err := os.ReadFile(mark); err == nil && len(raw) > 0 {
				cancel()
			}
		}
	}()
	request := httptest.NewRequest(http.MethodPost, protocol.RunPath, strings.NewReader("sleep 600 & echo $! >"+mark+"; wait")).WithContext(ctx)
	handler().ServeHTTP(httptest.NewRecorder(), request)
	pid := assert.Value(os.ReadFile(mark))(t)
	deadline := time.Now().Add(30 * time.Second)
	for time.Now().Before(deadline) {
		status, err := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/stat")
		if err != nil || strings.Contains(string(status), ") Z ") {
			return
		}
	}
	t.Errorf("process %s still runs", pid)
}

func TestAFileIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "file")
	query := url.Values{"path": {path}, "mode": {"640"}}
	for _, content := range []string{"first", "second"} {
		if answer := ask(t, http.MethodPut, protocol.FilePath, query, content); answer.Code != http.StatusOK {
			t.Fatal(answer.Body)
		}
		got, err := os.ReadFile(path)
		assert.That(t, err == nil && string(got) == content, "the file has %q, want %q: %v", got, content, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o640 {
		t.Errorf("the file is %v, %v", info, err)
	}
	query.Set("mode", "x")
	if answer := ask(t, http.MethodPut, protocol.FilePath, query, ""); answer.Code != http.StatusInternalServerError {
		t.Errorf("a mode that is no number gets the answer %d", answer.Code)
	}
}

func TestTheBootIDIsAnswered(t *testing.T) {
	got := ask(t, http.MethodGet, protocol.BootPath, nil, "").Body.String()
	assert.That(t, len(strings.TrimSpace(got)) == 36, "the boot ID is %q", got)
}
