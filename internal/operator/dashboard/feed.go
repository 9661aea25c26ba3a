// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/internal/operator/describe"
)

const (
	// minInterval is the shortest time between two snapshots: changes in
	// between are sent together.
	minInterval = 250 * time.Millisecond
	// maxInterval is the longest time between two snapshots: some states change
	// with time only.
	maxInterval = 5 * time.Second
)

// feed keeps the newest snapshot, and the version in which each part of it
// changed. It has no queues: a slow page gets all changes that it has missed at
// once.
type feed struct {
	cache *cache

	mu      sync.Mutex
	version uint64
	oldest  uint64 // a page with an older version needs everything
	current snapshot
	changed map[string]uint64 // the version in which a cell changed or was removed
	rest    uint64            // the version in which anything else changed
	next    chan struct{}     // closed when there is a newer version
}

func newFeed(c *cache) *feed {
	return &feed{cache: c, changed: map[string]uint64{}, next: make(chan struct{})}
}

// maxRemoved is the number of removed nodes whose versions are kept.
const maxRemoved = 1000

// run takes snapshots until ctx ends.
func (f *feed) run(ctx context.Context) {
	for {
		begin := time.Now()
		p := f.cache.snapshot(ctx, begin)
		if ctx.Err() != nil {
			return
		}

		f.update(p)
		took := time.Since(begin)
		// Snapshots of a large fleet take long: use at most half a processor
		// for them.
		select {
		case <-ctx.Done():
			return
		case <-time.After(max(minInterval, took) - min(took, minInterval)):
		}

		select {
		case <-ctx.Done():
			return
		case <-f.cache.changed:
		case <-time.After(max(p.wake, minInterval)):
		}
	}
}

// update stores a snapshot, as a new version if anything has changed.
func (f *feed) update(p snapshot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	version := f.version + 1
	changed := false
	for name, c := range p.Cells {
		if was, there := f.current.Cells[name]; !there || was != c {
			f.changed[name], changed = version, true
		}
	}

	for name := range f.current.Cells {
		if _, there := p.Cells[name]; !there {
			f.changed[name], changed = version, true
		}
	}

	if len(f.changed) > len(p.Cells)+maxRemoved {
		maps.DeleteFunc(f.changed, func(name string, _ uint64) bool { _, there := p.Cells[name]; return !there })
		f.oldest = version
	}

	if f.version == 0 || !reflect.DeepEqual(f.current.messageRest, p.messageRest) {
		f.rest, changed = version, true
	}

	f.current = p
	if changed {
		f.version = version
		close(f.next)
		f.next = make(chan struct{})
	}
}

// now returns the newest snapshot, which must not be changed.
func (f *feed) now() snapshot {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.current
}

// message is an event of the stream: everything, or the changes since the
// version that the page has seen.
type message struct {
	Version  uint64       `json:"version"`
	All      bool         `json:"all,omitempty"`
	Zones    []string     `json:"zones,omitempty"` // nodes refer to them by index
	Owners   []string     `json:"owners,omitempty"`
	Kubelets []string     `json:"kubelets,omitempty"`
	Nodes    []cellTuple  `json:"nodes,omitempty"`
	Gone     []string     `json:"gone,omitempty"`
	Rest     *messageRest `json:"rest,omitempty"`
}

// messageRest is everything but the nodes. Its lists are not nil.
type messageRest struct {
	Ready    bool             `json:"ready"`
	Summary  describe.Summary `json:"summary"`
	Rollouts []rolloutView    `json:"rollouts"` // the most urgent first
	Trouble  []trouble        `json:"trouble"`
	Notes    []string         `json:"notes"` // what is missing, and why
	Rights   rights           `json:"rights"`
}

// cellTuple is a cell encoded as an array, to save space: name, indexes of zone
// and owner, numbers of health, position and state (see words), index of the
// kubelet's version, 1 if the node is a problem, cause and why. Zeros and empty
// texts at the end are omitted.
type cellTuple struct {
	cell
	zone, owner, kubelet int
}

func (t cellTuple) MarshalJSON() ([]byte, error) {
	problem := 0
	if t.Kind().Level() == describe.LevelProblem {
		problem = 1
	}

	tuple := []any{
		t.Name, t.zone, t.owner, numberOf(allWords.Health, string(t.Health)), numberOf(allWords.Position,
			string(t.Position)), numberOf(allWords.State, t.State),
		t.kubelet, problem, t.Cause, t.Why,
	}
	for last := len(tuple) - 1; last > 0 && (tuple[last] == 0 || tuple[last] == ""); last-- {
		tuple = tuple[:last]
	}

	return json.Marshal(tuple)
}

// numberOf returns the index of a word; 0 for one that the page does not know.
func numberOf(all []string, word string) int { return max(0, slices.Index(all, word)) }

// since returns the changes since a version (0: everything; nil: none), and a
// channel that is closed at the next change.
func (f *feed) since(seen uint64) (*message, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if seen == f.version {
		return nil, f.next
	}

	m := &message{Version: f.version, All: seen == 0 || seen < f.oldest || seen > f.version}
	if m.All {
		seen = 0
	}

	place := func(list *[]string, known map[string]int, s string) int {
		at, ok := known[s]
		if !ok {
			at = len(*list)
			known[s], *list = at, append(*list, s)
		}

		return at
	}
	zones, owners, kubelets := map[string]int{}, map[string]int{}, map[string]int{}
	for name, version := range f.changed {
		if version <= seen {
			continue
		}

		if c, there := f.current.Cells[name]; there {
			m.Nodes = append(m.Nodes, cellTuple{cell: c})
		} else if !m.All {
			m.Gone = append(m.Gone, name)
		}
	}

	slices.SortFunc(m.Nodes, func(a, b cellTuple) int { return cmp.Compare(a.Name, b.Name) })
	for i := range m.Nodes {
		n := &m.Nodes[i]
		n.zone, n.owner, n.kubelet = place(&m.Zones, zones, n.Zone), place(&m.Owners, owners, n.Rollout), place(&m.Kubelets, kubelets, n.Kubelet)
	}

	slices.Sort(m.Gone)
	if f.rest > seen {
		m.Rest = new(f.current.messageRest)
	}

	return m, f.next
}
