package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var (
	// A number with a noun in the plural, whatever the number is.
	counted = regexp.MustCompile(`(\S+ \S+ )?%(?:\[\d\])?d ([a-z]+s)\b`)
	// Verbs and other words that are no nouns.
	noNouns = []string{"begins", "does", "has", "is", "passes", "rolls", "stops", "waits", "was"}
	// Limits are constants above 1.
	limits = regexp.MustCompile(`(?:at most|limit of|more than|larger than) $`)
)

// plural are strings whose number is never 1, by the reason.
var plural = map[string]string{
	"%d rollouts await approval":                                       "1 has a case of its own",
	"is not installed: none of its %d objects exists":                  "an installation has many objects",
	"is installed incompletely: %d of its %d objects are missing (%s)": "an installation has many objects",
	"%d agents are":           "1 has a case of its own",
	"%d nodes are being":      "1 has a case of its own",
	"%d starts":               "1 has a case of its own",
	"%d times":                "1 has a case of its own",
	"%d times in a row":       "1 has a case of its own",
	"%d bytes, more than %d":  "the limit is above 1",
	"%d values, more than %d": "the limit is above 1",
	"%w: it has %d bytes":     "the limit is above 1",
	"the answer has %d bytes, and %d are possible: run evenkeel-agent flags on the node":                    "the limit is above 1",
	"the undo record would have %d bytes, compressed (a ConfigMap holds %d): ":                              "the limit is above 1",
	"the kubelet would not start with %s: reservedMemory of %s on NUMA node %d changes from %d to %d bytes": "nobody reserves 1 byte of memory",
	"quantity of %d bytes":                                "the limit is above 1",
	"container %s has %d devices of %s and a limit of %s": "a device plugin's resource, in the kubelet's words",
}

// "1 nodes" looks careless. printable.Count returns a number with its noun; these are the strings that do not use it.
func TestNumbersHaveTheirNounInTheRightForm(t *testing.T) {
	unused := map[string]bool{}
	for words := range plural {
		unused[words] = true
	}
	for _, root := range []string{"../../cmd", "../../internal"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			files := token.NewFileSet()
			file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			for n := range ast.Preorder(file) {
				literal, ok := n.(*ast.BasicLit)
				if !ok || literal.Kind != token.STRING {
					continue
				}
				words, err := strconv.Unquote(literal.Value)
				if err != nil {
					return err
				}
				if noun := wrongPlural(words); noun != "" {
					if plural[words] == "" {
						t.Errorf("%s: %q with a number in front of %q: use printable.Count", files.Position(literal.Pos()), words, noun)
					}
					delete(unused, words)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for words := range unused {
		t.Errorf("the exception %q is not needed", words)
	}
}

// wrongPlural returns the first noun in a format that is in the plural for any number; empty if there is none.
func wrongPlural(format string) string {
	for _, m := range counted.FindAllStringSubmatch(format, -1) {
		if !slices.Contains(noNouns, m[2]) && !limits.MatchString(m[1]) {
			return m[2]
		}
	}
	return ""
}

func TestWrongPluralsAreFound(t *testing.T) {
	for format, want := range map[string]string{
		"%d nodes failed": "nodes", "on %d of %d nodes": "nodes", "%[2]d pods": "pods",
		"revision %d is stopped": "", "at most %d bytes": "", "step %d/%d": "", "%s of %d": "",
	} {
		if got := wrongPlural(format); got != want {
			t.Errorf("%q: found %q, want %q", format, got, want)
		}
	}
}
