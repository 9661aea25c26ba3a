// Package steer writes what an operator intends into the spec of a rollout, and says in words what that did and what comes
// next. Done twice, an intent changes nothing; what would have no effect is an error that changes nothing.
//
// It must not do what is intended: that is the controller's.
package steer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet/query"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// Operation is one of a JSON patch.
type Operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
	From  any    `json:"-"` // what was there, for people
}

// MostConflicts is how often an edit is tried that others' edits get in the way of. The controller writes the status of
// the same object, so that a conflict is nothing rare.
const MostConflicts = 10

// Patch writes what differs between two specs of a rollout, on condition that nobody has written it since before was
// read: a conflict otherwise. It writes nothing, and returns nothing, if nothing differs.
func Patch(ctx context.Context, c client.Client, before, after *v1alpha1.NodeConfigRollout, options ...client.PatchOption) ([]Operation, error) {
	changes, err := Differences(before, after)
	if err != nil || len(changes) == 0 {
		return nil, err
	}
	all := append([]Operation{{Op: "replace", Path: "/metadata/resourceVersion", Value: before.ResourceVersion}}, changes...)
	data, err := json.Marshal(all)
	if err != nil {
		return nil, err
	}
	options = append(options, client.FieldValidation(metav1.FieldValidationStrict))
	return changes, c.Patch(ctx, after.DeepCopy(), client.RawPatch(types.JSONPatchType, data), options...)
}

// Differences returns what makes one rollout's spec of another's.
func Differences(before, after *v1alpha1.NodeConfigRollout) ([]Operation, error) {
	stored, err := specMap(before)
	if err != nil {
		return nil, err
	}
	wanted, err := specMap(after)
	if err != nil {
		return nil, err
	}
	return operations("/spec", stored, wanted), nil
}

func specMap(r *v1alpha1.NodeConfigRollout) (map[string]any, error) {
	data, err := json.Marshal(r.Spec)
	if err != nil {
		return nil, err
	}
	var spec map[string]any
	if err := json.Unmarshal(data, &spec); err != nil {
		return nil, err
	}
	return spec, nil
}

// operations returns what makes one object of another. A template is replaced as a whole: what is null in it stays so.
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
		// An object that is empty in Go may not be there at all, so that nothing can be added into it.
		case mapA && mapB && len(inB) > 0 && key != "template":
			all = append(all, operations(at, inB, inA)...)
		default:
			all = append(all, Operation{Op: "add", Path: at, Value: a, From: b})
		}
	}
	return all
}

// Edit has change edit a rollout, and writes what is then different of its spec. It overwrites nobody: an edit that comes
// between is read, and change called again. It returns what change said, with the rollout's name. An error of change leaves
// everything as it is.
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

// Intend edits a rollout by what its status says. It waits a little until that answers the spec; if it does not, only an
// intent that is there already is fine. It refuses another revision than the one that is asked for; 0 is any.
func Intend(ctx context.Context, c client.Client, name string, revision int64, change Change) (string, error) {
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
		if now := r.Status.UpdateRevision.Number; revision != 0 && revision != now {
			return "", fmt.Errorf("is at revision %d, not %d: kubectl evenkeel rollout status %s", now, revision, r.Name)
		}
		before := r.DeepCopy()
		words, err := change(r)
		if !query.Observed(r) && err == nil {
			changes, e := Differences(before, r)
			if e != nil {
				return "", e
			}
			if len(changes) > 0 {
				return "", fmt.Errorf("cannot be judged: %w", query.ErrUnobserved)
			}
			words += "; " + query.Unobserved
		}
		return words, err
	})
}
