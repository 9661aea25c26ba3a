package cli

import (
	"context"
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
)

// operation is one of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
	From  any    `json:"-"` // what was there, for people
}

// mostConflicts is how often an edit is tried that others' edits get in the way of. The controller writes the status of
// the same object, so that a conflict is nothing rare.
const mostConflicts = 10

// edit has change edit a rollout, and writes what is then different of its spec. It overwrites nobody: an edit that comes
// between is read, and change called again. What change returns is printed. Its error leaves everything as it is.
func (a *app) edit(ctx context.Context, c client.Client, name string, change change) error {
	for try := 1; ; try++ {
		r, err := get(ctx, c, name)
		if err != nil {
			return err
		}
		edited := r.DeepCopy()
		words, err := change(edited)
		if err != nil {
			return fmt.Errorf("rollout %q %w; nothing was changed", name, err)
		}
		_, err = patch(ctx, c, r, edited)
		if apierrors.IsConflict(err) && try < mostConflicts {
			continue
		}
		if err != nil {
			return fmt.Errorf("write rollout %q: %w", name, err)
		}
		fmt.Fprintf(a.Out, "rollout %s %s\n", name, oneLine(words))
		return nil
	}
}

// patch writes what differs between two specs of a rollout, on condition that nobody has written it since before was
// read: a conflict otherwise. It writes nothing, and returns nothing, if nothing differs.
func patch(ctx context.Context, c client.Client, before, after *v1alpha1.NodeConfigRollout, options ...client.PatchOption) ([]operation, error) {
	changes, err := differences(before, after)
	if err != nil || len(changes) == 0 {
		return nil, err
	}
	all := append([]operation{{Op: "replace", Path: "/metadata/resourceVersion", Value: before.ResourceVersion}}, changes...)
	data, err := json.Marshal(all)
	if err != nil {
		return nil, err
	}
	options = append(options, client.FieldValidation(metav1.FieldValidationStrict))
	return changes, c.Patch(ctx, after.DeepCopy(), client.RawPatch(types.JSONPatchType, data), options...)
}

// differences returns what makes one rollout's spec of another's.
func differences(before, after *v1alpha1.NodeConfigRollout) ([]operation, error) {
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
func operations(path string, before, after map[string]any) []operation {
	keys := maps.Clone(before)
	maps.Copy(keys, after)
	var all []operation
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		b, had := before[key]
		a, has := after[key]
		at := path + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
		inB, mapB := b.(map[string]any)
		inA, mapA := a.(map[string]any)
		switch {
		case had && has && reflect.DeepEqual(a, b):
		case !has:
			all = append(all, operation{Op: "remove", Path: at, From: b})
		// An object that is empty in Go may not be there at all, so that nothing can be added into it.
		case mapA && mapB && len(inB) > 0 && key != "template":
			all = append(all, operations(at, inB, inA)...)
		default:
			all = append(all, operation{Op: "add", Path: at, Value: a, From: b})
		}
	}
	return all
}
