// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/payload"
)

// recheckAfter is how long an undecided verdict is kept. It doubles each time,
// up to maxRecheckAfter.
const (
	recheckAfter    = 30 * time.Second
	maxRecheckAfter = 8 * time.Minute
)

// checks are the dry runs of the kubelet, as tasks, and their verdicts, by
// revision; "" is local.
type checks struct {
	byRev     map[string]*task[verdict]
	undecided map[string]int // how often the dry run of a revision was undecided
	local     verdict        // the last one on the local configuration that contains its fields

	mu             *sync.Mutex    // of what the tasks use, too
	undecidedAlone map[string]int // undecided in a row, with a local configuration that passed
	logged         map[string]string
}

// verdict is the result of a dry run, and of this node's own checks.
type verdict struct {
	component.Verdict
	// unavailable: the checkpoint cannot be used, so that there was no dry run.
	unavailable bool
	// protected is why the configuration must not run here, although the
	// kubelet accepts it.
	protected string
	// incomparable: the configurations could not be compared, which is the
	// reason.
	incomparable bool
	// differs lists the differences from the local configuration.
	differs []payload.Difference
	// values are those that the rules of the configuration have.
	values []v1alpha1.ResolvedValue
	// basis is what it depends on, as Agent.basis returned it at that time;
	// empty: not known.
	basis string
	at    time.Time // when it was found
}

// isUndecided reports whether an invalid local configuration can be the reason
// why nothing is known about the configuration itself.
func (v verdict) isUndecided() bool { return v.incomparable || v.Outcome == component.CouldNotTell }

func newChecks() checks {
	return checks{
		byRev: map[string]*task[verdict]{}, undecided: map[string]int{},
		mu: &sync.Mutex{}, undecidedAlone: map[string]int{}, logged: map[string]string{},
	}
}

// has reports whether the verdict on a revision is available, or its dry run is
// in progress.
func (c *checks) has(revision string) bool { return c.byRev[revision] != nil }

// busy reports whether a dry run is in progress.
func (c *checks) busy() bool {
	for _, t := range c.byRev {
		if !t.ended() {
			return true
		}
	}

	return false
}

// maxUndecidedAlone is how often in a row the dry run of a configuration may be
// undecided while local passes.
const maxUndecidedAlone = 3

// countUndecided returns the verdict on a revision, or a rejection after
// maxUndecidedAlone undecided ones.
func (c *checks) countUndecided(revision string, v component.Verdict) component.Verdict {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !v.CandidateOnly {
		delete(c.undecidedAlone, revision)
		return v
	}

	if c.undecidedAlone[revision]++; c.undecidedAlone[revision] >= maxUndecidedAlone {
		v.Outcome = component.Rejected
		v.Message = fmt.Sprintf("%d dry runs ended without a verdict, while the local configuration passed each time: %s", maxUndecidedAlone,
			v.Message)
	}

	return v
}

// put sets a verdict that needs no dry run.
func (c *checks) put(revision string, v verdict) {
	if old := c.byRev[revision]; old != nil {
		old.cancel()
	}

	v.at = time.Now()
	c.byRev[revision] = finished(v)
}

// get returns the verdict on a revision, and whether it is available.
func (c *checks) get(revision string) (verdict, bool) {
	if t := c.byRev[revision]; t != nil && t.ended() {
		return t.result, true
	}

	return verdict{}, false
}

// all returns the available verdicts.
func (c *checks) all() map[string]verdict {
	verdicts := map[string]verdict{}
	for revision, t := range c.byRev {
		if t.ended() {
			verdicts[revision] = t.result
		}
	}

	return verdicts
}

// dropUndecided drops old verdicts that may change, so that they are found
// again: undecided ones, and rejections, because a configuration that has
// passed its trial is not bad for a rejection. It keeps the rejection of local,
// the verdict on the running configuration, because its restart must not wait,
// and all verdicts while no kubelet runs. Only the rejection of local may
// explain an undecided verdict: it goes with it.
func (c *checks) dropUndecided(now time.Time, running string, alive bool) {
	for revision, t := range c.byRev {
		if !alive || !t.ended() || revision == running {
			continue
		}

		v := t.result
		changes := v.isUndecided() || v.Outcome == component.Rejected && revision != ""
		if changes && now.Sub(v.at) > min(recheckAfter<<min(c.undecided[revision], 5), maxRecheckAfter) {
			delete(c.byRev, revision)
			c.undecided[revision]++
			if local, known := c.get(""); v.isUndecided() && known && local.Outcome == component.Rejected {
				delete(c.byRev, "")
			}
		}
	}
}

// limits returns what is not possible with this kubelet, according to the
// verdicts: one limit for each reason, sorted by reason.
func (c *checks) limits() []component.Limit {
	var limits []component.Limit
	verdicts := c.all()
	for _, revision := range slices.Sorted(maps.Keys(verdicts)) {
		limits = append(limits, verdicts[revision].Limits...)
	}

	slices.SortStableFunc(limits, func(a, b component.Limit) int { return strings.Compare(a.Reason, b.Reason) })

	return slices.CompactFunc(limits, func(a, b component.Limit) bool { return a.Reason == b.Reason })
}

// dropOther drops the verdicts that were found on another basis, and reports
// whether there were any.
func (c *checks) dropOther(basis string) (dropped bool) {
	for revision, t := range c.byRev {
		if t.ended() && t.result.basis != "" && t.result.basis != basis {
			delete(c.byRev, revision)
			dropped = true
		}
	}

	return dropped
}

// logNew reports whether this verdict on a revision differs from the last
// logged one.
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
	delete(c.undecided, revision)
	c.restartCount(revision)
	if t := c.byRev[revision]; t != nil && t.ended() {
		delete(c.byRev, revision)
	}
}

// restartCount forgets how often in a row the dry run of a revision was
// undecided.
func (c *checks) restartCount(revision string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.undecidedAlone, revision)
}

// keep drops all verdicts except those on local and the given revisions, and
// stops their dry runs: the newest assignment must not wait for an old one.
func (c *checks) keep(revisions ...string) {
	for revision, t := range c.byRev {
		if revision != "" && !slices.Contains(revisions, revision) {
			t.cancel()
			delete(c.byRev, revision)
			c.restartCount(revision)
		}
	}
}

// clear drops all verdicts and stops all dry runs, because another kubelet may
// decide differently.
func (c *checks) clear() {
	for _, t := range c.byRev {
		t.cancel()
	}

	clear(c.byRev)
	clear(c.undecided)
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.undecidedAlone)
}
