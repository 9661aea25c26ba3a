package component

import (
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// maxRounds limits how often Objections validates again.
const maxRounds = 20

// rejectedGate matches an error about one feature gate and captures the name.
var refusedGate = regexp.MustCompile(`unrecognized feature gate: ([^\s,;\]]+)` +
	`|cannot set feature gate (\S+) to \w+, feature is locked to \w+`)

// Objections returns the verdict on a configuration and, if it is rejected, all errors. A binary reports only one
// unknown feature gate at a time, so the reported gates are removed from a copy that is validated again, up to a
// limit. Errors about gates come first, sorted by name. If a later validation gives no answer, the remaining errors
// are missing.
func Objections(ctx context.Context, c Component, data []byte) (Verdict, []string) {
	first := c.Validate(ctx, data)
	v := first
	var gates []string
	var rest, strict string
	for range maxRounds {
		if v.Outcome != Rejected {
			break
		}
		words, unknownFields := cutStrict(v.Words)
		if strict == "" { // the copy has other line numbers and no duplicate keys
			strict = unknownFields
		}
		refused, less := withoutRefused(data, words)
		if less == nil {
			rest = words
			break
		}
		gates = append(gates, refused...)
		data = less
		v = c.Validate(ctx, data)
	}
	slices.Sort(gates)
	for _, words := range []string{rest, strict} {
		if words != "" {
			gates = append(gates, words)
		}
	}
	return first, gates
}

// cutStrict splits a rejection into the errors of lenient decoding and those of strict decoding.
func cutStrict(words string) (string, string) {
	const strict, separator = "strict decoding error: ", "; "
	if strings.HasPrefix(words, strict) {
		return "", words
	}
	if i := strings.Index(words, separator+strict); i >= 0 {
		return words[:i], words[i+len(separator):]
	}
	return words, ""
}

// withoutRejectedGates returns the errors about single feature gates in a message, and the configuration without these
// gates as JSON; nil if there are none to remove.
func withoutRefused(data []byte, words string) (refused []string, less []byte) {
	asJSON, err := yaml.YAMLToJSON(data)
	if err != nil {
		return nil, nil
	}
	fields, err := decodeJSON(asJSON)
	if err != nil {
		return nil, nil
	}
	gates, _ := fields["featureGates"].(map[string]any)
	for _, match := range refusedGate.FindAllStringSubmatch(words, -1) {
		name := match[1] + match[2] // one of them is empty
		if _, ok := gates[name]; ok {
			refused = append(refused, match[0])
			delete(gates, name)
		}
	}
	if len(refused) == 0 {
		return nil, nil
	}
	less, _ = json.Marshal(fields) // cannot fail: it was decoded from JSON
	return refused, less
}
