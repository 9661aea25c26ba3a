// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package simapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// call is a request whose body was read.
type call struct {
	write
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

// paths are those of objects, such as
// /apis/GROUP/VERSION/namespaces/NAMESPACE/RESOURCE/NAME/SUBRESOURCE.
var paths = regexp.MustCompile(`^/(?:api|apis/([^/]+))/[^/]+(?:/namespaces/([^/]+))?/([^/]+)(?:/([^/]+))?(?:/([^/]+))?$`)

// resolve finds the target of a path.
func (s *Server) resolve(path string) (target, error) {
	m := paths.FindStringSubmatch(path)
	if m == nil || s.kinds[m[3]+"/"+m[1]] == nil {
		return target{}, answerOf(http.StatusNotFound)
	}

	return target{kind: s.kinds[m[3]+"/"+m[1]], at: key{m[2], m[4]}, subresource: m[5]}, nil
}

// find returns the target of a request that the client may make.
func (s *Server) find(c call) (target, error) {
	t, err := s.resolve(c.url.Path)
	if err != nil || s.Forbids == nil {
		return t, err
	}

	verb := map[string]string{"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "GET": "get"}[c.method]
	switch {
	case verb == "get" && c.url.Query().Get("watch") == "true":
		verb = "watch"
	case verb == "get" && t.at.name == "":
		verb = "list"
	}

	if k := t.kind; s.Forbids(c.by, verb, k.Resource) {
		why := fmt.Errorf("User %q cannot %s resource %q in API group %q at the cluster scope", c.by, verb, k.Resource, k.Group)
		err = apierrors.NewForbidden(k.GroupResource(), "", why)
	}

	return t, err
}

// answerOf returns the error that has a code.
func answerOf(code int) error {
	return apierrors.NewGenericServerResponse(code, "", schema.GroupResource{}, "", "", 0, false)
}

// refusal returns the answer that has an error.
func refusal(err error) (code int, answer []byte) {
	failed, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok {
		failed = apierrors.NewBadRequest(err.Error())
	}

	st := failed.ErrStatus
	st.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}

	return int(st.Code), encode(st)
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
	answer, err := s.handle(c)
	if err != nil {
		return refusal(err)
	}
	if c.method == http.MethodPost {
		return http.StatusCreated, answer
	}

	return http.StatusOK, answer
}

// handle answers a request. The caller holds mu.
func (s *Server) handle(c call) ([]byte, error) {
	t, err := s.find(c)
	switch {
	case err != nil:
		return nil, err
	case t.kind.Sink:
		return s.echo(t.kind, c.body), nil
	case c.method == http.MethodGet && t.at.name == "":
		return s.listed(t, c)
	case c.method == http.MethodPost && t.subresource == "eviction":
		return []byte(`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success"}`), s.evict(c.by, t, c.body)
	case t.subresource != "" && (t.subresource != "status" || !t.kind.Status):
		return nil, answerOf(http.StatusNotFound)
	case c.method == http.MethodPost:
		content, err := decode(c.body)
		if err != nil {
			return nil, err
		}

		return rawOf(s.create(c.write, t.kind, t.at.namespace, content))
	case c.method == http.MethodGet && c.stale > 0 && c.url.Query().Get("resourceVersion") != "":
		// Without a resource version, a real API server answers a read of one
		// object from etcd.
		if o := s.was(t.kind, t.at, c.stale); o != nil {
			return o.raw, nil
		}

		return nil, apierrors.NewNotFound(t.kind.GroupResource(), t.at.name)
	}

	was, err := s.get(t.kind, t.at)
	if err != nil {
		return nil, err
	}

	var content map[string]any
	switch c.method {
	case http.MethodGet:
		return was.raw, nil
	case http.MethodDelete:
		return was.raw, s.delete(c, t, was)
	case http.MethodPatch:
		content, err = t.kind.patched(was, c.contentType, c.body)
	case http.MethodPut:
		content, err = decode(c.body)
	default:
		err = answerOf(http.StatusMethodNotAllowed)
	}

	if err != nil {
		return nil, err
	}

	return rawOf(s.update(c.write, t.kind, was, content, t.subresource))
}

func rawOf(o *object, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}

	return o.raw, nil
}

func (s *Server) delete(c call, t target, was *object) error {
	var options metav1.DeleteOptions
	if len(bytes.TrimSpace(c.body)) > 0 {
		if err := json.Unmarshal(c.body, &options); err != nil {
			return err
		}
	}

	err := t.kind.meets(was, &options)
	if err == nil && !c.dry && len(options.DryRun) == 0 {
		s.remove(c.by, t.kind, was)
	}

	return err
}

// meets returns an error if an object does not meet the preconditions of a
// deletion.
func (k *Kind) meets(o *object, options *metav1.DeleteOptions) error {
	if options == nil || options.Preconditions == nil {
		return nil
	}

	p, meta := options.Preconditions, sub(o.content, "metadata")
	if p.UID != nil && string(*p.UID) != meta["uid"] || p.ResourceVersion != nil && *p.ResourceVersion != meta["resourceVersion"] {
		return k.conflict(o.key.name, "the precondition does not hold")
	}

	return nil
}

// echo returns what was written to a sink, with a name.
func (s *Server) echo(k *Kind, body []byte) []byte {
	content, _ := decode(body)
	s.created++
	content["apiVersion"], content["kind"] = k.apiVersion(), k.Kind
	maps.Copy(content, k.Answer)
	meta := sub(content, "metadata")
	if text(meta, "name") == "" {
		meta["name"] = fmt.Sprintf("%s-%d", k.Resource, s.created)
	}

	return encode(content)
}

func everything(k *Kind, namespace string) *selection {
	return &selection{kind: k, namespace: namespace, labels: labels.Everything(), fields: fields.Everything()}
}

func selectionOf(t target, query url.Values) (x *selection, err error) {
	x = everything(t.kind, t.at.namespace)
	if x.labels, err = labels.Parse(query.Get("labelSelector")); err == nil {
		x.fields, err = fields.ParseSelector(query.Get("fieldSelector"))
	}
	if err != nil {
		return nil, err
	}

	for _, r := range x.fields.Requirements() {
		if !slices.Contains(append(t.kind.Fields, "metadata.name", "metadata.namespace"), r.Field) {
			return nil, apierrors.NewBadRequest("field label not supported: " + r.Field)
		}
	}

	return x, nil
}

// listed returns a page of a list. The token of the next one is the number of
// the objects before it.
func (s *Server) listed(t target, c call) ([]byte, error) {
	query := c.url.Query()
	x, err := selectionOf(t, query)
	if err != nil {
		return nil, err
	}

	all := s.list(x, c.stale)
	meta := metav1.ListMeta{ResourceVersion: strconv.FormatInt(s.versionAt(t.kind, c.stale), 10)}
	from, _ := strconv.Atoi(query.Get("continue"))
	to := len(all)
	if limit, _ := strconv.Atoi(query.Get("limit")); limit > 0 && from+limit < to {
		to = from + limit
		meta.Continue = strconv.Itoa(to)
	}

	items := []json.RawMessage{}
	for _, o := range all[min(from, to):to] {
		items = append(items, o.raw)
	}

	return encode(map[string]any{"apiVersion": t.kind.apiVersion(), "kind": t.kind.Kind + "List", "metadata": meta, "items": items}), nil
}

// openWatch opens a watch.
func (s *Server) openWatch(c call) (*stream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.find(c)
	if err != nil {
		return nil, err
	}

	query := c.url.Query()
	x, err := selectionOf(t, query)
	if err != nil {
		return nil, err
	}

	w := &stream{selection: *x, server: s, ready: make(chan struct{}, 1), closed: make(chan struct{})}
	if seconds, err := strconv.Atoi(query.Get("timeoutSeconds")); err == nil {
		w.ends = time.Now().Add(time.Duration(seconds) * time.Second)
	}

	switch from := query.Get("resourceVersion"); {
	case query.Get("sendInitialEvents") == "true":
		for _, o := range s.list(x, c.stale) {
			w.push("ADDED", o.raw, 0)
		}

		w.push("BOOKMARK", encode(map[string]any{
			"apiVersion": t.kind.apiVersion(), "kind": t.kind.Kind,
			"metadata": map[string]any{
				"resourceVersion": strconv.FormatInt(s.versionAt(t.kind, c.stale), 10), "creationTimestamp": nil,
				"annotations": map[string]any{metav1.InitialEventsAnnotationKey: "true"},
			},
		}), 0)
		if c.stale > 0 {
			s.catchUp(w, c.stale)
		}
	case from != strconv.FormatInt(s.version, 10): // no history is kept
		return nil, apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %s (%d)", from, s.version))
	}

	s.watches = append(s.watches, w)

	return w, nil
}
