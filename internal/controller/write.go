// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/rollout"
)

const (
	fieldManager = client.FieldOwner("evenkeel-controller")
	// writeTimeout is how long a write may take. It is sent to the API server:
	// the write takes effect by then or never. A leader that has lost its Lease
	// stops this long before another one starts.
	writeTimeout = 5 * time.Second
)

// errConflict means that an object has changed since it was read.
var errConflict = errors.New("the object has changed")

// operation is one operation of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// moveNode writes the spec of one NodeConfig. planned is the node as
// rollout.Plan saw it, and trial the trial terms of the assignment. After an
// error, the spec was not written, or the outcome is unknown and noted in the
// fleet.
func (c *Controller) moveNode(ctx context.Context, planned *rollout.Node, m rollout.Move, trial *v1alpha1.TrialTerms) error {
	name := planned.Name
	pair := c.fleet.pair(name)
	known := pair.Config
	switch {
	case known == nil:
		return fmt.Errorf("NodeConfig %s is gone", name)
	case known.Generation != planned.Generation: // a person has written a spec since the plan
		return fmt.Errorf("NodeConfig %s: %w", name, errConflict)
	case planned.Ready && (pair.Node == nil || !fleet.IsReady(pair.Node)) && (m.Kind == rollout.Assign || m.Kind == rollout.Join):
		// With the revision, the node would look as if the revision had made it
		// NotReady.
		return fmt.Errorf("node %s became NotReady: %w", name, errConflict)
	}

	if err := c.stillLeads(); err != nil {
		return err
	}

	spec := specOf(planned, m)
	spec.Trial = trial
	if s := known.Spec.ConfigSource; spec.TakenBack != nil && s != nil && s.RolloutRef != nil {
		spec.TakenBack.AssignedAt = s.RolloutRef.AssignedAt // as the agent has it, even if the plan ignored it
	}

	began := c.fleet.now()
	// A status that an agent writes meanwhile is no conflict.
	err := c.patchNodeConfig(ctx, "nodeconfig", name, types.JSONPatchType, []operation{
		{"test", "/metadata/uid", known.UID}, {"test", "/metadata/generation", known.Generation}, {"add", "/spec", spec},
	})
	switch {
	case err == nil:
		return nil
	case !refused(err):
		c.metrics.wrote("nodeconfig", "unknown")
		c.fleet.markUncertain(name, began.Add(writeTimeout+time.Second))
		return fmt.Errorf("write the spec of NodeConfig %s: outcome unknown: %w", name, err)
	case apierrors.IsForbidden(err), unknownField(err):
		c.metrics.wrote("nodeconfig", "error")
		return advise("patch nodeconfigs.evenkeel.dev/v1alpha1", err)
	}

	c.metrics.wrote("nodeconfig", "conflict")
	if err := c.reread(ctx, name); err != nil {
		return err
	}
	if now := c.fleet.pair(name).Config; now == nil || now.UID != known.UID || now.Generation != known.Generation {
		return fmt.Errorf("NodeConfig %s: %w", name, errConflict)
	}

	return fmt.Errorf("write the spec of NodeConfig %s: %w", name, err)
}

// patchNodeConfig patches a NodeConfig and keeps the stored object. The metric
// of writes counts it as a write of object.
func (c *Controller) patchNodeConfig(ctx context.Context, object, name string, kind types.PatchType, patch any) error {
	data, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("encode a patch of NodeConfig %s: %w", name, err)
	}

	nc := &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := c.client.Patch(ctx, nc, client.RawPatch(kind, data), fieldManager); err != nil {
		return err
	}

	c.metrics.wrote(object, "ok")
	c.fleet.setConfig(nc)

	return nil
}

// writeObservations writes what a plan remembers about nodes into annotations
// of their NodeConfigs, before anything depends on it: the next leader reads
// them. Nodes whose NodeConfig is gone or was created again are left out.
func (c *Controller) writeObservations(ctx context.Context, nodes []rollout.Node, observations map[int]rollout.Observation) error {
	indexes := slices.Sorted(maps.Keys(observations))
	return c.forEachParallel(ctx, len(indexes), func(k int) error {
		i := indexes[k]
		var value any // nil removes the annotation
		if o := observations[i]; o.Rollout != "" {
			text, err := fleet.ObservationText(o)
			if err != nil {
				return err
			}

			value = text
		}

		return c.annotate(ctx, "nodeconfig", nodes[i].Name, v1alpha1.AnnotationObserved, value)
	})
}

// annotate writes an annotation of a NodeConfig, unless the NodeConfig is gone
// or was created again.
func (c *Controller) annotate(ctx context.Context, object, name, annotation string, value any) error {
	known := c.fleet.pair(name).Config
	if known == nil {
		return nil
	}

	err := c.patchNodeConfig(ctx, object, name, types.MergePatchType,
		map[string]any{"metadata": map[string]any{"uid": known.UID, "annotations": map[string]any{annotation: value}}})
	switch {
	case err == nil:
		return nil
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		c.metrics.wrote(object, "conflict")
		return c.reread(ctx, name)
	}

	c.metrics.wrote(object, "error")

	return advise("patch nodeconfigs.evenkeel.dev/v1alpha1 (annotation "+annotation+")", err)
}

// refused reports whether the API server has certainly not carried out a write.
func refused(err error) bool {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		code := status.Status().Code
		return code >= 400 && code < 500 && code != http.StatusRequestTimeout
	}

	return utilnet.IsConnectionRefused(err)
}

// reread reads a NodeConfig from the API server.
func (c *Controller) reread(ctx context.Context, name string) error {
	nc := &v1alpha1.NodeConfig{}
	err := c.client.Get(ctx, types.NamespacedName{Name: name}, nc)
	switch {
	case err == nil:
		c.fleet.setConfig(nc)
		return nil
	case apierrors.IsNotFound(err):
		if known := c.fleet.pair(name).Config; known != nil {
			c.fleet.deleteConfig(name, known.UID)
		}

		return nil
	}

	return fmt.Errorf("read NodeConfig %s: %w", name, err)
}

// rereadUncertain reads the NodeConfigs of a rollout again for which the
// outcome of a write is unknown. It returns until when an outcome stays
// unknown; zero: all are known.
func (c *Controller) rereadUncertain(ctx context.Context, r *rolloutEntry) (time.Time, error) {
	var until time.Time
	for _, w := range c.fleet.uncertainWrites(r) {
		read := c.fleet.now()
		if err := c.reread(ctx, w.node); err != nil {
			return time.Time{}, err
		}

		if nc := c.fleet.pair(w.node).Config; nc == nil || nc.Generation > w.generation || !read.Before(w.until) {
			c.fleet.markUncertain(w.node, time.Time{})
		} else if until.Before(w.until) {
			until = w.until
		}
	}

	return until, nil
}

// createNodeConfigs creates empty NodeConfigs for the nodes of a rollout that
// lack one.
func (c *Controller) createNodeConfigs(ctx context.Context, r *rolloutEntry) error {
	missing := c.fleet.nodesWithoutConfig(r)
	return c.forEachParallel(ctx, len(missing), func(i int) error {
		nc := &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: missing[i]}}
		err := c.client.Create(ctx, nc, fieldManager)
		switch {
		case err == nil:
			c.metrics.wrote("nodeconfig", "ok")
			c.fleet.setConfig(nc)
			return nil
		case apierrors.IsAlreadyExists(err):
			return c.reread(ctx, missing[i])
		}

		c.metrics.wrote("nodeconfig", "error")

		return advise("create nodeconfigs.evenkeel.dev/v1alpha1", err)
	})
}

// forEachParallel calls do for 0 to n-1, in this order, with as many calls at a
// time as there are writers. It begins no call after ctx has ended. A failed
// call does not keep the others from being made; the error of the first is
// returned, in this order, so that the same failures give the same error.
func (c *Controller) forEachParallel(ctx context.Context, n int, do func(i int) error) error {
	var mu sync.Mutex
	var first error
	at := n
	workqueue.ParallelizeUntil(ctx, c.writers, n, func(i int) {
		if err := do(i); err != nil {
			mu.Lock()
			defer mu.Unlock()
			if i < at {
				first, at = err, i
			}
		}
	})

	return first
}

// changesOf reports whether a status has changed, and whether a decision has,
// which must be written before nodes are moved. Other changes, such as counts,
// may be written later.
func changesOf(was, is *v1alpha1.NodeConfigRolloutStatus) (changed, decided bool) {
	if equality.Semantic.DeepEqual(was, is) {
		return false, false
	}

	return true, !equality.Semantic.DeepEqual(decisionsOf(was), decisionsOf(is))
}

// decisionsOf returns a status without observations.
func decisionsOf(st *v1alpha1.NodeConfigRolloutStatus) *v1alpha1.NodeConfigRolloutStatus {
	out := st.DeepCopy()
	out.Controller = nil     // for other programs
	out.NextWindowTime = nil // for people
	out.Message, out.Nodes, out.ProgressTime, out.FailedNodes = "", v1alpha1.RolloutCounts{}, nil, nil
	for i := range out.Conditions {
		out.Conditions[i].Message = ""
	}

	for i := range out.DrainingNodes {
		out.DrainingNodes[i].Message = ""
	}
	if p := out.Preflight; p != nil && p.EndTime == nil {
		out.Preflight = &v1alpha1.PreflightResult{StartTime: p.StartTime}
	}

	for i := range out.Gates { // a failed evaluation changes Failures, and is written with its time
		out.Gates[i].Value, out.Gates[i].Time, out.Gates[i].Message = "", nil, ""
	}

	return out
}

// specOf returns the spec that a move writes. A move back to no source sets
// takenBack: a node that accepted the assignment meanwhile must not mistake the
// empty source for a person's request.
func specOf(planned *rollout.Node, m rollout.Move) v1alpha1.NodeConfigSpec {
	out := v1alpha1.NodeConfigSpec{ConfigSource: m.Source, Revoked: m.Revoked}
	if was := planned.Source.By(); m.Source == nil && was.Name != "" {
		out.TakenBack = &v1alpha1.TakenBackAssignment{Rollout: was.Name, Revision: was.Revision, Attempt: was.Attempt, AssignedAt: was.AssignedAt}
	}

	return out
}
