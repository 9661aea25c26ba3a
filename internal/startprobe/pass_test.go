// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package startprobe

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/rollout"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

var (
	began  = time.Date(2030, 1, 1, 0, 5, 0, 0, time.UTC)
	worker = Probe{Namespace: "ns", Node: "worker", Image: "pause", Key: "k", For: "a",
		Config: &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: "worker", UID: "u"}}}
)

func TestAPodThatReachedItsDeadlineUnseenIsCreatedAgain(t *testing.T) {
	pod := worker.Pod("pause")
	pod.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "DeadlineExceeded"}
	c := fake.NewClientBuilder().WithObjects(pod).Build()
	report := Pass(t.Context(), c, worker, rollout.ProbeReport{}, began)
	assert.Equal(t, report, rollout.ProbeReport{Key: "k", Began: began, Message: "its pod had reached its deadline, and is created again"}, "the first pass")
	assert.That(t, apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(pod), pod)), "the pod is still there")
	assert.Equal(t, Pass(t.Context(), c, worker, report, began.Add(time.Second)).Message, "its pod was created", "the second pass")
}

// TestTheReadsOfAStartProbeAreBounded has the requests of a pod that does not
// start, of which only the Events say why.
func TestTheReadsOfAStartProbeAreBounded(t *testing.T) {
	lists, gets := 0, 0
	c := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			lists++
			return nil
		},
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			gets++
			return c.Get(ctx, key, o, options...)
		},
	}).Build()
	report, now := rollout.ProbeReport{}, began
	for ; report.Result == ""; now = now.Add(max(2*time.Second, Interval(report, now))) { // the controller plans every two seconds
		report = Pass(t.Context(), c, worker, report, now)
		assert.That(t, lists == 0 || now.Sub(began) >= judgedFrom, "the Events of a young pod are read")
	}

	assert.Equal(t, report.Result, rollout.ProbeUnknown, report.Message)
	assert.Equal(t, gets, 15+16, "reads of the pod")
	assert.Equal(t, lists, 16, "reads of its Events")
}

func TestAnAPIThatDoesNotAnswerEndsAStartProbe(t *testing.T) {
	c := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return apierrors.NewInternalError(errors.New("a webhook does not answer"))
		},
	}).Build()
	report := Pass(t.Context(), c, worker, rollout.ProbeReport{}, began)
	report = Pass(t.Context(), c, worker, report, began.Add(patience-1))
	assert.Equal(t, report.Result, "", report.Message)
	report = Pass(t.Context(), c, worker, report, began.Add(patience))
	assert.Equal(t, report.Result, rollout.ProbeUnknown, report.Message)
}

// TestAPodThatIsDeletedAgainAndAgainEndsAStartProbe has a cluster that does not
// keep pods without a workload.
func TestAPodThatIsDeletedAgainAndAgainEndsAStartProbe(t *testing.T) {
	created := 0
	c := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
			created++
			return nil
		},
	}).Build()
	report, now := rollout.ProbeReport{}, began
	for ; report.Result == "" && now.Sub(began) < time.Hour; now = now.Add(max(2*time.Second, Interval(report, now))) {
		report = Pass(t.Context(), c, worker, report, now)
	}

	assert.Equal(t, report.Result, rollout.ProbeUnknown, report.Message)
	assert.Equal(t, report.Message, "its pod is deleted again and again")
	assert.Equal(t, created, 15+15, "pods that were created")
}

// TestStoppingHasATimeOfItsOwn has a pod that is Ready late.
func TestStoppingHasATimeOfItsOwn(t *testing.T) {
	pod := worker.Pod("pause")
	pod.Finalizers = []string{"test/stops"}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	c := fake.NewClientBuilder().WithObjects(pod).Build()
	late := began.Add(patience - time.Second)
	report := Pass(t.Context(), c, worker, rollout.ProbeReport{Key: "k", Began: began}, late)
	assert.Equal(t, report, rollout.ProbeReport{Key: "k", Began: late, Stopping: true, Message: "its pod was Ready, and stops"}, "a Ready pod")
	report = Pass(t.Context(), c, worker, report, late.Add(2*time.Second))
	assert.Equal(t, report, rollout.ProbeReport{Key: "k", Began: late, Stopping: true, Message: "it stops"}, "a pod that stops")
	report = Pass(t.Context(), c, worker, report, late.Add(patience))
	assert.Equal(t, report.Result, rollout.ProbeUnknown, report.Message)
}

// The fake client ignores preconditions, so the test looks at the requests.
func TestOnlyThePodThatWasReadIsDeleted(t *testing.T) {
	var asked []string
	c := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Delete: func(_ context.Context, _ client.WithWatch, _ client.Object, options ...client.DeleteOption) error {
			o := (&client.DeleteOptions{}).ApplyOptions(options)
			uid := "any"
			if o.Preconditions != nil && o.Preconditions.UID != nil {
				uid = string(*o.Preconditions.UID)
			}

			asked = append(asked, uid)

			return nil
		},
	}).WithObjects(worker.Pod("pause")).Build()
	old := &corev1.Pod{}
	assert.OK(t, c.Get(t.Context(), client.ObjectKeyFromObject(worker.Pod("pause")), old))
	old.UID, old.CreationTimestamp = "read", metav1.NewTime(began.Add(-time.Hour))
	assert.OK(t, c.Update(t.Context(), old))
	assert.OK(t, RemoveOld(t.Context(), c, worker.Namespace, began))
	assert.OK(t, Remove(t.Context(), c, worker))
	assert.Equal(t, strings.Join(asked, " "), "read any", "the UIDs of the deletions")
}

func TestAStartProbeBlocksNoDrain(t *testing.T) {
	pod := worker.Pod("agent")
	owner := metav1.GetControllerOf(pod)
	assert.Must(t, owner != nil, "kubectl drain refuses a pod without a controller")
	assert.Equal(t, owner.UID, worker.Config.UID, "the controller")
	assert.Equal(t, pod.Annotations["cluster-autoscaler.kubernetes.io/safe-to-evict"], "true", "the annotation for the cluster autoscaler")
}
