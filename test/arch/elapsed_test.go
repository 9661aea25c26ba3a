package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// How long something takes depends on the machine, so no test compares time.Since, or a variable assigned from it, with a
// limit. Allowed are the condition of a for loop, which polls, and code whose time testing/synctest simulates: function
// literals passed to synctest.Test, or to a function of the same package that calls it, also through another such function.
func TestNoTestAssertsAnElapsedTime(t *testing.T) {
	packages := map[string][]*ast.File{}
	files := token.NewFileSet()
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "bin" && filepath.Dir(path) == "../.." || d.Name() == ".git") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		packages[filepath.Dir(path)] = append(packages[filepath.Dir(path)], file)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range packages {
		for _, pos := range elapsedComparisons(p) {
			t.Errorf("%s compares an elapsed time: wait for the behavior with a context or a deadline instead", files.Position(pos))
		}
	}
}

// elapsedComparisons returns the positions of comparisons with an elapsed time in the test files of one package.
func elapsedComparisons(files []*ast.File) (found []token.Pos) {
	simulators := map[string]bool{} // functions that call synctest.Test, or another such function
	simulates := func(call *ast.CallExpr) bool {
		name, ok := call.Fun.(*ast.Ident)
		return calls(call, "synctest", "Test") || ok && simulators[name.Name]
	}
	for before := -1; before < len(simulators); {
		before = len(simulators)
		for _, file := range files {
			for _, decl := range file.Decls {
				for n := range ast.Preorder(decl) {
					if call, ok := n.(*ast.CallExpr); ok && simulates(call) {
						if f, ok := decl.(*ast.FuncDecl); ok {
							simulators[f.Name.Name] = true
						}
					}
				}
			}
		}
	}
	for _, file := range files {
		for _, decl := range file.Decls {
			variables := elapsedVariables(decl)
			var visit func(n ast.Node) bool
			visit = func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.CallExpr:
					return !simulates(n)
				case *ast.ForStmt: // without its condition
					ast.Inspect(n.Body, visit)
					return false
				case *ast.BinaryExpr:
					compares := slices.Contains([]token.Token{token.LSS, token.GTR, token.LEQ, token.GEQ}, n.Op)
					if compares && (isElapsed(n.X, variables) || isElapsed(n.Y, variables)) {
						found = append(found, n.Pos())
					}
				}
				return true
			}
			ast.Inspect(decl, visit)
		}
	}
	return found
}

// elapsedVariables returns the names of variables that a declaration assigns an elapsed time to.
func elapsedVariables(decl ast.Decl) map[string]bool {
	variables := map[string]bool{}
	for n := range ast.Preorder(decl) {
		assign, ok := n.(*ast.AssignStmt)
		if !ok || len(assign.Lhs) != len(assign.Rhs) {
			continue
		}
		for i, value := range assign.Rhs {
			if name, ok := assign.Lhs[i].(*ast.Ident); ok && isElapsed(value, nil) {
				variables[name.Name] = true
			}
		}
	}
	return variables
}

// isElapsed reports whether an expression is one of variables or time.Since(...), or is calculated from them by operators or
// methods such as Seconds.
func isElapsed(e ast.Expr, variables map[string]bool) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return variables[e.Name]
	case *ast.ParenExpr:
		return isElapsed(e.X, variables)
	case *ast.BinaryExpr:
		return isElapsed(e.X, variables) || isElapsed(e.Y, variables)
	case *ast.CallExpr:
		method, ok := e.Fun.(*ast.SelectorExpr)
		return calls(e, "time", "Since") || ok && isElapsed(method.X, variables)
	}
	return false
}

// calls reports whether a call is of a function of a package of the standard library.
func calls(call *ast.CallExpr, pkg, function string) bool {
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	name, ok := selector.X.(*ast.Ident)
	return ok && name.Name == pkg && selector.Sel.Name == function
}

func TestComparisonsOfElapsedTimesAreFound(t *testing.T) {
	for _, tt := range []struct {
		name, body string
		want       int
	}{
		{"a call", `if time.Since(begin) > limit { t.Error() }`, 1},
		{"on the right, in an expression", `slow := limit <= (time.Since(begin) - pause)`, 1},
		{"a method of a call", `if time.Since(begin).Seconds() < 4 { t.Error() }`, 1},
		{"a variable", `if took := time.Since(begin).Round(time.Second); took >= limit { t.Error() }`, 1},
		{"in a function literal", `wait(t, func() bool { return time.Since(begin) > limit })`, 1},
		{"in the body of a loop", `for { if time.Since(begin) > limit { t.Fatal() } }`, 1},
		{"after synctest.Test", `synctest.Test(t, func(t *testing.T) {}); if time.Since(begin) > limit { t.Error() }`, 1},
		{"only logged", `took := time.Since(begin); t.Log(took)`, 0},
		{"another variable", `took := time.Since(begin); if n > 3 { t.Log(took) }`, 0},
		{"an argument", `if bound(time.Since(begin)) > limit { t.Error() }`, 0},
		{"a poll", `for time.Since(begin) < limit { poll() }`, 0},
		{"in synctest.Test", `synctest.Test(t, func(t *testing.T) { if time.Since(begin) > limit { t.Error() } })`, 0},
		{"in a function that simulates", `simulate(t, func() { if time.Since(begin) > limit { t.Error() } })`, 0},
		{"in a function that simulates through another one", `prepare(t, func() { if time.Since(begin) > limit { t.Error() } })`, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			source := "package p\nfunc TestIt(t *testing.T) {" + tt.body + "}\n" +
				"func prepare(t *testing.T, f func()) { simulate(t, f) }\n" +
				"func simulate(t *testing.T, f func()) { synctest.Test(t, func(*testing.T) { f() }) }\n"
			file, err := parser.ParseFile(token.NewFileSet(), "p_test.go", source, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			if got := len(elapsedComparisons([]*ast.File{file})); got != tt.want {
				t.Errorf("%d comparisons found, want %d", got, tt.want)
			}
		})
	}
}
