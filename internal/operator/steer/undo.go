// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package steer

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/internal/operator/query"
)

// Retarget is a change of a rollout's target between its template and an
// earlier revision, as it was prepared and shown.
type Retarget struct {
	Known, Desired *v1alpha1.NodeConfigRollout
	// Words say what is done, to follow the rollout's name. Desired equals
	// Known if nothing is.
	Words string
	// Failed says how the new target's content failed before: it needs force.
	// Empty: it did not.
	Failed string

	target int64 // the revision that the rollout must be at; 0: any
}

// Undo makes an older revision the target in place of the template; 0 is the
// one that fleet.PreviousRevision returns. It refuses a rollout that is at
// another revision than target; 0 allows every one.
func Undo(ctx context.Context, c client.Client, name string, number, target int64) (*Retarget, error) {
	// The default revision depends on the status, which must not be old.
	look := query.Rollout
	if number == 0 {
		look = query.ObservedRollout
	}

	r, err := look(ctx, c, name)
	if err != nil {
		return nil, err
	}
	if err := atRevision(r, target); err != nil {
		return nil, fmt.Errorf("rollout %q %w; nothing was changed", name, err)
	}

	all, _, err := query.Revisions(ctx, c, r)
	if err != nil {
		return nil, err
	}

	if number == 0 {
		if number = fleet.PreviousRevision(&r.Status); number == 0 {
			return nil, nothingBefore(r, all)
		}
	}

	content, err := query.ContentAt(r, all, number)
	if err != nil {
		return nil, err
	}

	template, err := query.ContentIn(ctx, c, r.Spec.Template)
	if err != nil {
		return nil, fmt.Errorf("rollout %q cannot be undone, because its template is invalid and nothing rolls it out: %w; nothing was changed",
			name, err)
	}

	t := &Retarget{Known: r, Desired: r.DeepCopy(), Failed: failureOf(r, content.SHA256), target: target}
	t.Words = pin(t.Desired, template, content, number)

	return t, nil
}

// failureOf says how a content failed the last time that a rollout had it as
// its target; empty if it did not.
func failureOf(r *v1alpha1.NodeConfigRollout, sha256 string) string {
	return fleet.FailureOf(&r.Status, nil, 0, sha256)
}

// Unpin makes the template the target again.
func Unpin(ctx context.Context, c client.Client, name string) (*Retarget, error) {
	r, err := query.Rollout(ctx, c, name)
	if err != nil {
		return nil, err
	}

	t := &Retarget{Known: r, Desired: r.DeepCopy(), Words: "is not pinned: nothing changes"}
	if p, u := r.Spec.Pin, r.Status.UpdateRevision; p != nil {
		t.Desired.Spec.Pin, t.Words = nil, "unpinned: the template is the target; "+Next(r)
		if u == nil || u.ConfigMapRef.SHA256 != p.Instead { // otherwise the template is the target already
			t.Failed = failureOf(r, p.Instead)
		}
	}

	return t, nil
}

// Changes reports whether the spec changes.
func (t *Retarget) Changes() bool {
	return !equality.Semantic.DeepEqual(t.Known.Spec, t.Desired.Spec)
}

// Write stores a prepared change, unless the template or the pin has changed
// since. Without force it refuses a content that failed.
func (t *Retarget) Write(ctx context.Context, c client.Client, force bool) (string, error) {
	if t.Failed != "" && !force && t.Changes() {
		return "", fmt.Errorf("rollout %q: this configuration failed before: %s; use --force if the cause is repaired; nothing was changed",
			t.Known.Name, t.Failed)
	}

	return Edit(ctx, c, t.Known.Name, func(r *v1alpha1.NodeConfigRollout) (string, error) {
		known := &t.Known.Spec
		if r.UID != t.Known.UID || !equality.Semantic.DeepEqual(r.Spec.Template, known.Template) ||
			!equality.Semantic.DeepEqual(r.Spec.Pin, known.Pin) {
			return "", fmt.Errorf("was changed by somebody else in the meantime; look at it with kubectl evenkeel rollout status %s, and run "+
				"the command again if it is still needed", r.Name)
		}

		if err := atRevision(r, t.target); err != nil {
			return "", err
		}

		r.Spec.Pin = t.Desired.Spec.Pin

		return t.Words, nil
	})
}

// atRevision returns an error, to follow the rollout's name, if a rollout is at
// another revision than target; 0 allows every one.
func atRevision(r *v1alpha1.NodeConfigRollout, target int64) error {
	if u := r.Status.UpdateRevision; target != 0 && u != nil && u.Number != target {
		return fmt.Errorf("is at revision %d, not %d: kubectl evenkeel rollout status %s", u.Number, target, r.Name)
	}

	return nil
}

// nothingBefore returns the error of an undo without an earlier revision that
// succeeded.
func nothingBefore(r *v1alpha1.NodeConfigRollout, all []query.Revision) error {
	target := r.Status.UpdateRevision
	if target == nil {
		return fmt.Errorf("rollout %q has no revision yet (%s): kubectl evenkeel rollout status %s", r.Name, describe.OrUnknown(r.Status.Phase),
			r.Name)
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
