// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/nodetest"
)

// rejected is ConfigOK for a configuration that the dry run rejected; words are
// the kubelet's, or the agent's own where no kubelet should be shown it.
func rejected(cm *corev1.ConfigMap, using, words string) want {
	cause := fmt.Sprintf("failed to validate current (UID: %s)", cm.UID)
	return want{"False", "ValidationFailed", using, cause, cause + ": " + words}
}

// aMebibyte is as much as a ConfigMap can hold, less what its name may take.
const aMebibyte = 1<<20 - 1024

func TestARejectedPayloadNeverTouchesTheKubelet(t *testing.T) {
	n := newNode(t, "payload", "--config-trial-duration=1s", "--crash-loop-threshold=0", "--protected-fields=-cgroupRoot")
	n.Up()
	n.is(localInit)
	kubelet := n.Steady()

	config := n.text
	whole := config(nil)
	var fields strings.Builder
	for i := 0; fields.Len() < aMebibyte-len(whole)-64; i++ {
		fmt.Fprintf(&fields, "unknownField%06d: 1\n", i)
	}

	for i, c := range []struct{ name, text, words string }{
		{"two documents", whole + "---\nmaxPods: 3\n", `ConfigMap evenkeel-system/payload-0: key "kubelet": more than one YAML document`},
		{"health endpoint off", config(map[string]any{"healthzPort": 0}), `ConfigMap evenkeel-system/payload-1: key "kubelet": healthzPort is 0, which disables the health endpoint`},
		{"unknown field", config(map[string]any{"maxPodz": 3}), `strict decoding error: unknown field "maxPodz"`},
		{"value out of range", config(map[string]any{"imageGCHighThresholdPercent": 101}), `invalid configuration: imageGCHighThresholdPercent`},
		{"a mebibyte of unknown fields", whole + fields.String(), `strict decoding error: unknown field "unknownField000000"`},
		{"only this host: a threshold that is no quantity", config(map[string]any{"evictionHard": map[string]string{"memory.available": "banana"}}), `evictionHard[memory.available]: "banana": quantities must match the regular expression`},
		{"only this host: CPUs that it does not have", config(map[string]any{"reservedSystemCPUs": "0-99"}), `reservedSystemCPUs: "0-99": reserved-cpus: 0-99 is not a subset of online-cpus: `},
		{"only this host: a cgroup that is missing", config(map[string]any{"cgroupRoot": "/evenkeel-not-there"}), `cgroupRoot: "/evenkeel-not-there": invalid configuration: cgroup ["evenkeel-not-there"] has some missing paths: `},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := n.in(t)
			cm := n.CreateMap(fmt.Sprint(i), map[string]string{"kubelet": c.text})
			n.AssignMap(cm)
			nc := n.is(rejected(cm, "using last-known-good (init)", c.words))
			n.Event("Warning", "ConfigRejected", fmt.Sprintf("failed to validate current (UID: %s): ", cm.UID))
			t.Logf("%.300s", nc.Status.Error)
			if nc.Status.Assigned == nil || nc.Status.Assigned.UID != cm.UID || nc.Status.Active != nil || nc.Status.LastKnownGood != nil {
				t.Errorf("assigned is %+v, active %+v, last-known-good %+v", nc.Status.Assigned, nc.Status.Active, nc.Status.LastKnownGood)
			}

			assert.That(t, len(nc.Status.Error) <= 3000, "status.error has %d bytes", len(nc.Status.Error))
			bad := nc.Status.BadConfigs
			assert.That(t, len(bad) == i+1 && bad[0].UID == cm.UID && shortOf(bad[0].Reason, nc.Status.Error), "badConfigs are %+v", bad)
			disk := n.onDisk()
			assert.That(t, disk.Current.IsLocal() && disk.LastKnownGood.IsLocal() && disk.Trial == nil,
				"on disk: current %+v, last-known-good %+v, trial %+v", disk.Current, disk.LastKnownGood, disk.Trial)
			if !slices.ContainsFunc(disk.Bad, func(b trial.BadConfig) bool {
				return b.Revision == string(cm.UID) && b.Failure == v1alpha1.ReasonValidationFailed
			}) {
				t.Errorf("bad-configs on disk are %+v", disk.Bad)
			}

			kubelet.Check(t)
		})
	}

	kubelet.End(t)
}

// TestAConfigurationThatPassesTheDryRunIsRolledBackInItsTrial: these pass both
// stages of the dry run.
func TestAConfigurationThatPassesTheDryRunIsRolledBackInItsTrial(t *testing.T) {
	n := newNode(t, "trial", "--config-trial-duration=1s", "--crash-loop-threshold=1", "--health-timeout=10s", "--ready-timeout=6s",
		"--protected-fields=-healthzPort")
	n.Up()
	good := n.good("good", map[string]any{"maxPods": 119})
	taken := assert.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer taken.Close()
	for i, c := range []struct {
		name    string
		changes map[string]any
		reason  string
		words   string
		why     string // the kubelet's own words
	}{
		{"more storage reserved than the node has", overReserved(110), "CrashLooped", "crash-looped: 2 starts in its trial, last: exit status 1",
			`Failed to start ContainerManager: invalid Node Allocatable configuration`},
		{"a health endpoint at the port of somebody else", map[string]any{"healthzPort": taken.Addr().(*net.TCPAddr).Port}, "NotHealthy", "was not healthy for 10s", ""},
		{"a content type that the API does not speak", map[string]any{"contentType": "application/nonsense"}, "NotReady", "left the node not ready for 6s", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := n.in(t)
			cm := n.assignNew(fmt.Sprint(i), c.changes)
			cause := fmt.Sprintf("current (UID: %s) %s", cm.UID, c.words)
			nc := n.is(rolledBack(cm, c.reason, fmt.Sprintf("(UID: %s)", good.UID), c.words))
			if nc.Status.Active == nil || nc.Status.Active.UID != good.UID || nc.Status.Trial != nil || nc.Status.BadConfigs[0].UID != cm.UID {
				t.Errorf("active is %+v, trial %+v, badConfigs %+v", nc.Status.Active, nc.Status.Trial, nc.Status.BadConfigs)
			}

			n.recorded(string(cm.UID), string(good.UID))
			n.Event("Warning", "ConfigRolledBack", cause+fmt.Sprintf("; going back to last-known-good (UID: %s)", good.UID))
			assert.That(t, strings.Contains(nc.Status.Error, c.why), "status.error does not contain %q: %s", c.why, nc.Status.Error)
			n.Eventually("the kubelet is healthy, and its node Ready", func(ctx context.Context) error {
				if err := n.Healthy(ctx); err != nil {
					return err
				}

				return n.Ready(ctx)
			})
		})
	}
}

// shortOf reports whether a text is another, or begins as that does and is
// shortened because it is long.
func shortOf(text, long string) bool {
	const begin = 300
	return text == long || len(text) > begin && len(text) < len(long) && strings.HasPrefix(long, text[:begin])
}

// dropin is the data of a ConfigMap with a drop-in.
func dropin(data string) map[string]string {
	return map[string]string{"kubelet-dropin": nodetest.Upstream + data}
}

// local lays changes over the configuration of the node's own.
func (n *node) local(changes map[string]any) {
	n.t.Helper()
	assert.NoError(n.t, os.WriteFile(n.Node.KubeletConfig(), []byte(n.text(changes)), 0o600))
}

// refusals returns the messages of the Events about refusals on the Node that
// hold words, each as often as it was given.
func (n *node) refusals(words string) (messages []string) {
	n.t.Helper()
	for _, e := range assert.Value(n.Events(n.t.Context(), "ConfigRefused"))(n.t) {
		for range max(e.Count, 1) {
			if strings.Contains(e.Message, words) {
				messages = append(messages, e.Message)
			}
		}
	}

	return messages
}

// hides requires that no output of the node contains a secret.
func (n *node) hides(secrets ...string) {
	n.t.Helper()
	object := assert.Value(json.Marshal(n.config()))(n.t)
	log := assert.Value(os.ReadFile(n.Log))(n.t)
	dir := "--dynamic-config-dir=" + n.Dir
	for where, text := range map[string]string{
		"the NodeConfig":           string(object),
		"an event":                 strings.Join(n.refusals(""), "\n"),
		"the log":                  string(log),
		"/configz":                 n.get("/configz"),
		"/configz, grouped":        n.get("/configz?form=grouped"),
		"status":                   n.runs(0, "", []string{"status", dir, "--effective=flat"}),
		"status, grouped, as JSON": n.runs(0, "", []string{"status", dir, "--effective=grouped", "-o", "json"}),
	} {
		for _, secret := range secrets {
			if i := strings.Index(text, secret); i >= 0 {
				n.t.Errorf("%s shows a secret: ...%s", where, text[max(0, i-100):i+len(secret)])
			}
		}
	}
}

func TestAPayloadThatChangesAProtectedFieldIsRejected(t *testing.T) {
	n := newNode(t, "protected", "--config-trial-duration=1s")
	n.local(map[string]any{"staticPodURLHeader": map[string]any{"X-Token": []string{"s3cret-of-the-node"}}})
	n.Up()
	n.is(localInit)
	kubelet := n.Steady()

	const local = "using last-known-good (init)"
	for i, c := range []struct {
		name  string
		data  map[string]string
		words string
	}{
		{"callers without credentials", dropin("authentication: {anonymous: {enabled: true}}\n"),
			"authentication.anonymous.enabled would be true, but is false locally"},
		{"a header of the static pod URL", dropin("staticPodURLHeader: {X-Token: [s3cret-of-a-payload]}\n"),
			"staticPodURLHeader.X-Token is masked and differs, or may differ, from the local configuration"},
		{"the static pod URL, which holds credentials", dropin("staticPodURL: https://me:s3cret-of-a-url@example.com/s3cret-path?t=s3cret-token\n"),
			`staticPodURL would be "https://example.com/masked", but is "" locally`},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := n.in(t)
			cm := n.CreateMap(fmt.Sprint(i), c.data)
			n.AssignMap(cm)
			cause := fmt.Sprintf("refused current (UID: %s): protected field %s", cm.UID, c.words)
			nc := n.is(want{"False", "ProtectedFields", local, cause, cause})
			if nc.Status.Assigned == nil || nc.Status.Assigned.UID != cm.UID || nc.Status.Active != nil || len(nc.Status.BadConfigs) != 0 {
				t.Errorf("assigned is %+v, active %+v, badConfigs %+v", nc.Status.Assigned, nc.Status.Active, nc.Status.BadConfigs)
			}

			n.Event("Warning", "ConfigRefused", c.words)
			assert.Equal(t, len(n.refusals(string(cm.UID))), 1, "events about the refusal")
			if disk := n.onDisk(); !disk.Current.IsLocal() || len(disk.Bad) != 0 || disk.Trial != nil {
				t.Errorf("on disk: current %+v, bad %+v, trial %+v", disk.Current, disk.Bad, disk.Trial)
			}

			kubelet.Check(t)
		})
	}

	n.runs(0, "", []string{"status", "--dynamic-config-dir=" + n.Dir}, "the local configuration", local+": refused current (UID: ")
	kubelet.End(t)

	// Fields that are not protected are adopted: with the same header in the
	// payload, and without a header in a drop-in.
	n.good("free", map[string]any{"maxPods": 120})
	laid := n.dropin("laid", "maxPods: 121\n")
	n.proves(laid)
	n.hides("s3cret")
}

// TestARealKubeletAnswersPreflightsAndNothingElseHappens asks an agent through
// NodeConfigPreflights.
func TestARealKubeletAnswersPreflightsAndNothingElseHappens(t *testing.T) {
	t.Parallel()
	n := newNode(t, "asked")
	n.Up()
	n.Controlled()
	cpus := assert.Value(n.Object(t.Context()))(t).Status.Capacity.Cpu().Value()
	var pods []string
	for i := range cpus + 1 {
		pods = append(pods, fmt.Sprint(i))
	}

	n.RunPods(pods...)
	containers := n.Containers()
	crowded := fmt.Sprintf("OutOfpods (pods: %d needed by all pods together, %d allocatable);", len(pods), cpus)
	n.is(localInit)
	// The first comparison is reported some time after the start, the next in
	// ten minutes. Another test may allow agents to read /configz.
	n.Awaits("the first comparison for drift is reported", func(nc *v1alpha1.NodeConfig) error {
		return assert.Unless(nc.Status.Drift != nil, "it is not")
	})

	kubelet, before := n.Steady(), n.inventory()
	for _, c := range []struct{ name, fields, reason, words string }{
		{"good", "containerLogMaxFiles: 4", "", ""},
		{"the kubelet rejects it", "imageGCHighThresholdPercent: 101", v1alpha1.ReasonValidationFailed, "imageGCHighThresholdPercent"},
		{"a protected field", "staticPodPath: /etc", v1alpha1.ReasonProtectedFields, `protected field staticPodPath would be "/etc"`},
		{"too few places for the pods", "podsPerCore: 1", v1alpha1.ReasonWouldEvictPods, crowded},
		{"a threshold that the usage crosses", "evictionHard: {memory.available: 99%}", v1alpha1.ReasonWouldEvictPods,
			"Evicted (the usage crosses, or nearly crosses, evictionHard memory.available (99%, "},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := n.in(t)
			n.preflight(c.fields, c.reason, c.words)
			assert.NoDiff(t, cmp.Diff(before, n.inventory()), "the node was changed")
			kubelet.Check(t)
		})
	}

	kubelet.End(t)
	n.SameContainers(containers)
	refusals := n.refusals("")
	assert.That(t, len(refusals) == 0, "requests were taken for assignments: %q", refusals)
}

// preflight asks the node about a drop-in with these fields. It must refuse it
// for the reason, with these words; if reason is empty, it must accept it.
func (n *node) preflight(fields, reason, words string) {
	n.t.Helper()
	was := n.config().Status.Preflight
	code, verdict, said := 2, v1alpha1.PreflightRefused, "1 "+reason+" ("+n.Node.Name()+")"
	if reason == "" {
		code, verdict, said = 0, v1alpha1.PreflightAccepted, "1 node accepts\n"
	}

	n.Plugin(code, []string{"preflight", "-f", n.File(nodetest.Upstream + fields + "\n"), "--drop-in", "--selector=kubernetes.io/hostname=" + n.Node.Name(), "--timeout=" + nodetest.Patience.String()}, said)
	a := n.config().Status.Preflight
	if a == nil || a.Verdict != verdict || a.Reason != reason || !strings.Contains(a.Message, words) || was != nil && a.UID == was.UID {
		n.t.Errorf("the answer is %+v, want %s %s %q", a, verdict, reason, words)
	}
}

// config returns the NodeConfig.
func (n *node) config() *v1alpha1.NodeConfig {
	n.t.Helper()
	return assert.Value(n.Get(n.t.Context()))(n.t)
}

// inventory is what a preflight must not change: the NodeConfig, and the files
// in the agent's directory and of the local configuration.
func (n *node) inventory() map[string]string {
	n.t.Helper()
	nc := n.config()
	s := nc.Status
	s.Preflight, s.WorkloadPods, s.PodsUnreadyOnRestart = nil, nil, nil // counts are written along with an answer
	found := map[string]string{"the NodeConfig": string(assert.Value(json.Marshal([]any{nc.UID, nc.Generation, nc.Spec, s}))(n.t))}
	for _, root := range []string{n.Dir, n.Node.KubeletConfig()} {
		assert.NoError(n.t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}

			info, err := entry.Info()
			if err == nil {
				found[path] = fmt.Sprintf("%s, %d bytes, written at %s", info.Mode(), info.Size(), info.ModTime().Format(time.RFC3339Nano))
			}

			return err
		}))
	}

	assert.Must(n.t, len(found) >= 3, "the agent has no files")

	return found
}
