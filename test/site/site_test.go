// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package site tests the website that `make docs-site` builds: its links lead
// somewhere, and readers find pages.
//
// The package must not know how the website is built.
package site

import (
	"context"
	"flag"
	"html"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

var dir = flag.String("site", "", "directory of the website; empty: nothing is tested")

func TestMain(m *testing.M) {
	flag.Parse()
	if *dir == "" { // `make docs-site` gives it
		os.Exit(0)
	}

	os.Exit(m.Run())
}

var attribute = regexp.MustCompile(`\b(href|id)="([^"]*)"`)

func TestLinksAndAnchorsOfTheWebsiteLeadSomewhere(t *testing.T) {
	ids, links := map[string]map[string]bool{}, map[string][]string{}
	assert.NoError(t, filepath.WalkDir(*dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".html" {
			return err
		}

		text, err := os.ReadFile(path)
		page := strings.TrimPrefix(path, *dir)
		ids[page] = map[string]bool{"": true, "/": true}
		for _, m := range attribute.FindAllStringSubmatch(string(text), -1) {
			if value := html.UnescapeString(m[2]); m[1] == "id" {
				ids[page][value] = true
			} else if !strings.Contains(value, ":") {
				links[page] = append(links[page], value)
			}
		}

		return err
	}))
	assert.That(t, len(ids) > 30, "only %d pages", len(ids))
	for page, all := range links {
		for _, link := range all {
			to, anchor, _ := strings.Cut(link, "#")
			switch {
			case to == "":
				to = page
			case strings.HasSuffix(to, "/"):
				to += "index.html"
			}

			if target, is := ids[to]; is {
				assert.That(t, target[anchor], "%s: no heading for %s", page, link)
				continue
			}

			assert.NoError(t, assert.Err(os.Stat(filepath.Join(*dir, to))), page, "links to", link)
		}
	}
}

func TestAReaderFindsAPageByTheSidebarAndByTheSearch(t *testing.T) {
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip(err)
	}

	server := httptest.NewServer(http.FileServer(http.Dir(*dir)))
	defer server.Close()
	alloc, stop := chromedp.NewExecAllocator(t.Context(), append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium), chromedp.NoSandbox,
		chromedp.WindowSize(1600, 1000), chromedp.Flag("disable-dev-shm-usage", true), chromedp.UserDataDir(t.TempDir()))...)
	defer stop()
	browser, cancel := chromedp.NewContext(alloc, chromedp.WithErrorf(func(string, ...any) {}))
	defer cancel()
	assert.NoError(t, chromedp.Do(browser, chromedp.Navigate(server.URL)))
	// waits runs a script until it says true.
	waits := func(script string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(browser, time.Minute)
		defer cancel()
		for {
			if is, err := chromedp.Run(ctx, chromedp.Evaluate[bool](script)); err == nil && is {
				return
			}

			select {
			case <-ctx.Done():
				t.Fatal("not true: ", script)
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
	const click = `((e) => { e?.click(); return Boolean(e); })`
	waits(`document.querySelector("h1")?.innerText.startsWith("Documentation")`)
	waits(click + `([...document.querySelectorAll(".VPSidebar a")].find((a) => a.innerText === "Rollouts"))`)
	waits(`location.pathname === "/rollouts.html" && document.querySelector("h1")?.innerText.startsWith("Rollouts")`)
	waits(click + `(document.querySelector(".DocSearch-Button"))`)
	waits(`((e) => { if (!e) return false; e.value = "minikube"; e.dispatchEvent(new Event("input")); return true; })(document.querySelector(".search-input"))`)
	waits(click + `([...document.querySelectorAll(".VPLocalSearchBox a.result")].find((a) => a.pathname === "/local-clusters.html"))`)
	waits(`location.pathname === "/local-clusters.html"`)
}
