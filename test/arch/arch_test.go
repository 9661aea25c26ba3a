// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package arch tests rules for the source code that golangci-lint cannot
// express: what a package depends on indirectly, and constants that must agree
// across packages. Rules for direct imports, log attributes and the like are in
// .golangci.yaml.
package arch

import (
	"encoding/json"
	"errors"
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

const withoutTheFleet = "a node must work without the fleet's code, and with any controller's version"

const pure = "a decision reads nothing: no I/O, no clock, no client"

// forbidden are packages that a program must not depend on, also indirectly,
// with the reason. depguard sees direct imports only.
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
	{"internal/node/trial", "k8s.io/client-go", pure},
	{"internal/node/trial", "sigs.k8s.io/controller-runtime", pure},
	{"internal/rollout", "k8s.io/client-go", pure},
	{"internal/rollout", "sigs.k8s.io/controller-runtime", pure},
	{"cmd", "testing", "test code does not belong into programs"},
	{"cmd", "k8s.io/kubernetes", "it is no library; only the modules in tools/ pin it, to build programs"},
}

// pack is a package as `go list` describes it.
type pack struct {
	ImportPath string
	Deps       []string
}

func within(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

func TestProgramsDependOnNothingForbidden(t *testing.T) {
	packages := list(t, "./cmd/...", "./internal/...")
	assert.Must(t, len(packages) >= 40, "go list found only %d packages", len(packages))
	for _, f := range forbidden {
		seen := false
		for _, p := range packages {
			path := strings.TrimPrefix(p.ImportPath, module)
			if !within(path, f.from) {
				continue
			}

			seen = true
			for _, dep := range p.Deps {
				assert.That(t, !within(dep, f.to), "%s depends on %s: %s", path, strings.TrimPrefix(dep, module), f.reason)
			}
		}

		assert.That(t, seen, "there is no package %s", f.from)
	}
}

// The controller's image has no database of time zones, nor does every machine
// on which people run the CLI.
func TestProgramsThatPlanContainTheTimeZones(t *testing.T) {
	for _, p := range list(t, "./cmd/evenkeel-controller", "./cmd/kubectl-evenkeel") {
		assert.That(t, slices.Contains(p.Deps, "time/tzdata"), "%s does not contain time/tzdata", p.ImportPath)
	}
}

// html/template calls methods by name, so that the linker keeps all exported
// methods of a program: nearly all of them are resident.
func TestTheAgentIsBuiltWithoutTemplatesOfHTML(t *testing.T) {
	makefile := assert.Value(os.ReadFile("../../Makefile"))(t)
	flags := regexp.MustCompile(`(?m)^BUILD_FLAGS = .*-tags (\S+)`).FindSubmatch(makefile)
	assert.Must(t, flags != nil, "the Makefile's BUILD_FLAGS have no -tags")
	for _, p := range list(t, "-tags", string(flags[1]), "./cmd/evenkeel-agent") {
		assert.That(t, !slices.Contains(p.Deps, "html/template"), "%s contains html/template", p.ImportPath)
	}
}

// list runs `go list` in the module's root.
func list(t *testing.T, args ...string) (packages []pack) {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Deps"}, args...)...)
	cmd.Dir = "../.."
	cmd.Stderr = os.Stderr
	out := assert.Value(cmd.Output())(t, cmd)
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pack
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			return packages
		}

		assert.NoError(t, err)
		packages = append(packages, p)
	}
}
