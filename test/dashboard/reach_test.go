// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/chromedp/kb"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// small is a page with a small fleet and a rollout that waits.
func small(t *testing.T) *browser {
	t.Helper()
	cleared(t)
	seed(t, some("seen", 30))
	givenRollout(t, "waiting", "nobody")
	address, _ := serve(t, cluster.AdminKubeconfig())
	b := open(t, address)
	b.shows("#fleet-words", "30 nodes in 3 zones")
	b.shows("[data-rollout=waiting]", "Approve", "History")

	return b
}

// focused is what the keys are at, by its id or its words.
func (b *browser) focused() string {
	b.t.Helper()
	return value[string](b, `document.activeElement.id || document.activeElement.textContent`)
}

func TestThePageWorksWithTheKeyboardAlone(t *testing.T) {
	b := small(t)
	// Everything that can be clicked is come to, each with a focus that is
	// seen.
	var stops []string
	for range 120 {
		b.press(kb.Tab)
		at := b.focused()
		if len(stops) > 0 && at == stops[0] {
			break
		}

		stops = append(stops, at)
		assert.That(t, value[bool](b, `document.activeElement === document.body || getComputedStyle(document.activeElement).outlineStyle !== "none"`),
			"the focus on %s is not seen", at)
	}

	for _, want := range []string{"skip", "rollout-waiting", "do-waiting-approve", "menu-waiting", "health-Healthy", "health-NotReady", "map", "search", "filter-zone", "sort-reason", "row-seen-004"} {
		assert.That(t, slices.Contains(stops, want), "%s is not come to: %q", want, stops)
	}

	// The map: arrows, zones, the next that is not fine.
	b.do(focus("#map"))
	cell := func(want string) {
		t.Helper()
		got := value[string](b, `document.getElementById(document.getElementById("map").getAttribute("aria-activedescendant")).textContent`)
		assert.That(t, strings.HasPrefix(got, want), "the keys are at %q, want %q", got, want)
	}
	cell("seen-000, Healthy, zone-a")
	b.press(kb.ArrowRight)
	cell("seen-003, Healthy")
	b.press(kb.PageDown)
	cell("seen-001, Healthy, zone-b")
	b.press(kb.ArrowUp)
	cell("seen-000")
	b.press(kb.ArrowDown, kb.End)
	cell("seen-029")
	// The next node that needs a person: its health counts, not its position.
	b.press("n")
	cell("seen-004, Failed: CrashLooped: current (UID: 1234) crash-looped")
	b.press(kb.Enter)
	b.shows("#node", "seen-004", "Status")
	assert.Equal(t, b.focused(), "node-title", "the focus is on")
	b.press(kb.Escape)
	b.waits(`document.getElementById("node").hidden && document.activeElement.id === "map"`)
	b.do(focus("[id='row-seen-017']"))
	b.press(kb.Enter)
	b.waits(`document.activeElement.id === "node-title"`)
	b.press(kb.Escape)
	b.waits(`document.activeElement.id === "row-seen-017"`)

	// The primary action: ask, cancel. Escape closes the menu of the others,
	// and one of them is confirmed.
	b.do(focus("[id='do-waiting-approve']"))
	b.press(kb.Enter)
	b.waits(`document.getElementById("confirm").open && document.activeElement.id === "confirm-no"`)
	b.press(kb.Escape)
	b.waits(`!document.getElementById("confirm").open`)
	b.do(focus("#menu-waiting"))
	b.press(kb.Enter)
	b.waits(`document.getElementById("do-waiting-pause") !== null`)
	b.press(kb.Escape)
	b.waits(`document.getElementById("do-waiting-pause") === null && document.activeElement.id === "menu-waiting"`)
	b.press(kb.Enter, kb.Tab)
	b.waits(`document.activeElement.id === "do-waiting-pause"`)
	b.press(kb.Enter)
	b.waits(`document.getElementById("confirm").open`)
	b.do(focus("#confirm-yes"))
	b.press(kb.Enter)
	b.waits(`!document.getElementById("confirm").open`)
	b.waits(`document.activeElement.id === "menu-waiting"`)
	b.shows("#said", "rollout waiting paused")
	assert.That(t, rolloutNow(t, "waiting").Spec.Paused, "it is not paused")

	// A filter, and a search.
	b.do(focus("#health-Failed"))
	b.press(kb.Enter)
	b.shows("#nodes-words", "2 nodes")
	b.press(kb.Enter)
	b.do(focus("#search"))
	b.press("0", "1", "7")
	b.shows("#nodes-words", "1 node")
}

func TestARepeatedConfirmationIsAnsweredOnce(t *testing.T) {
	b := small(t)
	b.click("#menu-waiting")
	b.waits(`document.getElementById("do-waiting-pause") !== null`)
	// All within one task of the page, so that the event of the first closing
	// comes after the second question.
	value[bool](b, `(() => {
		window.posts = 0;
		const send = window.fetch;
		window.fetch = (what, options) => { if (options?.method === "POST") window.posts++; return send(what, options); };
		const dialog = document.getElementById("confirm");
		document.getElementById("do-waiting-pause").click();
		dialog.close();
		document.getElementById("do-waiting-pause").click();
		return true;
	})()`)
	b.waits(`new Promise(done => setTimeout(() => done(document.getElementById("confirm").open), 100))`)
	value[bool](b, `(() => {
		const yes = document.getElementById("confirm-yes");
		yes.click();
		yes.dispatchEvent(new Event("click")); // a button that is disabled takes no other
		return true;
	})()`)
	b.waits(`!document.getElementById("confirm").open`)
	b.shows("#said", "rollout waiting paused")
	value[bool](b, `(document.getElementById("confirm-yes").dispatchEvent(new Event("click")), true)`) // nothing is asked any more
	assert.Equal(t, value[int](b, `window.posts`), 1, "how often it was sent")
}

func TestALateAnswerDoesNotChangeTheNextConfirmation(t *testing.T) {
	b := small(t)
	b.click("#menu-waiting")
	b.waits(`document.getElementById("do-waiting-pause") !== null`)
	value[bool](b, `(() => {
		const send = window.fetch;
		window.fetch = (what, options) => options?.method === "POST" ? new Promise((_, fail) => { window.answer = () => fail(new Error("it was too late")); }) : send(what, options);
		document.getElementById("do-waiting-pause").click();
		document.getElementById("confirm-yes").click();
		document.getElementById("confirm").close();
		document.getElementById("menu-waiting").click(); // a click elsewhere has closed it
		document.getElementById("do-waiting-abort").click();
		window.answer();
		return true;
	})()`)
	b.shows("#said", "Pause: waiting: it was too late")
	b.waits(`document.getElementById("confirm").open && !document.getElementById("confirm-yes").disabled && document.getElementById("confirm-error").textContent === ""`)
}

func TestScreenReadersGetTheContentOfThePage(t *testing.T) {
	b := small(t)
	b.click("[id='row-seen-007']")
	b.shows("#node", "Status", "healthy for 90 s of 600 s")
	tree := call(b, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	text := func(v *accessibility.Value) string {
		var s string
		if v != nil {
			_ = json.Unmarshal(v.Value, &s) // not all are texts
		}

		return s
	}
	var all []string
	for _, n := range tree.Nodes {
		if n.Ignored {
			continue
		}

		role, name := text(n.Role), text(n.Name)
		all = append(all, role+" "+name)
		switch role {
		case "button", "link", "textbox", "searchbox", "listbox", "option", "table", "dialog", "progressbar", "region", "article", "group", "img", "image":
			assert.That(t, strings.TrimSpace(name) != "" || role == "group", "a %s has no name", role)
		}
	}

	for _, want := range []string{
		"heading evenkeel", "heading Rollouts", "heading Fleet", "heading Nodes", "heading seen-007", "listbox Map of the nodes", "searchbox Name",
		"button Approve", "button More actions", "table Nodes", "progressbar Trial", "columnheader Health", "region Rollouts", "region Summary", "region Fleet", "main", "article waiting",
	} {
		assert.That(t, slices.ContainsFunc(all, func(s string) bool { return strings.HasPrefix(s, want) }),
			"there is no %q in:\n%s", want, strings.Join(all, "\n"))
	}

	// Text from a node is shown as text: no character is hidden or changes the
	// order of its neighbours.
	const hostile = `<img src=x onerror="document.title='taken'">`
	seed(t, []seeded{{"joined-1", "zone-a", true, func(st *v1alpha1.NodeConfigStatus) { crashed(st); st.Error = hostile + "\u202e\u200b\U000e0041" }}})
	b.shows("#fleet-words", "31 nodes")
	b.shows("#nodes tbody", "CrashLooped: "+hostile+`\u202e\u200b\U000e0041`)
	b.click("[id='row-joined-1']")
	b.shows("#node", hostile+`\u202e\u200b\U000e0041`)
	assert.Equal(t, value[int](b, `document.querySelectorAll("img:not(h1 img)").length`), 0, "elements that text from a node became")
	assert.That(t, value[string](b, "document.title") != "taken", "text from a node was run")
	// Changes are announced.
	nc := nodeConfig(t, "seen-000")
	crashed(&nc.Status)
	assert.NoError(t, admin.Status().Update(t.Context(), nc))
	b.shows("#said", "seen-000: Failed")
}
