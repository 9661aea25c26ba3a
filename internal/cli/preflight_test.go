package cli

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli/command"
)

// asController waits for an object that ready wants and writes its status, as the controller does.
func asController[T client.Object](t *testing.T, list func(context.Context) ([]T, error), ready func(T) bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
			all, err := list(ctx)
			if err != nil {
				return false, err
			}
			for _, o := range all {
				if ready(o) {
					return true, admin.Status().Update(ctx, o)
				}
			}
			return false, nil
		})
		if err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { cancel(); <-ended })
}

func preflights(ctx context.Context) ([]*v1alpha1.NodeConfigPreflight, error) {
	list := &v1alpha1.NodeConfigPreflightList{}
	err := admin.List(ctx, list)
	var out []*v1alpha1.NodeConfigPreflight
	for i := range list.Items {
		out = append(out, &list.Items[i])
	}
	return out, err
}

// answersOf completes the next preflight with a result.
func answersOf(t *testing.T, r v1alpha1.PreflightResult) {
	t.Helper()
	t.Cleanup(func() {
		if err := admin.DeleteAllOf(context.Background(), &v1alpha1.NodeConfigPreflight{}); err != nil {
			t.Error(err)
		}
	})
	asController(t, preflights, func(p *v1alpha1.NodeConfigPreflight) bool {
		if p.Status.EndTime != nil {
			return false
		}
		now := metav1.Now()
		r.StartTime, r.EndTime = now, &now
		p.Status = v1alpha1.NodeConfigPreflightStatus{Phase: v1alpha1.PreflightComplete, Result: &r, EndTime: &now}
		return true
	})
}

func TestPreflightPrintsTheAnswersByReason(t *testing.T) {
	file := write(t, header+"maxPods: 120\n")
	answersOf(t, v1alpha1.PreflightResult{Accepted: 4988, Refused: 9, Unanswered: 3, UnansweredNodes: []string{"n1", "n2", "n3"},
		Refusals: []v1alpha1.PreflightRefusal{{Verdict: "Refused", Reason: "ValidationFailed", Message: "maxPods", Nodes: 9, Examples: []string{"n4", "n5"}}}})
	evenkeel(t, "preflight", "-f", file, "--selector", "pool=asked").wantExit(t, command.ExitHalted,
		[]string{"4,988 nodes accept\n", "9 nodes refuse\n", "9 ValidationFailed (n4, n5 and 7 more): maxPods\n", "3 nodes did not answer: n1, n2, n3\n"}, "waiting for the agents")

	answersOf(t, v1alpha1.PreflightResult{Accepted: 2})
	evenkeel(t, "preflight", "-f", file, "--all-nodes").wantOutput(t, "2 nodes accept\n")
	answersOf(t, v1alpha1.PreflightResult{Accepted: 2, Unsupported: 1, UnsupportedNodes: []string{"n1"}})
	evenkeel(t, "preflight", "-f", file, "--all-nodes").wantExit(t, command.ExitTimeout, []string{"2 nodes accept\n", "1 node has an agent that is too old to answer: n1\n"})
	answersOf(t, v1alpha1.PreflightResult{})
	if got := evenkeel(t, "preflight", "-f", file, "--all-nodes"); got.code != command.ExitError {
		t.Errorf("exit %d although no node was asked: %s", got.code, got.err)
	}
}

func TestPreflightWithoutAControllerSaysSo(t *testing.T) {
	t.Cleanup(func() {
		if err := admin.DeleteAllOf(context.Background(), &v1alpha1.NodeConfigPreflight{}); err != nil {
			t.Error(err)
		}
	})
	evenkeel(t, "preflight", "-f", write(t, header), "--all-nodes", "--timeout", "6s").wantExit(t, command.ExitTimeout, nil,
		"is evenkeel-controller running?", "timed out after 6s", "kubectl get nodeconfigpreflight preflight-")
}

func TestPreflightRefusesWrongUsage(t *testing.T) {
	file := write(t, header)
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"preflight"}, "preflight needs -f FILE"},
		{[]string{"preflight", "-f", file}, "use --selector to choose the nodes, or --all-nodes for every node"},
		{[]string{"preflight", "-f", file, "--all-nodes", "--selector", "a=b"}, "cannot be used together"},
		{[]string{"preflight", "-f", file, "--selector", "a in"}, "--selector: "},
		{[]string{"preflight", "-f", file, "--all-nodes", "--timeout", "0s"}, "--timeout must be longer than 0"},
		{[]string{"preflight", "-f", write(t, "kind: Pod\n"), "--all-nodes"}, "nothing was written"},
		{[]string{"push", "workers", "-f", file, "--all-nodes", "--preflight=often"}, "--preflight must be report, require or off"},
	} {
		evenkeel(t, tt.args...).wantError(t, tt.want)
	}
}

func TestPushWaitsForThePreflight(t *testing.T) {
	t.Cleanup(func() {
		if err := client.IgnoreNotFound(admin.Delete(context.Background(), &v1alpha1.NodeConfigRollout{ObjectMeta: metav1.ObjectMeta{Name: "asks"}})); err != nil {
			t.Error(err)
		}
	})
	createNode(t, "asks-1", "asks", "")
	createNodeConfig(t, "asks-1", nil, func(st *v1alpha1.NodeConfigStatus) { st.Capabilities = []string{v1alpha1.CapabilityPreflight} })
	rollouts := func(ctx context.Context) ([]*v1alpha1.NodeConfigRollout, error) {
		r := &v1alpha1.NodeConfigRollout{}
		err := client.IgnoreNotFound(admin.Get(ctx, client.ObjectKey{Name: "asks"}, r))
		return []*v1alpha1.NodeConfigRollout{r}, err
	}
	asController(t, rollouts, func(r *v1alpha1.NodeConfigRollout) bool {
		if r.UID == "" || r.Spec.Strategy.Preflight != v1alpha1.PreflightRequire {
			return false
		}
		now := metav1.Now()
		r.Status.ObservedGeneration, r.Status.Phase, r.Status.Message = r.Generation, v1alpha1.RolloutHalted, "revision 1 was stopped (PreflightRefused)"
		r.Status.Preflight = &v1alpha1.RolloutPreflight{Revision: 1, Attempt: 1, PreflightResult: v1alpha1.PreflightResult{StartTime: now, EndTime: &now, Refused: 1,
			Refusals: []v1alpha1.PreflightRefusal{{Verdict: "Refused", Reason: "ValidationFailed", Nodes: 1, Examples: []string{"asks-1"}}}}}
		return true
	})
	evenkeel(t, "push", "asks", "-f", write(t, header+"maxPods: 90\n"), "--selector", "pool=asks", "--preflight", "--yes").wantExit(t, command.ExitHalted,
		[]string{"First, 1 agent is asked whether the kubelet accepts the revision (preflight: Require)", "rollout asks created", "0 nodes accept\n", "1 node refuses\n", "1 ValidationFailed (asks-1)\n"},
		"asks: Halted: revision 1 was stopped (PreflightRefused)")
	evenkeel(t, "rollout", "status", "asks").wantExit(t, command.ExitHalted, []string{"asks Halted", "revision 1 was stopped"})
}
