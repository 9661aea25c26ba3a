// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func tool(name string) string { return filepath.Join("..", "..", "bin", "tools", name) }

// kubeletFlag is how `make e2e KUBELET=...` has the tests run with another
// kubelet.
var kubeletFlag = flag.String("kubelet", tool("kubelet"), "the `path` of the kubelet of every node")

// apiServerFlag is how `make matrix` has the core of these tests run with
// another API server.
var apiServerFlag = flag.String("apiserver", tool("kube-apiserver"), "the `path` of the API server of every cluster")

// matrixFlag is how `make matrix` asks for the versions that `make e2e` leaves
// out.
var matrixFlag = flag.Bool("matrix", false, "run the core of these tests with every kubelet but the newest and the oldest, and with the oldest API server")

// kubeletProgram is a kubelet that can be run.
type kubeletProgram struct{ path, version string }

// underTest is the kubelet of every node.
var underTest kubeletProgram

// askKubelet returns the kubelet at a path. One that is not there would else
// look like a machine without nodes, on which tests are skipped.
func askKubelet(path string) (kubeletProgram, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return kubeletProgram{}, err
	}

	out, err := exec.Command(path, "--version").CombinedOutput()
	if err != nil {
		return kubeletProgram{}, fmt.Errorf("no kubelet at %s: run `make tools`, and `make kubelets` for older ones: %w", path, err)
	}

	version, ok := strings.CutPrefix(strings.TrimSpace(string(out)), "Kubernetes ")
	if !ok {
		return kubeletProgram{}, fmt.Errorf("%s is no kubelet: its --version says %q", path, out)
	}

	return kubeletProgram{path, version}, nil
}

// pinned are the programs that the modules of a directory of tools/ pin, by
// their versions, the oldest first.
func pinned(t *testing.T, dir, program string) (paths, versions []string) {
	t.Helper()
	modules, err := filepath.Glob("../../tools/" + dir + "/*/go.mod")
	assert.Must(t, err == nil && len(modules) != 0, "no module of tools/%s pins an older %s: %v", dir, program, err)
	slices.Sort(modules)
	for _, module := range modules {
		raw := assert.Value(os.ReadFile(module))(t)
		pin := regexp.MustCompile(`(?m)^require k8s\.io/kubernetes (\S+)`).FindSubmatch(raw)
		assert.Must(t, pin != nil, "%s pins no %s", module, program)
		paths, versions = append(paths, tool(filepath.Join(dir, string(pin[1]), program))), append(versions, string(pin[1]))
	}

	return paths, versions
}

// olderKubelet is one that the modules of tools/kubelets pin; 0 is the oldest,
// and the last a preview of the next version.
func olderKubelet(t *testing.T, i int) kubeletProgram {
	t.Helper()
	paths, versions := pinned(t, "kubelets", "kubelet")
	k := assert.Value(askKubelet(paths[i]))(t)
	assert.Must(t, k.version == versions[i], "%s is %s", k.path, k.version)

	return k
}

// core are the tests that depend most on what a kubelet does and says. Every
// version that is named in docs/kubelets.md passes them, the oldest in `make
// e2e`, the others in `make matrix`. test/podguard has the pods that each
// version rejects.
var core = []string{
	"TestARejectedPayloadNeverTouchesTheKubelet",
	"TestAConfigurationThatPassesTheDryRunIsRolledBackInItsTrial",
	"TestADropInIsMergedOverTheNodesConfiguration",
	"TestAPayloadThatChangesAProtectedFieldIsRejected",
	"TestSystemdIsNotifiedAndItsWatchdogIsFed",
	"TestAStockKubeletAndAnAgentWithTheSameLockFileExcludeEachOther",
	"TestARealKubeletAnswersPreflightsAndNothingElseHappens",
}

// TestOlderVersionsPassTheCoreOfThisSuite runs it with the oldest kubelet; in
// the matrix with those between that and the newest, with a preview of the next
// version, and with the oldest kubelet under the oldest API server.
func TestOlderVersionsPassTheCoreOfThisSuite(t *testing.T) {
	if *kubeletFlag != tool("kubelet") || *apiServerFlag != tool("kube-apiserver") {
		t.Skip("one kubelet, or one API server, was chosen")
	}

	t.Parallel()
	oldest := olderKubelet(t, 0)
	if !*matrixFlag {
		t.Run(oldest.version, func(t *testing.T) { passesTheCore(t, oldest.path, *apiServerFlag) })
		return
	}

	kubelets, _ := pinned(t, "kubelets", "kubelet")
	for i := 1; i < len(kubelets); i++ {
		k := olderKubelet(t, i)
		t.Run(k.version, func(t *testing.T) { passesTheCore(t, k.path, *apiServerFlag) })
	}

	servers, versions := pinned(t, "apiservers", "kube-apiserver")
	t.Run(oldest.version+" with kube-apiserver "+versions[0], func(t *testing.T) { passesTheCore(t, oldest.path, servers[0]) })
}

// passesTheCore runs the core of this suite, in its own process, with another
// kubelet and another API server.
func passesTheCore(t *testing.T, kubelet, server string) {
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^("+strings.Join(core, "|")+")$", "-test.v", "-test.timeout=15m",
		"-kubelet="+kubelet, "-apiserver="+server)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread() // Pdeathsig goes by thread
	defer runtime.UnlockOSThread()
	err := cmd.Run()
	for _, name := range core {
		switch {
		case strings.Contains(out.String(), "\n--- PASS: "+name+" "):
		case strings.Contains(out.String(), "no real node can run here: "):
			t.Skip("no real node can run here")
		default:
			err = errors.Join(err, fmt.Errorf("%s did not pass", name))
		}
	}

	assert.OK(t, err, &out)
}

// TestARealUpgradeOverManyVersionsAndBack has the node's kubelet replaced by
// one that lacks what the old one knew, and knows what that one lacks.
func TestARealUpgradeOverManyVersionsAndBack(t *testing.T) {
	t.Parallel()
	oldest := olderKubelet(t, 0)
	newest := assert.Value(askKubelet(tool("kubelet")))(t)
	n := newNode(t, "versions", "--config-trial-duration=1s")
	runs := func(k kubeletProgram) {
		t.Helper()
		n.stop()
		n.Kubelet[0] = k.path
		n.start()
	}
	n.Kubelet[0] = oldest.path
	n.Up()
	both := n.good("both", map[string]any{"maxPods": 120})
	gone := n.good("gone", map[string]any{"maxPods": 121, "featureGates": map[string]any{"MemoryManager": true}})
	comes := n.assignNew("comes", map[string]any{"maxPods": 122, "memoryReservationPolicy": "None"})
	unknown := `strict decoding error: unknown field "memoryReservationPolicy"`
	n.is(rejected(comes, fmt.Sprintf("using last-known-good (UID: %s)", gone.UID), unknown))
	n.AssignMap(gone)
	n.is(allChecksPassed(gone))

	// The proof does not count for the new kubelet, which has no such gate.
	runs(newest)
	n.healthyWith(nil)
	nc := n.is(rejected(gone, "using (init)", "unrecognized feature gate: MemoryManager"))
	assert.That(t, nc.Status.ComponentVersion == newest.version && nc.Status.Active == nil,
		"the version is %q, active %+v", nc.Status.ComponentVersion, nc.Status.Active)
	n.proves(both)
	n.proves(comes)
	n.kubeletHas(map[string]any{"maxPods": 122, "memoryReservationPolicy": "None"})

	// Back: its own verdicts are those of the old one again.
	runs(oldest)
	nc = n.is(rejected(comes, "using (init)", unknown))
	assert.That(t, nc.Status.ComponentVersion == oldest.version && len(nc.Status.BadConfigs) == 1,
		"the version is %q, bad are %+v", nc.Status.ComponentVersion, nc.Status.BadConfigs)
	n.healthyWith(nil)
	n.logged("level=WARN", "this kubelet is older than one that has run on this node", "version="+oldest.version, "newer="+newest.version)
	n.AssignMap(gone)
	n.is(allChecksPassed(gone))
	n.healthyWith(gone)
	n.kubeletHas(map[string]any{"maxPods": 121})
	n.LastKnownGood(gone)
}
