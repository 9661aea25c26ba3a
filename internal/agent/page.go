package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/trial"
)

// page is what the agent tells who asks it over HTTP.
type page struct {
	mu    sync.Mutex
	state pageState
	last  time.Time // of the decisions
}

type pageState struct {
	status     trial.Status
	effective  component.Effective
	overridden []string
	version    string
	running    bool
}

func (p *page) set(s pageState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state = s
}

func (p *page) decided(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = now
}

// stuck is how long ago the last decision was, if that is too long.
func (p *page) stuck() (age time.Duration, stuck bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	age = time.Since(p.last)
	return age, !p.last.IsZero() && age > stuckAfter
}

func (p *page) get() pageState {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

// stuckAfter is how old the last decision may be: the agent decides at least
// every ten seconds, but stopping a kubelet may take its whole grace.
const stuckAfter = 2 * time.Minute

// configz is the answer of /configz.
type configz struct {
	Source      configzSource       `json:"source"`
	ConfigOK    trial.Condition     `json:"configOK"`
	Error       string              `json:"error,omitempty"`
	Component   string              `json:"componentVersion"`
	Effective   component.Effective `json:"effective,omitempty"`
	Overridden  []string            `json:"overridden,omitempty"`
	Kubelet     component.Effective `json:"kubeletConfigz,omitempty"`
	KubeletSays string              `json:"kubeletConfigzError,omitempty"`
}

type configzSource struct {
	Kind      string `json:"kind"` // remote, init or default
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	UID       string `json:"uid,omitempty"`
	Revision  string `json:"revision,omitempty"`
	SHA256    string `json:"sha256,omitempty"`
}

// Handler serves /healthz, /metrics and /configz. ask asks the running kubelet
// for its own /configz; it may be nil.
func (a *Agent) Handler(ask func(context.Context, component.Effective) (component.Effective, error)) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if age, stuck := a.page.stuck(); stuck {
			http.Error(w, fmt.Sprintf("no decision for %s", age.Round(time.Second)), http.StatusInternalServerError)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.Handle("GET /metrics", a.o.Metrics.Handler())
	mux.HandleFunc("GET /configz", func(w http.ResponseWriter, r *http.Request) {
		s := a.page.get()
		if !s.running {
			http.Error(w, "no kubelet was started yet", http.StatusServiceUnavailable)
			return
		}
		out := configz{
			Source: sourceOf(s.status), ConfigOK: s.status.Condition, Error: s.status.Error,
			Component: s.version, Effective: s.effective, Overridden: s.overridden,
		}
		if ask == nil {
			out.KubeletSays = "the agent has no credentials to ask the kubelet with"
		} else if effective, err := ask(r.Context(), s.effective); err != nil {
			out.KubeletSays = err.Error()
		} else {
			out.Kubelet = effective
		}
		w.Header().Set("Content-Type", "application/json")
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		_ = enc.Encode(out) // the client has gone: nobody to tell
	})
	return mux
}

func sourceOf(st trial.Status) configzSource {
	c := st.Active
	if c.IsLocal() {
		return configzSource{Kind: string(st.Local)}
	}
	return configzSource{Kind: "remote", Namespace: c.Namespace, Name: c.Name, UID: c.UID, Revision: c.Revision, SHA256: c.Payload}
}
