// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/internal/operator/steer"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/fakeapi"
)

const crashed = "TooManyFailures: 1 node failed (limit 1): undone-0 CrashLooped"

// undone is a rollout with three nodes after an undo: revision 2 crashed on
// undone-0 and is the template, and revision 3, with the content of revision 1,
// is pinned, and runs everywhere.
func undone(t *testing.T, change func(*v1alpha1.NodeConfigRollout)) *fakeapi.API {
	t.Helper()
	api := newAPI(t)
	good := api.AddRevision("undone", 3, "maxPods: 120\n")
	bad := api.AddRevision("undone", 2, "maxPods: 7\n")
	api.AddRollout("undone", "undone", nil, func(r *v1alpha1.NodeConfigRollout) {
		r.Spec.Template = fakeapi.Follow(bad.Namespace, bad.Name)
		r.Spec.Pin = &v1alpha1.RolloutPin{SHA256: fakeapi.RefTo(good).SHA256, Instead: fakeapi.RefTo(bad).SHA256}
		target := &v1alpha1.RolloutRevision{Number: 3, ConfigMapRef: fakeapi.RefTo(good)}
		r.Status = v1alpha1.NodeConfigRolloutStatus{ObservedGeneration: 1, Attempt: 1, Step: 3, Phase: v1alpha1.RolloutComplete, UpdateRevision: target, CurrentRevision: target}
		stopped := fakeapi.SucceededAs(2, bad)
		stopped.Outcome, stopped.Reason, stopped.Message = v1alpha1.OutcomeHalted, v1alpha1.HaltTooManyFailures, crashed
		r.Status.History = []v1alpha1.RolloutOutcome{fakeapi.SucceededAs(3, good), stopped, fakeapi.SucceededAs(1, good)}
		if change != nil {
			change(r)
		}
	})
	for i := range 3 {
		api.AddAgent(fmt.Sprint("undone-", i), "undone", fakeapi.ByRollout("undone", 3, good, nil), fakeapi.Proved(good))
	}

	return api
}

func pinOf(api *fakeapi.API) *v1alpha1.RolloutPin {
	r := &v1alpha1.NodeConfigRollout{ObjectMeta: metav1.ObjectMeta{Name: "undone"}}
	api.Read(r)
	return r.Spec.Pin
}

func TestAnUndoNamesWhatNodesKeepByTheNumberThatPeopleKnow(t *testing.T) {
	api := undone(t, func(r *v1alpha1.NodeConfigRollout) {
		all := r.Status.History
		r.Spec.Pin, r.Status.History = nil, all[1:]
		r.Status.UpdateRevision = &v1alpha1.RolloutRevision{Number: 2, ConfigMapRef: v1alpha1.ConfigMapReference{Namespace: v1alpha1.SystemNamespace, Name: all[1].ConfigMap, UID: all[1].UID, SHA256: all[1].SHA256}}
		r.Status.CurrentRevision.Number = 1
	})
	api.Run("rollout", "undo", "undone", "--dry-run").Want(t, command.ExitComplete, []string{"3 nodes keep revision 1, which becomes revision 3\n"})
}

func TestUnpinOfAStoppedTemplateNeedsForceAndSaysWhoseFailureItWas(t *testing.T) {
	api := undone(t, nil)
	moves := []string{"3 nodes go from revision 3 to revision 4:\n", "maxPods: 120 -> 7\n"}
	const warning = "warning: this configuration failed before: revision 2 was stopped (" + crashed + ")\n"
	api.Run("rollout", "unpin", "undone", "--dry-run").Want(t, command.ExitComplete, append(moves, "dry run: nothing was written\n"), warning)
	api.Run("rollout", "unpin", "undone", "--yes").Want(t, command.ExitHalted, moves, warning,
		"error: rollout undone was not changed: push another configuration, or use --force if the cause of the failure is repaired\n")
	api.Run("rollout", "unpin", "undone", "--force").Want(t, command.ExitError, moves, "cannot ask for confirmation")
	assert.That(t, pinOf(api) != nil, "the pin is gone")
	api.Run("rollout", "unpin", "undone", "--force", "--yes").Want(t, command.ExitComplete, []string{"rollout undone unpinned: the template is the target"}, warning)
	assert.That(t, pinOf(api) == nil, "the pin is still there")
	api.Run("rollout", "unpin", "undone").Want(t, command.ExitComplete, []string{"rollout undone is not pinned: nothing changes\n"})
}

func TestUnpinOfATemplateThatDidNotFailOnlyAsks(t *testing.T) {
	api := undone(t, func(r *v1alpha1.NodeConfigRollout) {
		r.Status.History[1].Outcome, r.Status.History[1].Reason = v1alpha1.OutcomeSucceeded, ""
	})
	api.Run("rollout", "unpin", "undone").Want(t, command.ExitError, nil, "cannot ask for confirmation")
	api.Run("rollout", "unpin", "undone", "--yes").Want(t, command.ExitComplete, []string{"3 nodes go from revision 3 to revision 4:\n", "unpinned: the template is the target"})
}

func TestAPinnedRolloutIsComparedWithWhatItsNodesRun(t *testing.T) {
	api := undone(t, nil)
	stopped := fakeapi.File(t, fakeapi.Header+"maxPods: 7\n")
	api.Run("push", "undone", "-f", stopped, "--inline", "--dry-run").Want(t, command.ExitComplete,
		[]string{"3 nodes go from revision 3 to revision 4:\n", "maxPods: 120 -> 7\n", "spec.pin, with which undo held an earlier revision in place of the template, is removed\n"})
	got := api.Run("push", "undone", "-f", fakeapi.File(t, fakeapi.Header+"maxPods: 120\npodPidsLimit: 5\nserializeImagePulls: false\n"), "--inline", "--dry-run")
	got.Want(t, command.ExitComplete, []string{"3 nodes go from revision 3 to revision 4:\n", "podPidsLimit: unset -> 5 (acts on new pods only)\n", "serializeImagePulls: unset -> false\n"})
	assert.That(t, !strings.Contains(got.Out, "maxPods") && !strings.Contains(got.Out, "sha256"), "it compares with the template:\n%s", got.Out)
	api.Run("rollout", "plan", "undone").Want(t, command.ExitComplete, []string{"3 nodes keep revision 3\n"})
}

func TestUndoToAStoppedRevisionNeedsForce(t *testing.T) {
	api := undone(t, nil)
	api.Run("rollout", "undo", "undone", "--to-revision", "2").Want(t, command.ExitHalted, []string{"3 nodes go from revision 3 to revision 4:\n"},
		"warning: this configuration failed before: revision 2 was stopped ("+crashed+")\n")
	api.Run("rollout", "undo", "undone", "--to-revision", "2", "--force").Want(t, command.ExitComplete, []string{"rollout undone undone: the configuration of revision 2"},
		"warning: this configuration failed before")
	assert.That(t, pinOf(api).SHA256 == pinOf(api).Instead, "the pin is %+v, want one of the template's content", pinOf(api))
}

func TestAnUndoDoesNotWaitLongToSayWhichNodesChange(t *testing.T) {
	t.Cleanup(func(before time.Duration) func() { return func() { steer.Patience = before } }(steer.Patience))
	steer.Patience = 0
	api := undone(t, nil)
	api.Run("rollout", "undo", "undone", "--to-revision", "2", "--force").Want(t, command.ExitComplete, []string{"rollout undone undone: the configuration of revision 2"},
		"note: cannot tell which nodes change: list rollouts: context deadline exceeded\n")
	api.Run("rollout", "unpin", "undone", "--dry-run").Want(t, command.ExitComplete, []string{"dry run: nothing was written\n"})
}

func TestAbortSaysWhereNodesGoAndWhatRemainsToGoBackTo(t *testing.T) {
	api := newAPI(t)
	first, last := api.AddRevision("ended", 1, "maxPods: 110\n"), api.AddRevision("ended", 2, "maxPods: 90\n")
	api.AddRollout("ended", "ended", nil, func(r *v1alpha1.NodeConfigRollout) {
		r.Spec.Template = fakeapi.Follow(last.Namespace, last.Name)
		r.Status = v1alpha1.NodeConfigRolloutStatus{
			ObservedGeneration: 1, Attempt: 1, Phase: v1alpha1.RolloutProgressing, UpdateRevision: &v1alpha1.RolloutRevision{Number: 2, ConfigMapRef: fakeapi.RefTo(last)},
		}
	})
	for i := range 5 { // revision 1 was not complete: two nodes had the local configuration before
		previous := first
		if i < 2 {
			previous = nil
		}

		api.AddAgent(fmt.Sprint("ended-", i), "ended", fakeapi.ByRollout("ended", 2, last, previous), fakeapi.Proved(last))
	}

	const back = "3 nodes go from revision 2 to revision 1, 2 nodes go from revision 2 to the local configuration"
	api.Run("rollout", "abort", "ended").Want(t, command.ExitComplete, []string{"; 5 nodes keep revision 2; rolled back, " + back})
	r := &v1alpha1.NodeConfigRollout{ObjectMeta: metav1.ObjectMeta{Name: "ended"}}
	api.Read(r)
	r.Status.ObservedGeneration = r.Generation
	api.Report(r)
	api.Run("rollout", "abort", "ended", "--rollback").Want(t, command.ExitComplete, []string{"; " + back})
}

func TestARetryNamesUndecidedNodesWhoseFailureStillCounts(t *testing.T) {
	api := newAPI(t)
	rev := api.AddRolledOut("retried", func(r *v1alpha1.NodeConfigRollout) {
		r.Status.ObservedGeneration, r.Status.Phase = 1, v1alpha1.RolloutHalted
		r.Status.Halt = &v1alpha1.RolloutHalt{Attempt: 1, Reason: v1alpha1.HaltTooManyFailures, Message: "1 node failed (limit 1): retried-0 CrashLooped", Time: metav1.Now()}
	})
	api.AddAgent("retried-0", "retried", fakeapi.ByRollout("retried", 1, rev, nil), fakeapi.Failed(v1alpha1.ReasonCrashLooped, "4 starts"))
	api.AddAgent("retried-1", "retried", fakeapi.ByRollout("retried", 1, rev, nil), func(st *v1alpha1.NodeConfigStatus) {
		st.Active, st.Trial = fakeapi.Runs(rev), &v1alpha1.Trial{}
	})
	api.Run("rollout", "retry", "retried").WantError(t, "was stopped at revision 1 (TooManyFailures: 1 node failed (limit 1): retried-0 CrashLooped)",
		"name nodes on which it failed, and the others wait for them; or use --force to go on with all nodes; nothing was changed")
	api.Run("rollout", "retry", "retried", "retried-0").Want(t, command.ExitComplete, []string{
		"the halt is lifted (TooManyFailures: 1 node failed (limit 1): retried-0 CrashLooped)",
		"; a failure still counts on these nodes, which have no verdict yet: retried-1; 1 node goes from the local configuration to revision 1, 1 node keeps revision 1\n"})
}

func TestAPlanCountsContentOfNoRevisionInTheStatus(t *testing.T) {
	api := undone(t, nil)
	nc := &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: "undone-1"}}
	api.Read(nc)
	bad := api.AddRevision("undone", 9, "podPidsLimit: 5\n")
	nc.Spec.ConfigSource = fakeapi.ByRollout("undone", 1, bad, nil)
	api.Write(nc)
	nc.Status.ObservedGeneration, nc.Status.Active, nc.Status.LastKnownGood = nc.Generation, fakeapi.Runs(bad), fakeapi.Proven(bad)
	api.Report(nc)
	api.Run("rollout", "plan", "undone").Want(t, command.ExitComplete, []string{"1 node goes from revision 1 to revision 3", "2 nodes keep revision 3"})
}
