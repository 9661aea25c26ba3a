package component

import (
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// maxRounds bounds how often Objections asks again.
const maxRounds = 20

// refusedGate is what a component has against one feature gate, and its name.
var refusedGate = regexp.MustCompile(`unrecognized feature gate: ([^\s,;\]]+)` +
	`|cannot set feature gate (\S+) to \w+, feature is locked to \w+`)

// Objections returns the verdict on a configuration, and all that the binary has against it, if it is a rejection. Of the
// feature gates that it does not know, a binary names one at a time, and not always the same; so those that it names are
// taken out of a copy, and it is asked again, a bounded number of times. The words on gates come first, by their names,
// without what else stood around them. What can no longer be found out, because an answer is of no use, is not there.
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
		if strict == "" { // the copy has other line numbers, and no duplicate keys
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

// cutStrict cuts a rejection's words in two: those that a lenient decoder would not have said are the second part.
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

// withoutRefused returns what the words have against single feature gates, and the configuration without these, as JSON;
// nil if there are none that could be left out.
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
		name := match[1] + match[2] // one of them
		if _, ok := gates[name]; ok {
			refused = append(refused, match[0])
			delete(gates, name)
		}
	}
	if len(refused) == 0 {
		return nil, nil
	}
	less, _ = json.Marshal(fields) // it came from JSON
	return refused, less
}
