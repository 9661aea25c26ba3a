package steer

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet/describe"
	"github.com/evenkeel/evenkeel/internal/fleet/policy"
	"github.com/evenkeel/evenkeel/internal/fleet/query"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// Undo makes an older revision the target in place of the template; 0 is the one that PreviousRevision returns. It refuses a rollout
// that is at another revision than target; 0 allows every one. It returns a message and notes about the revision.
func Undo(ctx context.Context, c client.Client, name string, number, target int64) (words string, notes []string, err error) {
	// The default revision depends on the status, which must not be old.
	look := query.Rollout
	if number == 0 {
		look = query.ObservedRollout
	}
	r, err := look(ctx, c, name)
	if err != nil {
		return "", nil, err
	}
	if err := atRevision(r, target); err != nil {
		return "", nil, fmt.Errorf("rollout %q %w; nothing was changed", name, err)
	}
	all, err := query.Revisions(ctx, c, r)
	if err != nil {
		return "", nil, err
	}
	if number == 0 {
		if number = PreviousRevision(r); number == 0 {
			return "", nil, nothingBefore(r, all)
		}
	}
	content, err := query.ContentAt(r, all, number)
	if err != nil {
		return "", nil, err
	}
	for _, p := range all {
		if p.Number == number && describe.Stopped(v1alpha1.RolloutPhase(p.Outcome)) {
			notes = append(notes, fmt.Sprintf("revision %d did not succeed, it was %s: %s", number, p.Outcome, printable.Line(cmp.Or(p.Message, "the reason is not known"))))
		}
	}
	words, err = pinKnown(ctx, c, r, content, number, target)
	return words, notes, err
}

// atRevision returns an error, to follow the rollout's name, if a rollout is at another revision than target; 0 allows every one.
func atRevision(r *v1alpha1.NodeConfigRollout, target int64) error {
	if u := r.Status.UpdateRevision; target != 0 && u != nil && u.Number != target {
		return fmt.Errorf("is at revision %d, not %d: kubectl evenkeel rollout status %s", u.Number, target, r.Name)
	}
	return nil
}

// pinKnown pins a revision with this content in place of the template, unless the template has changed since known was read.
func pinKnown(ctx context.Context, c client.Client, known *v1alpha1.NodeConfigRollout, content policy.Content, number, target int64) (string, error) {
	template, err := query.ContentIn(ctx, c, known.Spec.Template)
	if err != nil {
		return "", fmt.Errorf("rollout %q cannot be undone, because its template is invalid and nothing rolls it out: %w; nothing was changed", known.Name, err)
	}
	return Edit(ctx, c, known.Name, func(r *v1alpha1.NodeConfigRollout) (string, error) {
		if r.UID != known.UID || !equality.Semantic.DeepEqual(r.Spec.Template, known.Spec.Template) {
			return "", fmt.Errorf("was changed by somebody else in the meantime; look at it with kubectl evenkeel rollout diff %s, and run undo again if it is still needed", r.Name)
		}
		if err := atRevision(r, target); err != nil {
			return "", err
		}
		return Pin(r, template, content, number)
	})
}

// nothingBefore returns the error of an undo without an earlier revision that succeeded.
func nothingBefore(r *v1alpha1.NodeConfigRollout, all []query.Revision) error {
	target := r.Status.UpdateRevision
	if target == nil {
		return fmt.Errorf("rollout %q has no revision yet (%s): kubectl evenkeel rollout status %s", r.Name, describe.OrUnknown(r.Status.Phase), r.Name)
	}
	others := slices.DeleteFunc(slices.Clone(all), func(p query.Revision) bool { return p.Gone || p.ConfigMap == target.ConfigMapRef.Name })
	advice := "push another configuration"
	if len(others) > 0 {
		advice = fmt.Sprintf("choose a revision with --to-revision (available: %s), or %s", query.Available(others), advice)
	}
	if r.Status.Halt == nil || !r.Status.Halt.Rollback {
		advice += fmt.Sprintf("; kubectl evenkeel rollout abort %s --rollback returns the nodes to their previous configuration", r.Name)
	}
	return fmt.Errorf("rollout %q has no revision that succeeded before revision %d: %s", r.Name, target.Number, advice)
}
