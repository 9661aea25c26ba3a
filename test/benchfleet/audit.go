package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// asController is the identity of config/controller, which has only the permissions that the controller needs.
const asController = "system:serviceaccount:evenkeel-system:evenkeel-controller"

// auditPolicy makes the API server log every write, and all requests of the controller.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: Metadata
  users: ["` + asController + `"]
- level: Metadata
  verbs: [create, update, patch, delete]
- level: None
`

// auditLog is the API server's audit log.
type auditLog struct {
	path     string
	offset   int64
	requests []request
}

// request is one answered request.
type request struct {
	program  string // from the user agent: evenkeel-controller, evenkeel-agent, ...
	verb     string
	resource string // with the subresource
	code     int
	received time.Time
	answered time.Time
}

func newAuditLog(dir string) (*auditLog, []string, error) {
	policy, path := filepath.Join(dir, "audit-policy.yaml"), filepath.Join(dir, "audit.log")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return nil, nil, err
	}
	// A rotated log (by default after 100 MB) would not be counted.
	return &auditLog{path: path}, []string{"--audit-policy-file=" + policy, "--audit-log-path=" + path, "--audit-log-maxsize=100000"}, nil
}

// read reads the lines that were added.
func (a *auditLog) read() error {
	file, err := os.Open(a.path)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.Seek(a.offset, io.SeekStart); err != nil {
		return err
	}
	in := bufio.NewReaderSize(file, 1<<20)
	for {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil // an incomplete line is read when it is complete
		}
		if err != nil {
			return err
		}
		a.offset += int64(len(line))
		r, err := parse(bytes.TrimSpace(line))
		if err != nil {
			return fmt.Errorf("%s: %w", a.path, err)
		}
		a.requests = append(a.requests, r)
	}
}

func parse(line []byte) (request, error) {
	var event struct {
		Verb      string `json:"verb"`
		UserAgent string `json:"userAgent"`
		ObjectRef struct {
			Resource    string `json:"resource"`
			Subresource string `json:"subresource"`
		} `json:"objectRef"`
		ResponseStatus struct {
			Code int `json:"code"`
		} `json:"responseStatus"`
		Received time.Time `json:"requestReceivedTimestamp"`
		Stage    time.Time `json:"stageTimestamp"`
	}
	if err := json.Unmarshal(line, &event); err != nil {
		return request{}, fmt.Errorf("%w in %.80q", err, line)
	}
	r := request{verb: event.Verb, resource: event.ObjectRef.Resource, code: event.ResponseStatus.Code, received: event.Received, answered: event.Stage}
	r.program, _, _ = strings.Cut(event.UserAgent, "/")
	if sub := event.ObjectRef.Subresource; sub != "" {
		r.resource += "/" + sub
	}
	return r, nil
}

func (r *request) write() bool {
	switch r.verb {
	case "create", "update", "patch", "delete":
		return true
	}
	return false
}

// taken tells a request that was carried out.
func (r *request) taken() bool { return r.code >= 200 && r.code < 300 }

// key identifies requests that are counted together.
type key struct{ program, verb, resource string }

// count counts the requests received in a period.
func (a *auditLog) count(from, to time.Time, which func(*request) bool) map[key]int {
	out := map[key]int{}
	for i := range a.requests {
		r := &a.requests[i]
		if !r.received.Before(from) && r.received.Before(to) && which(r) {
			out[key{r.program, r.verb, r.resource}]++
		}
	}
	return out
}
