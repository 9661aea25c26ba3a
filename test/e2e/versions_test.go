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
)

// kubeletFlag is how `make e2e KUBELET=...` has the tests run with another kubelet.
var kubeletFlag = flag.String("kubelet", tool("kubelet"), "the `path` of the kubelet of every node")

// kubeletProgram is a kubelet that can be run.
type kubeletProgram struct{ path, version string }

// underTest is the kubelet of every node.
var underTest kubeletProgram

// askKubelet returns the kubelet at a path. One that is not there would else look like a machine without nodes, on which
// tests are skipped.
func askKubelet(path string) (kubeletProgram, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return kubeletProgram{}, err
	}
	out, err := exec.Command(path, "--version").CombinedOutput()
	if err != nil {
		return kubeletProgram{}, fmt.Errorf("no kubelet at %s: run `make tools`, or `make kubelets` for older ones: %w", path, err)
	}
	version, ok := strings.CutPrefix(strings.TrimSpace(string(out)), "Kubernetes ")
	if !ok {
		return kubeletProgram{}, fmt.Errorf("%s is no kubelet: its --version says %q", path, out)
	}
	return kubeletProgram{path, version}, nil
}

// said is all that tests must know of the version of a kubelet: what those before 1.minor say in other words than the
// newest. Of what these tests ask for, no version from 1.33 on lacks anything; docs/kubelets.md has what else they lack.
var said = []struct {
	before      int
	words, then string
	why         string
}{
	{36, "open %s: no such file or directory",
		"failed to construct kubelet dependencies: unable to load client CA file %[1]s: open %[1]s: no such file or directory",
		"until 1.35 what serves TLS read the file first, under these words"},
}

// saysOf returns what the kubelet under test says of something where the newest one says words.
func saysOf(t *testing.T, words, of string) string {
	t.Helper()
	var minor int
	if _, err := fmt.Sscanf(underTest.version, "v1.%d.", &minor); err != nil {
		t.Fatalf("the kubelet's version is %q: %v", underTest.version, err)
	}
	for _, s := range said {
		if s.words == words && minor < s.before {
			t.Logf("kubelet %s says it in other words: %s", underTest.version, s.why)
			words = s.then
		}
	}
	return fmt.Sprintf(words, of)
}

// olderKubelets are those that the modules of tools/kubelets pin, the oldest first.
func olderKubelets(t *testing.T) []kubeletProgram {
	t.Helper()
	modules, err := filepath.Glob("../../tools/kubelets/*/go.mod")
	if err != nil || len(modules) == 0 {
		t.Fatalf("no module pins an older kubelet: %v", err)
	}
	slices.Sort(modules)
	var all []kubeletProgram
	for _, module := range modules {
		raw, err := os.ReadFile(module)
		if err != nil {
			t.Fatal(err)
		}
		pin := regexp.MustCompile(`(?m)^require k8s\.io/kubernetes (\S+)`).FindSubmatch(raw)
		if pin == nil {
			t.Fatalf("%s pins no kubelet", module)
		}
		k, err := askKubelet(tool(filepath.Join("kubelets", string(pin[1]), "kubelet")))
		if err != nil {
			t.Fatal(err)
		}
		if k.version != string(pin[1]) {
			t.Fatalf("%s is %s", k.path, k.version)
		}
		all = append(all, k)
	}
	return all
}

// core are the tests that depend most on what a kubelet does and says. Every version that is named in docs/kubelets.md
// passes them in `make test`.
var core = []string{
	"TestAGoodChangeShowsInTheNodeAndBecomesLastKnownGood",
	"TestARejectedPayloadNeverTouchesTheKubelet",
	"TestWhatNoDryRunCanSeeIsRolledBackInItsTrial",
	"TestADropInIsLaidOverWhatTheNodeHas",
	"TestAPayloadThatChangesAProtectedFieldIsRefusedAndDisturbsNothing",
	"TestSystemdHearsReadyWhenTheKubeletIsHealthyAndIsFedAllTheTime",
	"TestAStockKubeletAndAnAgentWithTheSameLockFileExcludeEachOther",
	"TestDefaultsAreAConfigurationOfTheComponentThatPrintedThem",
}

func TestOlderKubeletsPassTheCoreOfThisSuite(t *testing.T) {
	if *kubeletFlag != tool("kubelet") {
		t.Skip("one kubelet was chosen with -kubelet")
	}
	t.Parallel()
	for _, k := range olderKubelets(t) {
		t.Run(k.version, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^("+strings.Join(core, "|")+")$", "-test.v", "-test.timeout=15m", "-kubelet="+k.path)
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
			if err != nil {
				t.Errorf("%v\n%s", err, &out)
			}
		})
	}
}

// TestARealUpgradeOverThreeVersionsAndBack has the node's kubelet replaced by one that lacks what the old one knew, and
// knows what that one lacks.
func TestARealUpgradeOverThreeVersionsAndBack(t *testing.T) {
	t.Parallel()
	oldest := olderKubelets(t)[0]
	newest, err := askKubelet(tool("kubelet"))
	if err != nil {
		t.Fatal(err)
	}
	n := newNode(t, "versions", "--config-trial-duration=1s")
	runs := func(k kubeletProgram) {
		t.Helper()
		n.stop()
		n.Kubelet[0] = k.path
		n.start()
	}
	n.Kubelet[0] = oldest.path
	n.up()
	both := n.configMap("both", map[string]any{"maxPods": 120})
	n.assign(both)
	n.lastKnownGood(both)
	gone := n.configMap("gone", map[string]any{"maxPods": 121, "featureGates": map[string]any{"MemoryManager": true}})
	n.assign(gone)
	n.lastKnownGood(gone)
	comes := n.configMap("comes", map[string]any{"maxPods": 122, "memoryReservationPolicy": "None"})
	n.assign(comes)
	unknown := `strict decoding error: unknown field "memoryReservationPolicy"`
	n.is(rejected(comes, fmt.Sprintf("using last-known-good (UID: %s)", gone.UID), unknown))
	n.assign(gone)
	n.is(allChecksPassed(gone))

	// What was proven is nothing to the new one, which has no such gate.
	runs(newest)
	n.healthyWith(nil)
	nc := n.is(rejected(gone, "using (init)", "unrecognized feature gate: MemoryManager"))
	if nc.Status.ComponentVersion != newest.version || nc.Status.Active != nil {
		t.Errorf("the version is %q, active %+v", nc.Status.ComponentVersion, nc.Status.Active)
	}
	n.assign(both)
	n.is(allChecksPassed(both))
	n.lastKnownGood(both)
	n.assign(comes)
	n.is(allChecksPassed(comes))
	n.lastKnownGood(comes)
	n.kubeletHas(map[string]any{"maxPods": 122, "memoryReservationPolicy": "None"})

	// Back: its own verdicts are those of the old one again, and nothing of it needs a second trial.
	runs(oldest)
	nc = n.is(rejected(comes, "using (init)", unknown))
	if nc.Status.ComponentVersion != oldest.version || len(nc.Status.BadConfigs) != 1 {
		t.Errorf("the version is %q, bad are %+v", nc.Status.ComponentVersion, nc.Status.BadConfigs)
	}
	n.healthyWith(nil)
	n.logged("level=WARN", "this kubelet is older than another that has run on this node", "version="+oldest.version, "newer="+newest.version)
	n.assign(gone)
	nc = n.is(allChecksPassed(gone))
	if l := nc.Status.LastKnownGood; nc.Status.Trial != nil || l == nil || l.UID != gone.UID {
		t.Errorf("last-known-good is %+v, trial %+v", l, nc.Status.Trial)
	}
	n.healthyWith(gone)
	n.kubeletHas(map[string]any{"maxPods": 121})
}
