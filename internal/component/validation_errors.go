// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// maxRounds limits how often ValidationErrors validates again.
const maxRounds = 20

// rejectedGate matches an error about one feature gate and captures the name.
var rejectedGate = regexp.MustCompile(`unrecognized feature gate: ([^\s,;\]]+)` +
	`|cannot set feature gate (\S+) to \w+, feature is locked to \w+`)

// ValidationErrors returns the verdict on a configuration and, if it is rejected, all errors. A binary reports only one
// unknown feature gate at a time, so the reported gates are removed from a copy that is validated again, up to a
// limit. Errors about gates come first, sorted by name. If a later validation gives no answer, the remaining errors
// are missing.
func ValidationErrors(ctx context.Context, c Component, data []byte) (Verdict, []string) {
	verdict := c.Validate(ctx, data)
	v := verdict
	var gates []string
	var rest, strict string
	for range maxRounds {
		if v.Outcome != Rejected {
			break
		}
		message, unknownFields := cutStrict(v.Message)
		if strict == "" { // the copy has other line numbers and no duplicate keys
			strict = unknownFields
		}
		refused, remaining := withoutRejectedGates(data, message)
		if remaining == nil {
			rest = message
			break
		}
		gates = append(gates, refused...)
		data = remaining
		v = c.Validate(ctx, data)
	}
	slices.Sort(gates)
	for _, message := range []string{rest, strict} {
		if message != "" {
			gates = append(gates, message)
		}
	}
	return verdict, gates
}

// cutStrict splits a rejection into the errors of lenient decoding and those of strict decoding.
func cutStrict(message string) (string, string) {
	const strict, separator = "strict decoding error: ", "; "
	if strings.HasPrefix(message, strict) {
		return "", message
	}
	if i := strings.Index(message, separator+strict); i >= 0 {
		return message[:i], message[i+len(separator):]
	}
	return message, ""
}

// withoutRejectedGates returns the errors about single feature gates in a message, and the configuration without these
// gates as JSON; nil if there are none to remove.
func withoutRejectedGates(data []byte, message string) (refused []string, remaining []byte) {
	asJSON, err := yaml.YAMLToJSON(data)
	if err != nil {
		return nil, nil
	}
	var fields map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(asJSON, &fields); err != nil {
		return nil, nil
	}
	gates, _ := fields["featureGates"].(map[string]any)
	for _, match := range rejectedGate.FindAllStringSubmatch(message, -1) {
		name := match[1] + match[2] // one of them is empty
		if _, ok := gates[name]; ok {
			refused = append(refused, match[0])
			delete(gates, name)
		}
	}
	if len(refused) == 0 {
		return nil, nil
	}
	remaining, _ = json.Marshal(fields) // cannot fail: it was decoded from JSON
	return refused, remaining
}
