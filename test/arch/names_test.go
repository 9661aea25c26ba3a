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

// named are the constants of the API by which programs decide: their names begin with one of these, or they are of one of
// these types.
var named = []string{"Reason", "Outcome", "Halt", "Condition", "RolloutPhase"}

// otherwise are literals that are no name of the API, and only look like one.
var otherwise = map[string]string{
	`internal/node/trial/observed.go: "Invalid"`:      "a kind of intent",
	`internal/fleet/describe/node.go: "Revoked"`:      "a heading",
	`internal/node/inspect/status.go: "Revoked"`:      "a heading",
	`internal/fleet/installer/types.go: "Succeeded"`:  "how an operation of the installer ended",
	`internal/fleet/dashboard/rollouts.go: "Invalid"`: "a heading",
}

// literal is a string in a file: of a constant that has a name, with its type, or another one.
type literal struct {
	value, constant, kind string
}

// literals returns the strings of a file.
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

// namesOfTheAPI returns the values of the constants that a prefix or a type stands for, for each of named.
func namesOfTheAPI(t *testing.T) map[string][]string {
	out := map[string][]string{}
	each(t, "api/v1alpha1", func(_ string, l literal) {
		for _, prefix := range named {
			if l.kind == prefix || l.kind == "" && strings.HasPrefix(l.constant, prefix) {
				out[prefix] = append(out[prefix], l.value)
			}
		}
	})
	for _, prefix := range named {
		if len(out[prefix]) < 3 {
			t.Fatalf("api/v1alpha1 has the constants %q of %s", out[prefix], prefix)
		}
	}
	return out
}

// each calls f for the strings of all files in a directory but those of tests.
func each(t *testing.T, dir string, f func(file string, l literal)) {
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

// What decides by an outcome, a reason, a condition or a phase has to name the constant: so a misspelled one does not
// compile, and a search finds all of them. The cores know nothing but the standard library and have constants of their own.
func TestNamesOfTheAPIAreNoLiteralsElsewhere(t *testing.T) {
	names := slices.Concat(slices.Collect(maps.Values(namesOfTheAPI(t)))...)
	unused := maps.Clone(otherwise)
	for _, dir := range []string{"internal", "cmd", "config"} {
		each(t, dir, func(file string, l literal) {
			where := file + ": " + strconv.Quote(l.value)
			if _, fine := otherwise[where]; fine {
				delete(unused, where)
				return
			}
			ofCore := slices.ContainsFunc(cores, func(dir string) bool { return within(file, dir) }) && l.constant != ""
			if slices.Contains(names, l.value) && !ofCore {
				t.Errorf("%s is a literal: use the constant of api/v1alpha1 (in a core: a constant)", where)
			}
		})
	}
	for where := range unused {
		t.Errorf("%s is excepted, and is not there", where)
	}
}

// The constants of the cores that stand for names of the API, by how their names begin or their type.
var ofCores = map[string]map[string]string{
	"internal/fleet/rollout": {"Phase": "RolloutPhase", "Halt": "Halt", "condition": "Condition", "agent": "Reason"},
	"internal/node/trial":    {"reason": "Reason", "Failure": "Reason"},
}

func TestTheCoresCallThingsAsTheAPIDoes(t *testing.T) {
	names := namesOfTheAPI(t)
	for dir, prefixes := range ofCores {
		found := map[string][]string{}
		each(t, dir, func(file string, l literal) {
			for prefix, of := range prefixes {
				if l.kind != prefix && (l.kind != "" || !strings.HasPrefix(l.constant, prefix)) {
					continue
				}
				found[prefix] = append(found[prefix], l.value)
				if !slices.Contains(names[of], l.value) {
					t.Errorf("%s has %s = %q, which the API does not have", file, l.constant, l.value)
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

func TestLiteralsAreToldFromConstants(t *testing.T) {
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
