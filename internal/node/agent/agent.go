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
//
// The goroutine of Run owns all fields. Other goroutines may use only those that lock themselves: validations.checks (dry
// runs), node.view and kubelet.lease (requests to the API), page (the HTTP server), and Parts.Records (the source).
type Agent struct {
	o Options
	p Parts

	state   trial.State // what the node remembers
	decided time.Time   // the last decision; zero: none

	disk        disk
	binary      binary
	kubelet     kubelet
	assignment  assignment
	validations validations
	node        node
	reports     reports
	page        page
}

// disk is what is known about the saved state.
type disk struct {
	store     Store        // nil: dynamic configuration is off
	saved     *trial.State // the content of the store; nil: not known completely
	failure   string       // why the last state could not be saved; empty: it was saved
	retryAt   time.Time    // of that failure
	forgotten []string     // requests to forget that were carried out but not removed yet
}

// binary is the kubelet's binary, as it was when it was last examined.
type binary struct {
	identity string
	version  string
	retryAt  time.Time // when to try again to open the state of another version
}

// kubelet is the kubelet that was started last.
type kubelet struct {
	process    Process      // nil: none runs
	exit       *trial.Child // an unexpected exit that has not been decided upon
	config     trial.Config
	verdict    verdict // on config, at that start
	lease      *leaseBase
	started    time.Time
	wasHealthy bool // at the last decision
	ranRemote  bool // this agent has started a kubelet with an assigned configuration
}

// assignment is what the source returned last.
type assignment struct {
	answer       source.Answer
	config       trial.Config // that the answer names
	since        time.Time    // when an assignment was first seen; zero: the kubelet runs it
	saved        trial.Config // the revision that was saved last, with the digest of the file
	redownloaded time.Time    // when the source was last asked to download a checkpoint again
}

// validations are the verdicts of the dry runs.
type validations struct {
	checks
	local       verdict         // the last one on the local configuration that contains its fields
	unavailable map[string]bool // revisions whose checkpoint cannot be used
}

// node is what is known about the Node and its pods.
type node struct {
	view         view
	workloadPods *int64 // when they were counted last; nil: never
	watching     bool
}

// reports is what was reported last, so that it is not repeated.
type reports struct {
	ready      bool // to the init system
	condition  trial.Condition
	objects    map[string][2]string // resource version and key of ConfigMaps, by revision
	saved      string               // what the description for Options.Record was about
	saveFailed bool
}

// New returns an agent that has not started anything.
func New(o Options, p Parts) *Agent {
	if o.Metrics == nil {
		o.Metrics = NewMetrics("", o.AgentVersion, "")
	}
	if p.Records == nil {
		p.Records = &Records{}
	}
	a := &Agent{
		o: o, p: p,
		kubelet:     kubelet{lease: &leaseBase{}},
		validations: validations{checks: newChecks(o.Metrics.validated), unavailable: map[string]bool{}},
		reports:     reports{objects: map[string][2]string{}},
	}
	p.Records.problem = func(err error) { // before it is opened
		a.tell(a.o.Log, trial.Event{Warning: true, Reason: "StateProblem", Message: err.Error() + "; it is downloaded again"})
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
		a.assignment.answer = a.p.Source.First(sync)
		select {
		case <-counted:
		case <-sync.Done():
		}
	}
	a.validations.wait(ctx, "")
}

// step makes one decision, carries it out, and waits until there may be
// another.
func (a *Agent) step(ctx context.Context) error {
	if a.kubelet.process == nil { // what runs is of the version that it was started with
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
		o.Storage, o.Forget = a.disk.failure, nil // what cannot be recorded is not taken up
		a.node.view.set(source.NodeState{Cause: "they are to be counted anew, since the disk took nothing"})
		d = trial.Decide(a.state, o)
		a.save(d.Next)
	}
	a.state = d.Next
	a.p.Records.set(a.disk.store, a.state)
	a.decided = o.Now
	a.kubelet.exit = nil
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
		if a.state.Run = before; a.kubelet.process == nil {
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
	if a.disk.store == nil {
		return true
	}
	next.Run = trial.Run{}
	if a.disk.saved != nil && reflect.DeepEqual(next, *a.disk.saved) {
		a.disk.failure = ""
		return true
	}
	if err := a.disk.store.Save(next); err != nil {
		if a.disk.failure == "" {
			a.o.Log.Error("cannot record the node's state; what runs goes on, nothing new is taken up", "err", err)
		}
		a.disk.saved = nil // some of its records may have been written
		a.disk.failure, a.disk.retryAt = err.Error(), time.Now().Add(storageRetry)
		return false
	}
	a.disk.saved, a.disk.failure = &next, ""
	return true
}

// requests are the revisions that an operator wants forgotten, without those
// that have been: forgetting again would end another trial.
func (a *Agent) requests() []string {
	revisions, err := a.disk.store.ForgetRequests()
	if err != nil {
		a.o.Log.Warn("cannot read the requests to forget", "err", err)
	}
	a.disk.forgotten = slices.DeleteFunc(a.disk.forgotten, func(r string) bool { return !slices.Contains(revisions, r) })
	revisions = slices.DeleteFunc(revisions, func(r string) bool { return slices.Contains(a.disk.forgotten, r) })
	for _, r := range revisions {
		a.validations.drop(r) // it is to be judged anew
	}
	return revisions
}

// dropRequests removes the requests that were carried out.
func (a *Agent) dropRequests(carriedOut []string) {
	a.disk.forgotten = slices.DeleteFunc(append(a.disk.forgotten, carriedOut...), func(r string) bool {
		err := a.disk.store.DropForgetRequest(r)
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
	return err == nil && identity != a.binary.identity
}

// refreshVersion notices that the kubelet was replaced: another version has a
// tracking directory of its own, and what it has not proven is on trial.
func (a *Agent) refreshVersion(ctx context.Context) error {
	identity, err := a.p.Kubelet.Identity()
	if err != nil || identity == a.binary.identity || time.Now().Before(a.binary.retryAt) {
		return err
	}
	version, err := a.p.Kubelet.Version(ctx)
	if err != nil {
		return err
	}
	if version != a.binary.version && a.o.OpenStore != nil {
		store, err := a.o.OpenStore(version)
		switch {
		case err != nil && a.disk.store == nil:
			return fmt.Errorf("open the dynamic configuration directory: %w", err)
		case err != nil:
			if a.binary.retryAt.IsZero() {
				a.o.Log.Error("cannot open the state of the kubelet's new version; going on with the old one's", "version", version, "err", err)
			}
			a.binary.retryAt = time.Now().Add(storageRetry)
			return nil
		}
		a.o.Log.Info("kubelet found", "version", version, "before", a.binary.version)
		if a.disk.store != nil {
			a.leaveVersion(ctx)
		}
		a.load(store)
	}
	a.binary.identity, a.binary.version, a.binary.retryAt = identity, version, time.Time{}
	a.validations.clear()
	return nil
}

// leaveVersion closes the records of a version whose binary was replaced while this agent runs. Its kubelet's end is
// nothing to a trial with the next one; how the node is, that one has to know.
func (a *Agent) leaveVersion(ctx context.Context) {
	if !a.save(trial.CleanShutdown(a.state)) {
		a.o.Log.Warn("cannot record the end of the kubelet's old version", "err", a.disk.failure)
	}
	a.state.Run = a.state.Run.Replaced()
	a.kubelet.exit = nil
	<-a.countPods(ctx)
}

// load goes on with what a store has.
func (a *Agent) load(store Store) {
	run := a.state.Run
	state, problems := store.Load()
	a.disk.store, a.state = store, state
	a.disk.saved = nil // what was set aside is to be written anew
	a.state.Run = run
	a.p.Records.set(a.disk.store, a.state)
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
	if a.kubelet.process != nil {
		exit := a.kubelet.process.Stop(a.o.StopGrace)
		a.o.Log.Info("kubelet stopped", "exit", exit.String())
		a.kubelet.process = nil
	}
	if !a.save(trial.CleanShutdown(a.state)) {
		a.o.Log.Warn("cannot record the clean shutdown", "err", a.disk.failure)
	}
}

// wait returns when there may be something to decide.
func (a *Agent) wait(ctx context.Context, wake time.Duration) {
	timer := time.NewTimer(wake)
	defer timer.Stop()
	var done, changed, intent, node <-chan struct{}
	if a.kubelet.process != nil {
		done, changed = a.kubelet.process.Done(), a.kubelet.process.Changed()
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
	case <-a.validations.changed:
	case <-done:
		a.exited(ctx)
	}
}

// exited takes note of an exit that nobody asked for. One with status 0 may be
// the init system stopping everything: our own SIGTERM then follows.
func (a *Agent) exited(ctx context.Context) {
	exit := a.kubelet.process.Exit()
	a.kubelet.process = nil
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
	a.kubelet.exit = &trial.Child{Exited: true, Spawned: true, Exit: exit.String()}
}
