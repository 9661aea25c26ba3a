// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/internal/node/trial"
)

// disk is what is known about the saved state.
type disk struct {
	store     Store        // nil: dynamic configuration is off
	saved     *trial.State // the content of the store; nil: not known completely
	failure   string       // why the last state could not be saved; empty: it was saved
	retryAt   time.Time    // of that failure
	requested []string     // revisions to forget in this pass
	forgotten []string     // requests to forget that were carried out but not removed yet
}

// waits reports whether a failure is so recent that the disk is not tried
// again.
func (d *disk) waits(now time.Time) bool { return d.failure != "" && now.Before(d.retryAt) }

// binary is the kubelet's binary, as it was when it was last examined.
type binary struct {
	identity string
	version  string
	retryAt  time.Time // when to try again to open the state of another version
	next     string    // the identity of the file, which may have been replaced since
	minor    int       // of next
}

// storageRetry is how long the agent adopts nothing new after the disk failed.
const storageRetry = 10 * time.Second

// save saves a state. After a failure it logs that and returns false.
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
			a.o.Log.Error("cannot save the node's state; the running configuration continues, and no new one is adopted", "err", err)
		}

		a.disk.saved = nil // some of its records may have been written
		a.disk.failure, a.disk.retryAt = err.Error(), time.Now().Add(storageRetry)

		return false
	}

	a.disk.saved, a.disk.failure = &next, ""

	return true
}

// readForgetRequests returns the revisions of new requests to forget. It leaves
// out those that were carried out: another time would end another trial.
func (a *Agent) readForgetRequests() []string {
	revisions, err := a.disk.store.ForgetRequests()
	if err != nil {
		a.o.Log.Warn("cannot read the requests to forget", "err", err)
	}

	a.disk.forgotten = slices.DeleteFunc(a.disk.forgotten, func(r string) bool { return !slices.Contains(revisions, r) })
	revisions = slices.DeleteFunc(revisions, func(r string) bool { return slices.Contains(a.disk.forgotten, r) })
	for _, r := range revisions {
		a.validations.drop(r) // it must be validated again
	}

	return revisions
}

// removeForgetRequests removes the requests that were carried out.
func (a *Agent) removeForgetRequests(carriedOut []string) {
	a.disk.forgotten = slices.DeleteFunc(append(a.disk.forgotten, carriedOut...), func(r string) bool {
		err := a.disk.store.DropForgetRequest(r)
		if err != nil && slices.Contains(carriedOut, r) {
			a.o.Log.Warn("cannot remove a completed request to forget; retrying", "uid", r, "err", err)
		}

		return err == nil
	})
}

// binaryChanged reports whether the kubelet's binary has changed since
// refreshVersion.
func (a *Agent) binaryChanged() bool {
	identity, err := a.p.Kubelet.Identity()
	return err == nil && identity != a.binary.identity
}

// refreshVersion examines the kubelet's binary if it has changed. Another
// version has its own records, and last-known-good is on trial again with it.
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
				a.o.Log.Error("cannot open the state of the kubelet's new version; continuing with the old version's", "version", version, "err", err)
			}

			a.binary.retryAt = time.Now().Add(storageRetry)

			return nil
		}

		a.o.Log.Info("kubelet found", "version", version, "before", a.binary.version)
		if a.disk.store != nil {
			a.closeVersion(ctx)
		}

		a.load(store)
	}

	a.binary = binary{identity: identity, version: version, next: identity, minor: minorOf(version)}
	a.validations.clear()

	return nil
}

// nextMinor returns the minor version of the kubelet that starts next.
func (a *Agent) nextMinor(ctx context.Context) int {
	if identity, err := a.p.Kubelet.Identity(); err == nil && identity != a.binary.next {
		version, _ := a.p.Kubelet.Version(ctx) // an unreadable one counts as the newest, until the file is replaced again
		a.binary.next, a.binary.minor = identity, minorOf(version)
	}

	return a.binary.minor
}

// closeVersion saves the final state of a version whose binary was replaced
// while this agent runs. The end of its kubelet does not count in a trial with
// the new version, which needs a new baseline.
func (a *Agent) closeVersion(ctx context.Context) {
	if !a.save(trial.CleanShutdown(a.state)) {
		a.o.Log.Warn("cannot save the final state of the kubelet's old version", "err", a.disk.failure)
	}

	a.state.Run = a.state.Run.ForNewVersion()
	a.kubelet.exit = nil
	a.countPods(ctx).wait(ctx)
}

// load loads the state from a store.
func (a *Agent) load(store Store) {
	run := a.state.Run
	state, problems := store.Load()
	a.disk.store, a.state = store, state
	a.disk.saved = nil // files that were set aside must be written again
	a.state.Run = run
	a.p.SavedConfigs.set(a.disk.store, a.state)
	for _, p := range problems {
		a.o.Log.Warn("the state on disk had a problem", "file", p.File, "what", p.What, "setAside", p.SetAside)
		a.reportEvent(a.o.Log, trial.Event{Warning: true, Reason: "StateProblem", Message: p.String()})
	}
}

// SavedConfigs answers questions of the source about the saved state. It is
// safe for concurrent use. Its methods wait until the state has been loaded: a
// known configuration must not count as new. The zero value is ready to use.
type SavedConfigs struct {
	once   sync.Once
	opened chan struct{} // closed when the state has been loaded, or cannot be

	mu       sync.Mutex
	store    Store
	state    trial.State
	problems []error // of checkpoints, until takeProblems
}

func (r *SavedConfigs) loaded() chan struct{} {
	r.once.Do(func() { r.opened = make(chan struct{}) })
	return r.opened
}

// open unblocks the methods. It is called once.
func (r *SavedConfigs) open() { close(r.loaded()) }

func (r *SavedConfigs) set(store Store, s trial.State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.store, r.state = store, s
}

func (r *SavedConfigs) get(revision string) trial.Config {
	_, c := r.find(func(c trial.Config) bool { return c.Revision == revision })
	return c
}

// find returns current or last-known-good if it is the one that is looked for,
// otherwise local.
func (r *SavedConfigs) find(is func(trial.Config) bool) (Store, trial.Config) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range []trial.Config{r.state.Current.Config, r.state.LastKnownGood.Config} {
		if !c.IsLocal() && is(c) {
			return r.store, c
		}
	}

	return r.store, trial.Config{}
}

// Checkpoint implements source.Checkpoints.
func (r *SavedConfigs) Checkpoint(revision string) ([]byte, bool) {
	<-r.loaded()
	store, c := r.find(func(c trial.Config) bool { return c.Revision == revision || c.SourceRevision() == revision })
	if c.Checkpoint == "" {
		return nil, false
	}

	data, err := store.Get(c)
	if err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.problems = append(r.problems, err)
	}

	return data, err == nil
}

// takeProblems returns the errors of checkpoints since the last call, for the
// loop to report.
func (r *SavedConfigs) takeProblems() []error {
	r.mu.Lock()
	defer r.mu.Unlock()
	problems := r.problems
	r.problems = nil

	return problems
}

// Payload implements source.Checkpoints.
func (r *SavedConfigs) Payload(revision string) string {
	<-r.loaded()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state.PayloadDigests()[revision]
}

// Adopted implements source.Checkpoints.
func (r *SavedConfigs) Adopted(revision string, attempt int64) bool {
	<-r.loaded()
	r.mu.Lock()
	defer r.mu.Unlock()
	current := r.state.Current.Config

	return current.SourceRevision() == revision && attempt <= current.Rollout.Attempt
}
