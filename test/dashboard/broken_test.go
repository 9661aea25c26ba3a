// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/cdproto/page"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// through serves the dashboard, but answers a request itself where instead
// returns true. It returns the address.
func through(t *testing.T, instead func(w http.ResponseWriter, r *http.Request) bool) string {
	t.Helper()
	address, _ := serve(t, cluster.AdminKubeconfig())
	base, token, _ := strings.Cut(address, "#")
	to := assert.Value(url.Parse(base))(t)
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(to); r.Out.Host = r.In.Host },
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0), // a page that is left aborts its requests
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !instead(w, r) {
			proxy.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(server.CloseClientConnections)

	return server.URL + "/#" + token
}

func TestAPageWithAMissingPartIsLoadedAgain(t *testing.T) {
	for _, part := range []string{"main.js", "table.js", "style.css"} {
		t.Run(part, func(t *testing.T) {
			var missing atomic.Bool
			missing.Store(true)
			b := open(t, "about:blank")
			b.begin(through(t, func(w http.ResponseWriter, r *http.Request) bool {
				if !missing.Load() || path.Base(r.URL.Path) != part {
					return false
				}

				w.WriteHeader(http.StatusBadGateway)

				return true
			}))
			b.shows("#broken", "A part of this page could not be loaded. The page is loaded again.")
			missing.Store(false)
			b.shows("#link", "live")
			b.waits(`document.getElementById("broken").textContent === ""`)
		})
	}
}

func TestAPageThatIsStillLoadingSaysSo(t *testing.T) {
	answer := make(chan struct{})
	address := through(t, func(_ http.ResponseWriter, r *http.Request) bool {
		if path.Base(r.URL.Path) == "table.js" {
			<-answer
		}

		return false
	})
	b := open(t, "about:blank")
	// The page waits for ten seconds, which are shorter here.
	call(b, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{
		Source: `(() => { const set = window.setTimeout; window.setTimeout = (f, ms) => set(f, ms === 10000 ? 300 : ms); })()`,
	})
	b.begin(address)
	b.shows("#broken", "This page is still loading: the command that serves it has not answered for 10 seconds.")
	close(answer)
	b.shows("#link", "live")
	b.waits(`document.getElementById("broken").textContent === ""`)
}

func TestAPageThatFailsSaysSo(t *testing.T) {
	address := through(t, func(w http.ResponseWriter, r *http.Request) bool {
		if path.Base(r.URL.Path) != "feed" {
			return false
		}

		fmt.Fprint(w, "data: {\"version\": 1, \"all\": true, \"rest\": {}}\n\n")
		assert.NoError(t, http.NewResponseController(w).Flush())
		<-r.Context().Done()

		return true
	})
	b := open(t, "about:blank")
	b.mayFail.Store(true)
	b.begin(address)
	b.shows("#broken", "This page has failed, and can show an old state: ", "Cannot read properties of undefined", "Reload it.")
}
