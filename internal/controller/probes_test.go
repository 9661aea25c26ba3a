// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"log/slog"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestAnErrorKeepsTheAnswerAboutStartProbes(t *testing.T) {
	broken := apierrors.NewInternalError(context.DeadlineExceeded)
	var reviews, lists error
	agent := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.InstallNamespace, Name: "agent",
		Labels: map[string]string{"app.kubernetes.io/name": v1alpha1.InstallerName}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Image: "agent:v1"}}}}
	api := fake.NewClientBuilder().WithObjects(agent).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
			o.(*authorizationv1.SelfSubjectAccessReview).Status.Allowed = true
			return reviews
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if lists != nil {
				return lists
			}

			return c.List(ctx, list, options...)
		},
	}).Build()
	now := then
	c := &Controller{client: api, log: slog.New(slog.DiscardHandler), fleet: newCache("", time.Second)}
	c.fleet.now = func() time.Time { return now }
	for _, step := range []struct {
		what           string
		reviews, lists error
		want           bool
	}{
		{what: "no answer yet", reviews: broken},
		{what: "an answer", want: true},
		{what: "no review", reviews: broken, want: true},
		{what: "no list", lists: broken, want: true},
	} {
		reviews, lists = step.reviews, step.lists
		now = now.Add(permissionInterval)
		assert.Equal(t, *c.mayProbe(t.Context(), &v1alpha1.NodeConfigRollout{}), step.want, step.what)
	}
}
