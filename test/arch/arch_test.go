// Package arch tests rules for the source code: which packages and external modules each package may import, and conventions of all
// packages. It must not know what the packages do.
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

// layers are the packages of the project, the lowest layer first. A package may import packages of lower layers only, and
// packages below its own directory. Those of testkit and build serve tests, the demo, and the build.
var layers = [][]string{
	{"api", "config", "internal/node/trial", "internal/fleet/rollout", "internal/atomicfile", "internal/printable"},
	{"internal/payload"},
	{"internal/component", "internal/fleet/gate", "internal/fleet/notify", "internal/fleet/policy", "internal/node/checkpoint", "internal/node/hostns", "internal/node/lockfile", "internal/node/relay", "internal/node/source", "internal/node/supervisor"},
	{"internal/node/admission"},
	{"internal/node/machine"},
	{"internal/program", "internal/kubeadm", "internal/fleet/drain", "internal/fleet/query", "internal/node/agent", "internal/node/install"},
	{"internal/fleet/describe"},
	{"internal/fleet/controller", "internal/fleet/doctor", "internal/fleet/installer", "internal/fleet/steer", "internal/node/handover", "internal/node/inspect"},
	{"internal/fleet/dashboard", "internal/fleet/support", "internal/rehearsal", "internal/cli/command", "internal/cli/printing"},
	{"internal/cli/rollout"},
	{"internal/cli/config", "internal/cli/dashboard", "internal/cli/doctor", "internal/cli/install", "internal/cli/node", "internal/cli/support", "internal/cli/version"},
	{"internal/cli"},
	{"cmd"},
}

// cores are the packages of pure decisions.
var cores = []string{"internal/node/trial", "internal/fleet/rollout"}

// supports are packages for tests, the demo, benchmarks and the build. Only they, tests, and the directories test, hack and
// testkit may import them.
var supports = []string{"testkit", "build"}

// forbidden are imports, also indirect ones, with the reason why not. From "." means every package. With tests, the rule also
// holds for the direct imports of tests.
var forbidden = []struct {
	from, to, reason string
	tests            bool
}{
	{"internal/node", "internal/fleet", "a node must work without the fleet's code, and with any controller's version", true},
	{"internal/fleet", "internal/node", "the controller and the CLI see a node through the API only, whatever version its agent has", true},
	{"internal/cli", "internal/rehearsal", "hollow nodes run on Linux only, the CLI on macOS and Windows too", false},
	{"internal/cli", "internal/node", "the CLI is built for macOS and Windows; node code is for Linux", false},
	{"cmd/kubectl-evenkeel", "internal/rehearsal", "hollow nodes run on Linux only, the CLI on macOS and Windows too", false},
	{"cmd/kubectl-evenkeel", "internal/node", "the CLI is built for macOS and Windows; node code is for Linux", false},
	{"cmd/evenkeel-agent", "internal/fleet", "a node must work without the fleet's code, and with any controller's version", false},
	{"cmd/evenkeel-controller", "internal/node", "the controller sees a node through the API only, whatever version its agent has", false},
	{"internal/component", "internal/node/trial", "a dry run gives verdicts; the caller decides what they mean", false},
	{"internal/component", "internal/fleet", "a dry run must work without the fleet's code", false},
	{"internal/payload", "internal/node", "node and fleet share the rules for payloads", false},
	{"internal/payload", "internal/fleet", "node and fleet share the rules for payloads", false},
	{"internal/node/agent", "internal/node/handover", "handover decides on an agent's behalf, and imports it", false},
	{"internal/node/install", "internal/node/handover", "an install only needs the lock file", false},
	{"cmd/evenkeel-agent", "sigs.k8s.io/controller-runtime", "its caches and clients cost each node memory", false},
	{"cmd/evenkeel-agent", "k8s.io/client-go/informers", "an informer factory links the types of every API group into the program", false},
	{"cmd/evenkeel-agent", "k8s.io/client-go/kubernetes", "the typed clientset links the types of every API group into the program", false},
	{"cmd", "testing", "test code does not belong into programs", false},
	{".", "k8s.io/kubernetes", "it is no library; only the modules in tools/ pin it, to build programs", false},
}

// external are the modules, or directories of modules, that packages import besides the standard library. A package that is
// not named imports none.
var external = map[string]string{
	"api/v1alpha1":              "k8s.io/apimachinery",
	"cmd/evenkeel-agent":        "github.com/spf13/cobra github.com/spf13/pflag k8s.io/apimachinery",
	"cmd/evenkeel-controller":   "github.com/go-logr/logr github.com/spf13/cobra github.com/spf13/pflag golang.org/x/crypto k8s.io/apimachinery k8s.io/client-go k8s.io/klog/v2 sigs.k8s.io/controller-runtime",
	"cmd/evenkeel-hollow":       "github.com/spf13/cobra github.com/spf13/pflag k8s.io/apimachinery k8s.io/client-go k8s.io/klog/v2",
	"cmd/kubectl-evenkeel":      "k8s.io/cli-runtime",
	"internal/cli":              "github.com/spf13/cobra github.com/spf13/pflag k8s.io/cli-runtime",
	"internal/cli/command":      "github.com/spf13/cobra github.com/spf13/pflag golang.org/x/term k8s.io/api k8s.io/apimachinery k8s.io/cli-runtime k8s.io/client-go k8s.io/component-base k8s.io/klog/v2 k8s.io/kubelet sigs.k8s.io/controller-runtime",
	"internal/cli/config":       "github.com/spf13/cobra k8s.io/api k8s.io/apimachinery sigs.k8s.io/controller-runtime sigs.k8s.io/yaml",
	"internal/cli/dashboard":    "github.com/spf13/cobra",
	"internal/cli/doctor":       "github.com/spf13/cobra",
	"internal/cli/install":      "github.com/spf13/cobra k8s.io/apimachinery sigs.k8s.io/controller-runtime",
	"internal/cli/node":         "github.com/spf13/cobra k8s.io/api k8s.io/apimachinery k8s.io/cli-runtime sigs.k8s.io/controller-runtime",
	"internal/cli/printing":     "github.com/spf13/cobra k8s.io/apimachinery k8s.io/cli-runtime sigs.k8s.io/yaml",
	"internal/cli/rollout":      "github.com/guptarohit/asciigraph github.com/spf13/cobra k8s.io/api k8s.io/apimachinery sigs.k8s.io/controller-runtime sigs.k8s.io/yaml",
	"internal/cli/support":      "github.com/spf13/cobra golang.org/x/term",
	"internal/cli/version":      "github.com/spf13/cobra k8s.io/api k8s.io/apimachinery sigs.k8s.io/controller-runtime",
	"internal/component":        "golang.org/x/sys google.golang.org/grpc k8s.io/client-go k8s.io/cri-api sigs.k8s.io/json sigs.k8s.io/yaml",
	"internal/fleet/controller": "github.com/go-logr/logr github.com/prometheus/client_golang k8s.io/api k8s.io/apimachinery k8s.io/client-go sigs.k8s.io/controller-runtime",
	"internal/fleet/dashboard":  "k8s.io/api k8s.io/apimachinery k8s.io/client-go sigs.k8s.io/controller-runtime",
	"internal/fleet/doctor":     "k8s.io/api k8s.io/apimachinery sigs.k8s.io/controller-runtime",
	"internal/fleet/drain":      "k8s.io/api k8s.io/apimachinery k8s.io/client-go k8s.io/kubectl",
	"internal/fleet/gate":       "github.com/prometheus/client_golang github.com/prometheus/common",
	"internal/fleet/installer":  "k8s.io/api k8s.io/apimachinery sigs.k8s.io/controller-runtime",
	"internal/fleet/describe":   "k8s.io/api k8s.io/apimachinery sigs.k8s.io/yaml",
	"internal/fleet/notify":     "github.com/prometheus/client_golang k8s.io/apimachinery",
	"internal/fleet/query":      "k8s.io/api k8s.io/apimachinery k8s.io/client-go sigs.k8s.io/controller-runtime",
	"internal/fleet/steer":      "k8s.io/api k8s.io/apimachinery sigs.k8s.io/controller-runtime sigs.k8s.io/yaml",
	"internal/fleet/support":    "k8s.io/api k8s.io/apimachinery k8s.io/client-go sigs.k8s.io/controller-runtime",
	"internal/fleet/policy":     "github.com/robfig/cron/v3 k8s.io/api k8s.io/apimachinery sigs.k8s.io/yaml",
	"internal/kubeadm":          "k8s.io/api k8s.io/apimachinery k8s.io/client-go k8s.io/kube-proxy k8s.io/kubelet k8s.io/utils sigs.k8s.io/controller-runtime sigs.k8s.io/json sigs.k8s.io/yaml",
	"internal/node/admission":   "k8s.io/api k8s.io/apimachinery k8s.io/component-helpers k8s.io/klog/v2 k8s.io/utils",
	"internal/node/agent":       "github.com/prometheus/client_golang golang.org/x/net k8s.io/api k8s.io/apimachinery",
	"internal/node/machine":     "golang.org/x/sys google.golang.org/grpc k8s.io/api k8s.io/apimachinery k8s.io/cri-api k8s.io/utils",
	"internal/node/checkpoint":  "k8s.io/apimachinery",
	"internal/node/handover":    "k8s.io/apimachinery",
	"internal/node/hostns":      "golang.org/x/sys",
	"internal/node/install":     "github.com/coreos/go-systemd/v22 github.com/godbus/dbus/v5 golang.org/x/sys",
	"internal/node/lockfile":    "golang.org/x/sys",
	"internal/node/relay":       "golang.org/x/sys",
	"internal/node/source":      "k8s.io/api k8s.io/apimachinery k8s.io/client-go",
	"internal/node/supervisor":  "github.com/coreos/go-systemd/v22 golang.org/x/sys",
	"internal/payload":          "go.yaml.in/yaml/v2 k8s.io/api sigs.k8s.io/json sigs.k8s.io/yaml",
	"internal/program":          "github.com/spf13/cobra github.com/spf13/pflag",
	"internal/rehearsal":        "golang.org/x/sys k8s.io/api k8s.io/apimachinery k8s.io/client-go",
	"testkit":                   "github.com/cockroachdb/datadriven golang.org/x/sys k8s.io/api k8s.io/apimachinery k8s.io/client-go sigs.k8s.io/yaml",
}

// pack is a package as `go list` describes it.
type pack struct {
	Dir, ImportPath, ForTest           string
	Standard                           bool
	GoFiles                            []string
	Imports, TestImports, XTestImports []string
	Deps                               []string
}

func within(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

// layerOf returns the directory in layers that a package belongs to, and its layer; -1 if it is in none.
func layerOf(path string) (dir string, layer int) {
	for layer, dirs := range layers {
		if i := slices.IndexFunc(dirs, func(dir string) bool { return within(path, dir) }); i >= 0 {
			return dirs[i], layer
		}
	}
	return "", -1
}

// isTest reports whether a package is a test, or a program for contributors. These may import everything, and nothing imports them.
func isTest(path string) bool { return within(path, "test") || within(path, "hack") }

func isSupport(path string) bool {
	return slices.ContainsFunc(supports, func(dir string) bool { return within(path, dir) })
}

// complaints returns what is wrong with the imports of a package of the project.
func complaints(p pack) []string {
	var wrong []string
	path := strings.TrimPrefix(p.ImportPath, module)
	complain := func(format string, args ...any) {
		wrong = append(wrong, path+" "+fmt.Sprintf(format, args...))
	}
	for _, name := range strings.Split(path, "/") {
		if slices.Contains([]string{"util", "utils", "common", "helper", "helpers", "pkg"}, name) {
			complain("has the name %s, which says nothing", name)
		}
	}
	dir, layer := layerOf(path)
	if layer < 0 && !isSupport(path) && !isTest(path) {
		complain("is in no layer: add it to layers in test/arch")
		return wrong
	}
	checkOwn := func(imports []string, test bool) {
		for _, imported := range imports {
			imported, own := strings.CutPrefix(imported, module)
			if !own || isTest(path) {
				continue
			}
			theirs, below := layerOf(imported)
			switch {
			case isTest(imported):
				complain("imports %s, which is a test", imported)
			case isSupport(imported):
				if !test && !isSupport(path) {
					complain("imports %s, which is for tests and the build", imported)
				}
			case isSupport(path) || theirs == dir:
			case below >= layer:
				complain("in layer %d imports %s in layer %d", layer, imported, below)
			}
		}
	}
	checkOwn(p.Imports, false)
	checkOwn(slices.Concat(p.TestImports, p.XTestImports), true)

	for _, f := range forbidden {
		if f.from != "." && !within(path, f.from) {
			continue
		}
		for _, dep := range p.Deps {
			if within(strings.TrimPrefix(dep, module), f.to) {
				complain("depends on %s: %s", strings.TrimPrefix(dep, module), f.reason)
			}
		}
		for _, imported := range slices.Concat(p.TestImports, p.XTestImports) {
			if f.tests && within(strings.TrimPrefix(imported, module), f.to) {
				complain("imports %s in a test: %s", strings.TrimPrefix(imported, module), f.reason)
			}
		}
	}
	if !isTest(path) {
		allowed := strings.Fields(external[path])
		if within(path, "testkit") {
			allowed = strings.Fields(external["testkit"])
		}
		for _, imported := range p.Imports {
			if first, _, _ := strings.Cut(imported, "/"); !strings.Contains(first, ".") || strings.HasPrefix(imported, module) {
				continue // the standard library's, or the project's
			}
			if !slices.ContainsFunc(allowed, func(m string) bool { return within(imported, m) }) {
				complain("imports %s: add its module to external in test/arch if the package needs it", imported)
			}
		}
	}
	return wrong
}

func TestImportsFollowTheArchitecture(t *testing.T) {
	packages := list(t, "./...")
	if len(packages) < 40 {
		t.Fatalf("go list found only %d packages", len(packages))
	}
	exists := map[string]bool{"testkit": true}
	for _, p := range packages {
		exists[strings.TrimPrefix(p.ImportPath, module)] = true
		for _, wrong := range complaints(p) {
			t.Error(wrong)
		}
	}
	for path := range external {
		if !exists[path] {
			t.Errorf("external names %s, which does not exist", path)
		}
	}
}

func TestEachRuleOfTheArchitectureFindsItsViolation(t *testing.T) {
	for _, tt := range []struct {
		name string
		p    pack
		want string
	}{
		{"lower layer", pack{ImportPath: "internal/node/agent", Imports: []string{"fmt", "@internal/node/trial", "@internal/node/checkpoint"}}, ""},
		{"same directory", pack{ImportPath: "internal/component", Imports: []string{"@internal/component/x"}}, ""},
		{"higher layer", pack{ImportPath: "internal/payload", Imports: []string{"@internal/node/source"}}, "internal/payload in layer 1 imports internal/node/source in layer 2"},
		{"same layer", pack{ImportPath: "internal/node/source", Imports: []string{"@internal/node/checkpoint"}}, "internal/node/source in layer 2 imports internal/node/checkpoint in layer 2"},
		{"higher layer in a test", pack{ImportPath: "internal/node/trial", TestImports: []string{"@internal/node/agent"}}, "internal/node/trial in layer 0 imports internal/node/agent in layer 5"},
		{"test kit", pack{ImportPath: "cmd/evenkeel-agent", Imports: []string{"@testkit/localcluster"}}, "cmd/evenkeel-agent imports testkit/localcluster, which is for tests and the build"},
		{"test kit in a test", pack{ImportPath: "internal/node/agent", XTestImports: []string{"@testkit/crashfs"}}, ""},
		{"test in a test", pack{ImportPath: "internal/node/agent", TestImports: []string{"@test/fleet"}}, "internal/node/agent imports test/fleet, which is a test"},
		{"tests import anything", pack{ImportPath: "test/e2e", Imports: []string{"@testkit/localcluster", "@cmd/x", "@internal/node/agent"}}, ""},
		{"no layer", pack{ImportPath: "internal/attic"}, "internal/attic is in no layer: add it to layers in test/arch"},
		{"no layer, with the beginning of a name", pack{ImportPath: "internal/node/trials"}, "internal/node/trials is in no layer: add it to layers in test/arch"},
		{"empty name", pack{ImportPath: "internal/node/agent/util"}, "internal/node/agent/util has the name util, which says nothing"},
		{"forbidden", pack{ImportPath: "internal/node/agent", Deps: []string{"@internal/fleet/rollout"}}, "internal/node/agent depends on internal/fleet/rollout: a node must work without the fleet's code, and with any controller's version"},
		{"forbidden in a test", pack{ImportPath: "internal/fleet/doctor", TestImports: []string{"@internal/node/trial"}}, "internal/fleet/doctor imports internal/node/trial in a test: the controller and the CLI see a node through the API only, whatever version its agent has"},
		{"forbidden for programs only", pack{ImportPath: "cmd/evenkeel-agent", TestImports: []string{"@internal/fleet/policy"}}, ""},
		{"module", pack{ImportPath: "internal/node/hostns", Imports: []string{"os", "golang.org/x/sys/unix"}}, ""},
		{"another module", pack{ImportPath: "internal/node/hostns", Imports: []string{"golang.org/x/net/http2"}}, "internal/node/hostns imports golang.org/x/net/http2: add its module to external in test/arch if the package needs it"},
		{"module in a core", pack{ImportPath: "internal/node/trial", Imports: []string{"k8s.io/apimachinery/pkg/types"}}, "internal/node/trial imports k8s.io/apimachinery/pkg/types: add its module to external in test/arch if the package needs it"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := tt.p
			p.ImportPath = module + p.ImportPath
			for _, paths := range [][]string{p.Imports, p.TestImports, p.XTestImports, p.Deps} {
				for i, path := range paths {
					paths[i] = strings.Replace(path, "@", module, 1)
				}
			}
			if got := strings.Join(complaints(p), "; "); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// The cores are pure functions: what they import, directly or not, is the standard library's.
func TestTheDecisionsDependOnTheStandardLibraryOnly(t *testing.T) {
	for _, dir := range cores {
		for _, p := range list(t, "-deps", "./"+dir) {
			if !p.Standard && p.ImportPath != module+dir {
				t.Errorf("%s depends on %s", dir, p.ImportPath)
			}
		}
	}
}

// The controller's image has no database of time zones, nor does every machine on which people run the CLI.
func TestProgramsThatPlanContainTheTimeZones(t *testing.T) {
	for _, dir := range []string{"cmd/evenkeel-controller", "cmd/kubectl-evenkeel"} {
		if !slices.ContainsFunc(list(t, "-deps", "./"+dir), func(p pack) bool { return p.ImportPath == "time/tzdata" }) {
			t.Errorf("%s does not contain time/tzdata", dir)
		}
	}
}

func TestEachPackageHasOnePackageComment(t *testing.T) {
	for _, p := range list(t, "./...") {
		var files []string
		for _, file := range p.GoFiles {
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, file), nil, parser.PackageClauseOnly|parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			if f.Doc != nil {
				files = append(files, file)
			}
		}
		if len(files) != 1 && len(p.GoFiles) > 0 {
			t.Errorf("%s has %d package comments, in %q; want one", p.ImportPath, len(files), files)
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
