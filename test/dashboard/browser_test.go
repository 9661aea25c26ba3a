// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// browser is one page in its own Chromium.
type browser struct {
	t   *testing.T
	ctx context.Context

	mayFail atomic.Bool // the page may throw
}

// open opens an address in a new browser.
func open(t *testing.T, address string) *browser {
	t.Helper()
	if chromium == "" {
		t.Skip("there is no chromium")
	}

	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(chromium), chromedp.NoSandbox, chromedp.WindowSize(1600, 1000), chromedp.Flag("disable-dev-shm-usage", true),
		chromedp.UserDataDir(t.TempDir()))
	alloc, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(alloc, chromedp.WithErrorf(func(string, ...any) {}))
	b := &browser{t: t, ctx: ctx}
	var mu sync.Mutex
	var said []string // by the page and the browser
	t.Cleanup(func() {
		if t.Failed() {
			state, err := evaluate[string](b, state)
			mu.Lock()
			defer mu.Unlock()
			t.Logf("the page is %s (%v), and its console has:\n%s", state, err, strings.Join(said[max(0, len(said)-50):], "\n"))
		}

		_ = chromedp.Cancel(ctx) // it may have died: the test reports that already
		cancel()
		stop()
	})
	// The browser lives as long as the context of the first action.
	assert.NoError(t, chromedp.Do(ctx, chromedp.Navigate("about:blank")))
	assert.NoError(t, chromedp.Listen(ctx, func(event any) {
		mu.Lock()
		defer mu.Unlock()
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			assert.That(t, b.mayFail.Load(), "the page throws: %+v", e.ExceptionDetails)
		case *runtime.EventConsoleAPICalled:
			for _, a := range e.Args {
				said = append(said, fmt.Sprintf("%s: %s %s", e.Type, a.Value, a.Description))
			}
		case *log.EventEntryAdded:
			said = append(said, fmt.Sprintf("%s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL))
		}
	}))
	b.load(chromedp.Navigate(address))

	return b
}

// state is JavaScript for what a failed test prints of the page.
const state = `JSON.stringify({ address: location.href, visibility: document.visibilityState, ready: document.readyState,
  ...Object.fromEntries(["link", "broken", "troubles", "token-why", "first", "summary", "fleet-words", "rollouts"].map((id) => [id, document.getElementById(id)?.innerText.slice(0, 300)])) })`

// load loads a page, again if that fails: a network that another test adds to
// this machine aborts the requests of a browser. The page itself does the same
// if a part of it is missing.
func (b *browser) load(action chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	eventually(b.t, func() error {
		ctx, cancel := context.WithTimeout(b.ctx, within)
		defer cancel()
		return chromedp.Do(ctx, action)
	})
	b.waits(`document.readyState === "complete" && !document.getElementById("broken")?.textContent`)
}

// begin begins to load an address.
func (b *browser) begin(address string) {
	b.t.Helper()
	value[bool](b, fmt.Sprintf(`(location.href = %q, true)`, address))
}

// do runs actions in the page.
func (b *browser) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, within)
	defer cancel()
	assert.NoError(b.t, chromedp.Do(ctx, actions...))
}

// value evaluates JavaScript in the page.
func value[T any](b *browser, script string) T {
	b.t.Helper()
	return assert.Value(evaluate[T](b, script))(b.t)
}

// evaluate evaluates JavaScript in the page. It returns an error if the page is
// left in the meantime.
func evaluate[T any](b *browser, script string) (T, error) {
	ctx, cancel := context.WithTimeout(b.ctx, within)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
	if err != nil {
		err = fmt.Errorf("%s: %w", script, err)
	}

	return v, err
}

// text is what a person reads in an element; empty if it is not there.
func (b *browser) text(selector string) string {
	b.t.Helper()
	return value[string](b, textOf(selector))
}

// textOf returns JavaScript for the text of an element.
func textOf(selector string) string {
	return fmt.Sprintf("document.querySelector(%q)?.innerText ?? ''", selector)
}

// shows waits until an element shows all of these words.
func (b *browser) shows(selector string, words ...string) {
	b.t.Helper()
	eventually(b.t, func() error {
		text, err := evaluate[string](b, textOf(selector))
		if err != nil {
			return err
		}

		for _, w := range words {
			if !strings.Contains(text, w) {
				return fmt.Errorf("no %q in %s: %q", w, selector, text)
			}
		}

		return nil
	})
}

// waits waits until a script says true.
func (b *browser) waits(script string) {
	b.t.Helper()
	eventually(b.t, func() error {
		is, err := evaluate[bool](b, script)
		if err == nil && !is {
			err = errors.New("not true: " + script)
		}

		return err
	})
}

// click clicks on an element, and again if the page moved it away from under
// the mouse.
func (b *browser) click(selector string) {
	b.t.Helper()
	const listen = `(window.arrived = false, document.addEventListener("click", (e) => { window.arrived = Boolean(e.target.closest(%q)); }, { capture: true, once: true }), true)`
	eventually(b.t, func() error {
		value[bool](b, fmt.Sprintf(listen, selector))
		b.do(chromedp.Click(chromedp.CSS(selector)))
		if missed, err := evaluate[bool](b, `window.arrived === false`); err == nil && missed {
			return fmt.Errorf("a click missed %s", selector)
		}

		return nil
	})
}

// press presses keys, one after another.
func (b *browser) press(keys ...string) {
	b.t.Helper()
	for _, k := range keys {
		b.do(chromedp.KeyEvent(k))
	}
}

// scheme sets the preferred color scheme. Animations are off, so that the next
// measurement is the final state.
func (b *browser) scheme(name string) {
	b.t.Helper()
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: name}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}})
}

// call calls a method of the browser's protocol.
func call[P, R any](b *browser, command cdp.Command[P, R], params P) R {
	b.t.Helper()
	return assert.Value(chromedp.Call(b.ctx, command, params))(b.t)
}

// drawn waits until the map is drawn: a large one in several frames, and again
// if the window gets a scroll bar.
func (b *browser) drawn() {
	b.t.Helper()
	b.waits(`new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(document.getElementById("map").ariaBusy === "false"))))`)
}

// picture keeps what the window shows, if pictures are wanted.
func (b *browser) picture(name string) {
	b.t.Helper()
	if *pictures == "" {
		return
	}

	b.drawn()
	shot := assert.Value(chromedp.Run(b.ctx, chromedp.CaptureScreenshot()))(b.t)
	assert.NoError(b.t, os.WriteFile(filepath.Join(*pictures, name+".png"), shot, 0o644))
}

func focus(selector string) chromedp.Action[chromedp.Void] {
	return chromedp.Focus(chromedp.CSS(selector))
}
