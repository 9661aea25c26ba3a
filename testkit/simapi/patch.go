// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package simapi

import (
	"fmt"
	"net/http"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// patched returns the content of an object with a patch applied.
func (k *Kind) patched(o *object, kind string, body []byte) (content map[string]any, err error) {
	code := http.StatusBadRequest
	var raw []byte
	switch types.PatchType(kind) {
	case types.JSONPatchType:
		var patch jsonpatch.Patch
		if patch, err = jsonpatch.DecodePatch(body); err == nil {
			code = http.StatusUnprocessableEntity
			raw, err = patch.Apply(o.raw)
		}
	case types.MergePatchType:
		raw, err = jsonpatch.MergePatch(o.raw, body)
	case types.StrategicMergePatchType:
		raw, err = strategicpatch.StrategicMergePatch(o.raw, body, k.Type)
	default:
		code = http.StatusUnsupportedMediaType
		err = fmt.Errorf("patches of type %s are not served", kind)
	}

	if err == nil {
		content, err = decode(raw)
	}
	if err != nil {
		return nil, apierrors.NewGenericServerResponse(code, "", k.GroupResource(), o.key.name, err.Error(), 0, true)
	}

	return content, nil
}
