package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/bed"
	"github.com/evenkeel/evenkeel/testkit/nodetest"
)

// agentStatus is what the tests look at in `status -o json`.
type agentStatus struct {
	ComponentVersion string
	AgentRuns        bool
	Runs             struct{ Revision, Name string }
	Why              string
	Current          struct{ Revision string }
	LastKnownGood    struct{ Revision string }
	Trial            *struct{ Revision string }
	BadConfigs       []struct{ Revision, Reason, Detail, Failure string }
	Revoked          []string
	Problems         []string
}

// runs runs one of the agent's commands, which must exit with code, and say
// all the words. It returns what it said.
func (n *node) runs(code int, stdin string, args []string, words ...string) string {
	n.t.Helper()
	out, got := n.Run(n.t.Context(), stdin, args...)
	assert.That(n.t, got == code, "%q: exit code %d, want %d: %s", args, got, code, out)
	for _, w := range words {
		assert.That(n.t, strings.Contains(out, w), "%q does not say %q but:\n%s", args, w, out)
	}
	return out
}

// status runs `status` for people, which must say all the lines, and returns
// what it says for programs.
func (n *node) status(lines ...string) agentStatus {
	n.t.Helper()
	text := n.runs(0, "", []string{"status", "--dynamic-config-dir=" + n.Dir})
	for _, line := range lines {
		key, value, _ := strings.Cut(line, ": ")
		if !slices.ContainsFunc(strings.Split(text, "\n"), func(l string) bool {
			return strings.HasPrefix(l, fmt.Sprintf("%-18s%s", key+":", value))
		}) {
			n.t.Errorf("status does not say %q but:\n%s", line, text)
		}
	}
	var out agentStatus
	assert.NoError(n.t, json.Unmarshal([]byte(n.runs(0, "", []string{"status", "--dynamic-config-dir", n.Dir, "-o", "json"})), &out))
	return out
}

// ends starts the agent, which must end by itself with this code, and say
// words.
func (n *node) ends(code int, words string) {
	n.t.Helper()
	n.start()
	n.exitsWith(code)
	n.logged(words)
}

func (n *node) stop() {
	n.t.Helper()
	assert.NoError(n.t, n.Stop(time.Minute))
}

func TestTheCommandsShowAndRepairTheState(t *testing.T) {
	n := newNode(t, "commands", "--config-trial-duration=3s", "--crash-loop-threshold=0", "--protected-fields=-tlsCertFile,-tlsPrivateKeyFile")
	n.runs(1, "", []string{"status", "--dynamic-config-dir=" + n.Dir}, "evenkeel-agent: ", "no such file or directory")
	assert.NoError(t, os.Mkdir(n.Dir, 0o700))
	n.runs(1, "", []string{"status", "--dynamic-config-dir=" + n.Dir}, "evenkeel-agent: ", "no agent ever worked in "+n.Dir)
	n.Up()
	if s := n.status("Runs: the local configuration", "Why: using current (init): "+localInit.cause, "Current: the local configuration",
		"Last known good: the local configuration", "Kubelet: "+underTest.version, "Agent: runs"); !s.AgentRuns || s.ComponentVersion != underTest.version || s.Runs.Revision != "" {
		t.Errorf("status is %+v", s)
	}

	kubelet := n.Steady()
	t.Run("check returns the verdict of the node's kubelet", func(t *testing.T) { n.in(t).checks(t) })
	kubelet.End(t)
	good := n.assignNew("good", map[string]any{"maxPods": 130})
	n.is(allChecksPassed(good))
	named := fmt.Sprintf("evenkeel-system/commands-good (UID: %s)", good.UID)
	if s := n.status("Runs: "+named, fmt.Sprintf("Why: %s: all checks passed", using(good)), "Current: "+named+", since ",
		"Last known good: the local configuration", fmt.Sprintf("Trial: %s: observed healthy for ", good.UID)); s.Trial == nil || s.Trial.Revision != string(good.UID) {
		t.Errorf("the trial is %+v", s.Trial)
	}
	n.LastKnownGood(good)
	n.runs(0, "", []string{"status", "--dynamic-config-dir=" + n.Dir, "--effective=flat"}, "\nFIELD ", "\nmaxPods ")
	n.runs(0, "", []string{"status", "--dynamic-config-dir=" + n.Dir, "--effective=grouped"}, "\nresources.maxPods ")
	if s := n.status("Runs: "+named, fmt.Sprintf("Why: %s: all checks passed", using(good)), "Last known good: "+named+", since "); s.Trial != nil || s.LastKnownGood.Revision != string(good.UID) {
		t.Errorf("status is %+v", s)
	}

	crt, key := filepath.Join(n.Node.Dir(), "serving.crt"), filepath.Join(n.Node.Dir(), "serving.key")
	bad := n.assignNew("bad", map[string]any{"tlsCertFile": crt, "tlsPrivateKeyFile": key})
	cause := fmt.Sprintf("current (UID: %s) crash-looped: 1 start in its trial, last: exit status 1", bad.UID)
	w := want{"False", "CrashLooped", fmt.Sprintf("using last-known-good (UID: %s)", good.UID), cause, cause}
	n.is(w)
	n.Eventually("the kubelet is healthy again", n.Healthy)
	s := n.status("Runs: "+named, "Why: "+w.message+": "+cause, fmt.Sprintf("Current: evenkeel-system/commands-bad (UID: %s), since ", bad.UID),
		"Last known good: "+named, fmt.Sprintf("Bad: %s (evenkeel-system/commands-bad) since ", bad.UID))
	if len(s.BadConfigs) != 1 || s.BadConfigs[0].Revision != string(bad.UID) || s.BadConfigs[0].Reason != cause || s.BadConfigs[0].Failure != "CrashLooped" || s.Runs.Revision != string(good.UID) {
		t.Errorf("status is %+v", s)
	}

	// A second agent must leave all that alone.
	second := *n.Agent
	second.Log = filepath.Join(n.Node.Dir(), "second.log")
	(&node{&nodetest.Subject{Bed: n.Bed, Agent: &second, T: t}, t}).ends(5, "evenkeel-agent: another agent works on "+n.Dir)

	// forget, with an agent that runs: it tries again.
	kubelet = n.Steady()
	dir := "--dynamic-config-dir=" + n.Dir
	n.runs(1, "", []string{"forget", string(good.UID), dir}, fmt.Sprintf("no record of revision %s being bad in %s (kubelet %s)", good.UID, n.Dir, underTest.version))
	kubelet.End(t)
	for from, to := range map[string]string{"kubelet.crt": crt, "kubelet.key": key} {
		assert.NoError(t, os.Link(filepath.Join(n.Node.Dir(), "pki", from), to))
	}
	n.runs(0, "", []string{"forget", string(bad.UID), dir}, fmt.Sprintf("the running agent was asked to forget that %s is bad", bad.UID))
	n.is(allChecksPassed(bad))
	n.Event("Normal", "Forgotten", fmt.Sprintf("(UID: %s) is no longer marked as bad: an operator requested it", bad.UID))
	n.LastKnownGood(bad)

	// And without one.
	worse := n.assignNew("worse", map[string]any{"maxPodz": 3})
	w = rejected(worse, fmt.Sprintf("using last-known-good (UID: %s)", bad.UID), `strict decoding error: unknown field "maxPodz"`)
	n.is(w)
	n.stop()
	n.optedOut(bad, w)
	if s := n.status("Agent: does not run", fmt.Sprintf("Bad: %s (evenkeel-system/commands-worse) since ", worse.UID)); s.AgentRuns || len(s.BadConfigs) != 1 {
		t.Errorf("status is %+v", s)
	}
	n.runs(0, "", []string{"forget", string(worse.UID), dir}, fmt.Sprintf("forgot that %s is bad; no agent runs", worse.UID))
	if s := n.status(); len(s.BadConfigs) != 0 || s.Runs.Revision != string(bad.UID) {
		t.Errorf("status is %+v", s)
	}
	n.runs(1, "", []string{"forget", string(worse.UID), dir}, "no record of revision")

	n.localInvalid(bad)
}

// localInvalid breaks the local configuration of a node that is stopped, of which
// proven is last-known-good.
func (n *node) localInvalid(proven *corev1.ConfigMap) {
	n.t.Helper()
	file := n.Node.KubeletConfig()
	whole := assert.Value(os.ReadFile(file))(n.t)
	n.local(map[string]any{"imageGCHighThresholdPercent": 101})
	n.ends(4, "evenkeel-agent: the local configuration is invalid: invalid configuration: imageGCHighThresholdPercent (--image-gc-high-threshold) 101 must be between 0 and 100, inclusive")
	n.logged("the node has no other fallback: correct " + file + ", or see --local-invalid")
	assert.That(n.t, n.Healthy(n.t.Context()) != nil, "a kubelet runs")

	flags := n.Flags
	n.Flags = append(slices.Clone(flags), "--local-invalid=degrade")
	n.AssignMap(proven)
	assert.NoError(n.t, n.Start())
	const words = "invalid configuration: imageGCHighThresholdPercent (--image-gc-high-threshold) 101 must be between 0 and 100, inclusive"
	n.is(notice(proven, "failed to validate local (init): "+words))
	n.Eventually("the kubelet is healthy with last-known-good", n.Healthy)
	n.recorded(string(proven.UID), string(proven.UID))
	n.stop()
	assert.NoError(n.t, os.WriteFile(file, whole, 0o600))
	n.Flags = flags
}

// checks runs `check` beside the agent, and requires that it leaves nothing.
func (n *node) checks(t *testing.T) {
	scratch := t.TempDir()
	n.Env = append(n.Env, "TMPDIR="+scratch)
	write := func(name, data string) string {
		file := filepath.Join(t.TempDir(), name)
		assert.NoError(t, os.WriteFile(file, []byte(data), 0o600))
		return file
	}
	config := n.text
	good := config(map[string]any{"maxPods": 131})
	local := slices.DeleteFunc(slices.Clone(n.Kubelet), func(arg string) bool { return strings.HasPrefix(arg, "--config=") })
	broken := append(slices.Clone(local), "--config="+write("broken", config(map[string]any{"imageGCHighThresholdPercent": 101})))
	const groupedHeader = "apiVersion: evenkeel.dev/v1alpha1\nkind: KubeletConfiguration\n"
	for _, c := range []struct {
		name    string
		code    int
		stdin   string
		file    string // and flags of check
		kubelet []string
		words   string
	}{
		{"a drop-in, accepted", 0, nodetest.Upstream + "maxPods: 131\n", "- --drop-in", n.Kubelet, "accepted\n"},
		{"a drop-in, rejected", 1, nodetest.Upstream + "MaxPods: 131\n", "- --drop-in", n.Kubelet, `evenkeel-agent: rejected: strict decoding error: unknown field "MaxPods"`},
		{"a drop-in, refused", 1, nodetest.Upstream + "readOnlyPort: 10255\n", "- --drop-in", n.Kubelet, "evenkeel-agent: refused: protected field readOnlyPort would be 10255, but is 0 locally\n"},
		{"grouped, accepted", 0, groupedHeader + "trial: {configTrialDuration: 1m}\nresources: {maxPods: 131}\n", "- --drop-in", n.Kubelet, "accepted\n"},
		{"grouped, rejected by its names", 1, groupedHeader + "networking: {maxPods: 131}\n", "- --drop-in", n.Kubelet, `evenkeel-agent: rejected: networking.maxPods: maxPods belongs in resources: resources.maxPods`},
		{"refused", 1, config(map[string]any{"readOnlyPort": 10255}), "-", n.Kubelet, "evenkeel-agent: refused: protected field readOnlyPort would be 10255, but is 0 locally\n"},
		{"a protected field that this node frees", 0, config(map[string]any{"readOnlyPort": 10255}), "- --protected-fields=-readOnlyPort", n.Kubelet, "accepted\n"},
		{"a field that this node protects besides", 1, good, "- --protected-fields=+maxPods", n.Kubelet, "evenkeel-agent: refused: protected field maxPods would be 131, but is 110 locally\n"},
		{"anywhere, with flags of a node", 3, good, "- --anywhere", []string{underTest.path, "--v=2"}, `evenkeel-agent: the kubelet takes no flags here: remove ["--v=2"]` + "\n"},
		{"a ConfigMap", 1, "apiVersion: v1\nkind: ConfigMap\n", "-", []string{underTest.path}, "pass the value of its data key, not the ConfigMap\n"},
		{"accepted, from a file", 0, "", write("good", good), n.Kubelet, "accepted\n"},
		{"a flag that overrides", 0, good, "-", append(slices.Clone(n.Kubelet), "--max-pods=50"), "overridden by a flag of the kubelet: maxPods\naccepted\n"},
		{"rejected by the kubelet", 1, config(map[string]any{"maxPods": -1}), "-", n.Kubelet, "evenkeel-agent: rejected: invalid configuration: maxPods"},
		{"rejected on this host only", 1, config(map[string]any{"reservedSystemCPUs": "0-99"}), "-", n.Kubelet, `evenkeel-agent: rejected: reserved-cpus: 0-99 is not a subset of online-cpus: `},
		{"local fails in the same way", 2, config(map[string]any{"imageGCHighThresholdPercent": 102}), "-", broken, "evenkeel-agent: could not tell: invalid configuration: imageGCHighThresholdPercent"},
		{"no such kubelet", 3, good, "-", []string{"/not/there"}, "evenkeel-agent: there is no kubelet at /not/there"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n.in(t).runs(c.code, c.stdin, slices.Concat([]string{"check"}, strings.Fields(c.file), []string{"--"}, c.kubelet), c.words)
		})
	}

	n.runs(0, "", []string{"version"}, "evenkeel-agent ")
	n.runs(0, "", []string{"--help"}, "Exit codes: 0 stopped as requested, 1 error, 3 usage, 4 the node's local", "5 another agent uses --dynamic-config-dir.", "Examples:")
	n.runs(0, "", []string{"check", "--help"}, "Exit codes: 0 accepted, 1 rejected or refused, 2 could not tell, 3 usage.", "Examples:")
	n.runs(0, "", []string{"status", "--help"}, "Exit codes: ", "Examples:")
	n.runs(0, "", []string{"forget", "--help"}, "Exit codes: ", "Examples:")
	left, err := os.ReadDir(scratch)
	assert.That(t, err == nil && len(left) == 0, "check left %q, %v", left, err)
	n.Env = slices.DeleteFunc(n.Env, func(e string) bool { return strings.HasPrefix(e, "TMPDIR=") })
}

// records returns what the node remembers, as it is on disk.
func (n *node) records() map[string]string {
	n.t.Helper()
	records := map[string]string{}
	err := filepath.WalkDir(n.Dir, func(path string, d os.DirEntry, err error) error {
		name, _ := filepath.Rel(n.Dir, path)
		switch {
		case err != nil:
			return err
		case d.IsDir() && name == "rendered":
			return filepath.SkipDir // rewritten at each start
		case d.IsDir(), name == "running", filepath.Ext(name) == ".lock":
			return nil
		}
		raw, err := os.ReadFile(path)
		records[name] = string(raw)
		return err
	})
	assert.NoError(n.t, err)
	return records
}

// optedOut starts a node that is stopped without remote configuration, in both ways: it runs local and forgets nothing. w is what it
// says when it has opted in again, and cm is last-known-good.
func (n *node) optedOut(cm *corev1.ConfigMap, w want) {
	n.t.Helper()
	flags, dir, before := n.Flags, n.Dir, n.records()
	if before["current"] == "" || before["checkpoints/"+string(cm.UID)] == "" || before[underTest.version+"/bad-configs"] == "" {
		n.t.Fatalf("the records are %q", before)
	}
	for _, off := range []func(){
		func() { n.Flags = append(slices.Clone(flags), "--remote-config=false") },
		func() { n.Flags, n.Dir = flags, "" },
	} {
		off()
		n.Up()
		nc := &v1alpha1.NodeConfig{}
		n.Eventually("it runs local, and says that remote configuration is off", func(ctx context.Context) (err error) {
			if nc, err = n.Get(ctx); err != nil {
				return err
			}
			if c := bed.ConfigOK(nc); nc.Status.RemoteConfig != v1alpha1.RemoteConfigDisabled || c.Reason != localInit.reason || c.Message != localInit.message+": "+localInit.cause {
				return fmt.Errorf("remoteConfig is %s, ConfigOK %+v", nc.Status.RemoteConfig, c)
			}
			return n.nodeSays(ctx, localInit)
		})
		if st := nc.Status; st.Active != nil || st.Assigned != nil || st.LastKnownGood != nil || st.Error != "" || len(st.BadConfigs) != 0 {
			n.t.Errorf("status is %+v", st)
		}
		n.healthyWith(nil)
		if z := n.page(""); z.Source.Kind != "init" || z.Remote != v1alpha1.RemoteConfigDisabled || z.Effective["maxPods"] != 110.0 || z.Origins["maxPods"] != "local" {
			n.t.Errorf("/configz says %+v, %s, maxPods %v from %s", z.Source, z.Remote, z.Effective["maxPods"], z.Origins["maxPods"])
		}
		if n.Dir != "" {
			n.status("Runs: the local configuration", "Why: using current (init): "+localInit.cause, "Source: Disabled", "Agent: runs",
				fmt.Sprintf("Last known good: %s/%s (UID: %s), since ", cm.Namespace, cm.Name, cm.UID))
		}
		n.stop()
		n.Dir = dir
		after := n.records()
		assert.That(n.t, maps.Equal(before, after), "the records are %q, were %q", after, before)
	}
	n.logged("this node has opted out of remote configuration (--remote-config=false); it runs its local configuration only")
	n.logged("DYNAMIC CONFIGURATION IS OFF: --dynamic-config-dir is not set; this node runs its local configuration only")
	n.Flags = flags
	n.Up()
	n.resumes(cm, w)
	if nc := n.config(); nc.Status.RemoteConfig != v1alpha1.RemoteConfigNodeConfig || len(nc.Status.BadConfigs) != 1 {
		n.t.Errorf("remoteConfig is %s, badConfigs %+v", nc.Status.RemoteConfig, nc.Status.BadConfigs)
	}
	n.stop()
}
