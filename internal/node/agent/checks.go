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

// recheckAfter is how long an undecided verdict is kept. It doubles each time, up to maxRecheckAfter.
const (
	recheckAfter    = 30 * time.Second
	maxRecheckAfter = 8 * time.Minute
)

// checks runs the kubelet's dry run in the background and keeps the verdicts, by revision; "" is local. It is safe
// for concurrent use.
type checks struct {
	changed        chan struct{}
	found          func(component.Verdict, time.Duration)
	mu             *sync.Mutex
	byRev          map[string]*check
	undecided      map[string]int // how often the dry run of a revision was undecided
	undecidedAlone map[string]int // the same in a row, with a local configuration that passed
	logged         map[string]string
}

// verdict is the result of a dry run, and of this node's own checks.
type verdict struct {
	component.Verdict
	// protected is why the configuration must not run here, although the kubelet accepts it.
	protected string
	// incomparable: the configurations could not be compared, which is the reason.
	incomparable bool
	// differs lists the differences from the local configuration.
	differs []payload.Difference
	// basis is what it depends on, as Agent.basis returned it at that time; empty: not known.
	basis string
}

// isUndecided reports whether an invalid local configuration can be the reason why nothing is known about the configuration itself.
func (v verdict) isUndecided() bool { return v.incomparable || v.Outcome == component.CouldNotTell }

type check struct {
	verdict verdict
	at      time.Time
	done    chan struct{}      // closed when the verdict is available
	cancel  context.CancelFunc // stops the dry run
}

func newChecks(found func(component.Verdict, time.Duration)) checks {
	return checks{changed: make(chan struct{}, 1), found: found, mu: &sync.Mutex{}, byRev: map[string]*check{}, undecided: map[string]int{}, undecidedAlone: map[string]int{}, logged: map[string]string{}}
}

// has reports whether the verdict on a revision is available, or its dry run is in progress.
func (c *checks) has(revision string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byRev[revision] != nil
}

// busy reports whether a dry run is in progress.
func (c *checks) busy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, entry := range c.byRev {
		if entry.at.IsZero() {
			return true
		}
	}
	return false
}

// begin calls fn in the background to find the verdict on a revision.
func (c *checks) begin(ctx context.Context, revision string, fn func(context.Context) verdict) {
	c.mu.Lock()
	defer c.mu.Unlock()
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

// maxUndecidedAlone is how often in a row the dry run of a configuration may be undecided while local passes.
const maxUndecidedAlone = 3

// countUndecided returns the verdict on a revision, or a rejection after maxUndecidedAlone undecided ones.
func (c *checks) countUndecided(revision string, v component.Verdict) component.Verdict {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !v.CandidateOnly {
		delete(c.undecidedAlone, revision)
		return v
	}
	if c.undecidedAlone[revision]++; c.undecidedAlone[revision] >= maxUndecidedAlone {
		v.Outcome = component.Rejected
		v.Message = fmt.Sprintf("%d dry runs ended without a verdict, while the local configuration passed each time: %s", maxUndecidedAlone, v.Message)
	}
	return v
}

// put sets a verdict that needs no dry run.
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

// wait waits until the verdict on a revision is available, or ctx ends.
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

// get returns the verdict on a revision, and whether it is available.
func (c *checks) get(revision string) (verdict, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	entry := c.byRev[revision]
	if entry == nil || entry.at.IsZero() {
		return verdict{}, false
	}
	return entry.verdict, true
}

// all returns the available verdicts.
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

// dropUndecided drops old verdicts that may change, so that they are found again: undecided ones, and rejections,
// because a configuration that has passed its trial is not bad for a rejection. It keeps the rejection of local, the
// verdict on the running configuration, because its restart must not wait, and all verdicts while no kubelet runs. Only the rejection of
// local may explain an undecided verdict: it goes with it.
func (c *checks) dropUndecided(now time.Time, running string, alive bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for revision, entry := range c.byRev {
		undecided := entry.verdict.isUndecided() || entry.verdict.Outcome == component.Rejected && revision != ""
		if alive && !entry.at.IsZero() && undecided && revision != running && now.Sub(entry.at) > min(recheckAfter<<min(c.undecided[revision], 5), maxRecheckAfter) {
			delete(c.byRev, revision)
			c.undecided[revision]++
			if local := c.byRev[""]; entry.verdict.isUndecided() && local != nil && local.verdict.Outcome == component.Rejected {
				delete(c.byRev, "")
			}
		}
	}
}

// limits returns what is not possible with this kubelet, according to the verdicts: one limit for each reason, sorted
// by reason.
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

// dropOther drops the verdicts that were found on another basis.
func (c *checks) dropOther(basis string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for revision, entry := range c.byRev {
		if !entry.at.IsZero() && entry.verdict.basis != "" && entry.verdict.basis != basis {
			delete(c.byRev, revision)
		}
	}
}

// logNew reports whether this verdict on a revision differs from the last logged one.
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

// drop drops the verdict on a revision, so that it is found again.
func (c *checks) drop(revision string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.undecided, revision)
	delete(c.undecidedAlone, revision)
	if entry := c.byRev[revision]; entry != nil && !entry.at.IsZero() {
		delete(c.byRev, revision)
	}
}

// keep drops all verdicts except those on local and the given revisions, and stops their dry runs: the newest
// assignment must not wait for an old one.
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

// clear drops all verdicts and stops all dry runs, because another kubelet may decide differently.
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
