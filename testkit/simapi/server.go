// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package simapi is an API server in memory: no process, no socket, no
// goroutine. Clients reach it through a Transport, in which requests are
// delayed, lost or refused. Together with testing/synctest, whole clusters run
// in virtual time.
//
// It serves what evenkeel uses, as the real API server does: get, list, watch
// with initial events, create, update, patch, delete and status, with resource
// versions, generations, pages, dry runs, defaults of the CRDs and
// preconditions: test/api compares it with a real one. It does not authenticate
// or validate. It must not know which component makes a request.
package simapi

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Kind is a kind of objects that a server stores.
type Kind struct {
	schema.GroupVersionResource
	Kind       string
	Namespaced bool
	// Status says that status is a subresource: writes of the object ignore it,
	// and writes of it ignore the rest.
	Status bool
	// Generation says that metadata.generation counts the changes of everything
	// but metadata and status.
	Generation bool
	// Conditional says that an update must name the resource version.
	Conditional bool
	// Fields are what a field selector may name besides metadata.name and
	// metadata.namespace.
	Fields []string
	// Type is a value of the Go type; it is needed for strategic merge patches.
	Type any
	// Defaults is the schema of the kind, whose defaults are applied to what is
	// written; nil: there are none.
	Defaults *Schema
	// Sink says that objects are accepted and counted, and not stored, such as
	// Events.
	Sink bool
	// Answer is added to the answer of a write to a sink: such as the status of
	// a review.
	Answer map[string]any
}

// key identifies an object of one kind.
type key struct{ namespace, name string }

// object is one version of an object. It never changes.
type object struct {
	key     key
	content map[string]any
	version int64
	raw     []byte
	at      time.Time // when it was written
	gone    bool      // it was deleted
}

// Change is a change of one object.
type Change struct {
	Kind            string // resource, such as nodes
	Namespace, Name string
	By              string         // the name of the client; empty: a direct call
	Was, Is         map[string]any // nil: it did not exist, or does not any more. Do not change them.
}

// Server is an API server. All methods may be called concurrently.
type Server struct {
	// Clock is the server's clock. Set it before the first request.
	Clock func() time.Time
	// OnChange is called with each change, in their order, while the server is
	// locked: it must not call the server.
	OnChange func(Change)
	// OnRead is called before a single object is read, and may write it: so a
	// value that changes with time need not be written all the time. resource
	// is such as leases.
	OnRead func(resource, name string)
	// Forbids reports whether a client may not make requests such as get nodes;
	// nil: each may make all.
	Forbids func(client, verb, resource string) bool

	mu      sync.Mutex
	kinds   map[string]*Kind // by resource/group
	objects map[string]map[key]*object
	past    map[string]map[key][]*object // versions that a stale read may return, oldest first
	version int64
	created int64
	watches []*stream // that are open, in the order in which they were opened
}

// New returns an empty server.
func New(kinds ...Kind) *Server {
	s := &Server{Clock: time.Now, kinds: map[string]*Kind{}, objects: map[string]map[key]*object{}, past: map[string]map[key][]*object{}, version: 1000}
	for _, k := range kinds {
		s.kinds[k.Resource+"/"+k.Group] = &k
		s.objects[k.Resource+"/"+k.Group] = map[key]*object{}
		s.past[k.Resource+"/"+k.Group] = map[key][]*object{}
	}

	return s
}

func (k *Kind) id() string { return k.Resource + "/" + k.Group }

// invalid is the answer to an object with an invalid field.
func (k *Kind) invalid(name string, err *field.Error) error {
	return apierrors.NewInvalid(schema.GroupKind{Group: k.Group, Kind: k.Kind}, name, field.ErrorList{err})
}

func (k *Kind) conflict(name, why string) error {
	return apierrors.NewConflict(k.GroupResource(), name, errors.New(why))
}

func (k *Kind) apiVersion() string { return k.GroupVersion().String() }

// kind returns a kind by its resource, such as nodes. Only Events are in two
// groups, and nothing reads or writes these without the network.
func (s *Server) kind(resource string) *Kind {
	for _, k := range s.kinds {
		if k.Resource == resource {
			return k
		}
	}

	panic("simapi: unknown resource " + resource)
}

// get returns an object. The caller holds mu.
func (s *Server) get(k *Kind, at key) (*object, error) {
	if o := s.objects[k.id()][at]; o != nil {
		return o, nil
	}

	return nil, apierrors.NewNotFound(k.GroupResource(), at.name)
}

// write says who writes, and how.
type write struct {
	by  string // the name of the client; empty: a direct call
	dry bool   // nothing is stored
}

// create stores a new object. It takes over content. The caller holds mu.
func (s *Server) create(w write, k *Kind, namespace string, content map[string]any) (*object, error) {
	meta := sub(content, "metadata")
	if k.Namespaced {
		meta["namespace"] = namespace
	}

	s.created++
	if prefix, _ := meta["generateName"].(string); prefix != "" && text(meta, "name") == "" {
		meta["name"] = fmt.Sprintf("%s%05d", prefix, s.created)
	}

	at := key{namespace, text(meta, "name")}
	if at.name == "" {
		return nil, k.invalid("", field.Required(field.NewPath("metadata", "name"), "name or generateName is required"))
	}
	if text(meta, "resourceVersion") != "" && !w.dry {
		return nil, &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError,
			Message: "resourceVersion should not be set on objects to be created"}}
	}
	if s.objects[k.id()][at] != nil {
		return nil, apierrors.NewAlreadyExists(k.GroupResource(), at.name)
	}

	meta["uid"] = fmt.Sprintf("%08x-0000-4000-8000-%012x", s.created*2654435761%(1<<32), s.created)
	if w.by != "" || meta["creationTimestamp"] == nil {
		meta["creationTimestamp"] = s.Clock().UTC().Format(time.RFC3339)
	}

	content["apiVersion"], content["kind"] = k.apiVersion(), k.Kind
	if k.Generation {
		meta["generation"] = int64(1)
	}
	if k.Status && w.by != "" {
		delete(content, "status")
	}

	k.Defaults.apply(content)

	return s.store(w, k, at, nil, content), nil
}

// store stores a version of an object and tells the watches. The caller holds
// mu.
func (s *Server) store(w write, k *Kind, at key, was *object, content map[string]any) *object {
	version := s.version + 1
	sub(content, "metadata")["resourceVersion"] = strconv.FormatInt(version, 10)
	o := &object{key: at, content: content, version: version, raw: encode(content), at: time.Now()}
	if w.dry {
		return o
	}

	s.version = version
	s.objects[k.id()][at] = o
	s.publish(w.by, k, was, o)

	return o
}

// update replaces an object if it has changed. It takes over content. The
// caller holds mu.
func (s *Server) update(w write, k *Kind, was *object, content map[string]any, subresource string) (*object, error) {
	meta, old := sub(content, "metadata"), sub(was.content, "metadata")
	if uid := text(meta, "uid"); uid != "" && uid != old["uid"] {
		why := fmt.Sprintf("Precondition failed: UID in precondition: %s, UID in object meta: %s", uid, old["uid"])
		return nil, k.conflict(was.key.name, why)
	}
	if v := text(meta, "resourceVersion"); v != "" && v != old["resourceVersion"] {
		return nil, k.conflict(was.key.name, "the object has been modified; please apply your changes to the latest version and try again")
	}

	if k.Conditional && text(meta, "resourceVersion") == "" {
		at := field.NewPath("metadata", "resourceVersion")
		return nil, k.invalid(was.key.name, field.Invalid(at, 0, "must be specified for an update"))
	}

	next := content
	if k.Status {
		if subresource == "status" {
			next = runtime.DeepCopyJSON(was.content)
			setOrDelete(next, "status", content["status"])
		} else if w.by != "" {
			setOrDelete(next, "status", was.content["status"])
		}
	}

	next["apiVersion"], next["kind"] = k.apiVersion(), k.Kind
	meta = sub(next, "metadata")
	for _, name := range []string{"name", "namespace", "uid", "creationTimestamp", "resourceVersion", "generation"} {
		setOrDelete(meta, name, old[name])
	}
	if k.Resource == "configmaps" && was.content["immutable"] == true && !reflect.DeepEqual(desired(was.content), desired(next)) {
		return nil, k.invalid(was.key.name, field.Forbidden(field.NewPath("data"), "field is immutable when `immutable` is set"))
	}

	k.Defaults.apply(next)
	if reflect.DeepEqual(was.content, next) {
		return was, nil
	}
	if k.Generation && !reflect.DeepEqual(desired(was.content), desired(next)) {
		meta["generation"] = old["generation"].(int64) + 1
	}

	return s.store(w, k, was.key, was, next), nil
}

// desired returns what metadata.generation counts.
func desired(content map[string]any) map[string]any {
	out := maps.Clone(content)
	delete(out, "metadata")
	delete(out, "status")
	return out
}

// remove deletes an object. The caller holds mu.
func (s *Server) remove(by string, k *Kind, was *object) {
	delete(s.objects[k.id()], was.key)
	s.version++
	s.publish(by, k, was, was.goneAt(s.version))
}

// goneAt returns the version of an object with which it ends.
func (o *object) goneAt(version int64) *object {
	content := runtime.DeepCopyJSON(o.content)
	sub(content, "metadata")["resourceVersion"] = strconv.FormatInt(version, 10)
	return &object{key: o.key, content: content, version: version, raw: encode(content), at: time.Now(), gone: true}
}

// publish tells a change to the watches and OnChange. was is nil if the object
// is new. The caller holds mu.
func (s *Server) publish(by string, k *Kind, was, is *object) {
	s.remember(k, is)
	for _, w := range s.watches {
		if w.kind == k {
			w.change(was, is, 0)
		}
	}

	if s.OnChange != nil {
		c := Change{Kind: k.Resource, Namespace: is.key.namespace, Name: is.key.name, By: by}
		if was != nil {
			c.Was = was.content
		}
		if !is.gone {
			c.Is = is.content
		}

		s.OnChange(c)
	}
}

// selection is what a list or watch selects.
type selection struct {
	kind      *Kind
	namespace string
	labels    labels.Selector
	fields    fields.Selector
}

func (x *selection) selects(o *object) bool {
	if x.kind.Namespaced && x.namespace != "" && x.namespace != o.key.namespace {
		return false
	}
	if !x.labels.Empty() {
		set, _, _ := unstructured.NestedStringMap(o.content, "metadata", "labels")
		if !x.labels.Matches(labels.Set(set)) {
			return false
		}
	}

	values := fields.Set{}
	for _, r := range x.fields.Requirements() {
		values[r.Field], _, _ = unstructured.NestedString(o.content, strings.Split(r.Field, ".")...)
	}

	return x.fields.Matches(values)
}

// list returns the selected objects as they were some time ago, by namespace
// and name. The caller holds mu.
func (s *Server) list(x *selection, ago time.Duration) []*object {
	var out []*object
	add := func(o *object) {
		if o != nil && x.selects(o) {
			out = append(out, o)
		}
	}
	if ago > 0 {
		for at := range s.past[x.kind.id()] {
			add(s.was(x.kind, at, ago))
		}
	} else {
		for _, o := range s.objects[x.kind.id()] {
			add(o)
		}
	}

	slices.SortFunc(out, func(a, b *object) int {
		return strings.Compare(a.key.namespace+"/"+a.key.name, b.key.namespace+"/"+b.key.name)
	})

	return out
}
