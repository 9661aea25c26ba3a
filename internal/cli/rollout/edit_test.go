// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/internal/operator/query"
	"github.com/evenkeel/evenkeel/internal/operator/steer"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/fakeapi"
)

// Here are the races that no transcript can provoke; the API is a fake.

func fakeAPI(t *testing.T, funcs interceptor.Funcs) client.WithWatch {
	t.Helper()
	api := fakeapi.New(t)
	api.AddRollout("workers", "workers", fakeapi.Pods(50), nil)

	return interceptor.NewClient(api, funcs)
}

func quiet() (*app, *bytes.Buffer) {
	var out bytes.Buffer
	return &app{&command.Env{IOStreams: genericclioptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: io.Discard}}}, &out
}

// between edits the rollout behind the back of the first patch after it.
func between(times int, edit func(*v1alpha1.NodeConfigRollout)) interceptor.Funcs {
	return interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, p client.Patch, o ...client.PatchOption) error {
		if times > 0 {
			times--
			var r v1alpha1.NodeConfigRollout
			if err := c.Get(ctx, client.ObjectKey{Name: "workers"}, &r); err != nil {
				return err
			}

			edit(&r)
			if err := c.Update(ctx, &r); err != nil {
				return err
			}
		}

		return c.Patch(ctx, obj, p, o...)
	}}
}

func read(t *testing.T, c client.Client) *v1alpha1.NodeConfigRollout {
	t.Helper()
	r := &v1alpha1.NodeConfigRollout{}
	assert.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: "workers"}, r))
	return r
}

func TestAnEditKeepsConcurrentChanges(t *testing.T) {
	c := fakeAPI(t, between(3, func(r *v1alpha1.NodeConfigRollout) { r.Spec.Priority++ }))
	a, out := quiet()
	err := a.print(steer.Edit(t.Context(), c, "workers", func(r *v1alpha1.NodeConfigRollout) (string, error) {
		r.Spec.Paused = true
		return "paused", nil
	}))
	assert.NoError(t, err)
	r := read(t, c)
	assert.That(t, r.Spec.Paused && r.Spec.Priority == 3, "paused is %v and priority %d, want both edits", r.Spec.Paused, r.Spec.Priority)

	assert.Equal(t, out.String(), "rollout workers paused\n", "what it prints")
}

func TestAnEditGivesUpAfterManyConflicts(t *testing.T) {
	c := fakeAPI(t, between(1000, func(r *v1alpha1.NodeConfigRollout) { r.Spec.Priority++ }))
	a, _ := quiet()
	err := a.print(steer.Edit(t.Context(), c, "workers", steer.Pause("")))
	assert.That(t, apierrors.IsConflict(err) && !read(t, c).Spec.Paused,
		"the error is %v and paused %v, want a conflict and nothing written", err, read(t, c).Spec.Paused)
}

func TestAPushWritesOnlyTheChangeItShowed(t *testing.T) {
	for _, tt := range []struct {
		name string
		edit func(*v1alpha1.NodeConfigRollout)
		want string // of the error
	}{
		{"somebody writes a label", func(r *v1alpha1.NodeConfigRollout) { r.Labels = map[string]string{"a": "b"} }, ""},
		{"somebody writes the spec", func(r *v1alpha1.NodeConfigRollout) { r.Spec.Priority++ }, "somebody else changed it in the meantime: nothing was written"},
	} {
		c := fakeAPI(t, between(1, tt.edit))
		a, _ := quiet()
		old := read(t, c)
		wanted := old.DeepCopy()
		wanted.Spec.Paused = true
		err := (&Change{old: old, desired: wanted}).Write(t.Context(), a.Env, c)
		r := read(t, c)
		assert.That(t, r.Spec.Paused == (tt.want == ""), "%s: paused is %v after the error %v", tt.name, r.Spec.Paused, err)
		assert.That(t, (err == nil) == (tt.want == "") && (err == nil || strings.Contains(err.Error(), tt.want)),
			"%s: the error is %v, want %q", tt.name, err, tt.want)
	}
}

func TestAPushDoesNotOverwriteARolloutCreatedMeanwhile(t *testing.T) {
	c := fakeAPI(t, interceptor.Funcs{})
	a, _ := quiet()
	wanted := &v1alpha1.NodeConfigRollout{}
	wanted.Name = "workers"
	err := (&Change{desired: wanted}).Write(t.Context(), a.Env, c)
	assert.ErrorHas(t, err, `somebody else created rollout "workers" in the meantime: nothing was written`)
}

func TestAWatchIsRestarted(t *testing.T) {
	refusedAt := func(n int) error {
		switch n {
		case 2:
			return &url.Error{Op: "Get", URL: "https://api", Err: syscall.ECONNREFUSED}
		case 3:
			return apierrors.NewResourceExpired("too old")
		case 5:
			return apierrors.NewForbidden(schema.GroupResource{Group: v1alpha1.GroupName, Resource: "nodeconfigrollouts"}, "workers", errors.New("no"))
		}

		return nil
	}
	watches := 0
	api := fakeAPI(t, interceptor.Funcs{Watch: func(_ context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption) (apiwatch.Interface, error) {
		watches++
		if err := refusedAt(watches); err != nil {
			return nil, err
		}

		w := apiwatch.NewFakeWithChanSize(3, false)
		r, end := moving(), moving()
		r.Status.Message = []string{"", "first", "", "", "fourth"}[watches]
		end.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
		w.Add(r)
		w.Action(apiwatch.Bookmark, end)
		if watches == 4 {
			w.Error(&apierrors.NewResourceExpired("too old").ErrStatus)
		}

		w.Stop()

		return w, nil
	}})
	var messages, failures []string
	for u := range watchRollout(t.Context(), api, "workers") {
		switch {
		case u.Last:
			assert.That(t, apierrors.IsForbidden(u.Err), "the watch ends with %v, want it forbidden", u.Err)
		case u.Err != nil:
			failures = append(failures, u.Err.Error())
		case u.Object.Status.Message != "":
			messages = append(messages, u.Object.Status.Message)
		}
	}

	assert.Equal(t, strings.Join(messages, " "), "first fourth", "the messages of all watch requests")
	for i, want := range []string{"ended the watch", "connection refused", "too old", "too old"} {
		assert.Must(t, len(failures) == 4 && strings.Contains(failures[i], want), "the watch sends the errors %q", failures)
	}
}

func TestTemplatesInJSONAndYAMLAreEqual(t *testing.T) {
	text := "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\nmaxPods: 5\n"
	template := assert.Value(steer.TemplateOf("kubelet", []byte(text)))(t)
	json := `{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration","maxPods":5}`
	for _, tt := range []struct {
		key, text string
		want      bool
	}{
		{"kubelet", json, true}, {"kubelet-dropin", json, false}, {"kubelet", strings.Replace(json, "5", "6", 1), false},
	} {
		other := assert.Value(steer.TemplateOf(tt.key, []byte(tt.text)))(t)
		assert.Equal(t, same(template, other), tt.want, "same configuration as the key %s with %s", tt.key, tt.text)
	}

	assert.That(t, !same(template, v1alpha1.RolloutTemplate{ConfigMapRef: &v1alpha1.TemplateConfigMap{}}), "a reference is the same as a configuration")
}

func TestRolloutsAreListedInPages(t *testing.T) {
	var continued []string
	c := fakeAPI(t, interceptor.Funcs{List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
		options := (&client.ListOptions{}).ApplyOptions(o)
		continued = append(continued, fmt.Sprintf("%d %s", options.Limit, options.Continue))
		if options.Continue == "" {
			list.SetContinue("more")
		}

		return nil
	}})
	assert.NoError(t, assert.Err(query.Rollouts(t.Context(), c)))
	assert.NoError(t, assert.Err(query.RolloutNames(t.Context(), c)))
	assert.NoError(t, assert.Err(query.Labelled(t.Context(), c, "evenkeel-system", "workers")))
	assert.Equal(t, strings.Join(continued, ","), "500 ,500 more,500 ,500 more,500 ,500 more")
}
