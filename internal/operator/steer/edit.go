// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package steer changes rollouts and assignments for an operator: pause,
// resume, freeze, approve, abort, retry, and assign. It writes specs only, and
// returns a message that says what changed and what to do next. Repeating a
// change has no effect; a change that cannot have an effect is an error.
//
// It must not carry out a rollout: the controller does that.
package steer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/operator/query"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// Operation is one operation of a JSON patch.
type Operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
	From  any    `json:"-"` // the old value, to show to people
}

// MostConflicts is the number of attempts to write an edit. Conflicts are
// common, since the controller writes the status of the same object.
const MostConflicts = 10

// Patch writes the differences between two specs of a rollout, and the
// annotations, and returns those of the specs. The error is a conflict if the
// rollout was changed since before was read. Without differences it writes
// nothing.
func Patch(ctx context.Context, c client.Client, before, after *v1alpha1.NodeConfigRollout) ([]Operation, error) {
	changes, err := differences(before, after)
	if err != nil || len(changes) == 0 {
		return nil, err
	}

	all := append([]Operation{{Op: "replace", Path: "/metadata/resourceVersion", Value: before.ResourceVersion}}, changes...)
	if !maps.Equal(before.Annotations, after.Annotations) {
		all = append(all, Operation{Op: "add", Path: "/metadata/annotations", Value: after.Annotations})
	}

	data, err := json.Marshal(all)
	if err != nil {
		return nil, err
	}

	return changes, c.Patch(ctx, after.DeepCopy(), client.RawPatch(types.JSONPatchType, data),
		client.FieldValidation(metav1.FieldValidationStrict))
}

// differences returns the operations that turn the spec of before into that of
// after.
func differences(before, after *v1alpha1.NodeConfigRollout) ([]Operation, error) {
	stored, err := specMap(before)
	if err != nil {
		return nil, err
	}

	edited, err := specMap(after)
	if err != nil {
		return nil, err
	}

	return operations("/spec", stored, edited), nil
}

func specMap(r *v1alpha1.NodeConfigRollout) (map[string]any, error) {
	return runtime.DefaultUnstructuredConverter.ToUnstructured(&r.Spec)
}

// operations returns the operations that turn before into after. It replaces a
// template as a whole, so that nulls in it stay.
func operations(path string, before, after map[string]any) []Operation {
	keys := maps.Clone(before)
	maps.Copy(keys, after)
	var all []Operation
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		b, had := before[key]
		a, has := after[key]
		at := path + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
		inB, mapB := b.(map[string]any)
		inA, mapA := a.(map[string]any)
		switch {
		case had && has && reflect.DeepEqual(a, b):
		case !has:
			all = append(all, Operation{Op: "remove", Path: at, From: b})
		// An object that is empty in Go may not exist in the API, so nothing
		// can be added to it.
		case mapA && mapB && len(inB) > 0 && key != "template":
			all = append(all, operations(at, inB, inA)...)
		default:
			all = append(all, Operation{Op: "add", Path: at, Value: a, From: b})
		}
	}

	return all
}

// Edit calls change on a rollout and writes the changed spec. After a conflict
// it reads the rollout and calls change again. It returns the message of change
// with the rollout's name. If change returns an error, nothing is written.
func Edit(ctx context.Context, c client.Client, name string, change Change) (string, error) {
	for try := 1; ; try++ {
		r, err := query.Rollout(ctx, c, name)
		if err != nil {
			return "", err
		}

		edited := r.DeepCopy()
		words, err := change(edited)
		if err != nil {
			return "", fmt.Errorf("rollout %q %w; nothing was changed", name, err)
		}

		_, err = Patch(ctx, c, r, edited)
		if apierrors.IsConflict(err) && try < MostConflicts {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("write rollout %q: %w", name, err)
		}

		return printable.Line("rollout " + name + " " + words), nil
	}
}

// AnyStatus makes EditObserved an Edit.
const AnyStatus = -1

// EditObserved is Edit for a change that depends on the rollout's status. It
// first waits for a status for the newest spec; without one, only a change
// without effect succeeds. It refuses a rollout that is at another revision; 0
// allows every revision.
func EditObserved(ctx context.Context, c client.Client, name string, revision int64, change Change) (string, error) {
	if revision == AnyStatus {
		return Edit(ctx, c, name, change)
	}

	_, late := query.ObservedRollout(ctx, c, name)
	if late != nil && !errors.Is(late, query.ErrUnobserved) {
		return "", late
	}

	return Edit(ctx, c, name, func(r *v1alpha1.NodeConfigRollout) (string, error) {
		if r.Status.UpdateRevision == nil {
			switch {
			case !query.Observed(r):
				return "", fmt.Errorf("has no revision: %w", query.ErrUnobserved)
			case r.Status.Message != "":
				return "", fmt.Errorf("has no revision (%s: %s)", r.Status.Phase, printable.Line(r.Status.Message))
			}

			return "", fmt.Errorf("has no revision: kubectl evenkeel rollout status %s", r.Name)
		}

		if err := atRevision(r, revision); err != nil {
			return "", err
		}

		before := r.DeepCopy()
		words, err := change(r)
		if !query.Observed(r) && err == nil {
			changes, e := differences(before, r)
			if e != nil {
				return "", e
			}
			if len(changes) > 0 {
				return "", fmt.Errorf("cannot be changed yet: %w", query.ErrUnobserved)
			}

			words += "; " + query.Unobserved
		}

		return words, err
	})
}

// maxApplied is the longest annotation of SaveApplied, in bytes: all
// annotations of an object have 256 KiB. kubectl apply cannot write a longer
// one either.
const maxApplied = 200 << 10

// SaveApplied records the fields of after's spec that differ from before in the
// annotation from which kubectl apply and Argo CD derive what to remove.
// Without it they would merge the next configuration from a repository into
// this one. before is nil for a new rollout.
func SaveApplied(before, after *v1alpha1.NodeConfigRollout) error {
	changed, err := specMap(after)
	if err != nil {
		return err
	}

	applied := map[string]any{"apiVersion": v1alpha1.GroupVersion.String(), "kind": "NodeConfigRollout",
		"metadata": map[string]any{"name": after.Name}}
	if before != nil {
		after.Annotations = maps.Clone(before.Annotations)
		stored, err := specMap(before)
		if err != nil {
			return err
		}

		maps.DeleteFunc(changed, func(key string, value any) bool { return reflect.DeepEqual(value, stored[key]) })
		var last map[string]any // nil if there is none, or none that a tool can read
		_ = json.Unmarshal([]byte(before.Annotations[corev1.LastAppliedConfigAnnotation]), &last)
		maps.Copy(applied, last)
	}

	if recorded, is := applied["spec"].(map[string]any); is {
		maps.Copy(recorded, changed)
	} else {
		applied["spec"] = changed
	}

	text, err := json.Marshal(applied)
	if err != nil || len(changed) == 0 || len(text) > maxApplied {
		return err
	}

	metav1.SetMetaDataAnnotation(&after.ObjectMeta, corev1.LastAppliedConfigAnnotation, string(text))

	return nil
}

// Reason returns a reason as a rollout stores it. The error says that it is too
// long.
func Reason(text string) (string, error) {
	reason := strings.TrimSpace(text)
	if n := utf8.RuneCountInString(reason); n > v1alpha1.MaxReason {
		return "", fmt.Errorf("the reason has %s, more than the limit of %d; nothing was changed", printable.Count(n, "character"),
			v1alpha1.MaxReason)
	}

	return reason, nil
}
