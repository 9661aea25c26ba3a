package agent

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/payload"
)

// doubtful is how long "could not tell" stands before it is asked again: twice
// as long after each time, up to doubtfulMost.
const (
	recheckAfter    = 30 * time.Second
	maxRecheckAfter = 8 * time.Minute
)

// checks are the verdicts of the kubelet's dry run, by revision, "" being
// local. They are found in the background: a rollback never waits for one.
type checks struct {
	changed        chan struct{}
	found          func(component.Verdict, time.Duration)
	mu             *sync.Mutex
	byRev          map[string]*check
	undecided      map[string]int // how often a revision could not be judged
	undecidedAlone map[string]int // and how often it alone, one time after the other
	logged         map[string]string
}

// verdict is what the dry run says of a configuration, and what this node does.
type verdict struct {
	component.Verdict
	// protected says why it is not to be taken up here, although the kubelet
	// accepts it.
	protected string
	// incomparable: the reason is that nobody could tell what differs.
	incomparable bool
	// differs lists what would not be as it is locally.
	differs []payload.Difference
	// local is the digest of the local configuration that it was judged beside;
	// empty of the verdict on local itself.
	local string
}

type check struct {
	verdict verdict
	at      time.Time
	done    chan struct{}      // closed when the verdict is there
	cancel  context.CancelFunc // nobody waits for it any more
}

func newChecks(found func(component.Verdict, time.Duration)) checks {
	return checks{changed: make(chan struct{}, 1), found: found, mu: &sync.Mutex{}, byRev: map[string]*check{}, undecided: map[string]int{}, undecidedAlone: map[string]int{}, logged: map[string]string{}}
}

// has tells whether the verdict on a revision is there, or being found.
func (c *checks) has(revision string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byRev[revision] != nil
}

// begin has fn find the verdict on a revision, unless that is being done or
// has been done.
func (c *checks) begin(ctx context.Context, revision string, fn func(context.Context) verdict) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.byRev[revision]; ok {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	entry := &check{done: make(chan struct{}), cancel: cancel}
	c.byRev[revision] = entry
	go func() {
		defer cancel()
		start := time.Now()
		verdict := fn(ctx)
		if ctx.Err() == nil {
			c.found(verdict.Verdict, time.Since(start))
		}
		c.mu.Lock()
		entry.verdict, entry.at = verdict, time.Now()
		close(entry.done)
		c.mu.Unlock()
		signal(c.changed)
	}()
}

// mostDoubts is how often a configuration may keep the kubelet's dry run from a
// verdict by itself, while the local configuration passes.
const maxUndecidedAlone = 3

// insist returns the verdict on a revision; a rejection, if the revision alone
// could not be judged for the last time.
func (c *checks) countUndecided(revision string, v component.Verdict) component.Verdict {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !v.CandidateOnly {
		delete(c.undecidedAlone, revision)
		return v
	}
	if c.undecidedAlone[revision]++; c.undecidedAlone[revision] >= maxUndecidedAlone {
		v.Outcome = component.Rejected
		v.Message = fmt.Sprintf("it could not be judged %d times, while the local configuration passed each time: %s", maxUndecidedAlone, v.Message)
	}
	return v
}

// put is for a verdict that needs no search.
func (c *checks) put(revision string, v component.Verdict) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.byRev[revision]; old != nil {
		old.cancel()
	}
	entry := &check{verdict: verdict{Verdict: v}, at: time.Now(), done: make(chan struct{}), cancel: func() {}}
	close(entry.done)
	c.byRev[revision] = entry
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
func (c *checks) get(revision string) (verdict, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	entry := c.byRev[revision]
	if entry == nil || entry.at.IsZero() {
		return verdict{}, false
	}
	return entry.verdict, true
}

// all returns the verdicts that have been found.
func (c *checks) all() map[string]verdict {
	c.mu.Lock()
	defer c.mu.Unlock()
	verdicts := map[string]verdict{}
	for revision, entry := range c.byRev {
		if !entry.at.IsZero() {
			verdicts[revision] = entry.verdict
		}
	}
	return verdicts
}

// dropUndecided removes old verdicts that may change, so that they are found again: undecided ones, and rejections, because a
// configuration that passed its trial is not bad because of one, and no one asks again about a bad one. It keeps the
// rejection of local, the verdict on the running configuration, whose restart must not wait, and all while no kubelet runs.
func (c *checks) dropUndecided(now time.Time, running string, alive bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for revision, entry := range c.byRev {
		v := entry.verdict
		undecided := v.Outcome == component.CouldNotTell || v.incomparable || v.Outcome == component.Rejected && revision != ""
		if alive && !entry.at.IsZero() && undecided && revision != running && now.Sub(entry.at) > min(recheckAfter<<min(c.undecided[revision], 5), maxRecheckAfter) {
			delete(c.byRev, revision)
			c.undecided[revision]++
		}
	}
}

// limits returns what cannot be done with the kubelet, as far as the verdicts
// saw: one limit for each reason, by reason.
func (c *checks) limits() []component.Limit {
	c.mu.Lock()
	defer c.mu.Unlock()
	byReason := map[string]component.Limit{}
	for _, revision := range slices.Sorted(maps.Keys(c.byRev)) {
		for _, limit := range c.byRev[revision].verdict.Limits {
			if _, known := byReason[limit.Reason]; !known {
				byReason[limit.Reason] = limit
			}
		}
	}
	var limits []component.Limit
	for _, reason := range slices.Sorted(maps.Keys(byReason)) {
		limits = append(limits, byReason[reason])
	}
	return limits
}

// stale forgets the verdicts that were found beside another local configuration.
func (c *checks) dropOtherLocal(local string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for revision, entry := range c.byRev {
		if !entry.at.IsZero() && entry.verdict.local != "" && entry.verdict.local != local {
			delete(c.byRev, revision)
		}
	}
}

// news tells whether something else was said of a revision the last time.
func (c *checks) logNew(revision, words string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.logged) > 20 {
		clear(c.logged)
	}
	before, ok := c.logged[revision]
	c.logged[revision] = words
	return !ok || before != words
}

// drop forgets the verdict on a revision, so that it is found anew.
func (c *checks) drop(revision string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.undecided, revision)
	delete(c.undecidedAlone, revision)
	if entry := c.byRev[revision]; entry != nil && !entry.at.IsZero() {
		delete(c.byRev, revision)
	}
}

// keep forgets every verdict but those on local and on the given revisions, and
// ends the search for them: the newest assignment must not wait for an old one.
func (c *checks) keep(revisions ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	keep := map[string]bool{"": true}
	for _, r := range revisions {
		keep[r] = true
	}
	for revision, entry := range c.byRev {
		if !keep[revision] {
			entry.cancel()
			delete(c.byRev, revision)
			delete(c.undecidedAlone, revision)
		}
	}
}

// clear forgets them all: another kubelet may judge otherwise. What is being
// found now is forgotten as well.
func (c *checks) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, entry := range c.byRev {
		entry.cancel()
	}
	clear(c.byRev)
	clear(c.undecided)
	clear(c.undecidedAlone)
}

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
