package agent

import (
	"context"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/internal/component"
)

// doubtful is how long "could not tell" stands before it is asked again.
const doubtful = 30 * time.Second

// checks are the verdicts of the kubelet's dry run, by revision, "" being
// local. They are found in the background: a rollback never waits for one.
type checks struct {
	changed chan struct{}
	found   func(component.Verdict, time.Duration)
	mu      *sync.Mutex
	byRev   map[string]*check
}

type check struct {
	verdict component.Verdict
	at      time.Time
	done    chan struct{} // closed when the verdict is there
}

func newChecks(found func(component.Verdict, time.Duration)) checks {
	return checks{changed: make(chan struct{}, 1), found: found, mu: &sync.Mutex{}, byRev: map[string]*check{}}
}

// begin has fn find the verdict on a revision, unless that is being done or
// has been done.
func (c *checks) begin(ctx context.Context, revision string, fn func(context.Context) component.Verdict) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.byRev[revision]; ok {
		return
	}
	entry := &check{done: make(chan struct{})}
	c.byRev[revision] = entry
	go func() {
		start := time.Now()
		verdict := fn(ctx)
		c.found(verdict, time.Since(start))
		c.mu.Lock()
		entry.verdict, entry.at = verdict, time.Now()
		close(entry.done)
		c.mu.Unlock()
		signal(c.changed)
	}()
}

// wait returns when the verdict on a revision is there, or ctx ends.
func (c *checks) wait(ctx context.Context, revision string) {
	c.mu.Lock()
	entry := c.byRev[revision]
	c.mu.Unlock()
	if entry == nil {
		return
	}
	select {
	case <-entry.done:
	case <-ctx.Done():
	}
}

// get returns the verdict on a revision, and whether there is one.
func (c *checks) get(revision string) (component.Verdict, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	entry := c.byRev[revision]
	if entry == nil || entry.at.IsZero() {
		return component.Verdict{}, false
	}
	return entry.verdict, true
}

// all returns the verdicts that there are. Doubtful ones that are old are
// dropped, so that they are found anew.
func (c *checks) all(now time.Time) map[string]component.Verdict {
	c.mu.Lock()
	defer c.mu.Unlock()
	verdicts := map[string]component.Verdict{}
	for revision, entry := range c.byRev {
		switch {
		case entry.at.IsZero():
		case entry.verdict.Outcome == component.CouldNotTell && now.Sub(entry.at) > doubtful:
			delete(c.byRev, revision)
		default:
			verdicts[revision] = entry.verdict
		}
	}
	return verdicts
}

// drop forgets the verdict on a revision, so that it is found anew.
func (c *checks) drop(revision string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if entry := c.byRev[revision]; entry != nil && !entry.at.IsZero() {
		delete(c.byRev, revision)
	}
}

// keep forgets every verdict but those on local and on the given revisions.
func (c *checks) keep(revisions ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	keep := map[string]bool{"": true}
	for _, r := range revisions {
		keep[r] = true
	}
	for revision, entry := range c.byRev {
		if !keep[revision] && !entry.at.IsZero() {
			delete(c.byRev, revision)
		}
	}
}

// clear forgets them all: another kubelet may judge otherwise. What is being
// found now is forgotten as well.
func (c *checks) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.byRev)
}

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
