// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package auditlog reads the audit log of a test's API server and counts its
// requests, for the benchmarks.
//
// The package must not know which requests matter: its user gives the audit
// policy.
package auditlog

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unique"

	"github.com/evenkeel/evenkeel/testkit/must"
)

// Log is the API server's audit log.
type Log struct {
	Requests []Request

	path     string
	offset   int64
	statuses map[string]string // the last one of each NodeConfig, as plainStatus returns it
}

// OfProgress ends the Resource of a NodeConfig's status that differs from the
// one before in the progress of a trial only. The policy must log these patches
// at the level Request.
const OfProgress = " (progress of a trial)"

// Request is a logged stage of a request.
type Request struct {
	Program  string // from the user agent: kubelet, evenkeel-controller, ...
	Verb     string
	Resource string // with the subresource
	Name     string // of the object
	Code     int    // 0 if the stage is RequestReceived
	// Assigns is the rollout on whose behalf a JSON patch of a NodeConfig
	// assigns a configuration; empty: none, or the policy does not log such
	// patches at the level Request.
	Assigns  string
	Received time.Time
	Answered time.Time // when the stage was reached
}

// New writes an audit policy to a directory, and returns its log and the flags
// of the API server.
func New(dir, policy string) (*Log, []string, error) {
	file, path := filepath.Join(dir, "audit-policy.yaml"), filepath.Join(dir, "audit.log")
	if err := os.WriteFile(file, []byte(policy), 0o600); err != nil {
		return nil, nil, err
	}

	// A rotated log (by default after 100 MB) would not be counted.
	return &Log{path: path}, []string{"--audit-policy-file=" + file, "--audit-log-path=" + path, "--audit-log-maxsize=100000"}, nil
}

// Read reads the lines that were added.
func (l *Log) Read() (err error) {
	defer must.Catch(&err)

	file := must.Get(os.Open(l.path))
	defer file.Close()
	must.Get(file.Seek(l.offset, io.SeekStart))
	in := bufio.NewReaderSize(file, 1<<20)
	for {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil // an incomplete line is read when it is complete
		}
		if err != nil {
			return err
		}

		l.offset += int64(len(line))
		r, err := l.parse(bytes.TrimSpace(line))
		if err != nil {
			return fmt.Errorf("%s: %w", l.path, err)
		}

		l.Requests = append(l.Requests, r)
	}
}

func (l *Log) parse(line []byte) (Request, error) {
	var event struct {
		Verb, UserAgent                          string
		ObjectRef                                struct{ Resource, Subresource, Name string }
		RequestObject                            json.RawMessage
		ResponseStatus                           struct{ Code int }
		RequestReceivedTimestamp, StageTimestamp time.Time
	}
	if err := json.Unmarshal(line, &event); err != nil {
		return Request{}, fmt.Errorf("%w in %.80q", err, line)
	}

	program, _, _ := strings.Cut(event.UserAgent, "/")
	resource := event.ObjectRef.Resource
	if sub := event.ObjectRef.Subresource; sub != "" {
		resource += "/" + sub
	}

	r := Request{Name: shared(event.ObjectRef.Name), Code: event.ResponseStatus.Code, Received: event.RequestReceivedTimestamp, Answered: event.StageTimestamp}
	var operations []struct {
		Path  string
		Value json.RawMessage
	}
	if json.Unmarshal(event.RequestObject, &operations) != nil {
		operations = nil // of another kind of patch
	}

	for _, o := range operations {
		switch o.Path {
		case "/spec":
			var spec struct {
				ConfigSource struct{ RolloutRef struct{ Name string } }
			}
			if json.Unmarshal(o.Value, &spec) == nil { // otherwise the API server refuses it
				r.Assigns = shared(spec.ConfigSource.RolloutRef.Name)
			}
		case "/status":
			plain, err := plainStatus(o.Value)
			if err != nil {
				return Request{}, fmt.Errorf("%w in %.80q", err, line)
			}

			if r.Succeeded() {
				if l.statuses[r.Name] == plain {
					resource += OfProgress
				}
				if l.statuses == nil {
					l.statuses = map[string]string{}
				}

				l.statuses[r.Name] = plain
			}
		}
	}

	r.Program, r.Verb, r.Resource = shared(program), shared(event.Verb), shared(resource)

	return r, nil
}

// shared returns one copy of equal texts: a log has millions of requests.
func shared(text string) string { return unique.Make(text).Value() }

// plainStatus returns the status in an agent's JSON patch, as text without the
// progress of a trial and the numbers of pods.
func plainStatus(raw json.RawMessage) (string, error) {
	var status map[string]any
	if err := json.Unmarshal(raw, &status); err != nil {
		return "", err
	}

	delete(status, "workloadPods")
	delete(status, "podsUnreadyOnRestart")
	if trial, ok := status["trial"].(map[string]any); ok {
		delete(trial, "healthySeconds")
		delete(trial, "restarts")
	}

	text, err := json.Marshal(status)

	return string(text), err
}

// Write reports whether a request writes.
func (r *Request) Write() bool {
	return slices.Contains([]string{"create", "update", "patch", "delete"}, r.Verb)
}

// Succeeded reports whether a request was carried out.
func (r *Request) Succeeded() bool { return r.Code >= 200 && r.Code < 300 }

// Key identifies requests that are counted together.
type Key struct{ Program, Verb, Resource string }

// Count counts the requests received in a period.
func (l *Log) Count(from, to time.Time, which func(*Request) bool) map[Key]int {
	out := map[Key]int{}
	for i := range l.Requests {
		r := &l.Requests[i]
		if !r.Received.Before(from) && r.Received.Before(to) && which(r) {
			out[Key{r.Program, r.Verb, r.Resource}]++
		}
	}

	return out
}
