package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// loggingPackages write to the logs of evenkeel-agent and evenkeel-controller.
var loggingPackages = []string{
	"cmd/evenkeel-agent", "cmd/evenkeel-controller", "internal/component", "internal/fleet/controller", "internal/node",
}

// attributes returns the positions of the attributes of log lines in a file, by name.
func attributes(name string, source any) (map[string][]string, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, source, 0)
	if err != nil {
		return nil, err
	}
	out := map[string][]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		method, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || !isLog(method.X) {
			return true
		}
		first, logs := map[string]int{"Debug": 1, "Info": 1, "Warn": 1, "Error": 1, "Log": 3, "With": 0}[method.Sel.Name]
		if !logs {
			return true
		}
		for i := first; i < len(call.Args); i += 2 {
			where := files.Position(call.Args[i].Pos()).String()
			literal, ok := call.Args[i].(*ast.BasicLit)
			if !ok {
				out["?"] = append(out["?"], where)
				continue
			}
			key, _ := strconv.Unquote(literal.Value)
			out[key] = append(out[key], where)
		}
		return true
	})
	return out, nil
}

// isLog reports whether an expression is a logger, by its name.
func isLog(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name == "log"
	case *ast.SelectorExpr:
		return strings.EqualFold(e.Sel.Name, "log")
	case *ast.CallExpr: // o.logger().With(...), a.log(config).Info(...)
		s, ok := e.Fun.(*ast.SelectorExpr)
		return ok && (s.Sel.Name == "logger" || isLog(s) || s.Sel.Name == "With" && isLog(s.X))
	}
	return false
}

// synonyms maps attribute names that must not be used to the ones to use, so that one search finds all lines.
var synonyms = map[string]string{
	"error": "err", "configMap": "namespace and name", "configmap": "namespace and name", "ns": "namespace", "UID": "uid",
	"nodeName": "node", "nodeConfig": "node", "ncr": "rollout", "rolloutName": "rollout", "rolloutRevision": "revision", "attempted": "uid",
}

func TestLogAttributesHaveOneName(t *testing.T) {
	used := map[string][]string{}
	for _, dir := range loggingPackages {
		err := filepath.WalkDir(filepath.Join("../..", dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			found, err := attributes(path, nil)
			for key, where := range found {
				used[key] = append(used[key], where...)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for wrong, right := range synonyms {
		if where := used[wrong]; len(where) > 0 {
			t.Errorf("use the attribute %s instead of %s: %s", right, wrong, strings.Join(where, ", "))
		}
	}
	text, err := os.ReadFile("../../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Logs\n")
	section, _, _ = strings.Cut(section, "\n## ")
	documented := 0
	for line := range strings.Lines(section) {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		cell, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " |")
		for _, match := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cell, -1) {
			if documented++; len(used[match[1]]) == 0 {
				t.Errorf("docs/operating.md documents the attribute %s, but no log line has it", match[1])
			}
		}
	}
	if documented < 8 {
		t.Errorf("docs/operating.md documents only %d attributes under Logs", documented)
	}
}

func TestAttributesAreFoundInAllFormsOfLogCalls(t *testing.T) {
	const source = `package p
func f() {
	log := o.logger().With("node", node)
	a.o.Log.Info("text", "uid", uid, "err", err)
	c.log.Log(ctx, level, "text", "rollout", name)
	log.Warn("text", key, value)
	other.Info("text", "x", 1)
	a.log(config).With("cause", cause).Info("text", "exit", exit)
	log.Handler()
}`
	got, err := attributes("p.go", source)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{"node": {"p.go:3:25"}, "uid": {"p.go:4:23"}, "err": {"p.go:4:35"}, "rollout": {"p.go:5:32"}, "?": {"p.go:6:19"}, "cause": {"p.go:8:21"}, "exit": {"p.go:8:50"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
