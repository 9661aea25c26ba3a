// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fakeapi is the API of a cluster in memory, for tests of commands:
// controller-runtime's fake client with what commands need of an API server
// besides, which are UIDs, generations, pages, dry runs, and patches that test
// before they write. Inside testing/synctest the time passes at once.
//
// It does not authorize, validate, or apply defaults: tests of these need an
// API server.
package fakeapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// API is a cluster's API. Its own methods are those of an administrator.
type API struct {
	client.WithWatch

	refuse   func(verb string, gvk schema.GroupVersionKind) error
	t        *testing.T
	commands []func(*command.Env) *cobra.Command
	uids     atomic.Int64
}

// New returns an empty API, for a program with these commands, or with one root
// command.
func New(t *testing.T, commands ...func(*command.Env) *cobra.Command) *API {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		v1alpha1.AddToScheme, corev1.AddToScheme, appsv1.AddToScheme, coordinationv1.AddToScheme, discoveryv1.AddToScheme, metav1.AddMetaToScheme,
	} {
		assert.NoError(t, add(scheme))
	}

	a := &API{t: t, commands: commands}
	index := func(get func(client.Object) string) client.IndexerFunc {
		return func(o client.Object) []string { return []string{get(o)} }
	}
	b := fake.NewClientBuilder().WithScheme(scheme).WithGlobalResourceVersionCounter().WithStatusSubresource(ours()...).
		WithIndex(&corev1.Pod{}, "spec.nodeName", index(func(o client.Object) string { return o.(*corev1.Pod).Spec.NodeName })).
		WithIndex(&corev1.Event{}, "involvedObject.kind", index(func(o client.Object) string { return o.(*corev1.Event).InvolvedObject.Kind })).
		WithIndex(&corev1.Event{}, "involvedObject.name", index(func(o client.Object) string { return o.(*corev1.Event).InvolvedObject.Name }))
	for _, o := range ours() {
		b = b.WithIndex(o, metav1.ObjectNameField, index(client.Object.GetName))
	}

	a.WithWatch = interceptor.NewClient(b.Build(), interceptor.Funcs{Create: a.create, Update: a.update, Patch: a.patch, List: a.list, Watch: a.watch})

	return a
}

// Of returns the API of a real API server, to add objects to it.
func Of(t *testing.T, c client.WithWatch) *API { return &API{WithWatch: c, t: t} }

// ours are the kinds whose status is a subresource, besides those of
// Kubernetes.
func ours() []client.Object {
	return []client.Object{&v1alpha1.NodeConfig{}, &v1alpha1.NodeConfigRollout{}, &v1alpha1.NodeConfigPreflight{}}
}

// Forbid makes the API refuse a verb of commands on some kinds, as to a user
// without that right: get, list, watch, create, patch, or * for all of these.
func (a *API) Forbid(verb string, kinds ...string) {
	a.refuse = func(v string, gvk schema.GroupVersionKind) error {
		if verb != "*" && v != verb || !slices.Contains(kinds, gvk.Kind) {
			return nil
		}

		r := schema.GroupResource{Group: gvk.Group, Resource: strings.ToLower(gvk.Kind) + "s"}

		return apierrors.NewForbidden(r, "", fmt.Errorf("User %q cannot %s resource %q in API group %q at the cluster scope", "nobody", v, r.Resource, r.Group))
	}
}

// check returns the error of a command's request for objects of a kind.
func (a *API) check(verb string, o runtime.Object) error {
	if a.refuse == nil {
		return nil
	}

	gvk, err := apiutil.GVKForObject(o, a.Scheme())
	if err != nil {
		return err
	}

	gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")

	return a.refuse(verb, gvk)
}

// forCommands returns the client that commands get.
func (a *API) forCommands() client.WithWatch {
	return interceptor.NewClient(a.WithWatch, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if err := a.check("get", o); err != nil {
				return err
			}

			return c.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if err := a.check("list", list); err != nil {
				return err
			}

			return c.List(ctx, list, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if err := a.check("create", o); err != nil {
				return err
			}

			return c.Create(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if err := a.check("patch", o); err != nil {
				return err
			}

			return c.Patch(ctx, o, p, opts...)
		},
	})
}

func (a *API) create(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
	var options client.CreateOptions
	if options.ApplyOptions(opts); len(options.DryRun) > 0 {
		if err := c.Get(ctx, client.ObjectKeyFromObject(o), o.DeepCopyObject().(client.Object)); err == nil {
			return apierrors.NewAlreadyExists(schema.GroupResource{}, o.GetName())
		}
	}

	o.SetUID(types.UID(fmt.Sprintf("uid-%d", a.uids.Add(1))))
	o.SetGeneration(1)
	if created := o.GetCreationTimestamp(); created.IsZero() {
		o.SetCreationTimestamp(metav1.Now())
	}

	return c.Create(ctx, o, opts...)
}

func (a *API) update(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
	was := o.DeepCopyObject().(client.Object)
	if err := c.Get(ctx, client.ObjectKeyFromObject(o), was); err != nil {
		return err
	}

	setGeneration(was, o)

	return c.Update(ctx, o, opts...)
}

// setGeneration counts changes of the spec.
func setGeneration(was, is client.Object) {
	is.SetGeneration(was.GetGeneration())
	if !equality.Semantic.DeepEqual(specOf(was), specOf(is)) {
		is.SetGeneration(was.GetGeneration() + 1)
	}
}

func specOf(o client.Object) any {
	raw, err := json.Marshal(o)
	var content struct{ Spec any }
	if err := errors.Join(err, json.Unmarshal(raw, &content)); err != nil {
		panic(err) // objects of the API can be encoded
	}

	return content.Spec
}

// patch applies a patch to a copy, and writes that.
func (a *API) patch(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	was := o.DeepCopyObject().(client.Object)
	if err := c.Get(ctx, client.ObjectKeyFromObject(o), was); err != nil {
		return err
	}

	var options client.PatchOptions
	dry := len(options.ApplyOptions(opts).DryRun) > 0
	copied := fake.NewClientBuilder().WithScheme(a.Scheme()).WithObjects(was.DeepCopyObject().(client.Object)).Build()
	if err := copied.Patch(ctx, o, p); err != nil {
		if status := apierrors.APIStatus(nil); p.Type() == types.JSONPatchType && !errors.As(err, &status) {
			err = apierrors.NewInvalid(schema.GroupKind{}, o.GetName(), nil) // a test of the patch failed
		}

		return err
	}

	setGeneration(was, o)
	o.SetResourceVersion(was.GetResourceVersion())
	if dry {
		return nil
	}

	return c.Update(ctx, o)
}

// list returns a page of a list.
func (a *API) list(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) (err error) {
	defer must.Catch(&err)

	must.OK(c.List(ctx, list, opts...))
	var options client.ListOptions
	options.ApplyOptions(opts)
	items, err := meta.ExtractList(list)
	if err != nil || options.Limit == 0 {
		return err
	}

	from := 0
	if options.Continue != "" {
		from = must.Get(strconv.Atoi(options.Continue))
	}

	to := min(from+int(options.Limit), len(items))
	if to < len(items) {
		list.SetContinue(strconv.Itoa(to))
	}

	return meta.SetList(list, items[min(from, to):to])
}

// watch serves watches that follow a list; a client that asks for the list as
// events is told to list.
func (a *API) watch(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
	if err := a.check("watch", list); err != nil {
		return nil, err
	}

	var options client.ListOptions
	options.ApplyOptions(opts)
	if options.Raw != nil && options.Raw.SendInitialEvents != nil {
		return nil, apierrors.NewInvalid(schema.GroupKind{}, "", nil)
	}

	w, err := c.Watch(ctx, list, opts...)
	if err != nil || options.FieldSelector == nil {
		return w, err
	}

	events := make(chan watch.Event)
	selected := watch.NewProxyWatcher(events)
	go func() { // watch.Filter would block for ever when it is stopped
		defer w.Stop()
		for {
			select {
			case <-selected.StopChan():
				return
			case e := <-w.ResultChan():
				if o, is := e.Object.(client.Object); is && !options.FieldSelector.Matches(fields.Set{metav1.ObjectNameField: o.GetName()}) {
					continue
				}

				select {
				case events <- e:
				case <-selected.StopChan():
					return
				}
			}
		}
	}()

	return selected, nil
}
