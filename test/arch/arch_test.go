// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package arch tests rules for the source code that golangci-lint cannot express: what a package depends on indirectly, that it
// imports lower layers only, and constants that must agree across packages. Rules for direct imports, log attributes and the
// like are in .golangci.yaml.
package arch

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

const module = "github.com/evenkeel/evenkeel/"

// layers are the packages of the project, the lowest layer first. A package and its tests may import packages of lower layers
// only, and packages below its own directory. In depguard, each directory would need the list of all directories that are not
// below it.
var layers = [][]string{
	{"api", "config", "internal/atomicfile", "internal/listwatch", "internal/printable"},
	{"internal/payload", "internal/node/trial", "internal/rollout"},
	{"internal/component", "internal/controller/gate", "internal/fleet", "internal/node/checkpoint", "internal/node/hostns", "internal/node/lockfile", "internal/node/supervisor/relay", "internal/node/source", "internal/node/supervisor"},
	{"internal/node/podguard"},
	{"internal/node/podguard/machine", "internal/startprobe"},
	{"internal/program", "internal/controller/drain", "internal/operator/kubeadm", "internal/node/agent", "internal/node/install"},
	{"internal/operator/describe"},
	{"internal/controller/notify"},
	{"internal/controller", "internal/operator/doctor", "internal/operator/installer", "internal/operator/steer", "internal/operator/survey", "internal/node/handover", "cmd/evenkeel-agent/inspect"},
	{"internal/operator/dashboard", "internal/operator/support", "internal/hollow", "internal/cli/command", "internal/cli/printing"},
	{"internal/cli/rollout"},
	{"internal/cli/config", "internal/cli/dashboard", "internal/cli/doctor", "internal/cli/install", "internal/cli/node", "internal/cli/support", "internal/cli/version"},
	{"internal/cli"},
	{"cmd"},
}

// unlayered are directories for tests, contributors and the build. They may import every layer; .golangci.yaml says who may
// import them.
var unlayered = []string{"testkit", "build", "test", "hack"}

// cores are the packages of pure decisions.
var cores = []string{"internal/node/trial", "internal/rollout"}

const withoutTheFleet = "a node must work without the fleet's code, and with any controller's version"

// forbidden are packages that a program must not depend on, also indirectly, with the reason. depguard sees direct imports only.
var forbidden = []struct{ from, to, reason string }{
	{"cmd/evenkeel-agent", module + "internal/rollout", withoutTheFleet},
	{"cmd/evenkeel-agent", module + "internal/fleet", withoutTheFleet},
	{"cmd/evenkeel-agent", module + "internal/controller", withoutTheFleet},
	{"cmd/evenkeel-agent", module + "internal/operator", withoutTheFleet},
	{"cmd/evenkeel-agent", "sigs.k8s.io/controller-runtime", "its caches and clients cost each node memory"},
	{"cmd/evenkeel-agent", "k8s.io/client-go/informers", "an informer factory links the types of every API group into the program"},
	{"cmd/evenkeel-agent", "google.golang.org/grpc", "with the generated code of the CRI, it costs each node 2.5 MiB of memory"},
	{"cmd/evenkeel-agent", "k8s.io/client-go/kubernetes", "the typed clientset links the types of every API group into the program"},
	{"cmd/evenkeel-controller", module + "internal/node", "the controller sees a node through the API only, whatever version its agent has"},
	{"cmd/kubectl-evenkeel", module + "internal/node", "the CLI is built for macOS and Windows; node code is for Linux"},
	{"cmd/kubectl-evenkeel", module + "internal/hollow", "hollow nodes run on Linux only, the CLI on macOS and Windows too"},
	{"cmd", "testing", "test code does not belong into programs"},
	{"cmd", "k8s.io/kubernetes", "it is no library; only the modules in tools/ pin it, to build programs"},
}

// pack is a package as `go list` describes it.
type pack struct {
	ImportPath                               string
	Standard                                 bool
	Imports, TestImports, XTestImports, Deps []string
}

func within(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

func withinAny(path string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { return within(path, dir) })
}

// layerOf returns the directory in layers that a package belongs to, and its layer; -1 if it is in none.
func layerOf(path string) (dir string, layer int) {
	for layer, dirs := range layers {
		if i := slices.IndexFunc(dirs, func(dir string) bool { return within(path, dir) }); i >= 0 {
			return dirs[i], layer
		}
	}
	return "", -1
}

// complaints returns what is wrong with the imports and dependencies of a package of the project.
func complaints(p pack) (wrong []string) {
	path := strings.TrimPrefix(p.ImportPath, module)
	if withinAny(path, unlayered) {
		return nil
	}
	dir, layer := layerOf(path)
	if layer < 0 {
		return []string{path + " is in no layer: add it to layers in test/arch"}
	}
	for _, imported := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
		imported, own := strings.CutPrefix(imported, module)
		if theirs, other := layerOf(imported); own && theirs != dir && other >= layer {
			wrong = append(wrong, fmt.Sprintf("%s in layer %d imports %s in layer %d", path, layer, imported, other))
		}
	}
	for _, f := range forbidden {
		for _, dep := range p.Deps {
			if within(path, f.from) && within(dep, f.to) {
				wrong = append(wrong, fmt.Sprintf("%s depends on %s: %s", path, strings.TrimPrefix(dep, module), f.reason))
			}
		}
	}
	return wrong
}

func TestImportsFollowTheArchitecture(t *testing.T) {
	packages := list(t, "./...")
	assert.Must(t, len(packages) >= 40, "go list found only %d packages", len(packages))
	for _, p := range packages {
		for _, wrong := range complaints(p) {
			t.Error(wrong)
		}
	}
}

func TestEachRuleOfTheArchitectureFindsItsViolation(t *testing.T) {
	const own = module
	for _, tt := range []struct {
		name string
		p    pack
		want string
	}{
		{"lower layer", pack{ImportPath: "internal/node/agent", Imports: []string{"fmt", own + "internal/node/trial"}}, ""},
		{"same directory", pack{ImportPath: "internal/component", Imports: []string{own + "internal/component/x"}}, ""},
		{"same layer", pack{ImportPath: "internal/node/source", Imports: []string{own + "internal/node/checkpoint"}}, "internal/node/source in layer 2 imports internal/node/checkpoint in layer 2"},
		{"higher layer in a test", pack{ImportPath: "internal/node/trial", TestImports: []string{own + "internal/node/agent"}}, "internal/node/trial in layer 1 imports internal/node/agent in layer 5"},
		{"test kit in a test", pack{ImportPath: "internal/node/agent", XTestImports: []string{own + "testkit/crashfs"}}, ""},
		{"tests import anything", pack{ImportPath: "test/e2e", Imports: []string{own + "cmd/x", own + "internal/node/agent"}}, ""},
		{"no layer, with the beginning of a name", pack{ImportPath: "internal/node/trials"}, "internal/node/trials is in no layer: add it to layers in test/arch"},
		{"indirect", pack{ImportPath: "cmd/evenkeel-agent", Deps: []string{"k8s.io/client-go/kubernetes/scheme"}}, "cmd/evenkeel-agent depends on k8s.io/client-go/kubernetes/scheme: the typed clientset links the types of every API group into the program"},
		{"of the project", pack{ImportPath: "cmd/evenkeel-agent", Deps: []string{own + "internal/controller/gate"}}, "cmd/evenkeel-agent depends on internal/controller/gate: a node must work without the fleet's code, and with any controller's version"},
		{"forbidden for another program", pack{ImportPath: "cmd/evenkeel-controller", Deps: []string{"sigs.k8s.io/controller-runtime"}}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.p.ImportPath = module + tt.p.ImportPath
			assert.Equal(t, strings.Join(complaints(tt.p), "; "), tt.want)
		})
	}
}

// TestTheDecisionsDependOnNothingThatActs holds the cores pure. A core may speak the types of the API, as etcd's raft speaks its protobuf
// types: pure means no I/O, no clock and no client. What it imports directly is therefore listed, in .golangci.yaml as well.
func TestTheDecisionsDependOnNothingThatActs(t *testing.T) {
	words := []string{module + "api/v1alpha1", module + "internal/printable", "k8s.io/apimachinery/pkg/"}
	acts := []string{"net", "net/http", "os/exec", "os/signal", "syscall", "math/rand", "math/rand/v2", "crypto/rand"}
	for _, dir := range cores {
		for _, p := range list(t, "./"+dir) {
			for _, imported := range p.Imports {
				own := slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(imported, w) })
				first, _, _ := strings.Cut(imported, "/")
				assert.That(t, own || !strings.Contains(first, ".") && imported != "os" && !slices.Contains(acts, imported), "%s imports %s", dir, imported)
			}
		}
		for _, p := range list(t, "-deps", "./"+dir) {
			client := strings.HasPrefix(p.ImportPath, "k8s.io/client-go") || strings.HasPrefix(p.ImportPath, "sigs.k8s.io/controller-runtime")
			assert.That(t, !client, "%s depends on %s", dir, p.ImportPath)
		}
	}
}

// The controller's image has no database of time zones, nor does every machine on which people run the CLI.
func TestProgramsThatPlanContainTheTimeZones(t *testing.T) {
	for _, p := range list(t, "./cmd/evenkeel-controller", "./cmd/kubectl-evenkeel") {
		assert.That(t, slices.Contains(p.Deps, "time/tzdata"), "%s does not contain time/tzdata", p.ImportPath)
	}
}

// html/template calls methods by name, so that the linker keeps all exported methods of a program: nearly all of them are resident.
func TestTheAgentIsBuiltWithoutTemplatesOfHTML(t *testing.T) {
	makefile := assert.Value(os.ReadFile("../../Makefile"))(t)
	flags := regexp.MustCompile(`(?m)^BUILD_FLAGS = .*-tags (\S+)`).FindSubmatch(makefile)
	if flags == nil {
		t.Fatal("the Makefile's BUILD_FLAGS have no -tags")
	}
	for _, p := range list(t, "-tags", string(flags[1]), "./cmd/evenkeel-agent") {
		if slices.Contains(p.Deps, "html/template") {
			t.Errorf("%s contains html/template", p.ImportPath)
		}
	}
}

// list runs `go list` in the module's root.
func list(t *testing.T, args ...string) (packages []pack) {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Standard,Imports,TestImports,XTestImports,Deps"}, args...)...)
	cmd.Dir = "../.."
	cmd.Stderr = os.Stderr
	out := assert.Value(cmd.Output())(t, cmd)
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
