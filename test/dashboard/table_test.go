// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// mixed are nodes whose names sort differently as texts and as people expect.
func mixed() []seeded {
	runs := func(version string, then func(*v1alpha1.NodeConfigStatus)) func(*v1alpha1.NodeConfigStatus) {
		return func(st *v1alpha1.NodeConfigStatus) { then(st); st.ComponentVersion = version }
	}
	const common = "the kubelet's dry run refuses the configuration: stage 1: invalid field "
	refused := func(field string) func(*v1alpha1.NodeConfigStatus) {
		return func(st *v1alpha1.NodeConfigStatus) {
			crashed(st)
			st.Conditions[0].Reason, st.Error = "ValidationFailed", common+field
		}
	}

	return []seeded{
		{"node-10", "zone-10", true, runs("v1.36.10", fine)}, {"node-2", "zone-2", true, runs("v1.36.3", refused("maxPods"))},
		{"node-1", "zone-2", true, runs("v1.36.3", fine)}, {"node-3", "zone-10", true, runs("v1.36.10", inTrial)},
		{"node-20", "zone-10", false, runs("v1.36.9", refused("podPidsLimit"))}, {"other-1", "", true, nil},
		{"node-4", "zone-2", true, runs("v1.36.9", crashed)},
	}
}

// order returns the names in the table, in the order of its rows.
func order(b *browser) string {
	b.t.Helper()
	return strings.Join(value[[]string](b, `[...document.querySelectorAll("#nodes tbody tr")].map((r) => r.dataset.node)`), " ")
}

func TestTheTableSortsNaturallyByEachColumnAndFilters(t *testing.T) {
	cleared(t)
	seed(t, mixed())
	address, _ := serve(t, cluster.AdminKubeconfig())
	b := open(t, address)
	b.shows("#fleet-words", "7 nodes in 3 zones")
	check := func(what, want string) {
		t.Helper()
		assert.Equal(t, order(b), want, what)
	}
	b.waits(`document.querySelectorAll("#nodes tbody tr").length === 7`)
	check("most urgent first", "node-2 node-4 node-20 other-1 node-3 node-1 node-10")
	for _, tt := range []struct{ column, up, down string }{
		{"name", "node-1 node-2 node-3 node-4 node-10 node-20 other-1", "other-1 node-20 node-10 node-4 node-3 node-2 node-1"},
		{"health", "node-2 node-4 node-20 other-1 node-3 node-1 node-10", "node-1 node-10 node-3 other-1 node-2 node-4 node-20"},
		{"zone", "node-1 node-2 node-4 node-3 node-10 node-20 other-1", "other-1 node-3 node-10 node-20 node-1 node-2 node-4"},
		{"kubelet", "node-1 node-2 node-4 node-20 node-3 node-10 other-1", "other-1 node-3 node-10 node-4 node-20 node-1 node-2"},
		{"reason", "node-4 other-1 node-2 node-20 node-1 node-3 node-10", "node-1 node-3 node-10 node-20 node-2 other-1 node-4"},
	} {
		b.click("#sort-" + tt.column)
		b.waits(fmt.Sprintf(`document.getElementById("column-%s").getAttribute("aria-sort") === "ascending" && location.hash.includes("sort=%s")`, tt.column, tt.column))
		check(tt.column, tt.up)
		b.click("#sort-" + tt.column)
		b.waits(fmt.Sprintf(`document.getElementById("column-%s").getAttribute("aria-sort") === "descending"`, tt.column))
		check(tt.column+" descending", tt.down)
		b.click("#sort-" + tt.column)
		b.waits(`document.querySelector("#nodes [aria-sort]") === null`)
	}

	const reasonsSorted = `import("/table.js").then((m) => ["exited 10 times", "", "exited 9 times"].map((reason, rank) => ({ reason, rank })).sort(m.orderOf("reason")).map((n) => n.reason).join())`
	assert.Equal(t, value[string](b, reasonsSorted), "exited 9 times,exited 10 times,", "sorted by reason")

	// What the reasons have in common is left out: the column starts with the
	// part that differs.
	reasons := value[[]string](b, `[...document.querySelectorAll("#nodes td.why")].map((c) => c.textContent)`)
	for _, want := range []string{"ValidationFailed: … podPidsLimit", "ValidationFailed: … maxPods", "CrashLooped: current crash-looped: 4 starts in its trial, last: exit status 1"} {
		assert.That(t, slices.Contains(reasons, want), "no reason %q in %q", want, reasons)
	}

	// Filters, one by one, and together.
	filter := func(key, choice, want string) {
		t.Helper()
		value[bool](b, fmt.Sprintf(`((e) => { e.value = %q; e.dispatchEvent(new Event("change")); return true; })(document.getElementById("filter-%s"))`, choice, key))
		b.waits(fmt.Sprintf(`new URLSearchParams(location.hash.split("?")[1]).get(%q) === %q`, key, choice))
		check(key, want)
		b.click("#clear")
		b.waits(`!location.hash.includes("?")`)
	}
	filter("zone", "zone-2", "node-2 node-4 node-1")
	filter("zone", "none", "other-1")
	filter("kubelet", "v1.36.10", "node-3 node-10")
	filter("reason", "ValidationFailed", "node-2 node-20")
	b.click("#health-NoAgent")
	check("no agent", "other-1")
	b.click("#health-Failed")
	b.click("#health-NoAgent")
	b.click("#health-OnTrial")
	b.waits(`location.hash.endsWith("?health=Failed%2COnTrial")`)
	check("two healths", "node-2 node-4 node-20 node-3")
	b.click("#clear")
	b.do(focus("#search"))
	b.press("e", "-", "2")
	b.waits(`location.hash.endsWith("?name=e-2")`)
	check("part of a name", "node-2 node-20")
	b.press("x")
	b.shows("#nodes-words", "No node matches.")
}

func TestAPhoneShowsTheSummaryFailedNodesAndThePrimaryActionFirst(t *testing.T) {
	b := small(t)
	b.size(390, 844)
	b.waits(`document.documentElement.scrollWidth <= innerWidth`)
	places := value[[]float64](b, `["#summary", "#failed", "#do-waiting-approve", "#fleet-title"].map((s) => document.querySelector(s).getBoundingClientRect().top)`)
	assert.That(t, slices.IsSorted(places) && places[2] <= 844-40, "the summary, failed nodes, the primary action and the fleet begin at %v", places)
	b.shows("#failed", "2 failed nodes", "seen-004", "seen-017", "CrashLooped")
	assert.Equal(t, value[int](b, `[...document.querySelectorAll("kbd, .keys")].filter((e) => e.checkVisibility()).length`),
		0, "hints about keys")
	b.click("[id='failed-node-seen-004']")
	b.shows("#node", "seen-004", "What happens next")
	b.press(kb.Escape)
	b.waits(`document.activeElement.id === "failed-node-seen-004"`)
	b.click("[id='do-waiting-approve']")
	b.shows("#confirm-command code", "kubectl evenkeel rollout approve waiting")
	b.waits(`((copied) => { navigator.clipboard.writeText = async (text) => { copied.text = text; }; document.querySelector("#confirm-command .copy").click(); return copied.text === "kubectl evenkeel rollout approve waiting"; })({})`)
	b.click("#confirm-no")
}

// read returns a file of the page.
func read(t *testing.T, name string) string {
	t.Helper()
	return string(assert.Value(os.ReadFile(filepath.Join(root, "internal/operator/dashboard/web", name)))(t))
}
