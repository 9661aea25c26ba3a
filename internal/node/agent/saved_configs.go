// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"sync"

	"github.com/evenkeel/evenkeel/internal/node/trial"
)

// SavedConfigs answers questions of the source about the saved state. It is safe for concurrent use. Its methods wait
// until the state has been loaded: a known configuration must not count as new. The zero value is ready to use.
type SavedConfigs struct {
	once   sync.Once
	opened chan struct{} // closed when the state has been loaded, or cannot be

	mu       sync.Mutex
	store    Store
	configs  map[string]trial.Config // by revision, and by the revision that the source knows
	current  trial.Config
	payload  map[string]string
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
	r.store, r.payload = store, s.PayloadDigests()
	r.current = s.Current.Config
	r.configs = map[string]trial.Config{}
	for _, c := range []trial.Config{s.LastKnownGood.Config, s.Current.Config} {
		if !c.IsLocal() {
			r.configs[c.Revision], r.configs[c.SourceRevision()] = c, c
		}
	}
}

func (r *SavedConfigs) get(revision string) trial.Config {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.configs[revision]; c.Revision == revision {
		return c
	}
	return trial.Config{}
}

// Checkpoint implements source.Checkpoints.
func (r *SavedConfigs) Checkpoint(revision string) ([]byte, bool) {
	<-r.loaded()
	r.mu.Lock()
	store, c := r.store, r.configs[revision]
	r.mu.Unlock()
	if store == nil || c.Checkpoint == "" {
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

// takeProblems returns the errors of checkpoints since the last call, for the loop to report.
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
	return r.payload[revision]
}

// Adopted implements source.Checkpoints.
func (r *SavedConfigs) Adopted(revision string, attempt int64) bool {
	<-r.loaded()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.current.SourceRevision() == revision && attempt <= r.current.Rollout.Attempt
}
