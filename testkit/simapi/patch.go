package simapi

import (
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// patched returns content with a patch applied.
func (k *Kind) patched(content map[string]any, contentType string, body []byte) (map[string]any, *statusError) {
	content = clone(content)
	kind, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return nil, failf(http.StatusUnsupportedMediaType, "UnsupportedMediaType", "%v", err)
	}
	switch types.PatchType(kind) {
	case types.JSONPatchType:
		var operations []operation
		if err := utiljson.Unmarshal(body, &operations); err != nil {
			return nil, failf(http.StatusBadRequest, "BadRequest", "decode the patch: %v", err)
		}
		for _, o := range operations {
			if err := o.apply(content); err != nil {
				return nil, failf(http.StatusUnprocessableEntity, "Invalid", "the server rejected our request due to an error in our request: %v", err)
			}
		}
		return content, nil
	case types.MergePatchType, types.StrategicMergePatchType:
		patch, err := decode(body)
		if err != nil {
			return nil, failf(http.StatusBadRequest, "BadRequest", "decode the patch: %v", err)
		}
		if types.PatchType(kind) == types.MergePatchType {
			merge(content, patch)
			return content, nil
		}
		if k.Type == nil {
			return nil, failf(http.StatusUnsupportedMediaType, "UnsupportedMediaType", "%s has no strategic merge patches", k.Resource)
		}
		merged, err := strategicpatch.StrategicMergeMapPatch(content, patch, k.Type)
		if err != nil {
			return nil, failf(http.StatusUnprocessableEntity, "Invalid", "%v", err)
		}
		return merged, nil
	}
	return nil, failf(http.StatusUnsupportedMediaType, "UnsupportedMediaType", "patches of type %s are not served", kind)
}

// merge applies a JSON merge patch (RFC 7396).
func merge(content, patch map[string]any) {
	for name, value := range patch {
		if value == nil {
			delete(content, name)
			continue
		}
		change, ok := value.(map[string]any)
		if !ok {
			content[name] = value
			continue
		}
		merge(sub(content, name), change)
	}
}

// operation is one operation of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

func (o *operation) apply(content map[string]any) error {
	parts := strings.Split(strings.TrimPrefix(o.Path, "/"), "/")
	for i, p := range parts {
		parts[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(p)
	}
	_, err := o.change(content, parts)
	return err
}

// change applies the operation to what parts name below at, and returns at as it is then.
func (o *operation) change(at any, parts []string) (any, error) {
	name := parts[0]
	is, missing := child(at, name)
	if len(parts) > 1 {
		if missing != nil {
			return nil, fmt.Errorf("%s %s: %w", o.Op, o.Path, missing)
		}
		next, err := o.change(is, parts[1:])
		if err != nil {
			return nil, err
		}
		switch at := at.(type) {
		case map[string]any:
			at[name] = next
		case []any:
			i, _ := strconv.Atoi(name) // child has found it
			at[i] = next
		}
		return at, nil
	}
	if o.Op == "test" {
		if missing != nil && o.Value != nil || missing == nil && !equal(is, o.Value) {
			return nil, fmt.Errorf("test %s: the value is %v, not %v", o.Path, is, o.Value)
		}
		return at, nil
	}
	switch at := at.(type) {
	case map[string]any:
		switch {
		case o.Op == "add", o.Op == "replace" && missing == nil:
			at[name] = o.Value
			return at, nil
		case o.Op == "remove" && missing == nil:
			delete(at, name)
			return at, nil
		}
	case []any:
		i, err := strconv.Atoi(name)
		switch {
		case o.Op == "add" && name == "-", o.Op == "add" && err == nil && i == len(at):
			return append(at, o.Value), nil
		case o.Op == "add" && missing == nil:
			return slices.Insert(at, i, o.Value), nil
		case o.Op == "replace" && missing == nil:
			at[i] = o.Value
			return at, nil
		case o.Op == "remove" && missing == nil:
			return slices.Delete(at, i, i+1), nil
		}
	}
	return nil, fmt.Errorf("%s %s: it does not exist, or the operation is unknown", o.Op, o.Path)
}

func child(at any, name string) (any, error) {
	switch at := at.(type) {
	case map[string]any:
		if value, ok := at[name]; ok {
			return value, nil
		}
	case []any:
		if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(at) {
			return at[i], nil
		}
	}
	return nil, fmt.Errorf("%q does not exist", name)
}
