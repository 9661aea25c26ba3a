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
	"github.com/evenkeel/evenkeel/internal/fleet/policy"
	"github.com/evenkeel/evenkeel/internal/fleet/rollout"
)

// A leader that was frozen goes on where it was, for as long as nothing tells it that another one leads. What it decided
// before must not take effect any more:
//
//   - A new leader writes its term to the ConfigMaps of all revisions before it looks at the fleet.
//   - A batch of assignments begins with a write of the term to the ConfigMaps that it assigns, which fails if somebody
//     else has written to one.
//   - An assignment carries the term. An agent that is given one reads the ConfigMap before it takes that up, and does not
//     if a higher term is there: for what was in the middle of a batch.

// takeOver finds the term of this leader, which is higher than all before, and writes it to the ConfigMaps of all
// revisions. It returns false if ctx ends before that is done. Without an election there is no term: 0.
func (c *Controller) takeOver(ctx context.Context) (term int64, ok bool) {
	if c.election == nil {
		return 0, true
	}
	p := pace{}
	for {
		term, err := c.tryTakeOver(ctx)
		if err == nil {
			c.blind.note(kindRevisions, nil)
			return term, true
		}
		if ctx.Err() == nil {
			c.blind.note(kindRevisions, advise(kindRevisions, err))
		}
		select {
		case <-ctx.Done():
			return 0, false
		case <-time.After(p.next(err)):
		}
	}
}

func (c *Controller) tryTakeOver(ctx context.Context) (int64, error) {
	term, err := c.election.leads()
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, silence)
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
			term = known + 1 // a lease that was deleted begins to count anew
		}
		policy.StripRevision(cm)
		// What a rollout that is gone has assigned stays as it is, and nobody would assign it anew.
		if live[cm.Labels[v1alpha1.LabelRollout]] && policy.IsRevision(cm) {
			marked = append(marked, cm)
		}
	}
	return term, c.each(ctx, len(marked), time.Time{}, func(ctx context.Context, i int) error {
		_, err := c.patchRevision(ctx, marked[i], termed(term))
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

func termed(term int64) map[string]any {
	return map[string]any{"annotations": map[string]any{v1alpha1.AnnotationTerm: strconv.FormatInt(term, 10)}}
}

// fence writes the term to the ConfigMaps of a rollout's target and of what moves assign. The error says that one has
// changed: another controller may lead.
func (c *Controller) fence(ctx context.Context, name string, target rollout.Revision, moves []rollout.Move) error {
	if c.election == nil {
		return nil
	}
	if _, err := c.election.leads(); err != nil {
		return err
	}
	sources := []rollout.Source{{Rollout: name, Name: target.Name, UID: target.UID}}
	for i := range moves {
		sources = append(sources, moves[i].Source)
	}
	done := map[types.UID]bool{}
	for _, s := range sources {
		c.fleet.mu.Lock()
		cm := c.fleet.revisions[s.Rollout][s.Name]
		c.fleet.mu.Unlock()
		if cm == nil || string(cm.UID) != s.UID || done[cm.UID] {
			continue
		}
		done[cm.UID] = true
		if err := c.outranked(cm); err != nil {
			return err
		}
		if _, err := c.patchRevision(ctx, cm, termed(c.term)); err != nil {
			return c.fenced(ctx, cm, err)
		}
	}
	return nil
}

// fenced finds out why the term could not be written.
func (c *Controller) fenced(ctx context.Context, cm *corev1.ConfigMap, err error) error {
	if apierrors.IsNotFound(err) { // it is made anew
		c.fleet.forgetRevision(cm.Labels[v1alpha1.LabelRollout], cm.Name)
		return fmt.Errorf("ConfigMap %s/%s is gone: %w", cm.Namespace, cm.Name, errConflict)
	}
	if !apierrors.IsConflict(err) {
		return err
	}
	now := &corev1.ConfigMap{}
	if err := c.client.Get(ctx, client.ObjectKeyFromObject(cm), now); err != nil {
		return fmt.Errorf("read ConfigMap %s/%s: %w", cm.Namespace, cm.Name, err)
	}
	if err := c.outranked(now); err != nil {
		return err
	}
	policy.StripRevision(now)
	c.fleet.setRevision(now)
	return err
}

// outranked ends leading if a ConfigMap names a higher term.
func (c *Controller) outranked(cm *corev1.ConfigMap) error {
	newer := v1alpha1.TermOf(cm.Annotations)
	if newer <= c.term {
		return nil
	}
	return c.election.depose(fmt.Sprintf("ConfigMap %s/%s names term %d, and this one's is %d", cm.Namespace, cm.Name, newer, c.term))
}
