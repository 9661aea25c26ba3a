package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet/policy"
	"github.com/evenkeel/evenkeel/internal/fleet/rollout"
)

const (
	countsEvery       = time.Second      // a status of which only counts have changed is written this often
	countsWhileMoving = 5 * time.Second  // and this often while nodes wait to be written to
	sweepEvery        = time.Minute      // garbage is looked for
	clashEvery        = 30 * time.Second // what is in the way of a template, and is not watched, is looked for
	longestWait       = 10 * time.Second // between tries of what fails
	lasting           = 3                // failures in a row that are not just bad luck
)

// loop looks at rollouts that are due until ctx ends.
func (c *Controller) loop(ctx context.Context) {
	sweep := time.NewTicker(sweepEvery)
	defer sweep.Stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.fleet.changed:
		case <-timer.C:
		case <-sweep.C:
			c.sweep(ctx, c.fleet.now())
		}
		c.bury()
		if !c.sight.whole() {
			continue // what cannot be seen must not be decided on; when it can, everything is looked at
		}
		if next := c.passes(ctx); !next.IsZero() {
			timer.Reset(next.Sub(c.fleet.now()))
		}
	}
}

// passes looks at every rollout that is due, and returns when the next one is; zero: none is.
func (c *Controller) passes(ctx context.Context) time.Time {
	c.fleet.mu.Lock()
	now := c.fleet.now()
	var due []*rolling
	sources := map[types.NamespacedName]bool{}
	for _, name := range slices.Sorted(maps.Keys(c.fleet.rollouts)) {
		r := c.fleet.rollouts[name]
		if ref := r.object.Spec.Template.ConfigMapRef; ref != nil {
			sources[types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}] = true
		}
		if !r.due.IsZero() && !now.Before(r.due) {
			r.due = time.Time{}
			due = append(due, r)
		}
	}
	c.fleet.mu.Unlock()
	c.sources.watch(ctx, sources)
	for _, r := range due {
		if ctx.Err() != nil {
			return time.Time{}
		}
		began := time.Now()
		c.pass(ctx, r)
		c.metrics.pass.Observe(time.Since(began).Seconds())
	}
	c.fleet.mu.Lock()
	defer c.fleet.mu.Unlock()
	var next time.Time
	for _, r := range c.fleet.rollouts {
		if !r.due.IsZero() && (next.IsZero() || r.due.Before(next)) {
			next = r.due
		}
	}
	return next
}

// pass looks at one rollout. What fails is tried again, later and later.
func (c *Controller) pass(ctx context.Context, r *rolling) {
	again, err := c.step(ctx, r)
	if ctx.Err() != nil {
		return
	}
	name, unread := r.name, errors.Is(err, errUnread)
	c.fleet.mu.Lock()
	known := c.fleet.rollouts[name] == r
	switch {
	case err == nil:
		r.failures, r.earliest = 0, time.Time{}
	case unread:
		again = c.fleet.now().Add(longestWait)
	default:
		r.failures++
		again = c.fleet.now().Add(min(longestWait, 250*time.Millisecond<<min(r.failures, 10)))
		r.earliest = again
	}
	if known && !again.IsZero() {
		c.fleet.markAt(r, again)
	}
	c.fleet.mu.Unlock()
	switch {
	case !known || unread: // deleted meanwhile; or read soon
	case err == nil:
		c.failing.note(name, nil)
	default:
		c.log.Warn("cannot go on with a rollout; it is tried again", "rollout", name, "err", err, "failures", r.failures)
		if r.failures >= lasting {
			c.failing.note(name, fmt.Errorf("rollout %s: %w", name, err))
		}
	}
}

// step decides what a rollout does next, records it, and does it. It returns when to look again if nothing happens until
// then; zero: nothing will.
func (c *Controller) step(ctx context.Context, r *rolling) (again time.Time, err error) {
	c.fleet.mu.Lock()
	o := r.object
	c.fleet.mu.Unlock()
	if later, err := c.settle(ctx, r); err != nil || !later.IsZero() {
		return later, err
	}
	if !o.Spec.Frozen {
		if err := c.ensure(ctx, r); err != nil {
			return time.Time{}, err
		}
	}
	c.fleet.mu.Lock()
	if r.progress == nil {
		r.ahead = c.fleet.aheadOf(r)
	}
	c.fleet.mu.Unlock()
	wants, was, err := c.policyOf(ctx, r, o)
	if err != nil {
		return time.Time{}, err
	}
	c.fleet.mu.Lock()
	if r.object.Generation != o.Generation {
		c.fleet.mu.Unlock()
		return c.fleet.now(), nil // edited meanwhile
	}
	if r.progress != nil {
		was = *r.progress
	}
	c.nodes = c.fleet.compose(r, c.nodes[:0])
	c.fleet.mu.Unlock()

	began := time.Now()
	result := rollout.Plan(wants, was, c.nodes)
	c.metrics.plan.Observe(time.Since(began).Seconds())

	if err := c.observe(ctx, result.Marks); err != nil {
		return time.Time{}, err
	}
	again, err = c.record(ctx, r, o, &wants, &result)
	if err != nil {
		return time.Time{}, err
	}
	if err := c.brand(ctx, o, wants.Target, result.Next.Halt); err != nil {
		return time.Time{}, err
	}
	c.metrics.report(o.Name, &result)
	var assigned []rollout.Event // told when it is so
	for _, e := range result.Events {
		if len(e.Assigned) > 0 {
			assigned = append(assigned, e)
			continue
		}
		c.tell(o, []rollout.Event{e})
	}
	planned := wants.Now.Add(-r.ahead) // as the fleet counts
	if result.Wake > 0 {
		again = earliest(again, planned.Add(result.Wake))
	}
	if wants.Invalid != "" {
		again = earliest(again, planned.Add(clashEvery))
	}
	if len(result.Moves) == 0 {
		return again, nil
	}
	if err := c.fence(ctx, o.Name, wants.Target, result.Moves); err != nil {
		return time.Time{}, err
	}
	var made namesList
	deadline := time.Now().Add(slice)
	err = c.each(ctx, len(result.Moves), deadline, func(ctx context.Context, i int) error {
		m := result.Moves[i]
		var asked *v1alpha1.TrialTerms
		if m.Source.UID == wants.Target.UID { // an older revision may have terms of its own
			asked = o.Spec.Trial
		}
		err := c.move(context.WithoutCancel(ctx), &c.nodes[m.Node], m, asked) // what is begun is finished: it is short
		if errors.Is(err, errConflict) {
			c.log.Debug("somebody else was faster; it is decided anew", "rollout", o.Name, "err", err)
			return nil
		}
		if err == nil && m.Kind == rollout.Assign {
			made.add(c.nodes[m.Node].Name)
		}
		return err
	})
	c.log.Debug("moved", "rollout", o.Name, "nodes", len(result.Moves), "took", time.Since(began), "err", err)
	if r.givenOf != result.Next.Revision { // what is left of a batch that was not finished
		r.given, r.givenOf = nil, result.Next.Revision
	}
	r.given = append(r.given, made.names...)
	switch {
	case errors.Is(err, errDeposed):
		return time.Time{}, err // who leads now has the word
	case err != nil && err.Error() != r.complaint:
		r.complaint = err.Error()
		c.tell(o, []rollout.Event{{Warning: true, Reason: "WriteFailed", Message: err.Error()}})
		return time.Time{}, err
	case err != nil:
		return time.Time{}, err
	case time.Now().After(deadline):
		return c.fleet.now(), nil // the batch goes on
	}
	r.complaint = ""
	if len(assigned) > 0 && len(r.given) > len(result.Moves) {
		slices.Sort(r.given)
		assigned[0] = rollout.NodesAssigned(&wants, &result.Next, r.given) // those of the passes before too
	}
	r.given = nil
	c.tell(o, assigned)
	return again, nil
}

// namesList is names that are found concurrently.
type namesList struct {
	mu    sync.Mutex
	names []string
}

func (l *namesList) add(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.names = append(l.names, name)
}

func earliest(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// policyOf returns what an operator wants of a rollout, and what its status remembers. It makes the target's ConfigMap if
// there is none. A template that cannot be used leaves the target as it is.
func (c *Controller) policyOf(ctx context.Context, r *rolling, o *v1alpha1.NodeConfigRollout) (rollout.Policy, rollout.Progress, error) {
	in, err := c.input(r, o)
	if err != nil {
		return rollout.Policy{}, rollout.Progress{}, err
	}
	wants, was := policy.Of(in)
	if wants.Invalid == "" {
		uid, err := c.makeRevision(ctx, o, in.Template.Content, wants.Target)
		if wrong := (*unusable)(nil); errors.As(err, &wrong) {
			in.Template.Err = wrong
			wants, was = policy.Of(in)
		} else if err != nil {
			return wants, was, err
		} else {
			wants.Target.UID = string(uid)
		}
	}
	wants.Term = c.term
	c.fleet.mu.Lock()
	wants.Since = c.fleet.since.Add(r.ahead)
	c.fleet.mu.Unlock()
	if gone := wants.LastSucceeded.Gone; gone && r.told != wants.LastSucceeded.UID {
		r.told = wants.LastSucceeded.UID
		c.tell(o, []rollout.Event{{Warning: true, Reason: "RevisionGone", Message: fmt.Sprintf(
			"ConfigMap %s/%s of revision %d is gone: nodes that have it keep it, and nothing can be rolled back to it",
			wants.LastSucceeded.Namespace, wants.LastSucceeded.Name, wants.LastSucceeded.Number)}})
	}
	return wants, was, nil
}

// record writes what was decided into the rollout's status. It returns when counts that are held back are to be written.
func (c *Controller) record(ctx context.Context, r *rolling, o *v1alpha1.NodeConfigRollout, p *rollout.Policy, result *rollout.Result) (time.Time, error) {
	c.fleet.mu.Lock()
	proven := c.fleet.prove(o)
	c.fleet.mu.Unlock()
	st := statusOf(o, p, result, c.nodes, proven)
	if st.Controller = nil; !c.unpublished.Load() {
		st.Controller = c.settings.Publish()
	}
	news, matters := newsOf(&o.Status, &st)
	every := countsEvery
	if len(result.Moves) > 0 {
		every = countsWhileMoving
	}
	if due := r.written.Add(every); news && !matters && c.fleet.now().Before(due) {
		r.progress = &result.Next
		return due, nil
	}
	if news {
		got, err := c.patchStatus(ctx, o, &st)
		if unknownField(err) && withoutReasons(&st) { // an older CRD has no reasons of outcomes; the messages name them
			got, err = c.patchStatus(ctx, o, &st)
		}
		if unknownField(err) && strings.Contains(err.Error(), `"status.controller"`) { // an older CRD; others plan by the defaults then
			c.unpublished.Store(true)
			st.Controller = nil
			got, err = c.patchStatus(ctx, o, &st)
		}
		if err != nil {
			r.progress = nil // what is stored now, is
			return time.Time{}, c.unrecorded(ctx, o, err)
		}
		c.metrics.wrote("rollout", "ok")
		policy.StripRollout(got)
		c.fleet.setRollout(got)
		r.written = c.fleet.now()
	}
	r.progress = &result.Next
	return time.Time{}, nil
}

// patchStatus writes the status of a rollout that was known as that, and returns what is stored then.
func (c *Controller) patchStatus(ctx context.Context, o *v1alpha1.NodeConfigRollout, st *v1alpha1.NodeConfigRolloutStatus) (*v1alpha1.NodeConfigRollout, error) {
	data, err := json.Marshal([]operation{
		{"test", "/metadata/uid", o.UID}, {"test", "/metadata/resourceVersion", o.ResourceVersion}, {"add", "/status", st},
	})
	if err != nil {
		return nil, fmt.Errorf("encode the status of NodeConfigRollout %s: %w", o.Name, err)
	}
	got := &v1alpha1.NodeConfigRollout{ObjectMeta: metav1.ObjectMeta{Name: o.Name}}
	return got, c.client.Status().Patch(ctx, got, client.RawPatch(types.JSONPatchType, data), fieldManager)
}

// unrecorded deals with a status that could not be written: nothing was decided then.
func (c *Controller) unrecorded(ctx context.Context, o *v1alpha1.NodeConfigRollout, err error) error {
	if apierrors.IsForbidden(err) || unknownField(err) {
		c.metrics.wrote("rollout", "error")
		return advise("patch nodeconfigrollouts.evenkeel.dev/v1alpha1 status", err)
	}
	c.metrics.wrote("rollout", "conflict")
	got := &v1alpha1.NodeConfigRollout{}
	if c.client.Get(ctx, types.NamespacedName{Name: o.Name}, got) == nil {
		policy.StripRollout(got)
		c.fleet.setRollout(got)
	}
	return fmt.Errorf("write the status of NodeConfigRollout %s: %w", o.Name, err)
}
