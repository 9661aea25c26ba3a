package payload

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"

	yamlv2 "go.yaml.in/yaml/v2"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// decodeFields reads JSON or YAML the way the kubelet does (text that begins with "{" is JSON first, and YAML if that
// fails), but refuses what the kubelet only warns about or silently ignores: duplicate keys and further documents.
func decodeFields(data []byte) (map[string]any, Problem, string) {
	if bytes.HasPrefix(bytes.TrimLeftFunc(data, unicode.IsSpace), []byte("{")) {
		var fields map[string]any
		if strict, err := kjson.UnmarshalStrict(data, &fields); err == nil {
			if len(strict) > 0 {
				return nil, ProblemDuplicate, bound(strict[0].Error())
			}
			return fields, "", ""
		}
	}
	if problem, words := oneDocument(data); problem != "" {
		return nil, problem, words
	}
	asJSON, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		// oneDocument has parsed it already, so that what is left is a key that is there twice, or one that cannot be
		// a JSON key.
		if strings.Contains(err.Error(), "already set in map") {
			return nil, ProblemDuplicate, "duplicate key: " + bound(err.Error())
		}
		return nil, ProblemSyntax, "neither JSON nor YAML: " + bound(err.Error())
	}
	var value any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(asJSON, &value); err != nil {
		return nil, ProblemSyntax, "neither JSON nor YAML: " + bound(err.Error())
	}
	switch v := value.(type) {
	case map[string]any:
		return v, "", ""
	case nil:
		return nil, ProblemEmpty, "empty"
	default:
		return nil, ProblemSyntax, fmt.Sprintf("not a mapping of fields but a single %s", typeName(v))
	}
}

// oneDocument refuses a second YAML document: the kubelet would ignore it without a word.
func oneDocument(data []byte) (Problem, string) {
	dec := yamlv2.NewDecoder(bytes.NewReader(data))
	for n := 1; ; n++ {
		var doc any
		err := dec.Decode(&doc)
		switch {
		case errors.Is(err, io.EOF) && n == 1:
			return ProblemEmpty, "empty"
		case errors.Is(err, io.EOF):
			return "", ""
		case err != nil && n == 1:
			return ProblemSyntax, "neither JSON nor YAML: " + bound(err.Error())
		case n > 1 && (err != nil || doc != nil):
			return ProblemDocuments, "more than one YAML document"
		}
	}
}

func typeName(v any) string {
	switch v.(type) {
	case []any:
		return "list"
	case string:
		return "string"
	case bool:
		return "boolean"
	default:
		return "number"
	}
}

// bound keeps an error to one line of a length that fits a status.
func bound(words string) string {
	words = strings.Join(strings.Fields(words), " ")
	const most = 300
	if len(words) > most {
		words = strings.ToValidUTF8(words[:most], "") + "..."
	}
	return words
}

func quote(s string) string { return fmt.Sprintf("%q", bound(s)) }
