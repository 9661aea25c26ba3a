// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestAnUnreachableAPIServerIsReportedUntilItReturns(t *testing.T) {
	b := small(t)
	b.shows("#link", "live")
	assert.NoError(t, cluster.StopAPIServer())
	b.shows("#troubles", "The API server has not answered since ", "The page shows the state of that time.")
	b.shows("#link", "API server unreachable")
	b.shows("#summary", "the API server does not answer")
	b.waits(`document.querySelector("#summary .calm") === null`)
	b.shows("#fleet-words", "30 nodes") // as it was
	since := b.text("#troubles strong")
	b.click("[id='do-waiting-approve']")
	b.click("#confirm-yes")
	b.shows("#confirm-error", "the API server cannot be reached")
	b.click("#confirm-no")
	assert.Equal(t, b.text("#troubles strong"), since, "it is away")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	assert.NoError(t, cluster.StartAPIServer(ctx))
	seed(t, []seeded{{"afterwards", "zone-a", true, fine}})
	b.shows("#fleet-words", "31 nodes")
	b.waits(`document.getElementById("troubles").textContent === "" && document.getElementById("link-words").textContent === "live"`)
}

func TestAHiddenTabDropsItsConnectionAndContinuesWhenShown(t *testing.T) {
	b := small(t)
	b.do(chromedp.Evaluate[chromedp.Void](`void (() => {
	  window.streams = [];
	  const real = window.fetch;
	  window.fetch = (path, options) => {
	    if (path.startsWith("api/clusters/0/feed")) streams.push({ path, signal: options.signal });
	    return real(path, options);
	  };
	  window.look = (away) => {
	    Object.defineProperty(document, "hidden", { configurable: true, get: () => away });
	    document.dispatchEvent(new Event("visibilitychange"));
	  };
	  look(true);
	})()`))
	b.do(chromedp.Evaluate[chromedp.Void](`void look(false)`))
	b.waits(`streams.length === 1`)
	assert.That(t, value[string](b, `streams[0].path`) != "api/clusters/0/feed?seen=0", "it asks for everything once more")
	b.do(chromedp.Evaluate[chromedp.Void](`void look(true)`))
	b.waits(`streams[0].signal.aborted`)
	seed(t, []seeded{{"meanwhile", "zone-a", true, fine}})
	b.do(chromedp.Evaluate[chromedp.Void](`void look(false)`))
	b.shows("#fleet-words", "31 nodes")
	b.shows("#link", "live")
}

func TestAReadThatIsNotAnsweredIsNotTheLastOne(t *testing.T) {
	b := small(t)
	// A stream ends by its own signal, and a change may take any time.
	assert.Equal(t, value[string](b, `import("./ask.js").then(async ({ ask }) => {
	  const own = new AbortController().signal, real = window.fetch, signals = [];
	  window.fetch = async (_, o) => (signals.push(o.signal), new Response("{}"));
	  await ask("feed", { signal: own });
	  await ask("approve", { method: "POST" });
	  window.fetch = real;
	  return [signals[0] === own, signals[1] === null].join();
	})`), "true,true", "the stream and the change have their own signals")
	b.click("#log-waiting summary")
	b.shows("#log-waiting", "No entries.")
	// The page waits for half a minute, which is shorter here.
	b.do(chromedp.Evaluate[chromedp.Void](`void (() => {
	  const set = window.setTimeout;
	  window.setTimeout = (f, ms) => set(f, ms === 30000 ? 300 : ms);
	  window.real = window.fetch;
	  window.fetch = (path, o) => (path.endsWith("/log") ? new Promise((_, no) => o.signal.addEventListener("abort", () => no(o.signal.reason))) : real(path, o));
	})()`))
	b.shows("#log-waiting", "kubectl evenkeel dashboard has not answered for 30 seconds")
	b.do(chromedp.Evaluate[chromedp.Void](`void (window.fetch = real)`))
	b.shows("#log-waiting", "No entries.")
}

func TestThePageReportsAnEndedCommandAndAMissingToken(t *testing.T) {
	address, served := serve(t, cluster.AdminKubeconfig())
	base, _, _ := strings.Cut(address, "#")
	b := open(t, base)
	b.shows("#token", "the token is missing or wrong: open the address that kubectl evenkeel dashboard has printed")
	b = open(t, address)
	b.shows("#link", "live")
	b.load(chromedp.Reload())
	b.shows("#link", "live") // a tab that is loaded again still knows it
	assert.OK(t, served.Stop(within))
	b.shows("#troubles", "The command that serves this page has not answered since", "Is kubectl evenkeel dashboard still running?")
	assert.Equal(t, served.Cmd.ProcessState.ExitCode(), 0, "the exit code of", served.Said())
}
