// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package support

import (
	"encoding/json"
	"maps"
	"strings"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// masked replaces values that can be secret.
const masked = "masked"

// maskObject changes an object of the API for display: it removes annotations
// of other programs and managed fields, and masks values that can be secret.
func maskObject(o map[string]any) map[string]any {
	if metadata, ok := o["metadata"].(map[string]any); ok {
		delete(metadata, "managedFields")
	}

	out, _ := mask("", o).(map[string]any)

	return out
}

// mask returns the value of a field without what can be secret.
func mask(field string, value any) any {
	switch value := value.(type) {
	case map[string]any:
		return maskMap(field, value)
	case []any:
		return maskList(field, value)
	case string:
		if payload.SecretName(field) && value != "" {
			return masked
		}

		return payload.MaskText(value)
	}

	return value
}

func maskMap(field string, fields map[string]any) map[string]any {
	fields = payload.Mask(fields) // it copies
	for name, value := range fields {
		if annotations, ok := value.(map[string]any); ok && name == "annotations" && field == "metadata" {
			fields[name] = ownAnnotations(annotations)
			continue
		}

		fields[name] = mask(name, value)
	}

	return fields
}

// ownAnnotations returns evenkeel's annotations. Those of other programs can
// contain whole objects, such as
// kubectl.kubernetes.io/last-applied-configuration.
func ownAnnotations(annotations map[string]any) map[string]any {
	annotations = maps.Clone(annotations)
	for name, value := range annotations {
		domain, _, _ := strings.Cut(name, "/")
		if domain != v1alpha1.GroupName {
			delete(annotations, name)
		} else if text, ok := value.(string); ok {
			annotations[name] = payload.MaskText(text)
		}
	}

	return annotations
}

func maskList(field string, list []any) []any {
	out := make([]any, len(list))
	for i, value := range list {
		out[i] = mask(field, value)
	}

	switch field {
	case "env", "httpHeaders":
		for _, value := range out {
			if entry, ok := value.(map[string]any); ok && entry["value"] != nil {
				entry["value"] = masked
			}
		}
	case "args", "command":
		maskArguments(out)
	}

	return out
}

// maskArguments is payload.MaskArguments for a list of the API.
func maskArguments(list []any) {
	args := make([]string, len(list))
	for i, value := range list {
		args[i], _ = value.(string)
	}

	for i, text := range payload.MaskArguments(args) {
		if _, ok := list[i].(string); ok {
			list[i] = text
		}
	}
}

// maskConfigMap shows payloads as fields, without secret values, and the size
// of everything else.
func maskConfigMap(o map[string]any) map[string]any {
	for _, part := range []string{"data", "binaryData"} {
		values, ok := o[part].(map[string]any)
		if !ok {
			continue
		}

		values = maps.Clone(values)
		for key, value := range values {
			text, _ := value.(string)
			values[key] = "left out, no configuration: " + printable.Count(len(text), "byte")
			if part == "data" && (key == payload.KeyKubelet || key == payload.KeyKubeletDropin) {
				values[key] = maskPayload(text)
			}
		}

		o[part] = values
	}

	return maskObject(o)
}

// maskPayload decodes a payload. Text that cannot be decoded cannot be masked
// reliably, and is left out.
func maskPayload(text string) any {
	if fields, err := payload.DecodeMapping([]byte(text)); err == nil {
		return fields
	}

	return "left out, cannot be decoded: " + printable.Count(len(text), "byte")
}

// nodeStatus are the fields of a Node's status that a bundle contains.
var nodeStatus = []string{"conditions", "nodeInfo", "capacity", "allocatable", "config"}

// maskNode keeps what evenkeel looks at: labels, taints, conditions, versions
// and sizes, but not addresses and images.
func maskNode(o map[string]any) map[string]any {
	spec, _ := o["spec"].(map[string]any)
	status, _ := o["status"].(map[string]any)
	shown := map[string]any{}
	for _, name := range nodeStatus {
		if value, ok := status[name]; ok {
			shown[name] = value
		}
	}

	kept := map[string]any{}
	for _, name := range []string{"taints", "unschedulable"} {
		if value, ok := spec[name]; ok {
			kept[name] = value
		}
	}

	return maskObject(map[string]any{"apiVersion": o["apiVersion"], "kind": o["kind"], "metadata": o["metadata"], "spec": kept,
		"status": shown})
}

// encode returns JSON with printable characters. Text that is too deep to be
// indented is one line.
func encode(value any) ([]byte, error) {
	line, err := json.Marshal(value)
	if err != nil || !payload.Indentable(line) {
		return line, err
	}

	return json.MarshalIndent(value, "", "  ")
}
