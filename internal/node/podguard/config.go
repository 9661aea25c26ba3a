// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package podguard

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/payload"
)

// textOr returns a field of text; the kubelet's default if it is empty or missing.
func textOr(config component.Effective, path, missing string) string {
	if s := config.String(path); s != "" {
		return s
	}
	return missing
}

func boolOr(config component.Effective, path string, missing bool) bool {
	v, _ := config.Field(path)
	if b, ok := v.(bool); ok {
		return b
	}
	return missing
}

func intOr(config component.Effective, path string, missing int64) int64 {
	if i, ok := config.Int(path); ok {
		return i
	}
	return missing
}

// texts returns the entries of a map of text, and whether the map is set. A number counts as its text.
func texts(config component.Effective, path string) (map[string]string, bool) {
	v, _ := config.Field(path)
	return textsOf(v)
}

func textsOf(v any) (map[string]string, bool) {
	fields, ok := v.(map[string]any)
	if !ok {
		return nil, false
	}
	entries := make(map[string]string, len(fields))
	for name, value := range fields {
		switch value := value.(type) {
		case string:
			entries[name] = value
		case json.Number:
			entries[name] = value.String()
		case bool:
			entries[name] = strconv.FormatBool(value)
		}
	}
	return entries, true
}

// listed reports whether a list of text contains the value. missing is the answer if the list is not set.
func listed(config component.Effective, path, value string, missing bool) bool {
	entries := list(config, path)
	if entries == nil {
		return missing
	}
	return slices.Contains(entries, any(value))
}

func list(config component.Effective, path string) []any {
	v, _ := config.Field(path)
	entries, _ := v.([]any)
	return entries
}

// defaultEvictionHard is the kubelet's on Linux (pkg/kubelet/eviction/defaults_linux.go).
var defaultEvictionHard = map[string]string{
	"memory.available":   "100Mi",
	"nodefs.available":   "10%",
	"nodefs.inodesFree":  "5%",
	"imagefs.available":  "15%",
	"imagefs.inodesFree": "5%",
}

// evictionHard returns the hard thresholds. An effective configuration prints its defaults; without the field the defaults
// count.
func evictionHard(config component.Effective) map[string]string {
	if set, ok := texts(config, "evictionHard"); ok {
		return set
	}
	return defaultEvictionHard
}

// threshold returns an eviction threshold of a capacity; zero: the kubelet ignores it. An unreadable one is the whole
// capacity. The computation has the kubelet's rounding: it holds percentages as float32.
func threshold(value string, capacity int64) int64 {
	if value == "0%" || value == "100%" {
		return 0
	}
	if strings.HasSuffix(value, "%") {
		percent, err := strconv.ParseFloat(strings.TrimRight(value, "%"), 32)
		if err != nil || math.IsNaN(percent) || percent < 0 || percent > 100 {
			return capacity
		}
		return int64(float64(capacity) * float64(float32(percent)/100))
	}
	q, err := payload.ParseQuantity(value)
	if err != nil {
		return capacity
	}
	return amount("", q)
}
