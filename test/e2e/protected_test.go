package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
	"github.com/evenkeel/evenkeel/testkit/nodetest"
)

// protectedField is ConfigOK for a payload that would make one protected field
// different.
func protectedField(cm *corev1.ConfigMap, using, words string) want {
	return refused(cm, "ProtectedFields", using, "protected field "+words)
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

// refusals returns the messages of the Events about refusals on the Node that hold words, each as often as it was given.
func (n *node) refusals(words string) (messages []string) {
	n.t.Helper()
	list, err := n.Kube.CoreV1().Events(metav1.NamespaceDefault).List(n.t.Context(), metav1.ListOptions{
		FieldSelector: fields.SelectorFromSet(fields.Set{"involvedObject.kind": "Node", "involvedObject.name": n.Node.Name(), "reason": "ConfigRefused"}).String(),
	})
	assert.NoError(n.t, err)
	for _, e := range list.Items {
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
	nc := assert.Value(n.Get(n.t.Context()))(n.t)
	object := assert.Value(json.Marshal(nc))(n.t)
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

	whole := func(changes map[string]any) map[string]string {
		return map[string]string{"kubelet": n.text(changes)}
	}
	const local = "using last-known-good (init)"
	refusals := 0
	for i, c := range []struct {
		name  string
		data  map[string]string
		words string
	}{
		{"the read-only port", whole(map[string]any{"readOnlyPort": 10255}), "readOnlyPort would be 10255, but is 0 locally"},
		{"callers without credentials", whole(map[string]any{"authentication": map[string]any{
			"anonymous": map[string]any{"enabled": true}, "webhook": map[string]any{"enabled": true},
			"x509": map[string]any{"clientCAFile": n.clientCAFile()},
		}}), "authentication.anonymous.enabled would be true, but is false locally"},
		{"a feature gate", whole(map[string]any{"featureGates": map[string]any{"NodeLogQuery": true}}), "featureGates.NodeLogQuery would be true, but is unset locally"},
		{"a header of the static pod URL", whole(map[string]any{"staticPodURLHeader": map[string]any{"X-Token": []string{"s3cret-of-a-payload"}}}),
			"staticPodURLHeader.X-Token is masked and differs, or may differ, from the local configuration"},
		{"the static pod URL, which holds credentials", dropin("staticPodURL: https://me:s3cret-of-a-url@example.com/s3cret-path?t=s3cret-token\n"), `staticPodURL would be "https://example.com/masked", but is "" locally`},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := n.in(t)
			cm := n.CreateMap(fmt.Sprint(i), c.data)
			n.AssignMap(cm)
			nc := n.is(protectedField(cm, local, c.words))
			if nc.Status.Assigned == nil || nc.Status.Assigned.UID != cm.UID || nc.Status.Active != nil || len(nc.Status.BadConfigs) != 0 {
				t.Errorf("assigned is %+v, active %+v, badConfigs %+v", nc.Status.Assigned, nc.Status.Active, nc.Status.BadConfigs)
			}
			n.Event("Warning", "ConfigRefused", c.words)
			said := n.refusals(string(cm.UID))
			assert.That(t, len(said) == 1, "events are %q, want one", said)
			if disk := n.onDisk(); !disk.Current.IsLocal() || len(disk.Bad) != 0 || disk.Trial != nil {
				t.Errorf("on disk: current %+v, bad %+v, trial %+v", disk.Current, disk.Bad, disk.Trial)
			}
			refusals++
			kubelet.Check(t)
		})
	}
	if said := n.refusals(""); len(said) != refusals {
		t.Errorf("there are %d refusals in the events, want %d: %q", len(said), refusals, said)
	}
	n.status("Runs: the local configuration", "Why: "+local+": refused current (UID: ")

	// A drop-in is decoded in any case by the kubelet, and strictly by us.
	cased := n.dropin("cased", "StaticPodPath: /etc\n")
	n.AssignMap(cased)
	n.is(rejected(cased, local, `strict decoding error: unknown field "StaticPodPath"`))
	kubelet.End(t)

	// Fields that are not protected are adopted: with the same header in the payload,
	// and without a header in a drop-in.
	n.good("free", map[string]any{"maxPods": 120})
	laid := n.dropin("laid", "maxPods: 121\n")
	n.proves(laid)
	n.hides("s3cret")
}

// TestAFieldWithALimitCanBeChangedUpToIt has nodes whose kubelet has no verbosity flag, which would override the pushed value.
func TestAFieldWithALimitCanBeChangedUpToIt(t *testing.T) {
	t.Parallel()
	n := newNode(t, "limit", "--config-trial-duration=1s")
	n.Kubelet = slices.DeleteFunc(slices.Clone(n.Kubelet), func(arg string) bool { return strings.HasPrefix(arg, "--v=") })
	n.local(map[string]any{"podPidsLimit": 4000, "logging": map[string]any{"verbosity": 2}})
	n.Up()
	n.is(localInit)
	using := "using last-known-good (init)"
	for i, c := range []struct {
		fields, words string // empty words: it is adopted
		has           map[string]any
	}{
		{"logging: {verbosity: 10}\n", "logging.verbosity would be 10, but is 2 locally (free up to 7 or the local value)", nil},
		{"podPidsLimit: -1\n", "podPidsLimit would be -1, but is 4000 locally (free up to the local value; -1 and 0 are no limit)", nil},
		{"podPidsLimit: 4001\n", "podPidsLimit would be 4001, but is 4000 locally (free up to the local value; -1 and 0 are no limit)", nil},
		{"podPidsLimit: 3000\nlogging: {verbosity: 3}\n", "", map[string]any{"podPidsLimit": 3000, "logging.verbosity": 3}},
		{"podPidsLimit: 4001\n", "podPidsLimit would be 4001, but is 4000 locally (free up to the local value; -1 and 0 are no limit)", nil},
	} {
		cm := n.dropin(fmt.Sprint(i), c.fields)
		n.AssignMap(cm)
		if c.words != "" {
			n.is(protectedField(cm, using, c.words))
			continue
		}
		n.is(allChecksPassed(cm))
		n.LastKnownGood(cm)
		n.kubeletHas(c.has)
		using = fmt.Sprintf("using last-known-good (UID: %s)", cm.UID)
	}
}

// clientCAFile is what the node's own configuration names.
func (n *node) clientCAFile() string {
	n.t.Helper()
	raw := assert.Value(os.ReadFile(n.Node.KubeletConfig()))(n.t)
	for line := range strings.Lines(string(raw)) {
		if file, ok := strings.CutPrefix(strings.TrimSpace(line), "clientCAFile: "); ok {
			return file
		}
	}
	n.t.Fatal("the node has no clientCAFile")
	return ""
}

// withFlags restarts the agent with other flags.
func (n *node) withFlags(flags ...string) {
	n.t.Helper()
	n.stop()
	n.Flags = append([]string{"--config-trial-duration=1s"}, flags...)
	n.Up()
}

func TestANodeReportsItsProtectedFields(t *testing.T) {
	n := newNode(t, "list", "--config-trial-duration=1s")
	n.Up()
	port := netip.MustParseAddrPort(localcluster.FreeAddressForTest(t)).Port()
	opens := fmt.Sprintf("readOnlyPort would be %d, but is 0 locally", port)
	ro := n.assignNew("ro", map[string]any{"readOnlyPort": port})
	n.is(protectedField(ro, "using last-known-good (init)", opens))

	// Less than the default list.
	n.withFlags("--protected-fields=-readOnlyPort")
	n.is(allChecksPassed(ro))
	n.LastKnownGood(ro)
	anyone := fmt.Sprintf("http://127.0.0.1:%d/pods", port)
	n.Eventually("the kubelet answers everybody", func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, anyone, nil)
		if err != nil {
			return err
		}
		res, err := http.DefaultClient.Do(req)
		if err == nil {
			err = errors.Join(res.Body.Close(), ok(res))
		}
		return err
	})

	// More than what runs allows: back to local, and nothing is forgotten.
	n.withFlags("--protected-fields=+maxPods")
	nc := n.is(protectedField(ro, "using (init)", opens))
	if nc.Status.Active != nil || nc.Status.LastKnownGood == nil || nc.Status.LastKnownGood.UID != ro.UID || len(nc.Status.BadConfigs) != 0 {
		t.Errorf("active is %+v, last-known-good %+v, bad %+v", nc.Status.Active, nc.Status.LastKnownGood, nc.Status.BadConfigs)
	}
	n.healthyWith(nil)
	n.recorded(string(ro.UID), string(ro.UID))
	if res, err := http.Get(anyone); err == nil {
		t.Errorf("the kubelet still answers everybody: %s", res.Status)
		res.Body.Close()
	}
	more := n.assignNew("more", map[string]any{"maxPods": 120})
	n.is(protectedField(more, "using (init)", "maxPods would be 120, but is 110 locally"))
	n.AssignMap(ro)
	n.is(protectedField(ro, "using (init)", opens))

	// Nothing: it comes back, and needs no trial.
	n.withFlags("--protected-fields=")
	n.resumes(ro, allChecksPassed(ro))
	n.proves(more)
}

// resumes requires that the agent, just started, has gone on with what was
// last-known-good already.
func (n *node) resumes(cm *corev1.ConfigMap, w want) {
	n.t.Helper()
	nc := n.is(w)
	if l := nc.Status.LastKnownGood; l == nil || l.UID != cm.UID || nc.Status.Trial != nil {
		n.t.Errorf("last-known-good is %+v, trial %+v", l, nc.Status.Trial)
	}
	n.recorded(string(cm.UID), string(cm.UID))
	n.healthyWith(cm)
	n.wantSample(`evenkeel_kubelet_starts_total{cause="boot"}`, 1)
	n.wantSample(`evenkeel_kubelet_starts_total{cause="change"}`, 0)
	n.wantSample(`evenkeel_kubelet_starts_total{cause="resume"}`, 0)
}

func ok(res *http.Response) error {
	if res.StatusCode != http.StatusOK {
		return errors.New(res.Status)
	}
	return nil
}

// Scripts for the wrapper that change what a dry run prints. An accepted one
// ends with 1, as do most of the others.
const (
	printsNoConfiguration = `[ $mode = stage1 ] && { "$real" "$@" 2>&1 | grep -vE 'config(uration)?=<' | grep -v '^	' >&2; exit 1; }`
	// The configuration in an unknown form.
	printsAnotherForm = `[ $mode = stage1 ] && { "$real" "$@" 2>&1 | sed 's/^	\(.*\)/	<field>\1<\/field>/' >&2; exit 1; }`
	// A field of a newer kubelet, in what the payload makes effective.
	printsANewField = `[ $mode = stage1 ] && has 'maxPods: 123' && { "$real" "$@" 2>&1 | sed 's/"MaxPods": *123/"NewField":true,&/; s/\\"MaxPods\\": *123/\\"NewField\\":true,&/; s/^	maxPods: 123$/&\n	NewField: true/' >&2; exit 1; }`
)

func TestAKubeletThatDoesNotPrintItsConfigurationIsComparedByText(t *testing.T) {
	n := newNode(t, "silent", "--config-trial-duration=1s")
	n.wrap(printsNoConfiguration)
	n.Up()
	nc := n.is(localInit)
	const limit = "compared by text: the kubelet does not print its configuration in a known form"
	n.status("Agent: runs", "Limited: "+limit)
	n.runs(0, "", []string{"status", "--dynamic-config-dir=" + n.Dir, "--effective=flat"}, "The effective configuration is not known: no agent runs here, or its kubelet did not print it.")
	n.runs(0, "", append([]string{"check", "--self-test", "--"}, n.Kubelet...), "not ok  effective configuration: "+limit, "limited ComparedByText: ", "can be driven, with limits\n")
	if c := meta.FindStatusCondition(nc.Status.Conditions, v1alpha1.ConditionKubeletLimited); c == nil || c.Status != metav1.ConditionTrue || c.Reason != "ComparedByText" || !strings.HasPrefix(c.Message, limit) {
		t.Errorf("the condition is %+v", c)
	}
	n.Plugin(2, []string{"doctor"}, "silent", "evenkeel's features are limited with its kubelet (ComparedByText): "+limit)
	n.Plugin(0, []string{"node", n.Node.Name()}, "limited (ComparedByText): "+limit)

	kubelet := n.Steady()
	for i, tt := range []struct {
		data   map[string]string
		reason string
		words  string
	}{
		{dropin("readOnlyPort: 10255\n"), "ProtectedFields", "protected field readOnlyPort would be 10255, but is 0 locally (compared by text)"},
		{dropin("authentication: null\n"), "ProtectedFields", "protected field authentication would be null, but is a mapping locally (compared by text)"},
		{dropin("maxPods: 124\n"), "WouldEvictPods", "this kubelet does not print its configuration, so the loss of pods cannot be predicted, and the configuration changes maxPods: omit that, or set trial.allowPodLoss in the configuration"},
	} {
		cm := n.CreateMap(fmt.Sprint(i), tt.data)
		n.AssignMap(cm)
		nc := n.is(refused(cm, tt.reason, "using last-known-good (init)", tt.words))
		assert.That(t, len(nc.Status.BadConfigs) == 0, "badConfigs are %+v", nc.Status.BadConfigs)
	}
	kubelet.End(t)

	n.good("like-local", map[string]any{"containerLogMaxFiles": 4})
	n.kubeletHas(map[string]any{"containerLogMaxFiles": 4.0})
	laid := n.dropin("laid", "containerLogMaxFiles: 3\n")
	n.proves(laid)
	n.kubeletHas(map[string]any{"containerLogMaxFiles": 3.0})
	// So is a configuration in an unknown form.
	n.stop()
	n.wrap(printsAnotherForm)
	n.start()
	n.is(allChecksPassed(laid))
	open := n.dropin("open", "readOnlyPort: 10256\n")
	n.AssignMap(open)
	n.is(protectedField(open, fmt.Sprintf("using last-known-good (UID: %s)", laid.UID), "readOnlyPort would be 10256, but is 0 locally (compared by text)"))
	n.AssignMap(laid)
	n.is(allChecksPassed(laid))

	// A kubelet that prints it has a field that this agent does not know.
	n.stop()
	n.wrap(printsANewField)
	n.Flags = []string{"--config-trial-duration=1s"}
	n.Up()
	n.is(allChecksPassed(laid))
	newer := n.assignNew("newer", map[string]any{"maxPods": 123})
	n.is(protectedField(newer, fmt.Sprintf("using last-known-good (UID: %s)", laid.UID), "NewField would be true, but is unset locally"))
	n.withFlags("--protected-fields=-NewField")
	n.is(allChecksPassed(newer))
}

func TestALocalFileThatBecomesInvalidIsReportedAndNotStarted(t *testing.T) {
	t.Parallel()
	n := newNode(t, "edited", "--config-trial-duration=1s")
	n.Up()
	whole, err := os.ReadFile(n.Node.KubeletConfig())
	assert.NoError(t, err)
	next, dropin := n.ConfigMap("next", map[string]any{"maxPods": 120}), n.dropin("dropin", "maxPods: 120")
	n.local(map[string]any{"imageGCHighThresholdPercent": 101})
	const words = "the local configuration is invalid: invalid configuration: imageGCHighThresholdPercent (--image-gc-high-threshold) 101 must be between 0 and 100, inclusive"
	kubelet := n.Steady()
	for _, cm := range []*corev1.ConfigMap{next, dropin} {
		n.AssignMap(cm)
		n.is(refused(cm, "LocalInvalid", "using last-known-good (init)", words))
	}
	kubelet.End(t)
	n.kill(n.RunningPID())
	n.exitsWith(4)
	n.logged(words)
	assert.NoError(t, os.WriteFile(n.Node.KubeletConfig(), whole, 0o600))
	n.start()
	n.is(allChecksPassed(dropin))
}
