// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestThePageShowsAFleetLiveAndSteersIt(t *testing.T) {
	cleared(t)
	seed(t, some("other", 24))
	controller(t)
	spawn(t, "evenkeel-hollow", "--kubeconfig="+cluster.AdminKubeconfig(), "--nodes=18", "--zones=3", "--label=pool=workers", "--trial-duration=2s",
		"--fault=crashloop,field=maxPods:7,node=hollow-3")
	address, served := serve(t, cluster.AdminKubeconfig())
	b := open(t, address)
	b.shows("#fleet-words", "42 nodes")
	b.shows("#rollouts", "There are no rollouts")
	b.waits(`location.hash === "#/localcluster"`) // the token is in no history

	// The page shows changes without any action.
	push(t, "workers", 120, "1,pause,10%,pause,100%")
	b.shows("[data-rollout=workers]", "Awaiting approval", "revision 1", "1 updated", "17 pending", "0 of 9 allowed")
	b.shows("#legend", "Waiting\n17")

	// Approve: cancelled, then confirmed.
	b.take("workers", "approve")
	b.shows("#confirm", "Approve: workers, revision 1?", "passes its current pause", "kubectl evenkeel rollout approve workers",
		"from the local configuration to revision")
	b.click("#confirm-no")
	b.waits(`!document.getElementById("confirm").open`)
	assert.Equal(t, rolloutNow(t, "workers").Spec.Approval, nil, "a cancelled action has written")
	b.confirm("workers", "approve")
	b.shows("[data-rollout=workers] .done", "rollout workers approved: revision 1 passes the pause after 1 node")
	a := rolloutNow(t, "workers").Spec.Approval
	assert.That(t, a != nil && a.Step == 1 && a.Revision == 1, "the approval is %+v", a)
	assert.That(t, strings.Contains(served.Said(), "rollout workers approved"), "the command does not log the action: %s", served.Said())

	// Pause and resume.
	b.shows("[data-rollout=workers]", "Awaiting approval", "3/5 steps done")
	b.take("workers", "pause")
	b.waits(`document.getElementById("confirm-cost").hidden`) // it restarts nothing
	b.waits(`(document.getElementById("confirm-reason").value = "a storm") === "a storm"`)
	b.click("#confirm-yes")
	b.shows("[data-rollout=workers] .done", "paused: nodes in flight finish")
	s := rolloutNow(t, "workers").Spec
	assert.That(t, s.Paused && s.PausedReason == "a storm", "it is paused: %t: %q", s.Paused, s.PausedReason)
	b.shows("[data-rollout=workers]", "a storm")
	b.shows("[data-rollout=workers] .phase", "Paused")
	b.waits(`document.getElementById("do-workers-resume")?.className === "primary"`) // it moves the menu
	b.click("#menu-workers")
	b.shows("#why-workers-pause", "Not now: workers is paused already")
	b.waits(`document.getElementById("do-workers-pause").getAttribute("aria-disabled") === "true"`)
	b.confirm("workers", "resume")
	b.shows("[data-rollout=workers] .done", "resumed")
	assert.That(t, !rolloutNow(t, "workers").Spec.Paused, "it is still paused")

	// To the end.
	b.confirm("workers", "approve-full")
	b.shows("[data-rollout=workers]", "Complete", "18 updated")

	// A bad one fails on one node: the page says why, in the words of the
	// command line.
	push(t, "workers", 7, "1,pause,10%,pause,100%")
	b.shows("[data-rollout=workers]", "revision 2", "Awaiting approval", "1/5 steps done")
	b.confirm("workers", "approve-full")
	b.shows("[data-rollout=workers]", "Halted", "hollow-3", "CrashLooped")
	b.waits(`((a) => { a?.click(); return Boolean(a); })(document.getElementById("fail-workers-hollow-3"))`) // nodes in flight still move it
	b.shows("#node", "hollow-3", "What happens next", "rollout retry workers hollow-3", "CrashLooped")
	c := spawn(t, "kubectl-evenkeel", "node", "hollow-3", "--kubeconfig="+cluster.AdminKubeconfig())
	<-c.Done
	page := strings.NewReplacer(" Copy ,", ",", " Copy", "").Replace(strings.Join(strings.Fields(b.text("#node")), " "))
	for line := range strings.SplitSeq(c.Said(), "\n") {
		key, words, _ := strings.Cut(line, ":")
		switch key {
		case "Assigned", "Runs", "Last-known-good", "ConfigOK", "Bad", "note", "Node": // they tell how long ago, or are told elsewhere
			continue
		}

		words = strings.Join(strings.Fields(strings.TrimPrefix(words, "  - ")), " ")
		assert.That(t, strings.Contains(page, words), "the command line says %q, and the page does not:\n%s", line, page)
	}

	b.shows("#node", "kubectl evenkeel config diff node/hollow-3 rollout/workers")
	b.click("#node-close")
	b.waits(`document.getElementById("node").hidden`)

	b.shows("[data-rollout=workers]", "kubectl evenkeel config diff rollout/workers@1 rollout/workers@2")
	b.readsTheLog()

	// After a halt the primary action is to undo; to retry is in the menu.
	b.waits(`document.getElementById("do-workers-undo").className === "primary"`)
	b.take("workers", "undo")
	b.shows("#confirm", "Undo: workers, revision 2?", "kubectl evenkeel rollout undo workers")
	b.click("#confirm-no")
	b.take("workers", "retry")
	b.shows("#confirm", "Retry: workers, revision 2?", "kubectl evenkeel rollout retry workers")
	b.click("#confirm-yes")
	b.shows("[data-rollout=workers]", "attempt 2", "1 failed", "hollow-3")
	b.waits(`["Halted", "Complete"].includes(document.querySelector("[data-rollout=workers] .phase").textContent)`) // all others have it already

	b.take("workers", "abort-rollback")
	b.shows("#confirm", "Abort and roll back: workers, revision 2?", "return to the last succeeded revision")
	b.click("#confirm-yes")
	b.shows("[data-rollout=workers]", "Rolled back")
	abort := rolloutNow(t, "workers").Spec.Abort
	assert.That(t, abort != nil && abort.Rollback && abort.Revision == 2, "the abort is %+v", abort)
	b.confirm("workers", "undo")
	b.shows("[data-rollout=workers]", "revision 3")
	b.waits(`/rollout workers/i.test(document.getElementById("said").textContent)`) // what was done, or what became of it by now
}

// readsTheLog reads the log of the halted rollout workers.
func (b *browser) readsTheLog() {
	b.t.Helper()
	choose := func(id, choice string) {
		b.t.Helper()
		b.waits(fmt.Sprintf(`[...(document.getElementById(%q)?.options ?? [])].some((o) => o.value === %q)`, id, choice))
		value[bool](b, fmt.Sprintf(`((e) => { e.value = %q; e.dispatchEvent(new Event("change")); return true; })(document.getElementById(%q))`, choice, id))
	}
	b.click("#log-workers summary")
	b.shows("#log-workers", "hollow-3", "hollow-1", "ConfigRolledBack")
	choose("log-node-workers", "hollow-3")
	b.waits(`location.hash.includes("log=hollow-3") && [...document.querySelectorAll("#log-workers .log .link-button")].every((e) => e.textContent === "hollow-3")`)
	b.shows("#log-workers", "hollow-3", "crash-looped: 4 starts in its trial")
}

// take begins an action on a rollout, once it is offered: the primary one, or
// one of the menu. It clicks in the same task of the page that finds the
// button: a change of the fleet moves the buttons, and a mouse could miss them.
func (b *browser) take(rollout, verb string) {
	b.t.Helper()
	b.waits(fmt.Sprintf(`(() => {
		const button = () => document.getElementById("do-%[1]s-%[2]s");
		if (!button()) document.querySelector("#menu-%[1]s[aria-expanded=false]")?.click();
		if (!button() || button().hasAttribute("aria-disabled")) return false;
		button().click();
		return true;
	})()`, rollout, verb))
}

// confirm takes an action and confirms it.
func (b *browser) confirm(rollout, verb string) {
	b.t.Helper()
	b.take(rollout, verb)
	b.click("#confirm-yes")
}

func TestWithoutPermissionNoActionIsOfferedAndOneLineSaysWhy(t *testing.T) {
	cleared(t)
	seed(t, some("seen", 12))
	givenRollout(t, "readonly", "nobody")
	kubeconfig := userWith(t, "looker", "evenkeel-view")
	address, _ := serve(t, kubeconfig)
	b := open(t, address)
	b.shows("[data-rollout=readonly]", "Awaiting approval", "History")
	b.shows("#rights", "Read only, and without zones, positions in rollouts, and nodes without an agent: the role evenkeel-operator allows to change rollouts and to list Nodes.")
	b.shows("#fleet-words", "11 nodes in 1 zone") // of twelve: one has no NodeConfig
	// One quiet line says it: there is no banner, and no button that does
	// nothing.
	b.waits(`document.querySelectorAll(".actions, .banner").length === 0 && document.getElementById("rights").getClientRects().length === 1`)
	// Who asks all the same is refused by the API server.
	refused := value[string](b, `fetch("api/clusters/0/rollouts/readonly/pause", {method: "POST", body: "{}", headers: {"Content-Type": "application/json", Authorization: "Bearer " + sessionStorage.getItem("token")}}).then(async (r) => r.status + " " + await r.text())`)
	assert.That(t, strings.HasPrefix(refused, "403 ") && strings.Contains(refused, "cannot patch resource"), "the answer is %s", refused)
	assert.That(t, !rolloutNow(t, "readonly").Spec.Paused, "it was paused")
	// Who is given the right need not load the page again.
	userWith(t, "looker", "evenkeel-operator")
	b.waits(`document.getElementById("do-readonly-approve")?.className === "primary" && document.getElementById("rights").textContent === ""`)
	b.shows("#fleet-words", "12 nodes in 3 zones")
}

// userWith gives a user a ClusterRole, and returns the kubeconfig of the user.
func userWith(t *testing.T, name, role string) string {
	t.Helper()
	err := admin.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name + "-" + role},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: name}},
	})
	assert.NoError(t, client.IgnoreAlreadyExists(err))

	return assert.Value(cluster.ClientKubeconfig(name))(t)
}
