// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/rollout"
)

// A leader whose process was suspended continues until it learns that another
// one leads. Its earlier decisions must not take effect any more:
//
//   - A new leader writes its term to the ConfigMaps of all revisions before it watches the fleet.
//   - A batch of assignments begins with a write of the term to the ConfigMaps that it assigns. This write fails if another
//     leader has written to one of them.
//   - An assignment contains the term. An agent reads the ConfigMap before it accepts the assignment, and rejects it if the
//     ConfigMap has a higher term. This covers a batch that was suspended in the middle.

// claimTimeout is how long one attempt to claim the term may take.
const claimTimeout = 15 * time.Second

// claimTerm finds the term of this leader, which is higher than all before, and
// writes it to the ConfigMaps of all revisions. It returns false if ctx ends
// first. Without an election the term is 0.
func (c *Controller) claimTerm(ctx context.Context) (term int64, ok bool) {
	if c.election == nil {
		return 0, true
	}

	delay := fleet.Backoff{}
	for {
		term, err := c.tryClaimTerm(ctx)
		if err == nil {
			c.watchErrors.set(kindRevisions, nil)
			return term, true
		}

		if ctx.Err() == nil {
			c.watchErrors.set(kindRevisions, advise(kindRevisions, err))
		}

		select {
		case <-ctx.Done():
			return 0, false
		case <-time.After(delay.Next(err)):
		}
	}
}

func (c *Controller) tryClaimTerm(ctx context.Context) (int64, error) {
	term, err := c.election.leads()
	if err != nil {
		return 0, err
	}

	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	rollouts := &v1alpha1.NodeConfigRolloutList{}
	if err := c.client.List(ctx, rollouts); err != nil {
		return 0, err
	}

	live := map[string]bool{}
	for i := range rollouts.Items {
		live[rollouts.Items[i].Name] = true
	}

	list := &corev1.ConfigMapList{}
	if err := c.client.List(ctx, list, client.InNamespace(c.settings.Namespace), client.HasLabels{v1alpha1.LabelRollout}); err != nil {
		return 0, err
	}

	var marked []*corev1.ConfigMap
	for i := range list.Items {
		cm := &list.Items[i]
		if known := v1alpha1.TermOf(cm.Annotations); known >= term {
			term = known + 1 // a Lease that was deleted and created again counts from 1
		}

		fleet.StripRevision(cm)
		// Assignments of a deleted rollout stay valid: no rollout would renew
		// them.
		if live[cm.Labels[v1alpha1.LabelRollout]] && fleet.IsRevision(cm) {
			marked = append(marked, cm)
		}
	}

	return term, c.forEachParallel(ctx, len(marked), func(i int) error {
		_, err := c.patchRevision(ctx, marked[i], termPatch(term))
		if apierrors.IsNotFound(err) {
			return nil
		}

		return err
	})
}

func termPatch(term int64) map[string]any {
	return map[string]any{"annotations": map[string]any{v1alpha1.AnnotationTerm: strconv.FormatInt(term, 10)}}
}

// confirmTerm writes the term to the ConfigMaps of a rollout's target and of
// the revisions that moves assign. It fails if one of them has changed: another
// controller may lead.
func (c *Controller) confirmTerm(ctx context.Context, name string, target v1alpha1.RolloutRevision, moves []rollout.Move) error {
	if c.election == nil {
		return nil
	}
	if err := c.stillLeads(); err != nil {
		return err
	}

	sources := []*v1alpha1.NodeConfigSource{{ConfigMapRef: &target.ConfigMapRef, RolloutRef: &v1alpha1.RolloutReference{Name: name}}}
	for i := range moves {
		sources = append(sources, moves[i].Source)
	}

	done := map[types.UID]bool{}
	for _, s := range sources {
		cm := c.fleet.revision(s.By().Name, s.Content().Name)
		if cm == nil || cm.UID != s.Content().UID || done[cm.UID] {
			continue
		}

		done[cm.UID] = true
		if err := c.checkTerm(cm); err != nil {
			return err
		}
		if _, err := c.patchRevision(ctx, cm, termPatch(c.term)); err != nil {
			return c.termFailed(ctx, cm, err)
		}
	}

	return nil
}

// termFailed finds out why the term could not be written to a ConfigMap.
func (c *Controller) termFailed(ctx context.Context, cm *corev1.ConfigMap, err error) error {
	if apierrors.IsNotFound(err) { // the next step creates it again
		c.fleet.deleteRevision(cm)
		return fmt.Errorf("ConfigMap %s/%s is gone: %w", cm.Namespace, cm.Name, errConflict)
	}

	if !apierrors.IsConflict(err) {
		return err
	}

	now := &corev1.ConfigMap{}
	if err := c.client.Get(ctx, client.ObjectKeyFromObject(cm), now); err != nil {
		return fmt.Errorf("read ConfigMap %s/%s: %w", cm.Namespace, cm.Name, err)
	}
	if err := c.checkTerm(now); err != nil {
		return err
	}

	c.fleet.setRevision(now)

	return err
}

// checkTerm stops leading if a ConfigMap has a higher term.
func (c *Controller) checkTerm(cm *corev1.ConfigMap) error {
	newer := v1alpha1.TermOf(cm.Annotations)
	if newer <= c.term {
		return nil
	}

	return c.election.stop(fmt.Errorf("ConfigMap %s/%s has term %d, this controller has term %d", cm.Namespace, cm.Name, newer, c.term))
}
