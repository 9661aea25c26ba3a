// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package version

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/internal/program"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/fakeapi"
)

// leaseOf creates the controller's lease. Without a holder, the lease is free.
func leaseOf(api *fakeapi.API, holder string, labels map[string]string) {
	now := metav1.NewMicroTime(time.Now())
	fakeapi.Add(api, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: v1alpha1.ControllerLease, Labels: labels},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &now},
	})
}

// inCluster returns the versions in the cluster from the JSON output.
func inCluster(t *testing.T, api *fakeapi.API) Report {
	t.Helper()
	said := api.Run("version", "-o", "json")
	assert.Must(t, said.Code == 0, "exit %d: %s%s", said.Code, said.Out, said.Err)
	v := fakeapi.Decoded[Report](t, said)
	want := program.NewInfo("kubectl-evenkeel", "v0.0.0-test", "0123abcd")
	assert.That(t, v.Client == want, "the client is %+v, want %+v", v.Client, want)
	v.Client = program.Info{}

	return v
}

func TestVersionShowsTheLeaderAndTheAgents(t *testing.T) {
	api := fakeapi.New(t, Command)
	assert.NoDiff(t, cmp.Diff(Report{}, inCluster(t, api)), "of an empty cluster")
	for i, version := range []string{"v0.2.0", "v0.3.0", "v0.3.0", ""} {
		api.AddNodeConfig(fmt.Sprintf("counted-%d", i), nil, func(st *v1alpha1.NodeConfigStatus) { st.AgentVersion = version })
	}

	leaseOf(api, "pod-1_42", map[string]string{v1alpha1.LabelVersion: "v0.3.0"})
	want := Report{
		Controller: &Controller{Version: "v0.3.0"}, Agents: []Agents{{Version: "v0.3.0", Nodes: 2}, {Nodes: 1}, {Version: "v0.2.0", Nodes: 1}},
	}
	assert.NoDiff(t, cmp.Diff(want, inCluster(t, api)))
	api.Run("version").WantOutput(t, "kubectl-evenkeel v0.0.0-test\ncommit 0123abcd\nbuilt with go", "\nkubelets 1.33 to 1.",
		"\n\nIN THE CLUSTER VERSION NODES\ncontroller v0.3.0 -\nagent v0.3.0 2\nno agent yet - 1\nagent v0.2.0 1\n")
	api.Run("version", "-o", "yaml").WantOutput(t, "agents:\n- nodes: 2\n version: v0.3.0", "controller:\n version: v0.3.0\n")

	// Who may look at NodeConfigs, and not at the lease, is told of the agents
	// alone.
	api.Forbid("get", "Lease")
	got := api.Run("version")
	got.WantOutput(t, "IN THE CLUSTER VERSION NODES\nagent v0.3.0 2\n")
	assert.That(t, !strings.Contains(got.Out, "controller") && got.Err == "", "without a right to the lease: %+v", got)
}

func TestVersionShowsTheHolderOfTheLease(t *testing.T) {
	for _, tt := range []struct {
		name, holder string
		labels       map[string]string
		want         *Controller
	}{
		{"one that does not say", "pod-1_42", nil, &Controller{Version: ""}},
		{"one that has gone", "", map[string]string{v1alpha1.LabelVersion: "v0.3.0"}, nil},
	} {
		api := fakeapi.New(t, Command)
		leaseOf(api, tt.holder, tt.labels)
		assert.NoDiff(t, cmp.Diff(tt.want, inCluster(t, api).Controller), tt.name)
	}
}

func TestVersionWithoutACluster(t *testing.T) {
	api := fakeapi.New(t, Command)
	api.Forbid("*", "NodeConfig")
	for _, args := range [][]string{{"version", "--client"}, {"version", "--client", "-o", "json"}} {
		got := api.Run(args...)
		assert.That(t, got.Code == 0 && got.Err == "" && strings.Contains(got.Out, "v0.0.0-test") && !strings.Contains(got.Out, "CLUSTER"),
			"%q: got %+v", args, got)
	}

	got := api.Run("version")
	got.Want(t, command.ExitError, []string{"kubectl-evenkeel v0.0.0-test\n"}, "read the versions in the cluster (not needed with --client): ", "an administrator can grant it")
	api.Run("version", "-o", "wide").WantError(t, "must be one of json, yaml")
	api.Run("version", "v1").WantError(t, `kubectl evenkeel version takes no arguments, got "v1"`)
}
