// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package simapi

import (
	"mime"
	"net/http"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/types"
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
		patch, err := jsonpatch.DecodePatch(body)
		if err != nil {
			return nil, failf(http.StatusBadRequest, "BadRequest", "decode the patch: %v", err)
		}

		raw, err := patch.Apply(encode(content))
		if err != nil {
			return nil, failf(http.StatusUnprocessableEntity, "Invalid", "the server rejected our request due to an error in our request: %v", err)
		}
		if content, err = decode(raw); err != nil {
			return nil, failf(http.StatusBadRequest, "BadRequest", "decode the patched object: %v", err)
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
