// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/figures"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
)

var (
	measured = flag.Bool("figures", false, "print what the page costs; all nodes have agents then")
	many     = flag.Int("nodes", 5000, "how many nodes the page shows, at least 1000")
)

// allShown is what the page says when it has all nodes.
func allShown() string { return fmt.Sprintf("%d,%03d nodes in 3 zones", *many/1000, *many%1000) }

// fleetOf returns n nodes, some of them with problems. The first ones have an
// agent, which costs two more requests each.
func fleetOf(n, agents int) []seeded {
	zones := []string{"eu-west-1a", "eu-west-1b", "eu-west-1c"}
	nodes := make([]seeded, n)
	for i := range nodes {
		nodes[i] = seeded{fmt.Sprintf("node-%04d", i), zones[i*3/n], i%911 != 7, nil}
		switch {
		case i >= agents && agents < n:
		case i%467 == 17:
			nodes[i].report = crashed
		case i%83 == 5 && i < n/3:
			nodes[i].report = inTrial
		case i%701 != 3:
			nodes[i].report = fine
		}
	}

	return nodes
}

func TestThousandsOfNodesAreShownAndFollowed(t *testing.T) {
	cleared(t)
	agents := 150
	if *measured {
		agents = *many
	}

	begin := time.Now()
	seed(t, fleetOf(*many, agents))
	t.Logf("%d nodes after %s", *many, time.Since(begin).Round(time.Millisecond))
	address, served := serve(t, cluster.AdminKubeconfig())
	b := open(t, address)
	b.shows("#fleet-words", allShown())
	b.waits(`document.querySelector("#map canvas").width > 0 && document.querySelectorAll("#nodes tbody tr").length === 50`)
	b.drawn()
	// Every stripe of the map has cells over its whole width, above and below
	// the fold.
	b.waits(`(() => {
	  const c = document.querySelector("#map canvas"), painted = (x, y, w, h) => c.getContext("2d").getImageData(x, y, w, h).data.some((v, i) => i % 4 === 3 && v > 0);
	  for (let y = 0; y + 80 <= c.height; y += 80) if (!painted(0, y, 100, 80) || !painted(c.width - 100, y, 100, 80)) return false;
	  return c.height >= 400;
	})()`)
	b.picture("dashboard-5000")

	// Only the changed parts of the page are updated.
	observe(b)
	nc := nodeConfig(t, "node-0017")
	b.do(focus("#search"))
	b.press("n", "o", "d", "e", "-", "0", "0", "1", "7")
	b.shows("#nodes tbody", "node-0017", "Failed")
	recovered(&nc.Status)
	assert.NoError(t, admin.Status().Update(t.Context(), nc))
	b.shows("#nodes tbody", "Healthy")
	b.press(" ")
	// Keys get everywhere without a stop.
	b.do(focus("#map"))
	b.press("\ue010") // End
	if *measured {
		cost(t, b, address, served)
		underLoad(t, address)
	}
}

// observe keeps how long each drawing of the map has taken.
func observe(b *browser) {
	b.do(chromedp.Evaluate[chromedp.Void](`void (window.draws = [], new PerformanceObserver((list) => draws.push(...list.getEntriesByName("draw").map((e) => [e.duration, e.detail]))).observe({ entryTypes: ["measure"] }))`))
}

func row(what, figure, limit string, ok bool) { figures.PrintRow(what, figure, "-", limit, ok) }

// cost prints what the page costs.
func cost(t *testing.T, b *browser, address string, served *localcluster.Process) {
	t.Helper()
	fmt.Printf("\nkubectl evenkeel dashboard: %d nodes, %s\n\n", *many, "medians")

	// From a patch to the cell's change, as the browser has drawn it.
	b.do(chromedp.Evaluate[chromedp.Void](`void (document.getElementById("search").value = "node-0017", document.getElementById("search").dispatchEvent(new Event("input")))`))
	b.do(chromedp.Evaluate[chromedp.Void](`void new MutationObserver(() => { window.changedAt = Date.now(); }).observe(document.querySelector("#nodes tbody"), { childList: true, subtree: true })`))
	var delays []time.Duration
	for i := range 11 {
		nc := nodeConfig(t, "node-0017")
		change, want := crashed, "Failed"
		if i%2 == 1 {
			change, want = recovered, "Healthy"
		}

		change(&nc.Status)
		begin := time.Now()
		assert.NoError(t, admin.Status().Update(t.Context(), nc))
		b.shows("#nodes tbody", want)
		delays = append(delays, time.UnixMilli(value[int64](b, "window.changedAt")).Sub(begin))
	}

	delay := figures.Median(delays)
	row("from a patch to the cell's change", delay.Round(time.Millisecond).String(), "1s", delay < time.Second)

	// The first message to the page.
	base, token, _ := strings.Cut(address, "#")
	request := assert.Value(http.NewRequestWithContext(t.Context(), http.MethodGet, base+"api/clusters/0/feed?seen=0", nil))(t)
	request.Header.Set("Authorization", "Bearer "+token)
	response := assert.Value(http.DefaultClient.Do(request))(t)
	first := assert.Value(bufio.NewReader(response.Body).ReadString('\n'))(t)
	response.Body.Close()
	row("the snapshot", fmt.Sprintf("%d kB", len(first)/1000), "512 kB", len(first) < 512_000)

	b.do(chromedp.Evaluate[chromedp.Void](`void (document.getElementById("search").value = "", document.getElementById("search").dispatchEvent(new Event("input")))`))
	script := `(async () => {
	  const pause = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
	  draws.length = 0;
	  for (let i = 0; i < 30; i++) { document.getElementById("health-Healthy").click(); await pause(); await pause(); }
	  return draws.filter((d) => d[1] > 0).map((d) => (d[0] / d[1]) * 5000); // a drawing takes several frames
	})()`
	times := value[[]float64](b, script)
	assert.Must(t, len(times) >= 10, "only %d drawings were measured", len(times))
	canvas := figures.Median(times)
	row("5,000 cells drawn anew: script", fmt.Sprintf("%.1f ms", canvas), "100 ms", canvas < 100)
	memory, most, err := figures.Memory(served.Cmd.Process.Pid)
	assert.NoError(t, err)
	row("the command's memory", figures.MiB(memory), "200 MiB", most < 200<<20)
	before := assert.Value(figures.CPUTime(served.Cmd.Process.Pid))(t)
	const rest = 20 * time.Second
	time.Sleep(rest) // the CPU time of these seconds is measured
	after := assert.Value(figures.CPUTime(served.Cmd.Process.Pid))(t)
	share := 100 * (after - before).Seconds() / rest.Seconds()
	row("the command at rest, of a processor", fmt.Sprintf("%.1f%%", share), "5%", share < 5)
}

// underLoad prints when the page is shown while 30 nodes change per second.
func underLoad(t *testing.T, address string) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var changes atomic.Int64
	tick := time.NewTicker(time.Second / 30)
	for range 4 {
		go func() {
			for ctx.Err() == nil {
				<-tick.C
				if err := flip(ctx, fmt.Sprintf("node-%04d", (changes.Add(1)*37)%int64(*many))); err != nil && ctx.Err() == nil {
					t.Log(err)
				}
			}
		}()
	}

	b := open(t, address)
	b.shows("#fleet-words", allShown())
	shown := value[float64](b, `performance.now()`)
	paint := value[float64](b, `performance.getEntriesByName("first-contentful-paint")[0].startTime`)
	row("first paint", fmt.Sprintf("%.0f ms", paint), "1000 ms", paint < 1000)
	row("all nodes shown, at most", fmt.Sprintf("%.0f ms", shown), "2000 ms", shown < 2000)
}
