package dashboard

import (
	"context"
	"crypto/subtle"
	"embed"
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

	"github.com/evenkeel/evenkeel/internal/fleet/describe"
	"github.com/evenkeel/evenkeel/internal/fleet/query"
)

//go:embed web
var files embed.FS

// contentPolicy lets the page load what is served here, and nothing else from anywhere.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"

// handler serves the page to anybody on this machine, and what the cluster says to who knows the token.
func (s *Server) handler() http.Handler {
	web, err := fs.Sub(files, "web")
	if err != nil {
		panic(err) // it is embedded
	}
	api := http.NewServeMux()
	api.HandleFunc("GET /api/about", s.about)
	api.HandleFunc("GET /api/feed", s.stream)
	api.HandleFunc("GET /api/nodes/{name}", s.node)
	api.HandleFunc("GET /api/nodes/{name}/config", s.nodeConfig)
	api.HandleFunc("GET /api/rollouts/{name}", s.rollout)
	api.HandleFunc("POST /api/rollouts/{name}/{verb}", s.act)
	mux := http.NewServeMux()
	mux.Handle("/", http.FileServerFS(web))
	mux.Handle("/api/", s.known(api))
	return guarded(mux)
}

// guarded refuses what a page from elsewhere could send, and says in every answer what a browser may do with it.
func guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for key, value := range map[string]string{
			"Content-Security-Policy": contentPolicy, "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer",
			"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "no-store",
		} {
			w.Header().Set(key, value)
		}
		if words := foreign(r); words != "" {
			refuse(w, http.StatusForbidden, words)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// foreign says why a request does not come from the page, or goes to a name that is not this machine's own; empty if all is
// well. The port may be another one: that of a tunnel.
func foreign(r *http.Request) string {
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
			return "" // a link that somebody has clicked
		}
		return "a page from elsewhere may not ask here (" + site + ")"
	}
}

// known refuses who does not know the token.
func (s *Server) known(next http.Handler) http.Handler {
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
	_ = json.NewEncoder(w).Encode(map[string]string{"error": words}) // the page has gone: nobody to tell
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

// fail answers with an error of ours, or with what is nearest to an error of the API.
func (s *Server) fail(w http.ResponseWriter, code int, err error) {
	var status apierrors.APIStatus
	switch {
	case apierrors.IsForbidden(err):
		code = http.StatusForbidden
	case apierrors.IsNotFound(err):
		code = http.StatusNotFound
	case away(err), errors.As(err, &status) && status.Status().Code >= 500:
		code = http.StatusBadGateway
	}
	refuse(w, code, describe.Printable(err.Error()))
}

// away tells an API server that does not answer from one that refuses.
func away(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || query.Passing(err) && !apierrors.IsTooManyRequests(err) && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err)
}

func (s *Server) about(w http.ResponseWriter, _ *http.Request) {
	reply(w, map[string]string{"cluster": s.o.Config.Host, "context": s.o.Context, "version": s.o.Version})
}

func (s *Server) rollout(w http.ResponseWriter, r *http.Request) {
	d, err := s.detail(r.Context(), r.PathValue("name"), time.Now())
	if err != nil {
		s.fail(w, http.StatusNotFound, describe.WithAdvice(err, s.o.Version))
		return
	}
	reply(w, d)
}

const (
	// breath is how often a stream that has nothing to say shows that it is alive.
	breath = 10 * time.Second
	// patience is how long a page may take to read.
	patience = 30 * time.Second
)

// stream sends server-sent events: first everything, or what is newer than ?seen, then what changes.
func (s *Server) stream(w http.ResponseWriter, r *http.Request) {
	seen, err := strconv.ParseUint(r.URL.Query().Get("seen"), 10, 64)
	if err != nil && r.URL.Query().Has("seen") {
		s.fail(w, http.StatusBadRequest, fmt.Errorf("seen is no number: %w", err))
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	control := http.NewResponseController(w)
	send := func(text []byte) bool {
		_ = control.SetWriteDeadline(time.Now().Add(patience)) // a recorder of a test has none
		_, err := w.Write(text)
		return err == nil && control.Flush() == nil
	}
	for {
		m, next := s.feed.since(seen)
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
		case <-time.After(breath):
			if !send([]byte(": still here\n\n")) {
				return
			}
		}
	}
}
