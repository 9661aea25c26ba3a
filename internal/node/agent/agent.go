// Package agent is the shell around the decision core: it observes, lets
// trial.Decide decide, persists, acts and reports, and does nothing else.
//
// It must not know how a kubelet is validated, how files are made durable or
// how the API is watched; and it must never decide by itself what runs.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/checkpoint"
	"github.com/evenkeel/evenkeel/internal/node/source"
	"github.com/evenkeel/evenkeel/internal/node/supervisor"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/internal/payload"
)

// Kubelet is the program this node runs, with the command line that it has.
type Kubelet interface {
	// Identity changes when the binary is replaced.
	Identity() (string, error)
	Version(ctx context.Context) (string, error)
	// Local says what "local" is on this node.
	Local() trial.Local
	CheckLocal(ctx context.Context) component.Verdict
	// LocalDigest changes when the local configuration does.
	LocalDigest() string
	Check(ctx context.Context, p payload.Payload) component.Verdict
	// Files are what a payload is rendered as, for Start.
	Files(p payload.Payload) (map[string][]byte, error)
	// Start runs it with what was rendered; without a Dir: with the local
	// configuration. What of that is the node's own is for Start to know.
	Start(ctx context.Context, run component.RunConfig, effective component.Effective) (Process, error)
	Conflicts(effective component.Effective) ([]component.StateConflict, error)
	MoveAside(conflicts []component.StateConflict, now time.Time) ([]string, error)
	// RuntimeReachable asks the container runtime for an answer.
	RuntimeReachable(ctx context.Context, endpoint string) error
	RunsStaticPods(effective component.Effective) bool
}

// Process is a kubelet that was started.
type Process interface {
	Done() <-chan struct{}
	Changed() <-chan struct{} // its health may have changed
	Exit() supervisor.Exit    // after Done
	Stop(grace time.Duration) supervisor.Exit
	Healthy() bool // READY, watchdog and healthz all say so
	Waiting() bool // for its lock
	Watch(closely bool)
}

// Store is where the node's state is kept.
type Store interface {
	Load() (trial.State, []checkpoint.Problem)
	Save(trial.State) error
	Put(revision string, configMap []byte) (string, error)
	Get(trial.Config) ([]byte, error)
	Collect(keep ...string) error
	Render(revision string, files map[string][]byte) (string, error)
	Rendered() []string
	ForgetRequests() ([]string, error)
	DropForgetRequest(revision string) error
}

// Source says what is intended for this node.
type Source interface {
	First(ctx context.Context) source.Answer
	Current() source.Answer
	Changed() <-chan struct{}
	// Refresh resolves the assignment again: its checkpoint cannot be used.
	Refresh()
}

// Nodes says how the node is, as the API has it.
type Nodes interface {
	Snapshot(ctx context.Context) source.NodeState // asks once
	Start(ctx context.Context)                     // goes on looking, until Stop
	Stop()
	Current() source.NodeState // zero while off
	Changed() <-chan struct{}
}

// Reporter tells the API; it never blocks and never fails to its caller.
type Reporter interface {
	Report(source.Report)
	Event(severity source.Severity, reason, message string)
	// Flush waits until what was reported has been written, or ctx ends.
	Flush(ctx context.Context)
}

// InitSystem is told how the service is; see sd_notify(3).
type InitSystem interface {
	Ready() error
	Stopping() error
	Status(text string) error
	Cover(bool)
}

// Options are what an agent is told once.
type Options struct {
	Limits       trial.Limits
	APILoss      string // auto, on or off
	SyncTimeout  time.Duration
	StopGrace    time.Duration
	AgentVersion string
	Remote       v1alpha1.RemoteConfig
	RunMode      v1alpha1.RunMode
	BootID       string
	Log          *slog.Logger
	// GiveUp is asked once for each decision, with the monotonic time and whether the kubelet is healthy. When GiveUp returns
	// an error, the agent leaves the node to another one: Run reports the error as an event, stops the kubelet, and returns the
	// error. nil: this agent never gives the node up.
	GiveUp func(now time.Time, healthy bool) error
	// Protected are the fields that no payload may change.
	Protected payload.Protection
	// Record keeps what runs and why, as JSON, for people who ask while the agent
	// runs; nil: nobody asks.
	Record func([]byte) error
	// OpenStore opens the state of one version of the component; nil: dynamic
	// configuration is off and nothing is kept.
	OpenStore    func(version string) (Store, error)
	Metrics      *Metrics
	Init         InitSystem
	ShuttingDown func(context.Context) bool
}

// Parts are the outside world. Source, Nodes and Reporter are nil where there
// is no API to talk to.
type Parts struct {
	Kubelet  Kubelet
	Source   Source
	Nodes    Nodes
	Reporter Reporter
	Records  *Records
}

// ErrLocalInvalid says that the node's local configuration is invalid, so that
// there is nothing to fall back to: the proposal wants that to be obvious.
var ErrLocalInvalid = errors.New("the local configuration is invalid")

// Agent runs one node's kubelet.
type Agent struct {
	o Options
	p Parts

	store    Store
	identity string
	version  string
	reopen   time.Time // when to try again to open the state of another version
	state    trial.State
	saved    *trial.State // what the store has; nil: not known to have it all
	storage  string       // why it does not have more
	retryAt  time.Time    // when to try again
	forgot   []string     // requests that were carried out and could not be dropped

	started time.Time // the last start of a kubelet
	last    time.Time // the last decision
	process Process
	exit    *trial.Child // an unexpected exit, until it has been decided upon
	ran     trial.Config // what was started last
	running verdict      // on it, as it was then
	lease   *leaseBase

	checks      checks
	local       verdict // on local, when it was known last
	answer      source.Answer
	asked       time.Time       // when the newest assignment was seen; zero: it has been dealt with
	config      trial.Config    // that the answer names
	put         trial.Config    // that was checkpointed last
	anew        time.Time       // when the source was asked for what is on disk no more
	unavailable map[string]bool // revisions whose checkpoint cannot be used
	ranRemote   bool            // in this agent's life

	seen         view   // the node, as it was seen last
	workloadPods *int64 // that it had then; nil: never seen

	watching   bool
	wasHealthy bool
	toldReady  bool
	condition  trial.Condition      // that was logged last
	objects    map[string][2]string // resource version and key, by revision
	page       page
	recorded   string // what the last record was about
	unrecorded bool   // it could not be kept
}

// New returns an agent that has not started anything.
func New(o Options, p Parts) *Agent {
	if o.Metrics == nil {
		o.Metrics = NewMetrics("", o.AgentVersion, "")
	}
	if p.Records == nil {
		p.Records = &Records{}
	}
	a := &Agent{o: o, p: p, checks: newChecks(o.Metrics.validated), unavailable: map[string]bool{}, objects: map[string][2]string{}, lease: &leaseBase{}}
	p.Records.problem = func(err error) { // before it is opened
		a.tell(a.o.Log, trial.Event{Warning: true, Reason: "StateProblem", Message: err.Error() + "; it is downloaded anew"})
	}
	return a
}

// Run runs the kubelet until ctx ends, then stops it cleanly and returns nil.
// It returns ErrLocalInvalid, the error of Options.GiveUp, or an error that says why no kubelet can be run.
func (a *Agent) Run(ctx context.Context) error {
	err := a.refreshVersion(ctx)
	a.p.Records.open()
	if err != nil {
		return err
	}
	a.firstLook(ctx)
	for ctx.Err() == nil {
		if err := a.step(ctx); err != nil {
			a.stop()
			return err
		}
	}
	a.stop()
	return nil
}

// firstLook asks what is intended, and how the node is before this agent's
// kubelet runs, while the local configuration is checked, for at most the sync
// timeout.
func (a *Agent) firstLook(ctx context.Context) {
	a.validate(ctx, []trial.Config{{}})
	if a.p.Source != nil {
		sync, cancel := context.WithTimeout(ctx, a.o.SyncTimeout)
		defer cancel()
		counted := a.countPods(ctx) // a trial may begin at once, and the first report says how many there are
		a.answer = a.p.Source.First(sync)
		select {
		case <-counted:
		case <-sync.Done():
		}
	}
	a.checks.wait(ctx, "")
}

// step makes one decision, carries it out, and waits until there may be
// another.
func (a *Agent) step(ctx context.Context) error {
	if a.process == nil { // what runs is of the version that it was started with
		if err := a.refreshVersion(ctx); err != nil {
			a.o.Log.Error("cannot look at the kubelet's binary", "err", err)
		}
	}
	o, before := a.observe(ctx), a.state.Run
	if a.o.GiveUp != nil {
		if err := a.o.GiveUp(o.Now, o.Child.Healthy); err != nil {
			a.tell(a.o.Log, trial.Event{Warning: true, Reason: "KubeletGivenUp", Message: err.Error()})
			a.flush(ctx)
			return err
		}
	}
	d := trial.Decide(a.state, o)
	if !a.save(d.Next) && (a.state.TakesUp(d.Next) || len(o.Forget) > 0) {
		o.Storage, o.Forget = a.storage, nil // what cannot be recorded is not taken up
		a.seen.set(source.NodeState{Cause: "they are to be counted anew, since the disk took nothing"})
		d = trial.Decide(a.state, o)
		a.save(d.Next)
	}
	a.state = d.Next
	a.p.Records.set(a.store, a.state)
	a.last = o.Now
	a.exit = nil
	a.dropRequests(o.Forget)
	if d.Action.Kind == trial.Refuse {
		a.report(d, o)
		a.flush(ctx)
		return fmt.Errorf("%w: %s", ErrLocalInvalid, d.Action.Words)
	}
	a.happened(d, o)
	run, err := a.render(d.Action)
	if err != nil {
		a.log(d.Action.Config).Error("a configuration cannot be started; going on without it", "err", err)
		if a.state.Run = before; a.process == nil {
			a.state.Run = trial.Run{} // as at the agent's start
		}
		return nil
	}
	a.report(d, o)
	a.carryOut(ctx, d.Action, run)
	a.validate(ctx, d.Validate)
	a.watch(ctx, d)
	if d.Action.Kind != trial.None {
		return nil
	}
	if d.Next.Trial != nil {
		a.validate(ctx, []trial.Config{d.Next.LastKnownGood.Config, {}}) // now, so that a rollback need not wait for them
	}
	a.wait(ctx, d.Wake)
	return nil
}

// flush gives the last report its time to arrive.
func (a *Agent) flush(ctx context.Context) {
	if a.p.Reporter == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, a.o.SyncTimeout)
	defer cancel()
	a.p.Reporter.Flush(ctx)
}

// storageRetry is how long nothing new is taken up after the disk refused.
const storageRetry = 10 * time.Second

// save keeps a state. If that fails it says so, and returns false.
func (a *Agent) save(next trial.State) bool {
	if a.store == nil {
		return true
	}
	next.Run = trial.Run{}
	if a.saved != nil && reflect.DeepEqual(next, *a.saved) {
		a.storage = ""
		return true
	}
	if err := a.store.Save(next); err != nil {
		if a.storage == "" {
			a.o.Log.Error("cannot record the node's state; what runs goes on, nothing new is taken up", "err", err)
		}
		a.saved = nil // some of its records may have been written
		a.storage, a.retryAt = err.Error(), time.Now().Add(storageRetry)
		return false
	}
	a.saved, a.storage = &next, ""
	return true
}

// requests are the revisions that an operator wants forgotten, without those
// that have been: forgetting again would end another trial.
func (a *Agent) requests() []string {
	revisions, err := a.store.ForgetRequests()
	if err != nil {
		a.o.Log.Warn("cannot read the requests to forget", "err", err)
	}
	a.forgot = slices.DeleteFunc(a.forgot, func(r string) bool { return !slices.Contains(revisions, r) })
	revisions = slices.DeleteFunc(revisions, func(r string) bool { return slices.Contains(a.forgot, r) })
	for _, r := range revisions {
		a.checks.drop(r) // it is to be judged anew
	}
	return revisions
}

// dropRequests removes the requests that were carried out.
func (a *Agent) dropRequests(carriedOut []string) {
	a.forgot = slices.DeleteFunc(append(a.forgot, carriedOut...), func(r string) bool {
		err := a.store.DropForgetRequest(r)
		if err != nil && slices.Contains(carriedOut, r) {
			a.o.Log.Warn("cannot drop a request that was carried out; trying again", "uid", r, "err", err)
		}
		return err == nil
	})
}

// replaced tells whether the kubelet's binary is not the one that was looked at
// last.
func (a *Agent) replaced() bool {
	identity, err := a.p.Kubelet.Identity()
	return err == nil && identity != a.identity
}

// refreshVersion notices that the kubelet was replaced: another version has a
// tracking directory of its own, and what it has not proven is on trial.
func (a *Agent) refreshVersion(ctx context.Context) error {
	identity, err := a.p.Kubelet.Identity()
	if err != nil || identity == a.identity || time.Now().Before(a.reopen) {
		return err
	}
	version, err := a.p.Kubelet.Version(ctx)
	if err != nil {
		return err
	}
	if version != a.version && a.o.OpenStore != nil {
		store, err := a.o.OpenStore(version)
		switch {
		case err != nil && a.store == nil:
			return fmt.Errorf("open the dynamic configuration directory: %w", err)
		case err != nil:
			if a.reopen.IsZero() {
				a.o.Log.Error("cannot open the state of the kubelet's new version; going on with the old one's", "version", version, "err", err)
			}
			a.reopen = time.Now().Add(storageRetry)
			return nil
		}
		a.o.Log.Info("kubelet found", "version", version, "before", a.version)
		if a.store != nil {
			a.leaveVersion(ctx)
		}
		a.load(store)
	}
	a.identity, a.version, a.reopen = identity, version, time.Time{}
	a.checks.clear()
	return nil
}

// leaveVersion closes the records of a version whose binary was replaced while this agent runs. Its kubelet's end is
// nothing to a trial with the next one; how the node is, that one has to know.
func (a *Agent) leaveVersion(ctx context.Context) {
	if !a.save(trial.CleanShutdown(a.state)) {
		a.o.Log.Warn("cannot record the end of the kubelet's old version", "err", a.storage)
	}
	a.state.Run = a.state.Run.Replaced()
	a.exit = nil
	<-a.countPods(ctx)
}

// load goes on with what a store has.
func (a *Agent) load(store Store) {
	run := a.state.Run
	state, problems := store.Load()
	a.store, a.state = store, state
	a.saved = nil // what was set aside is to be written anew
	a.state.Run = run
	a.p.Records.set(a.store, a.state)
	for _, p := range problems {
		a.o.Log.Warn("the state on disk had a problem", "file", p.File, "what", p.What, "setAside", p.SetAside)
		a.tell(a.o.Log, trial.Event{Warning: true, Reason: "StateProblem", Message: p.String()})
	}
}

// stop ends the kubelet because the agent was told to end.
func (a *Agent) stop() {
	if err := a.o.Init.Stopping(); err != nil {
		a.o.Log.Warn("cannot tell the init system", "err", err)
	}
	if a.p.Nodes != nil {
		a.p.Nodes.Stop()
	}
	if a.process != nil {
		exit := a.process.Stop(a.o.StopGrace)
		a.o.Log.Info("kubelet stopped", "exit", exit.String())
		a.process = nil
	}
	if !a.save(trial.CleanShutdown(a.state)) {
		a.o.Log.Warn("cannot record the clean shutdown", "err", a.storage)
	}
}

// wait returns when there may be something to decide.
func (a *Agent) wait(ctx context.Context, wake time.Duration) {
	timer := time.NewTimer(wake)
	defer timer.Stop()
	var done, changed, intent, node <-chan struct{}
	if a.process != nil {
		done, changed = a.process.Done(), a.process.Changed()
	}
	if a.p.Source != nil {
		intent, node = a.p.Source.Changed(), a.p.Nodes.Changed()
	}
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-changed:
	case <-intent:
	case <-node:
	case <-a.checks.changed:
	case <-done:
		a.exited(ctx)
	}
}

// exited takes note of an exit that nobody asked for. One with status 0 may be
// the init system stopping everything: our own SIGTERM then follows.
func (a *Agent) exited(ctx context.Context) {
	exit := a.process.Exit()
	a.process = nil
	if exit.Code == 0 {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second):
		}
	}
	if ctx.Err() != nil {
		return
	}
	a.log(a.state.Run.Config).Warn("the kubelet exited unexpectedly", "exit", exit.String())
	a.exit = &trial.Child{Exited: true, Spawned: true, Exit: exit.String()}
}
