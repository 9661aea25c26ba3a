package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/internal/cli/version"
	"github.com/evenkeel/evenkeel/internal/program"
)

// leaseOf creates the controller's lease. Without a holder, the lease is free.
func leaseOf(t *testing.T, holder string, labels map[string]string) {
	t.Helper()
	now := metav1.NewMicroTime(time.Now())
	create(t, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: v1alpha1.ControllerLease, Labels: labels},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &now},
	})
}

// inCluster returns the versions in the cluster from the JSON output.
func inCluster(t *testing.T) version.Report {
	t.Helper()
	said := evenkeel(t, "version", "-o", "json")
	var v version.Report
	if err := json.Unmarshal([]byte(said.out), &v); err != nil || said.code != 0 {
		t.Fatalf("exit %d, %v: %s%s", said.code, err, said.out, said.err)
	}
	if want := program.NewInfo("kubectl-evenkeel", "v0.0.0-test", "0123abcd"); v.Client != want {
		t.Errorf("the client is %+v, want %+v", v.Client, want)
	}
	v.Client = program.Info{}
	return v
}

func TestVersionShowsTheLeaderAndTheAgents(t *testing.T) {
	if got := inCluster(t); got.Controller != nil || got.Agents != nil {
		t.Fatalf("of an empty cluster it says %+v", got)
	}
	for i, version := range []string{"v0.2.0", "v0.3.0", "v0.3.0", ""} {
		createNodeConfig(t, fmt.Sprintf("counted-%d", i), nil, func(st *v1alpha1.NodeConfigStatus) { st.AgentVersion = version })
	}
	leaseOf(t, "pod-1_42", map[string]string{v1alpha1.LabelVersion: "v0.3.0"})
	want := version.Report{
		Controller: &version.Controller{Version: "v0.3.0"}, Agents: []version.Agents{{Version: "v0.3.0", Nodes: 2}, {Nodes: 1}, {Version: "v0.2.0", Nodes: 1}},
	}
	if diff := cmp.Diff(want, inCluster(t)); diff != "" {
		t.Error(diff)
	}
	evenkeel(t, "version").wantOutput(t, "kubectl-evenkeel v0.0.0-test\ncommit 0123abcd\nbuilt with go", "\nkubelets 1.30 to 1.",
		"\n\nIN THE CLUSTER VERSION NODES\ncontroller v0.3.0 -\nagent v0.3.0 2\nno agent yet - 1\nagent v0.2.0 1\n")
	evenkeel(t, "version", "-o", "yaml").wantOutput(t, "agents:\n- nodes: 2\n version: v0.3.0", "controller:\n version: v0.3.0\n")

	// Who may look at NodeConfigs, and not at the lease, is told of the agents alone.
	grant(t, "looks", "nodeconfigs", v1alpha1.GroupVersion.Group)
	got := evenkeelAs(t, userOf(t, "looks"), "version")
	got.wantOutput(t, "IN THE CLUSTER VERSION NODES\nagent v0.3.0 2\n")
	if strings.Contains(got.out, "controller") || got.err != "" {
		t.Errorf("without a right to the lease: %+v", got)
	}
}

func TestVersionShowsTheHolderOfTheLease(t *testing.T) {
	for _, tt := range []struct {
		name, holder string
		labels       map[string]string
		want         *version.Controller
	}{
		{"one that does not say", "pod-1_42", nil, &version.Controller{Version: ""}},
		{"one that has gone", "", map[string]string{v1alpha1.LabelVersion: "v0.3.0"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			leaseOf(t, tt.holder, tt.labels)
			if diff := cmp.Diff(tt.want, inCluster(t).Controller); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestVersionWithoutACluster(t *testing.T) {
	const line = "kubectl-evenkeel v0.0.0-test\n"
	for _, args := range [][]string{{"version", "--client"}, {"version", "--client", "-o", "json"}} {
		got := evenkeelAs(t, "/none", args...)
		if got.code != 0 || got.err != "" || !strings.Contains(got.out, "v0.0.0-test") || strings.Contains(got.out, "CLUSTER") {
			t.Errorf("%q: got %+v", args, got)
		}
	}
	if got := evenkeelAs(t, "/none", "version"); got.code != command.ExitError || !strings.HasPrefix(got.out, line) || got.err == "" {
		t.Errorf("with a kubeconfig that is not there: %+v", got)
	}
	got := evenkeelAs(t, userOf(t, "nobody-at-all"), "version")
	if got.code != command.ExitError || !strings.HasPrefix(got.out, line) || !strings.Contains(got.err, "read the versions in the cluster (not needed with --client): ") ||
		!strings.Contains(got.err, "an administrator can grant it") {
		t.Errorf("without rights: %+v", got)
	}
	evenkeel(t, "version", "-o", "wide").wantError(t, "must be one of json, yaml")
	evenkeel(t, "version", "v1").wantError(t, `kubectl evenkeel version takes no arguments, got "v1"`)
}
