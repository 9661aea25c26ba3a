// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/internal/rollout"
)

// annotationSHA256 is the digest of the payload in a revision's ConfigMap. It
// is for people: the controller computes the digest from the content.
const annotationSHA256 = "evenkeel.dev/payload-sha256"

// invalidTemplate is an error for a rollout's status: its template cannot be
// rolled out, and a retry does not help.
type invalidTemplate struct{ error }

func (e *invalidTemplate) Unwrap() error { return e.error }

func invalidTemplatef(format string, args ...any) error {
	return &invalidTemplate{fmt.Errorf(format, args...)}
}

// resolvedTemplate is a decoded template, and the versions of the objects that
// it was decoded from.
type resolvedTemplate struct {
	generation int64
	version    string    // of the ConfigMap that the template names; empty: there is none
	pinned     types.UID // of the ConfigMap that spec.pin names; empty: there is none
	template   fleet.Template
}

// template returns a rollout's template, decoded. It is decoded again only
// after a change. After an error, retry.
func (c *Controller) template(ctx context.Context, r *rolloutEntry, o *v1alpha1.NodeConfigRollout) (fleet.Template, error) {
	var source *corev1.ConfigMap
	version := ""
	if ref := o.Spec.Template.ConfigMapRef; ref != nil {
		var err error
		source, err = c.sources.get(ref.Namespace, ref.Name)
		if invalid := (*invalidTemplate)(nil); errors.As(err, &invalid) {
			return fleet.Template{Err: err}, nil
		} else if err != nil {
			return fleet.Template{}, err
		}

		if source != nil {
			version = source.ResourceVersion
		}
	}

	var pinned types.UID
	known := c.fleet.revision(o.Name, fleet.PinnedName(o))
	if known != nil {
		pinned = known.UID
	}

	if t := r.template; t == nil || t.generation != o.Generation || t.version != version || t.pinned != pinned {
		whole, err := c.wholeRevision(ctx, known)
		if err != nil {
			return fleet.Template{}, err
		}

		r.template = &resolvedTemplate{o.Generation, version, pinned, fleet.TemplateOf(o, source, whole)}
	}

	return r.template.template, nil
}

// wholeRevision reads a revision of which only the digest is kept; nil remains
// nil, and is returned for one that is gone.
func (c *Controller) wholeRevision(ctx context.Context, known *corev1.ConfigMap) (*corev1.ConfigMap, error) {
	if known == nil {
		return nil, nil
	}

	cm := &corev1.ConfigMap{}
	switch err := c.client.Get(ctx, client.ObjectKeyFromObject(known), cm); {
	case apierrors.IsNotFound(err):
		c.fleet.deleteRevision(known)
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read ConfigMap %s/%s: %w", known.Namespace, known.Name, err)
	}

	return cm, nil
}

// ensureRevision creates the ConfigMap of a target if there is none, and
// returns its UID. After an error that is no invalidTemplate, retry.
//
// An existing ConfigMap with the revision's name is used, whoever created it,
// if it has the same content and is immutable. A controller that was killed
// after it created the ConfigMap and before it recorded the UID thus finds it
// again.
func (c *Controller) ensureRevision(ctx context.Context, o *v1alpha1.NodeConfigRollout, content payload.Payload,
	target v1alpha1.RolloutRevision) (types.UID, error) {
	key := client.ObjectKey{Namespace: target.ConfigMapRef.Namespace, Name: target.ConfigMapRef.Name}
	have := c.fleet.revision(o.Name, key.Name)
	var err error
	if have == nil {
		have, err = c.createRevision(ctx, o, key, content, target.Number)
	} else if current := o.Status.UpdateRevision; current == nil || !fleet.Holds(have, &current.ConfigMapRef) {
		have, err = c.adoptRevision(ctx, o, key, content) // another writer may have created it
		if apierrors.IsNotFound(err) {
			have, err = c.createRevision(ctx, o, key, content, target.Number)
		}
	}

	// A content that becomes the target again gets the next number.
	if err == nil && fleet.NumberOf(have) != target.Number {
		have, err = c.setNumber(ctx, have, target.Number)
	}
	if err != nil {
		return "", err
	}

	return have.UID, nil
}

func (c *Controller) createRevision(ctx context.Context, o *v1alpha1.NodeConfigRollout, key client.ObjectKey, content payload.Payload,
	number int64) (*corev1.ConfigMap, error) {
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: key.Name,
			Labels:      map[string]string{v1alpha1.LabelRollout: o.Name, v1alpha1.LabelRevision: strconv.FormatInt(number, 10)},
			Annotations: map[string]string{annotationSHA256: content.SHA256},
		},
		Immutable: new(true),
		Data:      map[string]string{content.Key: string(content.Data)},
	}
	if c.term != 0 {
		cm.Annotations[v1alpha1.AnnotationTerm] = strconv.FormatInt(c.term, 10)
	}

	err := c.client.Create(ctx, cm, fieldManager)
	if apierrors.IsAlreadyExists(err) {
		return c.adoptRevision(ctx, o, key, content)
	}

	if err != nil {
		c.metrics.wrote("revision", "error")
		if refused(err) && !apierrors.IsTooManyRequests(err) {
			return nil, invalidTemplatef("cannot create ConfigMap %s for the revision: %w", key, advise("create configmaps", err))
		}

		return nil, fmt.Errorf("create ConfigMap %s: %w", key, err)
	}

	c.metrics.wrote("revision", "ok")
	c.log.Info("revision created", "rollout", o.Name, "revision", number, "namespace", key.Namespace, "name", key.Name, "uid", cm.UID)
	c.fleet.setRevision(cm)

	return cm, nil
}

// adoptRevision reads a ConfigMap that has a revision's name, and uses it if it
// is the revision.
func (c *Controller) adoptRevision(ctx context.Context, o *v1alpha1.NodeConfigRollout, key client.ObjectKey,
	content payload.Payload) (*corev1.ConfigMap, error) {
	cm := &corev1.ConfigMap{}
	if err := c.client.Get(ctx, key, cm); err != nil {
		if known := c.fleet.revision(o.Name, key.Name); apierrors.IsNotFound(err) && known != nil {
			c.fleet.deleteRevision(known)
		}

		return nil, fmt.Errorf("read ConfigMap %s: %w", key, err)
	}

	if err := fleet.CheckRevision(cm, o.Name, content.SHA256); err != nil {
		return nil, &invalidTemplate{err}
	}

	owned := len(cm.OwnerReferences) > 0
	c.fleet.setRevision(cm)
	if owned { // the garbage collector would delete it with its owner
		return c.patchRevision(ctx, cm, map[string]any{"ownerReferences": nil})
	}

	return cm, nil
}

// setNumber changes the number of a revision's ConfigMap.
func (c *Controller) setNumber(ctx context.Context, cm *corev1.ConfigMap, number int64) (*corev1.ConfigMap, error) {
	got, err := c.patchRevision(ctx, cm, map[string]any{"labels": map[string]string{v1alpha1.LabelRevision: strconv.FormatInt(number, 10)}})
	if err == nil {
		c.log.Info("revision is the target again", "rollout", cm.Labels[v1alpha1.LabelRollout], "revision", number, "was",
			cm.Labels[v1alpha1.LabelRevision], "namespace", cm.Namespace, "name", cm.Name, "uid", cm.UID)
	}

	return got, err
}

// patchRevision patches the metadata of a revision's ConfigMap if nobody else
// has changed it.
func (c *Controller) patchRevision(ctx context.Context, cm *corev1.ConfigMap, metadata map[string]any) (*corev1.ConfigMap, error) {
	metadata["uid"], metadata["resourceVersion"] = cm.UID, cm.ResourceVersion
	data, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return nil, fmt.Errorf("encode metadata: %w", err)
	}

	got := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: cm.Namespace, Name: cm.Name}}
	if err := c.client.Patch(ctx, got, client.RawPatch(types.MergePatchType, data), fieldManager); err != nil {
		c.metrics.wrote("revision", "error")
		return nil, advise("patch configmaps/v1", err)
	}

	c.metrics.wrote("revision", "ok")
	c.fleet.setRevision(got)

	return got, nil
}

// markStopped annotates the ConfigMap of a target that was stopped, and removes
// the annotation after a retry. The history in the status does not suffice: it
// is short, and is deleted with the rollout.
func (c *Controller) markStopped(ctx context.Context, o *v1alpha1.NodeConfigRollout, target v1alpha1.RolloutRevision,
	h *v1alpha1.RolloutHalt) error {
	cm := c.fleet.revision(o.Name, target.ConfigMapRef.Name)
	if cm == nil {
		return nil
	}

	var reason, attempt any // nil removes the annotation
	_, is := cm.Annotations[v1alpha1.AnnotationStopped]
	stopped := h != nil && h.Reason != v1alpha1.HaltInconclusive
	if stopped == is {
		return nil
	}
	if stopped {
		reason, attempt = printable.Cut(rollout.StopMessage(h.Reason, h.Message), v1alpha1.MaxOutcomeMessage), strconv.FormatInt(h.Attempt, 10)
	}

	_, err := c.patchRevision(ctx, cm, map[string]any{"annotations": map[string]any{v1alpha1.AnnotationStopped: reason,
		v1alpha1.AnnotationStoppedAttempt: attempt}})

	return err
}

// deleteUnusedRevisions deletes the ConfigMaps of revisions that are no longer
// in use, beyond the history limit.
func (c *Controller) deleteUnusedRevisions(ctx context.Context) error {
	var errs []error
	for _, cm := range c.fleet.unusedRevisions() {
		err := c.client.Delete(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: cm.Namespace, Name: cm.Name}},
			client.Preconditions{UID: &cm.UID, ResourceVersion: &cm.ResourceVersion})
		switch {
		case err == nil:
			c.metrics.wrote("revision", "ok")
			c.log.Info("revision deleted: not in use", "rollout", cm.Labels[v1alpha1.LabelRollout], "revision", fleet.NumberOf(cm), "namespace",
				cm.Namespace, "name", cm.Name, "uid", cm.UID)
			c.fleet.deleteRevision(cm)
		case !apierrors.IsNotFound(err) && !apierrors.IsConflict(err):
			c.metrics.wrote("revision", "error")
			errs = append(errs, advise("delete configmaps/v1", err))
		}
	}

	return errors.Join(errs...)
}
