package agent

import (
	"sync"

	"github.com/evenkeel/evenkeel/internal/trial"
)

// Records is what the source may ask of the state, from a goroutine of its own.
// The zero value has nothing on record.
type Records struct {
	mu      sync.Mutex
	store   Store
	configs map[string]trial.Config
	payload map[string]string
}

func (r *Records) set(store Store, s trial.State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.store, r.payload = store, s.Records()
	r.configs = map[string]trial.Config{}
	for _, c := range []trial.Config{s.LastKnownGood.Config, s.Current.Config} {
		if !c.IsLocal() {
			r.configs[c.Revision] = c
		}
	}
}

func (r *Records) get(revision string) trial.Config {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.configs[revision]
}

// Checkpoint implements source.Records.
func (r *Records) Checkpoint(revision string) ([]byte, bool) {
	r.mu.Lock()
	store, c := r.store, r.configs[revision]
	r.mu.Unlock()
	if store == nil || c.Checkpoint == "" {
		return nil, false
	}
	data, err := store.Get(c)
	return data, err == nil
}

// Payload implements source.Records.
func (r *Records) Payload(revision string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.payload[revision]
}
