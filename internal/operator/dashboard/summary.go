// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// summarize completes what is known about the cluster.
func summarize(p *snapshot, known describe.Situation) describe.Summary {
	for _, t := range p.Trouble {
		if known.Unanswered = known.Unanswered || t.Away; !t.Away {
			known.Unread = append(known.Unread, t.What)
		}
	}

	if known.Unanswered { // nobody knows
		known.NoLeader = ""
	}

	return describe.SummaryOf(known)
}

// byUrgency compares rollouts: the most urgent first, then the one with the
// most failed nodes, then by name.
func byUrgency(a, b rolloutView) int {
	return cmp.Or(cmp.Compare(a.Urgency, b.Urgency), cmp.Compare(b.Failures.N, a.Failures.N), cmp.Compare(a.Name, b.Name))
}

// rights are what the user of the page may do.
type rights struct {
	MayPatch     bool   `json:"mayPatch"`
	MayListNodes bool   `json:"mayListNodes"`
	Words        string `json:"words"` // what the user may not do, in a line; empty: nothing that the page needs
}

// rightsInterval is the time between two questions about the user's rights.
const rightsInterval = 10 * time.Second

// checkRights asks the API server whether the user may change rollouts.
func (w *cache) checkRights(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*pingInterval)
	defer cancel()
	words, err := mayNot(ctx, w.api, "")
	if err != nil {
		return err
	}

	w.mu.Lock()
	changed := !w.rightsKnown || w.mayNotPatch != words
	w.rightsKnown, w.mayNotPatch = true, words
	w.mu.Unlock()
	if changed {
		w.wake()
	}

	return nil
}

// rights returns what the user may do, as far as it is known.
func (w *cache) rights() rights {
	w.mu.Lock()
	defer w.mu.Unlock()
	f, failing := w.failing[kindNodes]
	r := rights{MayPatch: w.rightsKnown && w.mayNotPatch == "", MayListNodes: w.listed[kindNodes] || !failing || !apierrors.IsForbidden(f.err)}
	readOnly := w.rightsKnown && w.mayNotPatch != ""
	switch {
	case readOnly && !r.MayListNodes:
		r.Words = "Read only, and without zones, positions in rollouts, and nodes without an agent: the role evenkeel-operator allows to " +
			"change rollouts and to list Nodes."
	case readOnly:
		r.Words = "Read only: the role evenkeel-operator allows to change rollouts."
	case !r.MayListNodes:
		r.Words = "Zones, positions in rollouts, and nodes without an agent are not shown: the role evenkeel-operator allows to list Nodes."
	}

	return r
}

// mayNot says why the user is not allowed to change a rollout; empty if the
// user is. Without a name it is about every rollout.
func mayNot(ctx context.Context, api client.Client, name string) (string, error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Group: v1alpha1.GroupName, Resource: "nodeconfigrollouts", Verb: "patch",
			Name: name},
	}}
	if err := api.Create(ctx, review); err != nil {
		return "", fmt.Errorf("check your permissions: %w", err)
	}
	if review.Status.Allowed {
		return "", nil
	}

	words := "you are not allowed to patch nodeconfigrollouts." + v1alpha1.GroupName
	if review.Status.Reason != "" {
		words += " (" + printable.Line(review.Status.Reason) + ")"
	}

	return words + ": ask an administrator for the role evenkeel-operator", nil
}
