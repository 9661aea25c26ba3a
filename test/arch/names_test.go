package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// decisive are prefixes of names, and types, of API constants by which programs decide.
var decisive = []string{"Reason", "Outcome", "Halt", "Condition", "RolloutPhase"}

// coincidences are literals that equal an API constant but mean something else.
var coincidences = map[string]string{
	`internal/node/trial/observed.go: "Invalid"`:     "a kind of intent",
	`internal/fleet/describe/node.go: "Revoked"`:     "a heading",
	`internal/fleet/describe/standing.go: "Waiting"`: "a position in a rollout",
	`internal/node/inspect/status.go: "Revoked"`:     "a heading",
	`internal/fleet/installer/types.go: "Succeeded"`: "how an operation of the installer ended",
	`internal/fleet/dashboard/detail.go: "Invalid"`:  "a heading",
	`internal/node/source/nodewatch.go: "Ready"`:     "the condition of a Node and of a pod",
}

// literal is a string literal in a file. If it is the value of a constant, constant and kind are the constant's name and type.
type literal struct {
	value, constant, kind string
}

// literals returns the string literals of a file.
func literals(name string, source any) ([]literal, error) {
	file, err := parser.ParseFile(token.NewFileSet(), name, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var out []literal
	constants := map[*ast.BasicLit]literal{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GenDecl:
			for _, spec := range n.Specs {
				if v, ok := spec.(*ast.ValueSpec); ok && n.Tok == token.CONST {
					kind, _ := v.Type.(*ast.Ident)
					for i, value := range v.Values {
						if lit, ok := value.(*ast.BasicLit); ok {
							constants[lit] = literal{constant: v.Names[i].Name, kind: kindName(kind)}
						}
					}
				}
			}
		case *ast.BasicLit:
			if n.Kind == token.STRING {
				l := constants[n]
				l.value, err = strconv.Unquote(n.Value)
				out = append(out, l)
			}
		}
		return err == nil
	})
	return out, err
}

func kindName(kind *ast.Ident) string {
	if kind == nil {
		return ""
	}
	return kind.Name
}

// apiConstants returns the values of the API constants by prefix or type, for each of decisive.
func apiConstants(t *testing.T) map[string][]string {
	out := map[string][]string{}
	forEachLiteral(t, "api/v1alpha1", func(_ string, l literal) {
		for _, prefix := range decisive {
			if l.kind == prefix || l.kind == "" && strings.HasPrefix(l.constant, prefix) {
				out[prefix] = append(out[prefix], l.value)
			}
		}
	})
	for _, prefix := range decisive {
		if len(out[prefix]) < 3 {
			t.Fatalf("api/v1alpha1 has only the constants %q of %s", out[prefix], prefix)
		}
	}
	return out
}

// forEachLiteral calls f for the string literals of all non-test files below a directory.
func forEachLiteral(t *testing.T, dir string, f func(file string, l literal)) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join("../..", dir), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		found, err := literals(path, nil)
		short, _ := filepath.Rel("../..", path)
		for _, l := range found {
			f(filepath.ToSlash(short), l)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Code that decides by an outcome, a reason, a condition or a phase must use the constant, so that a misspelled one does not
// compile and a search finds all uses. The cores import only the standard library, and have their own constants.
func TestAPIConstantsAreNotRepeatedAsLiterals(t *testing.T) {
	names := slices.Concat(slices.Collect(maps.Values(apiConstants(t)))...)
	unused := maps.Clone(coincidences)
	for _, dir := range []string{"internal", "cmd", "config"} {
		forEachLiteral(t, dir, func(file string, l literal) {
			where := file + ": " + strconv.Quote(l.value)
			if _, fine := coincidences[where]; fine {
				delete(unused, where)
				return
			}
			ofCore := slices.ContainsFunc(cores, func(dir string) bool { return within(file, dir) }) && l.constant != ""
			if slices.Contains(names, l.value) && !ofCore {
				t.Errorf("%s is a literal: use the constant of api/v1alpha1 (in a core, define a constant)", where)
			}
		})
	}
	for where := range unused {
		t.Errorf("%s is listed in coincidences, but does not exist", where)
	}
}

// coreConstants maps prefixes of names, and types, of the cores' constants to those of the API.
var coreConstants = map[string]map[string]string{
	"internal/fleet/rollout": {"Phase": "RolloutPhase", "Halt": "Halt", "condition": "Condition", "agent": "Reason"},
	"internal/node/trial":    {"reason": "Reason", "Failure": "Reason"},
}

func TestConstantsOfTheCoresEqualThoseOfTheAPI(t *testing.T) {
	names := apiConstants(t)
	for dir, prefixes := range coreConstants {
		found := map[string][]string{}
		forEachLiteral(t, dir, func(file string, l literal) {
			for prefix, of := range prefixes {
				if l.kind != prefix && (l.kind != "" || !strings.HasPrefix(l.constant, prefix)) {
					continue
				}
				found[prefix] = append(found[prefix], l.value)
				if !slices.Contains(names[of], l.value) {
					t.Errorf("%s has %s = %q, but the API has no such constant", file, l.constant, l.value)
				}
			}
		})
		for prefix := range prefixes {
			if len(found[prefix]) < 3 {
				t.Errorf("%s has the constants %q of %s", dir, found[prefix], prefix)
			}
		}
	}
}

func TestLiteralsAndConstantsAreDistinguished(t *testing.T) {
	const source = `package p
const A, B = "a", "b"
const C Kind = "c"
var d = "d"
func f(s string) bool { const e = "e"; return s == "f" || s == ` + "`g`" + ` }`
	got, err := literals("p.go", source)
	if err != nil {
		t.Fatal(err)
	}
	want := []literal{{"a", "A", ""}, {"b", "B", ""}, {"c", "C", "Kind"}, {"d", "", ""}, {"e", "e", ""}, {"f", "", ""}, {"g", "", ""}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(literal{})); diff != "" {
		t.Error(diff)
	}
}
