// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package simapi

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// call is a request whose body was read.
type call struct {
	by          string
	method      string
	url         *url.URL
	contentType string
	body        []byte
	stale       time.Duration // of a read: how old the answer is
}

// target is what the path of a request names.
type target struct {
	kind        *Kind
	at          key
	subresource string
}

// resolve finds the target of a path such as
// /apis/GROUP/VERSION/namespaces/NAMESPACE/RESOURCE/NAME/SUBRESOURCE.
func (s *Server) resolve(path string) (target, *statusError) {
	unknown := &statusError{http.StatusNotFound, "NotFound", "the server could not find the requested resource"}
	parts := strings.Split(strings.Trim(path, "/"), "/")
	group := ""
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		group, parts = parts[1], parts[3:]
	default:
		return target{}, unknown
	}

	var t target
	if len(parts) > 2 && parts[0] == "namespaces" {
		t.at.namespace, parts = parts[1], parts[2:]
	}
	if t.kind = s.kinds[parts[0]+"/"+group]; t.kind == nil {
		return target{}, unknown
	}
	if len(parts) > 1 {
		t.at.name = parts[1]
	}
	if len(parts) > 2 {
		t.subresource = parts[2]
	}

	return t, nil
}

// serve answers a request that is no watch.
func (s *Server) serve(c call) (code int, answer []byte) {
	if c.url.Path == "/version" {
		return http.StatusOK, []byte(`{"major":"1","minor":"37","gitVersion":"v1.37.0-simulated"}`)
	}

	if c.method == http.MethodGet && s.OnRead != nil {
		if t, err := s.resolve(c.url.Path); err == nil && t.at.name != "" {
			s.OnRead(t.kind.Resource, t.at.name)
		}
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	code, answer, err := s.handle(c)
	if err != nil {
		return err.code, err.body()
	}

	return code, answer
}

// body returns the error as an object of kind Status.
func (e *statusError) body() []byte {
	return encode(map[string]any{
		"kind": "Status", "apiVersion": "v1", "metadata": map[string]any{}, "status": "Failure",
		"message": e.message, "reason": e.reason, "code": e.code,
	})
}

// handle answers a request. The caller holds mu.
func (s *Server) handle(c call) (int, []byte, *statusError) {
	t, failed := s.resolve(c.url.Path)
	if failed != nil {
		return 0, nil, failed
	}
	if t.kind.Sink {
		return http.StatusCreated, s.echo(t.kind, c.body), nil
	}

	if c.method == http.MethodGet && t.at.name == "" {
		x, failed := s.selectionOf(t, c.url.Query())
		if failed != nil {
			return 0, nil, failed
		}

		return http.StatusOK, s.listed(x, c.stale), nil
	}

	if c.method == http.MethodPost {
		return s.post(c, t)
	}

	// Without a resource version, a real API server answers a read of one
	// object from etcd.
	if c.method == http.MethodGet && c.stale > 0 && c.url.Query().Get("resourceVersion") != "" {
		if o := s.was(t.kind, t.at, c.stale); o != nil {
			return http.StatusOK, o.raw, nil
		}

		return 0, nil, failf(http.StatusNotFound, "NotFound", "%s not found", t.kind.named(t.at.name))
	}

	was, failed := s.get(t.kind, t.at)
	if failed != nil {
		return 0, nil, failed
	}

	switch c.method {
	case http.MethodGet:
		return http.StatusOK, was.raw, nil
	case http.MethodDelete:
		return s.delete(c, t, was)
	case http.MethodPut, http.MethodPatch:
		var content map[string]any
		if c.method == http.MethodPatch {
			content, failed = t.kind.patched(was.content, c.contentType, c.body)
		} else if decoded, err := decode(c.body); err != nil {
			failed = failf(http.StatusBadRequest, "BadRequest", "decode the object: %v", err)
		} else {
			content = decoded
		}

		if failed != nil {
			return 0, nil, failed
		}

		is, failed := s.update(c.by, t.kind, was, content, t.subresource)
		if failed != nil {
			return 0, nil, failed
		}

		return http.StatusOK, is.raw, nil
	}

	return 0, nil, failf(http.StatusMethodNotAllowed, "MethodNotAllowed", "%s is not served", c.method)
}

func (s *Server) post(c call, t target) (int, []byte, *statusError) {
	content, err := decode(c.body)
	if err != nil {
		return 0, nil, failf(http.StatusBadRequest, "BadRequest", "decode the object: %v", err)
	}
	if t.subresource == "eviction" {
		return s.evict(c.by, t, content)
	}

	o, failed := s.create(c.by, t.kind, t.at.namespace, content)
	if failed != nil {
		return 0, nil, failed
	}

	return http.StatusCreated, o.raw, nil
}

func (s *Server) delete(c call, t target, was *object) (int, []byte, *statusError) {
	var options metav1.DeleteOptions
	if len(bytes.TrimSpace(c.body)) > 0 {
		if err := decodeInto(c.body, &options); err != nil {
			return 0, nil, failf(http.StatusBadRequest, "BadRequest", "decode the options: %v", err)
		}
	}

	meta := sub(was.content, "metadata")
	if p := options.Preconditions; p != nil {
		if p.UID != nil && string(*p.UID) != text(meta, "uid") || p.ResourceVersion != nil && *p.ResourceVersion != text(meta, "resourceVersion") {
			return 0, nil, failf(http.StatusConflict, "Conflict", "Operation cannot be fulfilled on %s: the precondition does not hold", t.kind.named(was.key.name))
		}
	}

	s.remove(c.by, t.kind, was)

	return http.StatusOK, was.raw, nil
}

// echo returns what was written to a sink, with a name.
func (s *Server) echo(k *Kind, body []byte) []byte {
	content, err := decode(body)
	if err != nil {
		content = map[string]any{}
	}

	s.created++
	content["apiVersion"], content["kind"] = k.apiVersion(), k.Kind
	merge(content, k.Answer)
	meta := sub(content, "metadata")
	if text(meta, "name") == "" {
		meta["name"] = fmt.Sprintf("%s-%d", k.Resource, s.created)
	}

	return encode(content)
}

func (s *Server) selectionOf(t target, query url.Values) (*selection, *statusError) {
	x := &selection{kind: t.kind, namespace: t.at.namespace}
	var err error
	if x.labels, err = labels.Parse(query.Get("labelSelector")); err == nil {
		x.fields, err = fields.ParseSelector(query.Get("fieldSelector"))
	}
	if err != nil {
		return nil, failf(http.StatusBadRequest, "BadRequest", "%v", err)
	}

	return x, nil
}

func (s *Server) listed(x *selection, ago time.Duration) []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, `{"apiVersion":%q,"kind":"%sList","metadata":{"resourceVersion":"%d"},"items":[`, x.kind.apiVersion(), x.kind.Kind, s.versionAt(x.kind, ago))
	for i, o := range s.list(x, ago) {
		if i > 0 {
			out.WriteByte(',')
		}

		out.Write(o.raw)
	}

	out.WriteString("]}")

	return out.Bytes()
}

// openWatch opens a watch.
func (s *Server) openWatch(c call) (*stream, *statusError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, failed := s.resolve(c.url.Path)
	if failed != nil {
		return nil, failed
	}

	query := c.url.Query()
	x, failed := s.selectionOf(t, query)
	if failed != nil {
		return nil, failed
	}

	w := &stream{selection: *x, server: s, ready: make(chan struct{}, 1), closed: make(chan struct{})}
	s.created++
	w.serial = s.created
	if seconds, err := strconv.Atoi(query.Get("timeoutSeconds")); err == nil {
		w.until = time.Now().Add(time.Duration(seconds) * time.Second)
	}

	switch from := query.Get("resourceVersion"); {
	case query.Get("sendInitialEvents") == "true":
		for _, o := range s.list(x, c.stale) {
			w.push(encodeFrame("ADDED", o))
		}

		w.push(encodeFrame("BOOKMARK", &object{raw: encode(map[string]any{
			"apiVersion": t.kind.apiVersion(), "kind": t.kind.Kind,
			"metadata": map[string]any{
				"resourceVersion": strconv.FormatInt(s.versionAt(t.kind, c.stale), 10), "creationTimestamp": nil,
				"annotations": map[string]any{metav1.InitialEventsAnnotationKey: "true"},
			},
		})}))
		if c.stale > 0 {
			s.catchUp(w, c.stale)
		}
	case from != strconv.FormatInt(s.version, 10): // no history is kept
		return nil, failf(http.StatusGone, "Expired", "too old resource version: %s (%d)", from, s.version)
	}

	s.watches = append(s.watches, w)

	return w, nil
}
