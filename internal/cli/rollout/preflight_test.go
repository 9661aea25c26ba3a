// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/fakeapi"
)

func TestPreflightPrintsTheAnswersByReason(t *testing.T) {
	file := fakeapi.File(t, fakeapi.Header+"maxPods: 120\n")
	for _, tt := range []struct {
		result v1alpha1.PreflightResult
		code   int
		out    []string
	}{
		{v1alpha1.PreflightResult{Accepted: 4988, Refused: 9, Unanswered: 3, UnansweredNodes: []string{"n1", "n2", "n3"},
			Groups: []v1alpha1.PreflightGroup{{Verdict: "Refused", Reason: "ValidationFailed", Message: "maxPods", Nodes: 9, Examples: []string{"n4", "n5"}}}},
			command.ExitHalted, []string{"4,988 nodes accept\n", "9 nodes refuse\n", "9 ValidationFailed (n4, n5, ...): maxPods\n", "3 nodes did not answer: n1, n2, n3\n"}},
		{v1alpha1.PreflightResult{Accepted: 2}, command.ExitComplete, []string{"2 nodes accept\n"}},
		{v1alpha1.PreflightResult{Accepted: 2, Unanswered: 1, UnansweredNodes: []string{"n1"}}, command.ExitTimeout,
			[]string{"2 nodes accept\n", "1 node did not answer: n1\n"}},
		{v1alpha1.PreflightResult{}, command.ExitError, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			api := newAPI(t)
			r := api.Begin("preflight", "-f", file, "--selector", "pool=asked")
			synctest.Wait()
			asked := &v1alpha1.NodeConfigPreflightList{}
			err := api.List(t.Context(), asked)
			assert.Must(t, err == nil && len(asked.Items) == 1, "%d preflights: %v, %s", len(asked.Items), err, r.Err)
			p, now := &asked.Items[0], metav1.Now()
			tt.result.StartTime, tt.result.EndTime = now, &now
			p.Status = v1alpha1.NodeConfigPreflightStatus{Phase: v1alpha1.PreflightComplete, Result: &tt.result}
			api.Report(p)
			(<-r.Ended).Want(t, tt.code, tt.out, "waiting for the agents")
		})
	}
}

func TestPreflightWithoutAControllerSaysSo(t *testing.T) {
	file := fakeapi.File(t, fakeapi.Header)
	synctest.Test(t, func(t *testing.T) {
		newAPI(t).Run("preflight", "-f", file, "--all-nodes", "--timeout", "1m").Want(t, command.ExitTimeout, nil,
			"if this stays so: kubectl evenkeel doctor", "timed out after 1m", "kubectl get nodeconfigpreflight preflight-")
	})
}

func TestPreflightRefusesWrongUsage(t *testing.T) {
	file := fakeapi.File(t, fakeapi.Header)
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"preflight"}, "preflight needs -f FILE"},
		{[]string{"preflight", "-f", file}, "use --selector to choose the nodes, or --all-nodes for every node"},
		{[]string{"preflight", "-f", file, "--all-nodes", "--selector", "a=b"}, "cannot be used together"},
		{[]string{"preflight", "-f", file, "--all-nodes", "--selector", ""}, "cannot be used together"},
		{[]string{"preflight", "-f", file, "--selector", ""}, "--selector is empty: use labels, or --all-nodes for every node"},
		{[]string{"preflight", "-f", "no-such-file"}, "use --selector to choose the nodes"},
		{[]string{"push", "workers", "-f", file, "--all-nodes", "--selector", "", "--yes"}, "cannot be used together"},
		{[]string{"preflight", "-f", file, "--selector", "a in"}, "--selector: "},
		{[]string{"preflight", "-f", file, "--all-nodes", "--timeout", "0s"}, "--timeout must be longer than 0"},
		{[]string{"preflight", "-f", fakeapi.File(t, "kind: Pod\n"), "--all-nodes"}, "nothing was written"},
		{[]string{"push", "workers", "-f", file, "--all-nodes", "--preflight=often"}, `--preflight: "often" is not valid: must be one of report, require, off`},
	} {
		newAPI(t).Run(tt.args...).WantError(t, tt.want)
	}
}

func TestPushWaitsForThePreflight(t *testing.T) {
	file := fakeapi.File(t, fakeapi.Header+"maxPods: 90\n")
	synctest.Test(t, func(t *testing.T) {
		api := newAPI(t)
		api.AddAgent("asks-1", "asks", nil, nil)
		push := api.Begin("push", "asks", "-f", file, "--selector", "pool=asks", "--preflight", "--yes")
		synctest.Wait()
		r := &v1alpha1.NodeConfigRollout{ObjectMeta: metav1.ObjectMeta{Name: "asks"}}
		api.Read(r)
		assert.That(t, r.Spec.Strategy.Preflight == v1alpha1.PreflightRequire, "the preflight is %q", r.Spec.Strategy.Preflight)
		now := metav1.Now()
		r.Status.ObservedGeneration, r.Status.Phase, r.Status.Message = r.Generation, v1alpha1.RolloutHalted, "revision 1 was stopped (PreflightRefused)"
		r.Status.Preflight = &v1alpha1.PreflightResult{StartTime: now, EndTime: &now, Refused: 1,
			Groups: []v1alpha1.PreflightGroup{{Verdict: "Refused", Reason: "ValidationFailed", Nodes: 1, Examples: []string{"asks-1"}}}}
		api.Report(r)
		(<-push.Ended).Want(t, command.ExitHalted,
			[]string{"First, 1 agent is asked whether the kubelet accepts the revision (preflight: Require)", "rollout asks created", "0 nodes accept\n", "1 node refuses\n", "1 ValidationFailed (asks-1)\n"},
			"asks: Halted: revision 1 was stopped (PreflightRefused)")
		api.Run("rollout", "status", "asks").Want(t, command.ExitHalted, []string{"asks Halted", "revision 1 was stopped"})
	})
}
