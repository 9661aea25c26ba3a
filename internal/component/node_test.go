// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func effectiveOf(t *testing.T, text string) Effective {
	t.Helper()
	return assert.Value(decodeEffective([]byte(text)))(t)
}

func TestAFieldIsFoundByItsJSONPath(t *testing.T) {
	e := effectiveOf(t, `{"MaxPods":110,"ResolverConfig":"/r","Authentication":{"X509":{"ClientCAFile":"/ca"}},
		"EvictionHard":{"memory.available":"5%"},"TracingNull":null,"Big":9223372036854775807}`)
	for path, want := range map[string]string{
		"maxPods":                          "110 true",
		"MAXPODS":                          "110 true",
		"resolvConf":                       "/r true",
		"authentication.x509.clientCAFile": "/ca true",
		"evictionHard[memory.available]":   "5% true",
		"evictionHard[Memory.available]":   "<nil> false",
		"evictionHard.memory.available":    "<nil> false",
		"maxPods.inner":                    "<nil> false",
		"tracingNull":                      "<nil> true",
		"none":                             "<nil> false",
		"":                                 "<nil> false",
		"big":                              "9223372036854775807 true",
	} {
		v, ok := e.Field(path)
		assert.Equal(t, fmt.Sprintf("%v %v", v, ok), want, path)
	}

	_, isNumber := e.Int("resolvConf")
	_, isField := Effective(nil).Field("maxPods")
	assert.That(t, !isNumber && !isField, "a string is a number: %t, nothing has a field: %t", isNumber, isField)
}

func TestTheHealthEndpointComesFromTheEffectiveConfiguration(t *testing.T) {
	for text, want := range map[string]string{
		`{}`: "http://127.0.0.1:10248/healthz",
		`{"HealthzBindAddress":"10.1.2.3","HealthzPort":99}`: "http://10.1.2.3:99/healthz",
		`{"HealthzBindAddress":"0.0.0.0"}`:                   "http://127.0.0.1:10248/healthz",
		`{"HealthzBindAddress":"::"}`:                        "http://[::1]:10248/healthz",
		`{"HealthzBindAddress":"fd00::1"}`:                   "http://[fd00::1]:10248/healthz",
		`{"HealthzPort":0}`:                                  "",
	} {
		assert.Equal(t, (&Kubelet{}).HealthzURL(effectiveOf(t, text)), want, text)
	}

	assert.Equal(t, (&Kubelet{}).HealthzURL(nil), "http://127.0.0.1:10248/healthz", "unknown configuration")
}

func TestOnlyTheResponseOkIsHealthy(t *testing.T) {
	answer, status, connections := "ok", 200, map[string]bool{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		connections[r.RemoteAddr] = true
		w.WriteHeader(status)
		fmt.Fprint(w, answer)
	}))
	health := NewHealth(server.URL)
	defer health.Close()
	for range 3 {
		assert.NoError(t, health.Healthz(context.Background()))
	}

	assert.That(t, len(connections) == 1, "three questions took %d connections", len(connections))
	answer = "no"
	assert.Error(t, health.Healthz(context.Background()), `healthz: "no"`)
	status = 500
	assert.Error(t, health.Healthz(context.Background()), "healthz: 500 Internal Server Error: no")
	server.Close()
	assert.ErrorHas(t, health.Healthz(context.Background()), "connection refused")
}

func TestConfigzReturnsTheRunningConfigurationOrWhoseErrorItIs(t *testing.T) {
	answer := `{"kubeletconfig":{"maxPods":42,"resolvConf":"/r"}}`
	mux := http.NewServeMux()
	mux.HandleFunc("/configz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, answer) })
	server := httptest.NewServer(mux)
	configz := func(url string) (Effective, error) { return Configz(context.Background(), server.Client(), url) }
	assert.Equal(t, fmt.Sprint(assert.Value(configz(server.URL+"/"))(t)), "map[maxPods:42 resolvConf:/r]")
	for _, tt := range []struct{ answer, want string }{
		{"hello", "configz: invalid character 'h' looking for beginning of value"},
		{"{}", `configz: no kubeletconfig in "{}"`},
		{`{"kubeletconfig":[]}`, "configz: must be a mapping of fields, not a list"},
	} {
		answer = tt.answer
		assert.Error(t, assert.Err(configz(server.URL)), tt.want, tt.answer)
	}

	err := assert.Err(configz(server.URL + "/x"))
	assert.Error(t, err, "configz: 404 Not Found: 404 page not found")
	refused, ok := errors.AsType[*StatusError](err)
	assert.That(t, ok && refused.Code == http.StatusNotFound, "the error is %#v", err)
	assert.ErrorHas(t, assert.Err(configz("::")), "missing protocol scheme")
	server.Close()
	_, silent := errors.AsType[*url.Error](assert.Err(configz(server.URL)))
	assert.That(t, silent, "the error of a kubelet that does not answer is no *url.Error")
}

func TestStaticPodsAreTheFilesThatTheKubeletReads(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"empty", "dots", "full", "full/sub", "link"} {
		assert.NoError(t, os.MkdirAll(filepath.Join(dir, d), 0o700))
	}

	write(t, filepath.Join(dir, "dots", ".x.yaml"), "", 0o600)
	write(t, filepath.Join(dir, "full", "x.yaml"), "", 0o600)
	write(t, filepath.Join(dir, "file"), "", 0o600)
	assert.NoError(t, errors.Join(os.Symlink("../full/x.yaml", filepath.Join(dir, "link", "x")), os.Mkdir(filepath.Join(dir, "empty", "d"), 0o700)))
	for name, want := range map[string]string{
		"": "false <nil>", "none": "false <nil>", "empty": "false <nil>", "dots": "false <nil>",
		"full": "true <nil>", "link": "true <nil>", "file": "true <nil>",
		"file/x": "false static pods: stat " + dir + "/file/x: not a directory",
	} {
		path := name
		if name != "" {
			path = filepath.Join(dir, name)
		}

		has, err := HasStaticPods(Effective{"StaticPodPath": path})
		assert.Equal(t, fmt.Sprint(has, err), want, name)
	}
}

func TestARuntimeIsReachableWhenItsSocketAnswers(t *testing.T) {
	dir := shortDir(t)
	runtime := startCRI(t, dir+"/s")
	hung := assert.Value(net.Listen("unix", dir+"/hung"))(t) // accepts connections and never answers
	defer hung.Close()
	for endpoint, want := range map[string]string{
		"unix://" + dir + "/s":    "<nil>",
		dir + "/s":                "<nil>",
		"unix://" + dir + "/none": "the container runtime does not answer: dial unix " + dir + "/none: connect: no such file or directory",
		"unix://" + dir + "/hung": "the container runtime does not answer: context deadline exceeded",
		"tcp://127.0.0.1:1":       `the container runtime does not answer: the container runtime endpoint "tcp://127.0.0.1:1" is not a unix socket`,
		"":                        `the container runtime does not answer: the container runtime endpoint "" is not a unix socket`,
	} {
		assert.Equal(t, fmt.Sprint(RuntimeReachable(t.Context(), endpoint)), want, endpoint)
	}

	runtime["RuntimeService/Version"] = status.Error(codes.Unavailable, "not yet")
	assert.Error(t, RuntimeReachable(t.Context(), dir+"/s"), "the container runtime does not answer: not yet (gRPC code 14)", "a runtime that is starting")
	assert.Equal(t, RuntimeEndpoint(Effective{"ContainerRuntimeEndpoint": "unix:///x"}), "unix:///x", "endpoint =")
}

func TestStateFilesAreMovedAsideAndNeverOverwritten(t *testing.T) {
	dir := t.TempDir()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	file := filepath.Join(dir, "cpu_manager_state")
	for i := range 3 {
		write(t, file, fmt.Sprint(i), 0o600)
		moved := assert.Value(MoveAside([]string{filepath.Join(dir, "gone"), file}, now.Add(time.Duration(i))))(t)
		name := file + fmt.Sprintf(".evenkeel-20260102T030405.00000000%dZ", i)
		assert.That(t, slices.Equal(moved, []string{name}), "moved to %q, want %q", moved, name)
		text, _ := os.ReadFile(name)
		assert.That(t, string(text) == fmt.Sprint(i), "%s holds %q", name, text)
	}

	assert.Is(t, assert.Err(os.Stat(file)), fs.ErrNotExist, "the file is still there")
	write(t, file, "again", 0o600)
	assert.Is(t, assert.Err(MoveAside([]string{file}, now)), fs.ErrExist, "at the same moment")
	for hour := range 6 { // the last one by a clock that was set back
		write(t, file, "", 0o600)
		write(t, file+".evenkeel", "a person's", 0o600)
		assert.NoError(t, assert.Err(MoveAside([]string{file}, now.Add(3+time.Duration(hour%5-3)*time.Hour))))
	}

	left := assert.Value(filepath.Glob(file + "*"))(t)
	for i := range left {
		left[i] = strings.TrimPrefix(left[i], file+".evenkeel")
	}

	want := []string{"", "-20260102T000405.000000003Z", "-20260102T030405.000000001Z", "-20260102T030405.000000002Z", "-20260102T030405.000000003Z",
		"-20260102T040405.000000003Z"}
	assert.That(t, slices.Equal(left, want), "left are %q, want %q", left, want)
	write(t, file, "", 0o600)
	other := filepath.Join(dir, "other")
	write(t, other, "", 0o600)
	moved, err := MoveAside([]string{file, other + "/x"}, now)
	assert.Error(t, err, "could not move the state file "+other+"/x aside: not a directory")
	assert.Equal(t, len(moved), 1, "moved")
}
