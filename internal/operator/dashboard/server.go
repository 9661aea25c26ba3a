// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/internal/printable"
)

//go:embed web
var files embed.FS

// contentPolicy lets the page load resources from this server only. %s is the
// hash of the page's inline script.
const contentPolicy = "default-src 'none'; script-src 'self' 'sha256-%s'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// handler serves the page without, and the API with a token.
func (s *Server) handler() http.Handler {
	web, err := fs.Sub(files, "web")
	if err != nil {
		panic(err) // it is embedded
	}

	page, err := fs.ReadFile(web, "index.html")
	if err != nil {
		panic(err)
	}

	_, page, _ = bytes.Cut(page, []byte("<script>"))
	page, _, _ = bytes.Cut(page, []byte("</script>"))
	hash := sha256.Sum256(page)
	api := http.NewServeMux()
	api.HandleFunc("GET /api/about", s.about)
	api.HandleFunc("GET /api/summaries", s.summaries)
	for i, c := range s.clusters {
		path := fmt.Sprintf("/api/clusters/%d", i)
		api.Handle(path+"/", http.StripPrefix(path, c.handler()))
	}

	api.HandleFunc("/api/clusters/{id}/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, http.StatusNotFound, fmt.Sprintf("there is no cluster %q: reload the page", printable.Line(r.PathValue("id"))))
	})
	mux := http.NewServeMux()
	mux.Handle("/", http.FileServerFS(web))
	mux.Handle("/api/", s.requireToken(api))

	return secured(mux, fmt.Sprintf(contentPolicy, base64.StdEncoding.EncodeToString(hash[:])))
}

// secured refuses cross-site requests, and sets security headers.
func secured(next http.Handler, policy string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for key, value := range map[string]string{
			"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY",
			"Referrer-Policy":            "no-referrer",
			"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "no-store",
		} {
			w.Header().Set(key, value)
		}

		if words := crossSite(r); words != "" {
			refuse(w, http.StatusForbidden, words)
			return
		}

		next.ServeHTTP(w, r)
	})
}

// crossSite says why a request is not from the page or not to a loopback
// address; empty if it is. The port can be that of a tunnel.
func crossSite(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = r.Host
	}

	switch host {
	case "127.0.0.1", "localhost":
	default:
		return fmt.Sprintf("the page is at 127.0.0.1 and localhost only, not at %q: a name that leads here by DNS is refused", host)
	}

	if origin := r.Header.Get("Origin"); origin != "" {
		if u, err := url.Parse(origin); err != nil || u.Scheme != "http" || u.Host != r.Host {
			return fmt.Sprintf("a page of %q may not ask here", origin)
		}
	}

	switch site := r.Header.Get("Sec-Fetch-Site"); site {
	case "", "same-origin", "none":
		return ""
	default:
		if r.Method == http.MethodGet && !strings.HasPrefix(r.URL.Path, "/api/") && r.Header.Get("Sec-Fetch-Mode") == "navigate" {
			return "" // a click on a link
		}

		return "a page from elsewhere may not ask here (" + site + ")"
	}
}

// requireToken refuses requests without the token.
func (s *Server) requireToken(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if subtle.ConstantTimeCompare([]byte(token), []byte(s.token)) != 1 {
			refuse(w, http.StatusUnauthorized, "the token is missing or wrong: open the address that kubectl evenkeel dashboard has printed")
			return
		}

		if kind := r.Header.Get("Content-Type"); r.Method != http.MethodGet && kind != "application/json" {
			refuse(w, http.StatusUnsupportedMediaType, "a request that changes something is JSON")
			return
		}

		next.ServeHTTP(w, r)
	})
}

// refuse answers with an error, as JSON.
func refuse(w http.ResponseWriter, code int, words string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": words}) // it only fails if the page is closed
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

// refusal is an error of a request of the page, with its HTTP status.
type refusal struct {
	code int
	error
}

// fail answers with an error, and with the HTTP status of a refusal or of an
// error of the API.
func fail(w http.ResponseWriter, code int, err error) {
	var status apierrors.APIStatus
	switch refused, ok := errors.AsType[refusal](err); {
	case ok:
		code = refused.code
	case apierrors.IsForbidden(err):
		code = http.StatusForbidden
	case apierrors.IsNotFound(err):
		code = http.StatusNotFound
	case unreachable(err), errors.As(err, &status) && status.Status().Code >= 500:
		code = http.StatusBadGateway
	}

	refuse(w, code, describe.Printable(err.Error()))
}

// unreachable reports whether an error means that the API server does not
// answer, rather than refuses.
func unreachable(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) ||
		fleet.Passing(err) && !apierrors.IsTooManyRequests(err) && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err)
}

// about is what the page shows of the server, and what the numbers in events
// mean.
type about struct {
	Version  string         `json:"version"`
	Clusters []aboutCluster `json:"clusters"`
	Words    words          `json:"words"`
}

type aboutCluster struct {
	ID      int    `json:"id"`
	Context string `json:"context"`
	Server  string `json:"server"`
}

func (s *Server) about(w http.ResponseWriter, _ *http.Request) {
	a := about{Version: s.o.Version, Words: allWords}
	for i, c := range s.clusters {
		a.Clusters = append(a.Clusters, aboutCluster{i, printable.Line(c.Context), printable.Line(c.Config.Host)})
	}

	reply(w, a)
}

// clusterSummary is what the page shows of a cluster while it shows another
// one.
type clusterSummary struct {
	ID      int              `json:"id"`
	Context string           `json:"context"`
	Ready   bool             `json:"ready"`
	Summary describe.Summary `json:"summary"`
}

// summaries answers with the summaries of all clusters.
func (s *Server) summaries(w http.ResponseWriter, _ *http.Request) {
	all := []clusterSummary{}
	for i, c := range s.clusters {
		p := c.feed.now()
		v := clusterSummary{ID: i, Context: printable.Line(c.Context), Ready: p.Ready, Summary: p.Summary}
		if v.Summary == nil { // there is no snapshot yet
			v.Summary = summarize(&p, describe.Situation{})
		}

		all = append(all, v)
	}

	reply(w, all)
}

func (c *cluster) rollout(ctx context.Context, r *http.Request) (any, error) {
	return c.detail(ctx, r.PathValue("name"), time.Now())
}

const (
	// keepAlive is the interval of comments in an idle stream.
	keepAlive = 10 * time.Second
	// writeTimeout is how long a page may take to read.
	writeTimeout = 30 * time.Second
)

// stream sends server-sent events: first everything, or the changes since
// version ?seen, then further changes.
func (c *cluster) stream(w http.ResponseWriter, r *http.Request) {
	seen, err := strconv.ParseUint(r.URL.Query().Get("seen"), 10, 64)
	if err != nil && r.URL.Query().Has("seen") {
		fail(w, http.StatusBadRequest, fmt.Errorf("the parameter seen is not a number: %w", err))
		return
	}

	w.Header().Set("Content-Type", "text/event-stream")
	control := http.NewResponseController(w)
	send := func(text []byte) bool {
		_ = control.SetWriteDeadline(time.Now().Add(writeTimeout)) // a test's recorder does not support it
		_, err := w.Write(text)
		return err == nil && control.Flush() == nil
	}
	for {
		m, next := c.feed.since(seen)
		if m != nil {
			data, err := json.Marshal(m)
			if err != nil || !send([]byte("data: "+string(data)+"\n\n")) {
				return
			}

			seen = m.Version
		}

		select {
		case <-r.Context().Done():
			return
		case <-next:
		case <-time.After(keepAlive):
			if !send([]byte(": still here\n\n")) {
				return
			}
		}
	}
}
