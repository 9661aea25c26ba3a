// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/internal/operator/query"
	"github.com/evenkeel/evenkeel/internal/operator/steer"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/fakeapi"
)

func TestAnErrorAfterWhichTheWriteMayHaveTakenEffectSaysWhatToDo(t *testing.T) {
	const words = "the assignment may have been written: run the command again, which follows it if it was"
	for _, tt := range []struct {
		err  error
		want bool
	}{
		{&url.Error{Op: "Patch", URL: "https://api", Err: syscall.ECONNRESET}, true},
		{apierrors.NewInternalError(errors.New("etcd")), true},
		{context.Canceled, true},
		{fmt.Errorf("NodeConfig a: %w", steer.ErrChanged), false},
		{apierrors.NewBadRequest("no"), false},
	} {
		got := maybeWritten(tt.err)
		assert.That(t, (got != nil && strings.Contains(got.Error(), words)) == tt.want && errors.Is(got, tt.err), "%v becomes %v", tt.err, got)
	}
}

func TestAssignStopsWaitingWhenTheOutcomeIsKnown(t *testing.T) {
	for _, tt := range []struct {
		name  string
		then  func(*fakeapi.API, *v1alpha1.NodeConfig) // what happens after the assignment was written
		code  int
		words []string
	}{
		{"another assignment", func(api *fakeapi.API, nc *v1alpha1.NodeConfig) {
			nc.Spec.ConfigSource = &v1alpha1.NodeConfigSource{Local: &v1alpha1.LocalSource{}}
			api.Write(nc)
		}, command.ExitError, []string{"error: node a was assigned another configuration in the meantime; for details: kubectl evenkeel node a"}},
		{"the NodeConfig is deleted", func(api *fakeapi.API, nc *v1alpha1.NodeConfig) {
			assert.OK(t, api.Delete(context.Background(), nc))
		}, command.ExitError, []string{"error: NodeConfig a was deleted: the node keeps its configuration"}},
		{"the node refuses", func(api *fakeapi.API, nc *v1alpha1.NodeConfig) {
			nc.Status.ObservedGeneration = nc.Generation
			fakeapi.Failing(&nc.Status, v1alpha1.ReasonNeedsDrain, "it contradicts cpu_manager_state")
			api.Report(nc)
		}, command.ExitHalted, []string{
			"error: node a refused the configuration (NeedsDrain): it contradicts cpu_manager_state; its kubelet was not stopped: it runs its local configuration\n",
			"refused until the node is cordoned and drained: kubectl drain a\n", "the assignment stays until you assign another configuration, or --local",
		}},
	} {
		file := fakeapi.File(t, fakeapi.Header+"maxPods: 50\n")
		synctest.Test(t, func(t *testing.T) {
			api := newAPI(t)
			nc := api.AddAgent("a", "pool", nil, nil)
			r := api.Begin("assign", "a", "-f", file, "--yes")
			time.Sleep(query.ObserveTimeout) // no controller answers the preflight
			synctest.Wait()
			if api.Read(nc); nc.Spec.ConfigSource == nil || nc.Spec.ConfigSource.ConfigMapRef == nil {
				t.Fatalf("the assignment was not written: %s%s", r.Out, r.Err)
			}

			tt.then(api, nc)
			(<-r.Ended).Want(t, tt.code, []string{"node a is assigned ConfigMap evenkeel-system/kubelet."}, tt.words...)
		})
	}
}

func TestAssignWithoutAnAnswerOfThePreflightContinues(t *testing.T) {
	file := fakeapi.File(t, fakeapi.Header+"maxPods: 50\n")
	for want, prepare := range map[string]func(*fakeapi.API){
		"evenkeel-controller has not renewed its lease for 60m, by the clock of this machine: is it running? kubectl -n evenkeel-system get pods\n": func(api *fakeapi.API) {
			lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: v1alpha1.ControllerLease}}
			renewed := metav1.NewMicroTime(time.Now().Add(-time.Hour))
			lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: new("pod-1_42"), RenewTime: &renewed, LeaseDurationSeconds: new(int32(15))}
			fakeapi.Add(api, lease)
		},
		"you may not create NodeConfigPreflights (the ClusterRole evenkeel-preflight grants it)\n": func(api *fakeapi.API) { api.Forbid("create", "NodeConfigPreflight") },
	} {
		synctest.Test(t, func(t *testing.T) {
			api := newAPI(t)
			prepare(api)
			api.AddAgent("a", "pool", nil, nil)
			got := api.Run("assign", "a", "-f", file, "--dry-run")
			got.Want(t, command.ExitComplete, []string{"dry run: nothing was assigned\n"}, "note: it is not known whether node a would accept this: "+want)
			assert.That(t, !strings.Contains(got.Out, "Preflight:"), "an answer although nobody was asked:\n%s", got.Out)
			all := &v1alpha1.NodeConfigPreflightList{}
			err := api.List(t.Context(), all)
			assert.That(t, err == nil && len(all.Items) == 0, "%d preflights were created, which nobody answers: %v", len(all.Items), err)
		})
	}
}

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
		under := fakeapi.New(t)
		nc := under.AddNodeConfig("w", nil, func(st *v1alpha1.NodeConfigStatus) {
			st.Active, st.Trial = &v1alpha1.ConfigRevision{UID: c.active}, &v1alpha1.Trial{HealthySeconds: 1}
		})
		created, deleted := 0, 0
		api := interceptor.NewClient(under, interceptor.Funcs{
			Get: func(ctx context.Context, api client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
				if _, is := o.(*v1alpha1.NodeConfig); is && c.get != nil {
					return c.get
				}

				return api.Get(ctx, key, o, options...)
			},
			Create: func(ctx context.Context, api client.WithWatch, o client.Object, options ...client.CreateOption) error {
				created++
				if c.created != nil {
					return c.created
				}
				if err := api.Create(ctx, o, options...); err != nil {
					return err
				}

				o.(*corev1.Pod).Status = corev1.PodStatus{Phase: c.phase, Reason: "OutOfcpu"}

				return api.Status().Update(ctx, o)
			},
			Delete: func(ctx context.Context, api client.WithWatch, o client.Object, options ...client.DeleteOption) error {
				deleted++
				if c.deleted != nil {
					return c.deleted
				}

				return api.Delete(ctx, o, options...)
			},
			List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return nil },
		})
		most := time.Minute
		if c.want == "interrupted" {
			most = time.Second / 2
		}

		ctx, cancel := context.WithTimeout(t.Context(), most)
		streams, _, _, notes := genericiooptions.NewTestIOStreams()
		a := &app{&command.Env{IOStreams: streams}}
		err := a.probe(ctx, api, assignOptions{node: "w", startProbe: "pause"}, nc, source)
		cancel()
		assert.That(t, (err == nil) == (c.want == "") && strings.Contains(fmt.Sprint(err), c.want),
			"%s: error %v, want in it %q", what, err, c.want)
		if exit := (*command.Exit)(nil); strings.HasPrefix(c.want, "no result") {
			assert.That(t, errors.As(err, &exit) && exit.Code == command.ExitTimeout, "%s: the exit code of %v", what, err)
		}

		assert.That(t, (notes.Len() > 0) == (c.note != "") && strings.Contains(notes.String(), c.note), "%s: notes: %s", what, notes)
		assert.Equal(t, created, c.pods, what, "pods that were created")
		assert.Equal(t, deleted, c.pods, what, "pods that were deleted")
	}
}
