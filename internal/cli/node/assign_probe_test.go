// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestAStartProbeNeedsATrial(t *testing.T) {
	for _, o := range []assignOptions{
		{startProbe: agentImage, local: true, until: untilProven, agentTimeout: time.Minute},
		{startProbe: agentImage, file: "f", until: untilAssigned, agentTimeout: time.Minute},
	} {
		err := o.check(false)
		assert.Must(t, err != nil, "%+v is accepted", o)
		assert.Equal(t, err.Error(), "--start-probe needs a configuration that runs on trial: it cannot be used with --local or --wait-for=assigned")
	}
}

func TestAStartProbeIsDeletedWithoutAResult(t *testing.T) {
	scheme := runtime.NewScheme()
	assert.NoError(t, v1alpha1.AddToScheme(scheme))
	assert.NoError(t, corev1.AddToScheme(scheme))
	source := &v1alpha1.NodeConfigSource{ConfigMapRef: &v1alpha1.ConfigMapReference{UID: "new"}}
	broken := apierrors.NewInternalError(errors.New("no"))
	for what, c := range map[string]struct {
		active  types.UID
		get     error
		created error
		deleted error
		phase   corev1.PodPhase // of the pod
		pods    int             // that are created
		want    string
		note    string
	}{
		"no NodeConfig":     {active: "new", get: broken, want: "interrupted"},
		"another source":    {active: "old"},
		"an interrupt":      {active: "new", pods: 1, want: "interrupted"},
		"an outage":         {active: "new", pods: 1, deleted: broken, want: "interrupted", note: "the pod of the start probe ends by itself"},
		"a refused pod":     {active: "new", pods: 1, phase: corev1.PodFailed, want: "no result of the start probe on node w"},
		"it is not allowed": {active: "new", pods: 1, created: apierrors.NewForbidden(schema.GroupResource{}, "p", nil), want: "no result"},
	} {
		t.Run(what, func(t *testing.T) {
			nc := &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: "w", Generation: 2}}
			nc.Status = v1alpha1.NodeConfigStatus{ObservedGeneration: 2, Active: &v1alpha1.ConfigRevision{UID: c.active}, Trial: &v1alpha1.Trial{HealthySeconds: 1}}
			created, deleted := 0, 0
			api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(nc).WithInterceptorFuncs(interceptor.Funcs{
				Get: func(ctx context.Context, api client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
					if _, is := o.(*v1alpha1.NodeConfig); is && c.get != nil {
						return c.get
					}

					return api.Get(ctx, key, o, options...)
				},
				Create: func(ctx context.Context, api client.WithWatch, o client.Object, options ...client.CreateOption) error {
					created++
					o.(*corev1.Pod).Status = corev1.PodStatus{Phase: c.phase, Reason: "OutOfcpu"}
					if c.created != nil {
						return c.created
					}

					return api.Create(ctx, o, options...)
				},
				Delete: func(ctx context.Context, api client.WithWatch, o client.Object, options ...client.DeleteOption) error {
					deleted++
					if c.deleted != nil {
						return c.deleted
					}

					return api.Delete(ctx, o, options...)
				},
				List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return nil },
			}).Build()
			most := time.Minute
			if c.want == "interrupted" {
				most = time.Second / 2
			}

			ctx, cancel := context.WithTimeout(t.Context(), most)
			defer cancel()
			streams, _, _, notes := genericiooptions.NewTestIOStreams()
			a := &app{&command.Env{IOStreams: streams}}
			err := a.probe(ctx, api, assignOptions{node: "w", startProbe: "pause"}, nc, source)
			assert.That(t, (err == nil) == (c.want == "") && strings.Contains(fmt.Sprint(err), c.want), "error %v, want in it %q", err, c.want)
			if exit := (*command.Exit)(nil); strings.HasPrefix(c.want, "no result") {
				assert.That(t, errors.As(err, &exit) && exit.Code == command.ExitTimeout, "the exit code of %v", err)
			}

			assert.That(t, (notes.Len() > 0) == (c.note != "") && strings.Contains(notes.String(), c.note), "notes: %s", notes)
			assert.Equal(t, created, c.pods, "pods that were created")
			assert.Equal(t, deleted, c.pods, "pods that were deleted")
		})
	}
}
