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
)

const (
	// often is how often a picture is made at most: many changes are shown as one.
	often = 250 * time.Millisecond
	// seldom is how often it is made at least: some things change with time alone.
	seldom = 5 * time.Second
)

// feed keeps the newest picture, and what of it is newer than a number that a page has seen. It keeps no queues: a page
// that is slow gets all that it has missed at once.
type feed struct {
	world *world

	mu      sync.Mutex
	version uint64
	floor   uint64 // a page that has seen less needs everything
	picture picture
	changed map[string]uint64 // the version in which a cell, or its absence, was new
	rest    uint64            // the same of everything but cells
	next    chan struct{}     // closed when there is a newer version
}

// mostGone is how many nodes that are gone are remembered.
const mostGone = 1000

func newFeed(w *world) *feed {
	return &feed{world: w, changed: map[string]uint64{}, next: make(chan struct{})}
}

// run makes pictures until ctx ends.
func (f *feed) run(ctx context.Context) {
	for {
		begin := time.Now()
		p := f.world.look(ctx, begin)
		if ctx.Err() != nil {
			return
		}
		f.take(p)
		took := time.Since(begin)
		// A fleet that takes long to be looked at is looked at less often: half a processor is enough for a page.
		select {
		case <-ctx.Done():
			return
		case <-time.After(max(often, took) - min(took, often)):
		}
		wake := seldom
		if p.wake > 0 {
			wake = min(wake, max(p.wake, often))
		}
		select {
		case <-ctx.Done():
			return
		case <-f.world.changed:
		case <-time.After(wake):
		}
	}
}

// take makes a picture the newest one, if anything in it is new.
func (f *feed) take(p picture) {
	f.mu.Lock()
	defer f.mu.Unlock()
	version := f.version + 1
	news := false
	for name, c := range p.Cells {
		if was, there := f.picture.Cells[name]; !there || was != c {
			f.changed[name], news = version, true
		}
	}
	for name := range f.picture.Cells {
		if _, there := p.Cells[name]; !there {
			f.changed[name], news = version, true
		}
	}
	if len(f.changed) > len(p.Cells)+mostGone {
		maps.DeleteFunc(f.changed, func(name string, _ uint64) bool { _, there := p.Cells[name]; return !there })
		f.floor = version
	}
	if f.version == 0 || !reflect.DeepEqual(f.picture.rest(), p.rest()) {
		f.rest, news = version, true
	}
	f.picture = p
	if news {
		f.version = version
		close(f.next)
		f.next = make(chan struct{})
	}
}

// rest is a picture without its cells.
func (p picture) rest() picture {
	p.Cells, p.wake = nil, 0
	return p
}

// message is what a page is sent. It has everything, or what is newer than what the page has seen.
type message struct {
	Version uint64       `json:"version"`
	All     bool         `json:"all,omitempty"`
	Zones   []string     `json:"zones,omitempty"` // named by their place in nodes
	Owners  []string     `json:"owners,omitempty"`
	Nodes   []cellTuple  `json:"nodes,omitempty"`
	Gone    []string     `json:"gone,omitempty"`
	Rest    *messageRest `json:"rest,omitempty"`
}

type messageRest struct {
	Ready    bool          `json:"ready"`
	Rollouts []rolloutView `json:"rollouts"`
	Trouble  []trouble     `json:"trouble"`
	Notes    []string      `json:"notes"`
}

// cellTuple is a cell as an array: there are thousands. It has the name, the places of zone and rollout in their lists, the
// state, 1 if the Node is down, and why it is as it is, if there is something to say.
type cellTuple struct {
	cell
	zone, owner int
}

func (t cellTuple) MarshalJSON() ([]byte, error) {
	down := 0
	if t.Down {
		down = 1
	}
	tuple := []any{t.Name, t.zone, t.owner, t.State, down, t.Why}
	if t.Why == "" {
		tuple = tuple[:5]
	}
	return json.Marshal(tuple)
}

// since returns what is newer than a version, and what is closed when there is more. 0 is a page that has seen nothing. The
// message is nil if there is nothing newer.
func (f *feed) since(seen uint64) (*message, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if seen == f.version {
		return nil, f.next
	}
	m := &message{Version: f.version, All: seen == 0 || seen < f.floor || seen > f.version}
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
	zones, owners := map[string]int{}, map[string]int{}
	for name, version := range f.changed {
		if version <= seen {
			continue
		}
		if c, there := f.picture.Cells[name]; there {
			m.Nodes = append(m.Nodes, cellTuple{cell: c})
		} else if !m.All {
			m.Gone = append(m.Gone, name)
		}
	}
	slices.SortFunc(m.Nodes, func(a, b cellTuple) int { return cmp.Compare(a.Name, b.Name) })
	for i := range m.Nodes {
		n := &m.Nodes[i]
		n.zone, n.owner = place(&m.Zones, zones, n.Zone), place(&m.Owners, owners, n.Rollout)
	}
	slices.Sort(m.Gone)
	if f.rest > seen {
		p := f.picture
		m.Rest = &messageRest{Ready: p.Ready, Rollouts: append([]rolloutView{}, p.Rollouts...), Trouble: append([]trouble{}, p.Trouble...), Notes: append([]string{}, p.Notes...)}
	}
	return m, f.next
}
