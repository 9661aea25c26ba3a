// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/checkpoint"
	"github.com/evenkeel/evenkeel/internal/node/source"
	"github.com/evenkeel/evenkeel/internal/node/supervisor"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/crashfs"
)

const dir = "/var/lib/evenkeel"

// Limits of the simulated world. Time there costs nothing, but each decision
// does.
var limits = trial.Limits{TrialDuration: 40 * time.Second, CrashLoopThreshold: 2, HealthTimeout: 20 * time.Second, ReadyTimeout: 20 * time.Second}

// world is the environment of an agent, and outlives it.
type world struct {
	t          *testing.T
	disk       *crashfs.FS
	boot       string
	kubelet    *simKubelet
	api        *simAPI
	init       *simInit
	reporter   *simReporter
	log        *lines
	options    func(*Options)    // what a test wants otherwise
	openErr    error             // of the store
	preflights *simPreflights    // nil: the agent takes no requests
	configz    simConfigz        // of the running kubelet
	names      map[string]string // of the configurations that were assigned, by revision

	agent  *Agent
	nodes  *simNodes
	source *simSource
	cancel context.CancelFunc
	ended  chan struct{}
	err    error // of the agent, once it has ended
}

// guarded is a state that several goroutines use.
type guarded[T any] struct {
	mu sync.Mutex
	s  T
}

func (g *guarded[T]) get() T {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.s
}

func (g *guarded[T]) set(change func(*T)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change(&g.s)
}

// inWorld runs a test in its own world, where time passes when all goroutines
// are blocked.
func inWorld(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.stop()
		test(w)
	})
}

// after returns a function that runs a test in its own world, in which begin
// has happened.
func after(begin func(w *world)) func(t *testing.T, test func(w *world)) {
	return func(t *testing.T, test func(w *world)) {
		t.Helper()
		inWorld(t, func(w *world) {
			begin(w)
			test(w)
		})
	}
}

var (
	inStartedWorld = after((*world).up) // the kubelet runs its local configuration
	inGoodWorld    = after(withGood)    // the node has a last-known-good configuration
	inBadWorld     = after(withBad)     // and another one that has failed
)

// with returns what inStartedWorld does with an agent that has other options.
func with(options func(*Options)) func(t *testing.T, test func(w *world)) {
	return after(func(w *world) {
		w.options = options
		w.up()
	})
}

func protecting(o *Options)    { o.Protected = payload.DefaultProtection() }
func withoutACrash(o *Options) { o.Limits.CrashLoopThreshold = 0 }

// forEach runs a test with each case, in a world of its own.
func forEach[K comparable, C any](t *testing.T, in func(*testing.T, func(*world)), cases map[K]C, test func(w *world, name K, c C)) {
	t.Helper()
	for name, c := range cases {
		t.Run(fmt.Sprint(name), func(t *testing.T) {
			in(t, func(w *world) { test(w, name, c) })
		})
	}
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, disk: crashfs.New(), boot: "boot-1", log: &lines{}, names: map[string]string{}}
	w.kubelet = newSimKubelet(w)
	w.api = &simAPI{w: w, uid: "nc-1", up: true, ready: true}
	w.reporter, w.preflights = &simReporter{}, &simPreflights{}

	return w
}

// start starts an agent.
func (w *world) start() {
	w.t.Helper()
	assert.Must(w.t, w.cancel == nil, "an agent runs already")
	ctx, cancel := context.WithCancel(w.t.Context())
	records := &SavedConfigs{}
	w.init = &simInit{}
	w.nodes = &simNodes{api: w.api, changed: make(chan struct{}, 1)}
	w.source = newSimSource(ctx, w.api, records)
	o := Options{
		StartupTaint: startupTaint,
		Limits:       limits, APILoss: "auto", SyncTimeout: 2 * time.Second, StopGrace: 5 * time.Second, AgentVersion: "v0.1.0",
		Remote: v1alpha1.RemoteConfigNodeConfig, RunMode: v1alpha1.RunModeHost, BootID: w.boot, Log: slog.New(slog.DiscardHandler), Init: w.init,
		ShuttingDown: func(context.Context) bool { return w.kubelet.get().shuttingDown },
	}
	if w.log != nil {
		o.Log = slog.New(slog.NewTextHandler(w.log, nil))
	}

	disk := w.disk // an agent of before goes on with its own
	o.OpenStore = func(version string) (Store, error) {
		if w.openErr != nil {
			return nil, w.openErr
		}

		return checkpoint.Open(disk, dir, version, o.Log)
	}
	parts := Parts{
		Configz: w.configz.answer, Kubelet: w.kubelet, Source: w.source, Nodes: w.nodes, Reporter: w.reporter, SavedConfigs: records,
	}
	if w.preflights != nil {
		parts.Preflights = w.preflights
	}
	if w.options != nil {
		w.options(&o)
	}

	a := New(o, parts)
	ended := make(chan struct{})
	w.agent, w.cancel, w.ended, w.err = a, cancel, ended, nil
	go func() {
		defer close(ended)
		err := a.Run(ctx)
		w.err = err
	}()
	synctest.Wait()
}

// up starts an agent, and waits until its kubelet runs the local configuration.
func (w *world) up() {
	w.t.Helper()
	w.start()
	w.runs("")
}

// stop sends SIGTERM and waits until the agent ends.
func (w *world) stop() {
	if w.cancel == nil {
		return
	}

	w.cancel()
	<-w.ended
	w.cancel = nil
	synctest.Wait()
}

// kill ends the agent and its kubelet at once, without losing unsynced writes:
// the machine continues.
func (w *world) kill() { w.become(w.disk.Reboot(crashfs.Choices["all kept"])) }

// become replaces the disk, with no agent running.
func (w *world) become(disk *crashfs.FS) {
	w.kubelet.ignore(true) // what it does from here on has not happened
	w.stop()
	w.disk = disk
	w.kubelet.ignore(false)
}

// pass lets time pass, until the machine crashes.
func (w *world) pass(d time.Duration) {
	const slice = 500 * time.Millisecond
	for ; d > 0 && !w.disk.Crashed(); d -= slice {
		<-time.After(min(d, slice))
		synctest.Wait()
	}
}

// until lets time pass until so returns true.
func (w *world) until(what string, so func() bool) {
	w.t.Helper()
	w.within(10*time.Minute, what, so)
}

func (w *world) within(limit time.Duration, what string, so func() bool) {
	w.t.Helper()
	for begin := time.Now(); time.Since(begin) < limit; w.pass(100 * time.Millisecond) {
		if so() {
			return
		}
	}

	w.t.Fatalf("never: %s\n%s", what, w.tail())
}

// runs waits until a healthy kubelet runs that configuration; "" is local.
func (w *world) runs(name string) {
	w.t.Helper()
	w.until("a healthy kubelet runs "+orLocal(name), func() bool {
		p := w.kubelet.running()
		return p != nil && p.conf.name == name && p.Healthy()
	})
	w.pass(time.Millisecond)
}

// adopts assigns a configuration, and waits until a healthy kubelet runs it.
func (w *world) adopts(uid string, c conf) {
	w.t.Helper()
	w.assign(uid, c)
	w.runs(c.name)
}

// untilStarts waits until the kubelet has been started so often.
func (w *world) untilStarts(n int) {
	w.t.Helper()
	w.until(fmt.Sprintf("%d starts", n), func() bool { return len(w.kubelet.get().starts) == n })
}

// crashes makes the kubelet exit, and waits until a healthy one runs that
// configuration.
func (w *world) crashes(name string) {
	w.t.Helper()
	w.dies(exitOne)
	w.runs(name)
}

// dies makes the kubelet exit by itself.
func (w *world) dies(exit supervisor.Exit) {
	w.t.Helper()
	p := w.kubelet.running()
	assert.Must(w.t, p != nil, "no kubelet runs\n%s", w.tail())
	p.die(exit)
	<-p.done
	synctest.Wait()
}

// promoted waits until that configuration is last-known-good on disk.
func (w *world) promoted(revision string) {
	w.t.Helper()
	w.until(revision+" is last-known-good", func() bool { return w.view().LastKnownGood.Revision == revision })
}

// view returns the present state on disk.
func (w *world) view() trial.State {
	v, err := checkpoint.ReadOnly(w.disk, dir, w.kubelet.get().version)
	if err != nil && !errors.Is(err, crashfs.ErrCrashed) && w.agent != nil {
		w.t.Errorf("the directory cannot be read: %v", err)
	}

	return v.State
}

// status waits for the newest report and returns its status.
func (w *world) status() v1alpha1.NodeConfigStatus {
	synctest.Wait()
	return w.reporter.last().Status
}

// condition returns the newest condition of a kind as `status reason: message`;
// empty: there is none.
func (w *world) condition(kind string) string {
	c := meta.FindStatusCondition(w.status().Conditions, kind)
	if c == nil {
		return ""
	}

	return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
}

// configOK returns the newest condition as `status | message: cause (reason)`.
func (w *world) configOK() string {
	s := w.status()
	if len(s.Conditions) == 0 {
		return "none"
	}

	c := s.Conditions[0]

	return string(c.Status) + " | " + c.Message + " (" + c.Reason + ")"
}

func (w *world) wantConfigOK(want string) {
	w.t.Helper()
	got := w.configOK()
	assert.That(w.t, got == want, "ConfigOK is\n  %s, want\n  %s\n%s", got, want, w.tail())
}

// wantConfigOKHas checks the begin of the newest condition, and what else it
// contains.
func (w *world) wantConfigOKHas(begin string, parts ...string) {
	w.t.Helper()
	got := w.configOK()
	missing := slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(got, part) })
	assert.That(w.t, strings.HasPrefix(got, begin) && !missing, "ConfigOK is\n  %s, want\n  %s...%q\n%s", got, begin, parts, w.tail())
}

// wantReason checks the reason of the newest condition, and words of its
// message.
func (w *world) wantReason(reason, words string) {
	w.t.Helper()
	c := w.status().Conditions[0]
	assert.That(w.t, c.Reason == reason && strings.Contains(c.Message, words), "ConfigOK is %+v, want %s: %s", c, reason, words)
}

func (w *world) wantError(part string) {
	w.t.Helper()
	assert.That(w.t, strings.Contains(w.status().Error, part), "the error is %q, want one with %q", w.status().Error, part)
}

// quiet lets time pass, in which the agent makes few decisions.
func (w *world) quiet(what string, most int, d time.Duration) {
	w.t.Helper()
	before := w.init.get().passes
	w.pass(d)
	n := w.init.get().passes - before
	assert.That(w.t, n <= most, "%s: %d decisions in %s, at most %d expected", what, n, d, most)
}

func (w *world) wantStarts(want ...string) {
	w.t.Helper()
	got := w.kubelet.get().starts
	assert.That(w.t, slices.Equal(got, want), "the kubelet was started with %q, want %q\n%s", got, want, w.tail())
}

// wantLogged checks how many lines of the log contain a text.
func (w *world) wantLogged(part string, want int) {
	w.t.Helper()
	n := w.log.count(part)
	assert.That(w.t, n == want, "%d log lines contain %q, want %d\n%s", n, part, want, w.tail())
}

// wantDryRuns checks how often a configuration was validated.
func (w *world) wantDryRuns(name string, want int) {
	w.t.Helper()
	n := w.kubelet.checked(name)
	assert.That(w.t, n == want, "%d dry runs of %s, want %d", n, orLocal(name), want)
}

// wantReports checks how many different reports the agent has made.
func (w *world) wantReports(want int) {
	w.t.Helper()
	now := w.reporter.all()
	assert.That(w.t, len(now) == want, "%d reports, want %d; the last is %+v", len(now), want, w.reporter.last())
}

// wantEvent checks that an Event contains a text, as `type reason: message`.
func (w *world) wantEvent(part string) {
	w.t.Helper()
	all := strings.Join(w.reporter.told(), "\n")
	assert.That(w.t, strings.Contains(all, part), "the events are\n%s\nwant one with %q", all, part)
}

func (w *world) wantNoBad() {
	w.t.Helper()
	bad := w.status().BadConfigs
	assert.That(w.t, len(bad) == 0, "bad are %+v", bad)
}

// tail returns the end of the log.
func (w *world) tail() string {
	if w.log == nil {
		return ""
	}

	return w.log.tail()
}

func orLocal(name string) string {
	if name == "" {
		return "local"
	}

	return name
}

// lines are the logged lines.
type lines struct{ guarded[[]string] }

func (l *lines) Write(p []byte) (int, error) {
	_, line, _ := bytes.Cut(bytes.TrimSpace(p), []byte("level="))
	l.set(func(text *[]string) { *text = append(*text, time.Now().Format("15:04:05.000 ")+string(line)) })

	return len(p), nil
}

func (l *lines) tail() string {
	text := l.get()
	return strings.Join(text[max(0, len(text)-60):], "\n")
}

// count returns how many lines contain all parts.
func (l *lines) count(parts ...string) int {
	n := 0
	for _, line := range l.get() {
		if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) }) {
			n++
		}
	}

	return n
}

var accepted = component.Verdict{Outcome: component.Accepted, Stage: 2}

// forget requests to forget a revision, as an operator does.
func (w *world) forget(revision string) {
	w.t.Helper()
	assert.NoError(w.t, checkpoint.RequestForget(w.disk, dir, revision))
}

// pods sets the pods that run on the node.
func (w *world) pods(names ...string) {
	w.api.set(func(api *simAPI) {
		api.pods = nil
		for _, name := range names {
			api.pods = append(api.pods, source.Pod{UID: types.UID("pod-" + name), Namespace: "default", Name: name, Phase: "Running", OwnerKind: "ReplicaSet"})
		}
	})
}

// evicted makes a pod one that the kubelet has evicted.
func (w *world) evicted(i int) {
	w.api.set(func(api *simAPI) { api.pods[i].Phase, api.pods[i].Reason = "Failed", "Evicted" })
}

// counted returns the value of a metric, "" if it does not exist.
func counted(t *testing.T, w *world, name string) string {
	t.Helper()
	body := get(t, w.agent.o.Metrics.Handler(), "/").Body.String()
	for line := range strings.Lines(body) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(value)
		}
	}

	return ""
}

func get(t *testing.T, handler http.Handler, path string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRecorder()
	handler.ServeHTTP(r, httptest.NewRequest(http.MethodGet, path, nil))
	return r
}

// startupTaint is the key of the startup taint of all tests.
const startupTaint = "example.com/startup"
