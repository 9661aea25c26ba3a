// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// axeScript is made by `make deps`.
var axeScript = filepath.Join(root, "bin/page/node_modules/axe-core/axe.min.js")

// sizes are the windows in which the page is looked at: screens and a phone.
// Without a name, no picture is kept.
var sizes = []struct {
	name          string
	width, height int64
}{{"wide", 1600, 900}, {"", 1280, 720}, {"narrow", 390, 844}}

// size sets the size of the window.
func (b *browser) size(width, height int64) {
	b.t.Helper()
	call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1, Mobile: width < 500})
	b.waits(fmt.Sprintf(`innerWidth === %d`, width))
}

// review looks at the page in both color schemes and sizes, with reduced motion:
// nothing is wider than the window or animated, axe-core finds nothing, and a
// picture is kept if the state has a name, and pictures are wanted.
func (b *browser) review(state string) {
	b.t.Helper()
	for _, size := range sizes {
		b.size(size.width, size.height)
		for _, scheme := range []string{"light", "dark"} {
			b.scheme(scheme)
			b.waits(`document.documentElement.scrollWidth <= innerWidth`)
			moving := value[int](b, `[...document.querySelectorAll("*")].map((e) => getComputedStyle(e)).filter((s) =>
				s.transitionDuration.split(", ").some((d) => d !== "0s") || s.animationName !== "none").length`)
			assert.Equal(b.t, moving, 0, state, scheme, "elements are animated although reduced motion is set")
			for _, violation := range axe(b) {
				b.t.Errorf("%s, width %d, %s: %s", state, size.width, scheme, violation)
			}
			if state != "" && size.name != "" {
				b.picture(fmt.Sprintf("dashboard-%s-%s-%s", state, size.name, scheme))
			}
		}
	}

	b.size(1600, 900)
	b.scheme("light")
}

// axe returns the violations that axe-core finds.
func axe(b *browser) []string {
	b.t.Helper()
	script, err := os.ReadFile(axeScript)
	if err != nil {
		b.t.Logf("SKIPPED, for lack of axe-core: the check of accessibility: %v", err)
		return nil
	}

	call(b, page.SetBypassCSP, page.SetBypassCSPParams{Enabled: true})
	if !value[bool](b, `"axe" in window`) {
		b.do(chromedp.Evaluate[chromedp.Void](string(script) + "\n;void 0"))
	}

	answer := value[string](b, `axe.run(document, { resultTypes: ["violations"] }).then((r) => JSON.stringify([r.passes.length, r.violations.map((v) => v.id + ": " + v.help + ": " + v.nodes.slice(0, 5).map((n) => n.html.slice(0, 160) + " " + n.failureSummary.split("\n").slice(1, 2)).join("; "))]))`)
	var result []json.RawMessage
	var passes int
	var violations []string
	assert.NoError(b.t, json.Unmarshal([]byte(answer), &result))
	assert.That(b.t, json.Unmarshal(result[0], &passes) == nil && json.Unmarshal(result[1], &violations) == nil && passes >= 20,
		"axe-core has checked too little: %s", answer)

	return violations
}

func TestTheStatesOfThePageAreAccessibleOnScreensAndPhones(t *testing.T) {
	cleared(t)
	seed(t, plain("control", 6, fine))
	controller(t)
	spawn(t, "evenkeel-hollow", "--kubeconfig="+cluster.AdminKubeconfig(), "--nodes=60", "--zones=3", "--label=pool=general", "--trial-duration=2s",
		"--fault=crashloop,field=maxPods:7,node=hollow-3", "--fault=crashloop,field=maxPods:7,node=hollow-12", "--fault=crashloop,field=maxPods:7,node=hollow-41")
	address, _ := serve(t, cluster.AdminKubeconfig())
	b := open(t, address)
	b.size(1600, 900)
	b.shows("#fleet-words", "66 nodes")

	push(t, "general", 110, "2,100%")
	b.shows("[data-rollout=general]", "Complete", "60 updated")
	b.shows("#summary", "Nothing needs a person.", "66 nodes healthy")
	b.shows("[data-rollout=general]", "History")
	b.review("well")

	push(t, "general", 120, "2,pause,20%,pause,100%")
	b.shows("[data-rollout=general]", "Awaiting approval", "2 updated", "58 pending")
	b.confirm("general", "approve")
	b.shows("[data-rollout=general]", "3/5 steps done", "12 updated")
	b.shows("#summary", "1 rollout waiting for approval")
	b.waits(`document.getElementById("do-general-approve") !== null`)
	b.click("[id='row-hollow-0']")
	b.shows("#node", "What happens next", "kubectl evenkeel config diff node/hollow-0 rollout/general")
	b.review("node")
	b.click("#node-close")

	b.confirm("general", "approve-full")
	b.shows("[data-rollout=general]", "Complete", "60 updated")
	push(t, "general", 7, "2,50%,100%", "--max-failures=3")
	b.shows("[data-rollout=general]", "Halted", "hollow-3", "CrashLooped")
	b.shows("#summary", "1 rollout halted", "3 nodes failed")
	b.waits(`document.getElementById("do-general-undo")?.className === "primary"`)
	b.review("halted")
}

func TestAnEmptyClusterSaysTheFirstStep(t *testing.T) {
	cleared(t)
	address, _ := serve(t, cluster.AdminKubeconfig())
	b := open(t, address)
	b.shows("#first", "There are no nodes with an agent yet. Begin with one node: kubectl evenkeel install NODE.")
	b.waits(`document.getElementById("map").offsetHeight === 0 && document.getElementById("nodes").offsetHeight === 0`)
	b.review("")
	seed(t, plain("bare", 3, nil))
	b.shows("#first", "No node has an agent yet.")
	b.waits(`document.getElementById("map").offsetHeight > 0`)
	seed(t, plain("worker", 1, fine))
	b.waits(`document.getElementById("first").innerText === ""`)
}

// plain are Ready nodes without a rollout, with the same report of their agents.
func plain(prefix string, n int, report func(*v1alpha1.NodeConfigStatus)) (nodes []seeded) {
	for i := range n {
		nodes = append(nodes, seeded{fmt.Sprintf("%s-%d", prefix, i), fmt.Sprintf("zone-%d", i%3), true, report})
	}

	return nodes
}
