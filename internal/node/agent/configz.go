// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/netutil"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/source"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/internal/payload"
)

// page is the content of /configz and /healthz. It is safe for concurrent use.
type page struct {
	configz atomic.Pointer[Configz] // nil: no kubelet has been started
	last    atomic.Pointer[lastDecision]
}

// lastDecision is what others need to know of the last decision.
type lastDecision struct {
	at      time.Time
	healthy bool // the kubelet was
}

// stuckAfter is the maximum age of the last decision: the agent decides at
// least every ten seconds, but stopping a kubelet may take its whole grace
// period.
const stuckAfter = 2 * time.Minute

// Configz is the answer of /configz: what runs and why. Options.SaveRunning
// receives it as JSON.
type Configz struct {
	Source    ConfigzSource         `json:"source"`
	Remote    v1alpha1.RemoteConfig `json:"remoteConfig"`
	RunMode   v1alpha1.RunMode      `json:"runMode"`
	ConfigOK  trial.Condition       `json:"configOK"`
	Error     string                `json:"error,omitempty"`
	Component string                `json:"componentVersion"`
	// Effective is the configuration that the kubelet's dry run printed.
	Effective component.Effective `json:"effective,omitempty"`
	// Origins contains the origin of each field that has no default value.
	Origins map[string]component.Origin `json:"origins,omitempty"`
	// Differs lists the differences from the local configuration.
	Differs    []payload.Difference `json:"differsFromLocal,omitempty"`
	Overridden []string             `json:"overridden,omitempty"`
	// Resolved are the values that depend on the machine.
	Resolved []v1alpha1.ResolvedValue `json:"resolvedValues,omitempty"`
	// Limits are what is not possible with this kubelet.
	Limits []component.Limit `json:"limits,omitempty"`
	// Kubelet is the running kubelet's own /configz.
	Kubelet     component.Effective `json:"kubeletConfigz,omitempty"`
	KubeletSays string              `json:"kubeletConfigzError,omitempty"`
}

// ConfigzSource is the origin of the running configuration.
type ConfigzSource struct {
	Kind string `json:"kind"` // remote, init or default
	v1alpha1.ConfigRevision
	Revision string `json:"revision,omitempty"` // of a trial.Config
}

// Config returns the identity of the running configuration.
func (c Configz) Config() trial.Config {
	return trial.Config{ConfigRevision: c.Source.ConfigRevision, Revision: c.Source.Revision}
}

// Grouped returns c with the grouped form's paths.
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

	c.Origins, c.Differs, c.Overridden, c.Resolved = origins, slices.Clone(c.Differs), slices.Clone(c.Overridden), slices.Clone(c.Resolved)
	for i := range c.Differs {
		c.Differs[i].Field = payload.GroupedPath(c.Differs[i].Field)
	}

	for i := range c.Resolved {
		c.Resolved[i].Path = payload.GroupedPath(c.Resolved[i].Path)
	}

	for i := range c.Overridden {
		c.Overridden[i] = payload.GroupedPath(c.Overridden[i])
	}

	return c
}

// presentable returns a configuration without secrets and unset fields; nil for
// nil.
func presentable(e component.Effective) component.Effective {
	if e == nil {
		return nil
	}

	seen := payload.Mask(e)
	maps.DeleteFunc(seen, func(_ string, value any) bool { return value == nil })

	return seen
}

// Health returns an error if the last decision is too old. It does not check
// the kubelet.
func (a *Agent) Health() error {
	last := a.page.last.Load()
	if last == nil {
		return nil
	}
	if age := time.Since(last.at); age > stuckAfter {
		return fmt.Errorf("no decision for %s", age.Round(time.Second))
	}

	return nil
}

// Alive reports whether the agent decides. An agent that has not decided for
// minutes hangs, and only a new one can help its node.
func (a *Agent) Alive() bool { return a.Health() == nil }

// Healthy reports whether the kubelet was healthy at the last decision.
func (a *Agent) Healthy() bool {
	last := a.page.last.Load()
	return last != nil && last.healthy
}

// Handler serves /healthz, /metrics and /configz. ask requests the running
// kubelet's /configz; it may be nil.
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
		page := a.page.configz.Load()
		form := r.URL.Query().Get("form")
		switch {
		case form != "" && form != "flat" && form != "grouped":
			http.Error(w, fmt.Sprintf("form must be flat or grouped, not %q", form), http.StatusBadRequest)
			return
		case page == nil:
			http.Error(w, "no kubelet has been started yet", http.StatusServiceUnavailable)
			return
		}

		out := *page
		if ask == nil {
			out.KubeletSays = "the agent has no credentials for the kubelet"
		} else if effective, err := ask(r.Context(), out.Effective); err != nil {
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
		_ = enc.Encode(out) // the client has disconnected
	})

	return mux
}

func configzSource(st trial.Status) ConfigzSource {
	if st.Active.IsLocal() {
		return ConfigzSource{Kind: string(st.Local)}
	}

	return ConfigzSource{Kind: "remote", ConfigRevision: st.Active.ConfigRevision, Revision: st.Active.Revision}
}

// maxConnections is how many clients the agent's HTTP server has at the same
// time: each costs memory, and a kubelet needs descriptors as well. Further
// clients wait, and idle connections are closed.
const maxConnections = 64

// listenInterval is how often the agent tries to listen if it cannot.
const listenInterval = time.Second

// Serve serves /healthz, /metrics and /configz on a TCP address until ctx ends.
// With Parts.Configz, /configz can also ask the kubelet itself. If the agent
// cannot listen, Serve logs that, and tries again every second: the node gets
// its kubelet without it.
func (a *Agent) Serve(ctx context.Context, address string) {
	listener, err := a.listen(ctx, address)
	if err != nil {
		return
	}

	server := NewServer(a.Handler(a.p.Configz))
	var closing sync.WaitGroup
	closing.Go(func() {
		<-ctx.Done()
		_ = server.Close()
	})
	if err := server.Serve(netutil.LimitListener(listener, maxConnections)); !errors.Is(err, http.ErrServerClosed) {
		a.o.Log.Error("the HTTP server ended", "err", err)
	}

	closing.Wait()
}

// listen returns a listener as soon as the address is free, or an error if ctx
// ends before.
func (a *Agent) listen(ctx context.Context, address string) (listener net.Listener, err error) {
	var before error
	err = wait.PollUntilContextCancel(ctx, listenInterval, true, func(context.Context) (bool, error) {
		l, err := net.Listen("tcp", address)
		switch {
		case err != nil && before == nil:
			a.o.Log.Error("cannot serve /healthz, /metrics and /configz; continuing without it, retrying every second", "listen", address, "err",
				err)
		case err == nil && before != nil:
			a.o.Log.Info("serving /healthz, /metrics and /configz", "listen", address)
		}

		listener, before = l, err

		return err == nil, nil
	})

	return listener, err
}

// KubeletConfigz returns the function for Parts.Configz. It connects to this
// machine only, and authenticates with nothing but the client certificate of
// the node, of which a server learns no secret: the kubelet's serving
// certificate is usually self-signed, so it is not verified.
func KubeletConfigz(client *source.Client) func(context.Context, component.Effective) (component.Effective, error) {
	return func(ctx context.Context, effective component.Effective) (component.Effective, error) {
		transport, err := client.KubeletTransport()
		if err != nil {
			return nil, err
		}

		asks := &http.Client{Transport: transport, Timeout: 5 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse // it is sent nowhere else
		}}

		return component.Configz(ctx, asks, kubeletURL(effective))
	}
}

// kubeletURL returns the secure endpoint of a kubelet with this configuration
// on this machine.
func kubeletURL(effective component.Effective) string {
	port, ok := effective.Int("port")
	if !ok {
		port = 10250
	}

	host := "127.0.0.1"
	if ip := net.ParseIP(effective.String("address")); ip != nil && !ip.IsUnspecified() {
		host = ip.String() // it listens nowhere else
	} else if ip != nil && ip.To4() == nil {
		host = "::1"
	}

	return "https://" + net.JoinHostPort(host, strconv.FormatInt(port, 10))
}

// NewServer returns an HTTP server with limits that a slow or idle client
// cannot exhaust.
func NewServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: time.Minute,
		IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
	}
}
