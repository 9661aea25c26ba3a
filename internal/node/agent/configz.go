package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/internal/payload"
)

// page is what the agent tells who asks it over HTTP.
type page struct {
	mu      sync.Mutex
	state   pageContent
	last    time.Time // of the decisions
	healthy bool      // as it was then
}

type pageContent struct {
	status     trial.Status
	verdict    verdict
	overridden []string
	limits     []component.Limit
	version    string
	remote     v1alpha1.RemoteConfig
	runMode    v1alpha1.RunMode
	running    bool
}

func (p *page) set(s pageContent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state = s
}

func (p *page) decided(now time.Time, healthy bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last, p.healthy = now, healthy
}

// stuck is how long ago the last decision was, if that is too long.
func (p *page) stuck() (age time.Duration, stuck bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	age = time.Since(p.last)
	return age, !p.last.IsZero() && age > stuckAfter
}

// Alive reports whether the agent decides. One that does not for minutes hangs, and only a new one can help its node.
func (a *Agent) Alive() bool {
	_, stuck := a.page.stuck()
	return !stuck
}

func (p *page) get() pageContent {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

// stuckAfter is how old the last decision may be: the agent decides at least
// every ten seconds, but stopping a kubelet may take its whole grace.
const stuckAfter = 2 * time.Minute

// Configz is what runs and why: the answer of /configz, and what Options.Record
// is given.
type Configz struct {
	Source    ConfigzSource         `json:"source"`
	Remote    v1alpha1.RemoteConfig `json:"remoteConfig"`
	RunMode   v1alpha1.RunMode      `json:"runMode"`
	ConfigOK  trial.Condition       `json:"configOK"`
	Error     string                `json:"error,omitempty"`
	Component string                `json:"componentVersion"`
	// Effective is the configuration as the kubelet's dry run printed it.
	Effective component.Effective `json:"effective,omitempty"`
	// Origins says where its fields come from; those that are not in it are
	// defaults.
	Origins map[string]component.Origin `json:"origins,omitempty"`
	// Differs lists what is not as it is locally.
	Differs    []payload.Difference `json:"differsFromLocal,omitempty"`
	Overridden []string             `json:"overridden,omitempty"`
	// Limits are what cannot be done with this kubelet.
	Limits []component.Limit `json:"limits,omitempty"`
	// Kubelet is what the running kubelet says itself.
	Kubelet     component.Effective `json:"kubeletConfigz,omitempty"`
	KubeletSays string              `json:"kubeletConfigzError,omitempty"`
}

// ConfigzSource is where the configuration that runs comes from.
type ConfigzSource struct {
	Kind      string `json:"kind"` // remote, init or default
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	UID       string `json:"uid,omitempty"`
	Revision  string `json:"revision,omitempty"`
	SHA256    string `json:"sha256,omitempty"`
}

// Config returns the name of the configuration that runs.
func (c Configz) Config() trial.Config {
	s := c.Source
	return trial.Config{Revision: s.Revision, Namespace: s.Namespace, Name: s.Name, UID: s.UID, Payload: s.SHA256}
}

// Grouped returns it in the grouped form, paths and all.
func (c Configz) Grouped() Configz {
	for _, e := range []*component.Effective{&c.Effective, &c.Kubelet} {
		if *e != nil {
			*e = payload.Group(*e)
		}
	}
	origins := map[string]component.Origin{}
	for field, origin := range c.Origins {
		origins[payload.GroupedPath(field)] = origin
	}
	c.Origins, c.Differs, c.Overridden = origins, slices.Clone(c.Differs), slices.Clone(c.Overridden)
	for i := range c.Differs {
		c.Differs[i].Field = payload.GroupedPath(c.Differs[i].Field)
	}
	for i := range c.Overridden {
		c.Overridden[i] = payload.GroupedPath(c.Overridden[i])
	}
	return c
}

func (s pageContent) configz() Configz {
	return Configz{
		Source: configzSource(s.status), Remote: s.remote, RunMode: s.runMode, ConfigOK: s.status.Condition, Error: s.status.Error, Component: s.version,
		Effective: presentable(s.verdict.Effective), Origins: s.verdict.Origins, Differs: s.verdict.differs, Overridden: s.overridden,
		Limits: s.limits,
	}
}

// shown is a configuration for people's eyes: without secrets, and without what is
// unset. nil stays nil.
func presentable(e component.Effective) component.Effective {
	if e == nil {
		return nil
	}
	seen := payload.Mask(e)
	maps.DeleteFunc(seen, func(_ string, value any) bool { return value == nil })
	return seen
}

// Health returns an error if the agent has not decided anything for too long. It says nothing of the kubelet.
func (a *Agent) Health() error {
	if age, stuck := a.page.stuck(); stuck {
		return fmt.Errorf("no decision for %s", age.Round(time.Second))
	}
	return nil
}

// Healthy tells whether the kubelet was healthy when the agent decided last.
func (a *Agent) Healthy() bool {
	a.page.mu.Lock()
	defer a.page.mu.Unlock()
	return a.page.healthy
}

// Handler serves /healthz, /metrics and /configz. ask asks the running kubelet
// for its own /configz; it may be nil.
func (a *Agent) Handler(ask func(context.Context, component.Effective) (component.Effective, error)) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if err := a.Health(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.Handle("GET /metrics", a.o.Metrics.Handler())
	mux.HandleFunc("GET /configz", func(w http.ResponseWriter, r *http.Request) {
		s, form := a.page.get(), r.URL.Query().Get("form")
		switch {
		case form != "" && form != "flat" && form != "grouped":
			http.Error(w, fmt.Sprintf("form must be flat or grouped, not %q", form), http.StatusBadRequest)
			return
		case !s.running:
			http.Error(w, "no kubelet was started yet", http.StatusServiceUnavailable)
			return
		}
		out := s.configz()
		if ask == nil {
			out.KubeletSays = "the agent has no credentials to ask the kubelet with"
		} else if effective, err := ask(r.Context(), s.verdict.Effective); err != nil {
			out.KubeletSays = err.Error()
		} else {
			out.Kubelet = presentable(effective)
		}
		if form == "grouped" {
			out = out.Grouped()
		}
		w.Header().Set("Content-Type", "application/json")
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		_ = enc.Encode(out) // the client has gone: nobody to tell
	})
	return mux
}

func configzSource(st trial.Status) ConfigzSource {
	c := st.Active
	if c.IsLocal() {
		return ConfigzSource{Kind: string(st.Local)}
	}
	return ConfigzSource{Kind: "remote", Namespace: c.Namespace, Name: c.Name, UID: c.UID, Revision: c.Revision, SHA256: c.Payload}
}
