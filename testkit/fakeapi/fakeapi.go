// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fakeapi is the API of a cluster in memory, for tests of commands: an
// API server of package simapi with what these tests need besides, which are
// objects, users without rights, and the programs that commands talk to. Inside
// testing/synctest the time passes at once.
//
// It does not validate or apply defaults: tests of these need an API server.
package fakeapi

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/simapi"
)

// API is a cluster's API. Its own methods are those of an administrator.
type API struct {
	client.WithWatch

	seed     client.WithWatch // its new objects have a status and an age
	user     client.WithWatch // that commands get
	server   *simapi.Server
	t        *testing.T
	commands []func(*command.Env) *cobra.Command

	mu    sync.Mutex
	verb  string // that commands may not use, on kinds
	kinds []string
}

// New returns an empty API, for a program with these commands, or with one root
// command.
func New(t *testing.T, commands ...func(*command.Env) *cobra.Command) *API {
	t.Helper()
	kinds := simapi.Kinds()
	mapper := meta.NewDefaultRESTMapper(nil)
	for i := range kinds {
		k := &kinds[i]
		k.Sink = k.Sink && k.Kind != "Event"
		scope := meta.RESTScopeRoot
		if k.Namespaced {
			scope = meta.RESTScopeNamespace
		}

		mapper.AddSpecific(k.GroupVersion().WithKind(k.Kind), k.GroupVersionResource, k.GroupVersionResource, scope)
	}

	scheme := runtime.NewScheme()
	all := runtime.NewSchemeBuilder(v1alpha1.AddToScheme, corev1.AddToScheme, appsv1.AddToScheme, coordinationv1.AddToScheme,
		discoveryv1.AddToScheme, metav1.AddMetaToScheme)
	assert.NoError(t, all.AddToScheme(scheme))
	a := &API{t: t, server: simapi.New(kinds...), commands: commands}
	reach := func(name string) client.WithWatch {
		config := &rest.Config{Host: "http://simulated", QPS: -1, Transport: &simapi.Transport{
			Server: a.server, Client: name, Fate: func(*http.Request) (f simapi.Fate) { return f },
			Lag: func() time.Duration { return 0 }, Gate: context.Context.Err,
		}}
		config.ContentType = runtime.ContentTypeJSON

		return assert.Value(client.NewWithWatch(config, client.Options{Scheme: scheme, Mapper: mapper}))(t)
	}
	a.server.Forbids = a.forbids
	a.WithWatch, a.seed, a.user = reach("admin"), reach(""), reach(user)

	return a
}

const user = "nobody"

// Of returns the API of a real API server, to add objects to it.
func Of(t *testing.T, c client.WithWatch) *API { return &API{WithWatch: c, seed: c, t: t} }

// Forbid makes the API refuse a verb of commands on some kinds, as to a user
// without that right: get, list, watch, create, patch, or * for all.
func (a *API) Forbid(verb string, kinds ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.verb, a.kinds = verb, kinds
}

func (a *API) forbids(client, verb, resource string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	is := func(kind string) bool { return strings.ToLower(kind)+"s" == resource }
	return client == user && (a.verb == "*" || a.verb == verb) && slices.ContainsFunc(a.kinds, is)
}
