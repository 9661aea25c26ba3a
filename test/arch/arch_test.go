// Package arch holds the code to its architecture: which package may know
// which. It must not know what any of them does.
package arch

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/evenkeel/evenkeel/"

// floors is the house of docs/design.md: what is on a floor imports what is
// below it, and nothing beside it.
var floors = [][]string{
	0: {"api", "config", "internal/node/trial", "internal/fleet/rollout"},
	1: {"internal/payload", "internal/atomicfile", "internal/printable"},
	2: {"internal/node/source", "internal/node/checkpoint", "internal/component", "internal/node/supervisor", "internal/node/lockfile", "internal/node/hostns", "internal/fleet"},
	3: {"internal/fleet/dashboard", "internal/fleet/doctor", "internal/program", "internal/node/agent", "internal/fleet/controller", "internal/kubeadm", "internal/node/install"},
	4: {"internal/cli", "internal/rehearsal"},
	5: {"cmd"},
}

// core is on the standard library alone.
var core = []string{"internal/node/trial", "internal/fleet/rollout"}

// servants serve tests, the demo and the build, and nothing else.
var servants = []string{"testkit/crashfs", "testkit/localcluster", "build/image"}

// tests may import what they like.
const tests = "test"

// pack is a package as `go list` describes it.
type pack struct {
	Dir, ImportPath, ForTest           string
	Standard                           bool
	GoFiles                            []string
	Imports, TestImports, XTestImports []string
	Deps                               []string
}

// room is the directory that stands in the house for a package, and its floor;
// -1 if it is on none.
func room(path string) (dir string, floor int) {
	path = strings.TrimPrefix(path, module)
	for floor, dirs := range floors {
		for _, dir := range dirs {
			if within(path, dir) {
				return dir, floor
			}
		}
	}
	for _, dir := range append(slices.Clone(servants), tests) {
		if within(path, dir) {
			return dir, -1
		}
	}
	return "", -1
}

func within(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

func ours(path string) bool { return strings.HasPrefix(path, module) }

// complaints says what is wrong with one package of ours.
func complaints(p pack) []string {
	var wrong []string
	say := func(format string, args ...any) {
		wrong = append(wrong, strings.TrimPrefix(p.ImportPath, module)+" "+fmt.Sprintf(format, args...))
	}
	for _, name := range strings.Split(strings.TrimPrefix(p.ImportPath, module), "/") {
		if slices.Contains([]string{"util", "utils", "common", "helper", "helpers", "pkg"}, name) {
			say("is named %s, which says nothing", name)
		}
	}
	dir, floor := room(p.ImportPath)
	if dir == "" {
		say("is on no floor of the house: give it one in docs/design.md and here")
		return wrong
	}
	look := func(imports []string, test bool) {
		for _, path := range imports {
			if !ours(path) {
				continue
			}
			theirs, below := room(path)
			short := strings.TrimPrefix(path, module)
			switch {
			case theirs == dir || dir == tests:
			case theirs == tests:
				say("imports %s, which is for tests", short)
			case slices.Contains(servants, theirs):
				if !test && !slices.Contains(servants, dir) {
					say("imports %s, which serves tests only", short)
				}
			case floor >= 0 && below >= floor:
				say("on floor %d imports %s on floor %d", floor, short, below)
			}
		}
	}
	look(p.Imports, false)
	look(slices.Concat(p.TestImports, p.XTestImports), true)
	return wrong
}

func TestImportsGoStrictlyDown(t *testing.T) {
	packages := list(t, "./...")
	if len(packages) < 10 {
		t.Fatalf("only %d packages were found", len(packages))
	}
	for _, p := range packages {
		for _, wrong := range complaints(p) {
			t.Error(wrong)
		}
	}
}

func TestTheRulesSeeWhatBreaksThem(t *testing.T) {
	for _, tt := range []struct {
		name string
		p    pack
		want string
	}{
		{"down", pack{ImportPath: "internal/node/agent", Imports: []string{"fmt", "internal/node/trial", "internal/node/checkpoint"}}, ""},
		{"within a room", pack{ImportPath: "testkit/localcluster", Imports: []string{"testkit/localcluster/sweep"}}, ""},
		{"up", pack{ImportPath: "internal/payload", Imports: []string{"internal/node/source"}}, "internal/payload on floor 1 imports internal/node/source on floor 2"},
		{"beside", pack{ImportPath: "internal/node/source", Imports: []string{"internal/node/checkpoint"}}, "internal/node/source on floor 2 imports internal/node/checkpoint on floor 2"},
		{"up, in a test", pack{ImportPath: "internal/node/trial", TestImports: []string{"internal/node/agent"}}, "internal/node/trial on floor 0 imports internal/node/agent on floor 3"},
		{"a servant", pack{ImportPath: "cmd/evenkeel-agent", Imports: []string{"testkit/localcluster"}}, "cmd/evenkeel-agent imports testkit/localcluster, which serves tests only"},
		{"a servant, in a test", pack{ImportPath: "internal/node/agent", XTestImports: []string{"testkit/crashfs"}}, ""},
		{"the tests' own", pack{ImportPath: "internal/node/agent", TestImports: []string{"testkit/bed"}}, "internal/node/agent imports testkit/bed, which is for tests"},
		{"a test imports anything", pack{ImportPath: "test/e2e", Imports: []string{"testkit/localcluster", "cmd/x", "internal/node/agent"}}, ""},
		{"on no floor", pack{ImportPath: "internal/attic"}, "internal/attic is on no floor of the house: give it one in docs/design.md and here"},
		{"a name that begins like another", pack{ImportPath: "internal/trials"}, "internal/trials is on no floor of the house: give it one in docs/design.md and here"},
		{"no name", pack{ImportPath: "internal/node/agent/util"}, "internal/node/agent/util is named util, which says nothing"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := tt.p
			p.ImportPath = module + p.ImportPath
			for _, imports := range []*[]string{&p.Imports, &p.TestImports, &p.XTestImports} {
				for i, path := range *imports {
					if strings.Contains(path, "/") {
						(*imports)[i] = module + path
					}
				}
			}
			if got := strings.Join(complaints(p), "; "); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestTheCoreKnowsTheStandardLibraryAlone(t *testing.T) {
	for _, dir := range core {
		if _, err := os.Stat(filepath.Join("../..", dir)); errors.Is(err, os.ErrNotExist) {
			continue // not built yet
		}
		for _, p := range list(t, "-deps", "./"+dir) {
			if !p.Standard && p.ImportPath != module+dir {
				t.Errorf("%s depends on %s", dir, p.ImportPath)
			}
		}
	}
}

func TestNothingDependsOnKubernetesItself(t *testing.T) {
	for _, p := range list(t, "./...") {
		for _, path := range slices.Concat(p.Deps, p.TestImports, p.XTestImports) {
			if within(path, "k8s.io/kubernetes") {
				t.Errorf("%s depends on %s: only tools/, a module of its own, may", p.ImportPath, path)
			}
		}
	}
	mod, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mod), "k8s.io/kubernetes ") {
		t.Error("go.mod names k8s.io/kubernetes")
	}
}

func TestEveryPackageSaysOnceWhatItIsFor(t *testing.T) {
	for _, p := range list(t, "./...") {
		var said []string
		for _, file := range p.GoFiles {
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, file), nil, parser.PackageClauseOnly|parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			if f.Doc != nil {
				said = append(said, file)
			}
		}
		if len(said) != 1 && len(p.GoFiles) > 0 {
			t.Errorf("%s has %d package comments %q, want one", p.ImportPath, len(said), said)
		}
	}
}

// list runs `go list` in the module's root.
func list(t *testing.T, args ...string) []pack {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-json=Dir,ImportPath,ForTest,Standard,GoFiles,Imports,TestImports,XTestImports,Deps"}, args...)...)
	cmd.Dir = "../.."
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", cmd, err)
	}
	var packages []pack
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pack
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
}
