package simapi

import (
	"fmt"
	"mime"
	"net/http"
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
	var at any = content
	for _, p := range parts[:len(parts)-1] {
		next, err := child(at, p)
		if err != nil {
			return fmt.Errorf("%s %s: %w", o.Op, o.Path, err)
		}
		at = next
	}
	last := parts[len(parts)-1]
	is, missing := child(at, last)
	m, isMap := at.(map[string]any)
	switch {
	case o.Op == "test":
		if missing != nil && o.Value != nil || missing == nil && !equal(is, o.Value) {
			return fmt.Errorf("test %s: the value is %v, not %v", o.Path, is, o.Value)
		}
		return nil
	case !isMap:
		return fmt.Errorf("%s %s: lists cannot be changed here", o.Op, o.Path)
	case o.Op == "add", o.Op == "replace" && missing == nil:
		m[last] = o.Value
		return nil
	case o.Op == "remove" && missing == nil:
		delete(m, last)
		return nil
	}
	return fmt.Errorf("%s %s: it does not exist, or the operation is unknown", o.Op, o.Path)
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
