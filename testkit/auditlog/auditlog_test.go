// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package auditlog

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

const line = `{"kind":"Event","level":"Metadata","stage":"ResponseComplete","verb":"patch","userAgent":"evenkeel-agent/hollow","objectRef":{"resource":"nodeconfigs","name":"hollow-7","subresource":"status"},"responseStatus":{"code":200},"requestReceivedTimestamp":"2030-01-01T00:00:01.000000Z","stageTimestamp":"2030-01-01T00:00:02.500000Z"}`

func TestRequestsAreCountedOncePerUser(t *testing.T) {
	a := &Log{path: filepath.Join(t.TempDir(), "audit.log")}
	refused := strings.Replace(line, `"code":200`, `"code":429`, 1)
	read := strings.Replace(strings.Replace(line, `"patch"`, `"get"`, 1), "evenkeel-agent/", "evenkeel-controller/", 1)
	later := strings.Replace(line, "00:00:01", "00:01:00", 1)
	all := strings.Join([]string{line, refused, read, later}, "\n") + "\n"
	for _, part := range []string{all[:len(line)/2], all[len(line)/2 : len(line)*2], all[len(line)*2:]} { // while it is written
		file := assert.Value(os.OpenFile(a.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600))(t)
		assert.NoError(t, assert.Err(file.WriteString(part)))
		file.Close()
		assert.NoError(t, a.Read())
	}

	begin := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	status := Key{"evenkeel-agent", "patch", "nodeconfigs/status"}
	for _, tt := range []struct {
		what  string
		which func(*Request) bool
		want  map[Key]int
	}{
		{"writes", (*Request).Write, map[Key]int{status: 2}},
		{"writes that were carried out", func(r *Request) bool { return r.Write() && r.Succeeded() }, map[Key]int{status: 1}},
		{"everything", func(*Request) bool { return true }, map[Key]int{status: 2, {"evenkeel-controller", "get", "nodeconfigs/status"}: 1}},
	} {
		got := a.Count(begin, begin.Add(time.Minute), tt.which)
		assert.That(t, maps.Equal(got, tt.want), "%s: %v, want %v", tt.what, got, tt.want)
	}

	assert.Equal(t, a.Requests[0].Answered.Sub(begin), 2500*time.Millisecond)
}

func TestStatusesOfProgressAreCountedSeparately(t *testing.T) {
	a := &Log{}
	patch := func(node, status string) string {
		line := strings.Replace(line, "hollow-7", node, 1)
		return strings.TrimSuffix(line, "}") + `,"requestObject":[{"op":"test","path":"/metadata/uid","value":"u"},{"op":"add","path":"/status","value":` + status + `}]}`
	}
	for _, tt := range []struct{ line, want string }{
		{patch("a", `{"error":"x","trial":{"healthySeconds":0,"durationSeconds":5}}`), "nodeconfigs/status"},
		{patch("b", `{"error":"x","trial":{"healthySeconds":1,"durationSeconds":5}}`), "nodeconfigs/status"},
		{patch("a", `{"error":"x","trial":{"healthySeconds":1,"durationSeconds":5,"restarts":1},"workloadPods":3}`), "nodeconfigs/status" + OfProgress},
		{strings.Replace(patch("a", `{"error":"x","trial":{"healthySeconds":2,"durationSeconds":5}}`), `"code":200`, `"code":409`, 1), "nodeconfigs/status"},
		{patch("a", `{"error":"y","trial":{"healthySeconds":2,"durationSeconds":5}}`), "nodeconfigs/status"},
		{patch("a", `{"error":"y"}`), "nodeconfigs/status"},
		{line, "nodeconfigs/status"},
	} {
		r, err := a.parse([]byte(tt.line))
		assert.That(t, err == nil && r.Resource == tt.want, "%s: %q (%v), want %q", tt.line, r.Resource, err, tt.want)
	}
}

func TestAssignmentsAreRecognized(t *testing.T) {
	a := &Log{}
	for _, tt := range []struct{ path, value, assigns string }{
		{path: "/spec", value: `{"configSource":{"configMapRef":{"name":"x"},"rolloutRef":{"name":"workers","revision":2}}}`, assigns: "workers"},
		{path: "/spec", value: `{"configSource":{"local":{}}}`},
		{path: "/spec", value: `"no object"`},
		{path: "/metadata/annotations", value: `{"configSource":{"rolloutRef":{"name":"workers"}}}`},
		{path: "/status", value: `{"error":"x"}`},
	} {
		line := strings.TrimSuffix(line, "}") + `,"requestObject":[{"op":"test","path":"/metadata/uid","value":"u"},{"op":"add","path":"` + tt.path + `","value":` + tt.value + `}]}`
		r, err := a.parse([]byte(line))
		assert.That(t, err == nil && r.Name == "hollow-7" && r.Assigns == tt.assigns,
			"%s %s: %+v (%v), want hollow-7, the rollout %q", tt.path, tt.value, r, err, tt.assigns)
	}

	assert.That(t, assert.Err(a.parse([]byte(strings.TrimSuffix(line, "}")+`,"requestObject":[{"path":"/status","value":7}]}`))) != nil,
		"a status that is no object is accepted")
}
