// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/internal/operator/query"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/fakeapi"
)

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
			assert.OK(t, api.Delete(t.Context(), nc))
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
		t.Run(tt.name, func(t *testing.T) {
			file := fakeapi.File(t, fakeapi.Header+"maxPods: 50\n")
			synctest.Test(t, func(t *testing.T) {
				api := newAPI(t)
				api.AddNode("a", "pool", "z1")
				nc := api.AddNodeConfig("a", nil, nil)
				r := api.Begin("assign", "a", "-f", file, "--yes")
				time.Sleep(query.ObserveTimeout) // no controller answers the preflight
				synctest.Wait()
				if api.Read(nc); nc.Spec.ConfigSource == nil || nc.Spec.ConfigSource.ConfigMapRef == nil {
					t.Fatalf("the assignment was not written: %s%s", r.Out, r.Err)
				}

				tt.then(api, nc)
				(<-r.Ended).Want(t, tt.code, []string{"node a is assigned ConfigMap evenkeel-system/kubelet."}, tt.words...)
			})
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
			api.AddNode("a", "pool", "z1")
			api.AddNodeConfig("a", nil, nil)
			got := api.Run("assign", "a", "-f", file, "--dry-run")
			got.Want(t, command.ExitComplete, []string{"dry run: nothing was assigned\n"}, "note: it is not known whether node a would accept this: "+want)
			assert.That(t, !strings.Contains(got.Out, "Preflight:"), "an answer although nobody was asked:\n%s", got.Out)
			all := &v1alpha1.NodeConfigPreflightList{}
			if err := api.List(t.Context(), all); err != nil || len(all.Items) != 0 {
				t.Errorf("%d preflights were created, which nobody answers: %v", len(all.Items), err)
			}
		})
	}
}

func TestAssignJudgesTheFieldsOfItsFile(t *testing.T) {
	api := newAPI(t)
	api.AddNode("a", "pool", "")
	api.AddNodeConfig("a", nil, nil)
	api.Run("assign", "a", "-f", fakeapi.File(t, fakeapi.Header+"maxPods: many\nsystemReserved: {cpu: 1}\n"), "--yes").WantError(t,
		": maxPods must be a whole number from -2147483648 to 2147483647, not \"many\"; systemReserved.cpu must be text, in quotes, not 1; nothing was")
	api.Run("assign", "a", "-f", fakeapi.File(t, fakeapi.Header+"authentication: {anonymous: {enabled: true}}\n"), "--drop-in", "--dry-run").Want(t, command.ExitComplete, nil,
		"note: authentication.anonymous.enabled is a protected field: a node refuses a value that differs from its local configuration, unless its agent is started with --protected-fields=-authentication.anonymous.enabled\n")
}
