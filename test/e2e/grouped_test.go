package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/bed"
)

// grouped begins a KubeletConfiguration of evenkeel's own form.
const grouped = "apiVersion: evenkeel.dev/v1alpha1\nkind: KubeletConfiguration\n"

// groupedConfig is Config in the grouped form, with the trial that it asks for.
func (n *node) groupedConfig(trial, changes map[string]any) string {
	n.t.Helper()
	data, err := n.Config(changes)
	if err != nil {
		n.t.Fatal(err)
	}
	var fields map[string]any
	if err := yaml.Unmarshal([]byte(data), &fields); err != nil {
		n.t.Fatal(err)
	}
	fields = payload.Group(fields)
	if trial != nil {
		fields["trial"] = trial
	}
	out, err := yaml.Marshal(fields)
	if err != nil {
		n.t.Fatal(err)
	}
	return string(out)
}

// groupedConfigMap creates a ConfigMap with it.
func (n *node) groupedConfigMap(name string, trial, changes map[string]any) *corev1.ConfigMap {
	n.t.Helper()
	return n.create(name, map[string]string{payload.KeyKubelet: n.groupedConfig(trial, changes)})
}

// onTrial waits until the status shows the trial of a ConfigMap, and requires its
// terms.
func (n *node) onTrial(cm *corev1.ConfigMap, duration time.Duration, threshold int64) {
	n.t.Helper()
	var p *v1alpha1.Trial
	n.eventually(cm.Name+" is on trial", func(ctx context.Context) error {
		nc, err := n.Get(ctx)
		if err != nil {
			return err
		}
		if p = nc.Status.Trial; p == nil || nc.Status.Active == nil || nc.Status.Active.UID != cm.UID {
			return errors.New("it is not")
		}
		return nil
	})
	if p.DurationSeconds != int64(duration/time.Second) || p.CrashLoopThreshold != threshold {
		n.t.Errorf("its trial is %+v, want %s and a threshold of %d", *p, duration, threshold)
	}
}

func TestAGroupedConfigurationEqualsItsUpstreamForm(t *testing.T) {
	t.Parallel()
	n := newNode(t, "grouped", "--config-trial-duration=10m", "--crash-loop-threshold=3")
	n.up()
	local := n.kubeletHas(map[string]any{"maxPods": 110})
	changes := map[string]any{
		"maxPods": 120, "hairpinMode": "hairpin-veth", "imageMinimumGCAge": "3m", "eventBurst": 44, "podPidsLimit": 4096,
		"evictionHard": map[string]string{"memory.available": "60Mi"}, "logging": map[string]any{"flushFrequency": "7s"},
		"containerLogMaxSize": "20Mi", "shutdownGracePeriod": "10s", "systemReserved": map[string]string{"cpu": "100m"},
	}
	twin := n.configMap("twin", changes)
	n.assign(twin)
	n.is(allChecksPassed(twin))
	n.onTrial(twin, 10*time.Minute, 3)
	n.healthyWith(twin)
	is := n.kubeletHas(map[string]any{"maxPods": 120, "hairpinMode": "hairpin-veth", "logging.flushFrequency": "7s"})

	ours := n.groupedConfigMap("ours", map[string]any{"configTrialDuration": "3s", "crashLoopThreshold": 0}, changes)
	n.assign(ours)
	n.is(allChecksPassed(ours))
	n.onTrial(ours, 3*time.Second, 0)
	n.healthyWith(ours)
	n.differ(n.kubeletHas(map[string]any{"maxPods": 120}), is)
	n.lastKnownGood(ours) // though the flag says 10m
	n.event("Normal", "ConfigLastKnownGood", fmt.Sprintf("(UID: %s) became last-known-good after 3s of observed health", ours.UID))
	page := n.page("")
	n.origins(page, map[string]component.Origin{"maxPods": "remote", "logging.flushFrequency": "remote", "shutdownGracePeriod": "remote", "kubeAPIBurst": ""})
	if shown := n.page("?form=grouped").Effective; shown["apiVersion"] != "evenkeel.dev/v1alpha1" || shown["resources"].(map[string]any)["maxPods"] != 120.0 {
		t.Errorf("the grouped form is %v", shown)
	}

	n.besideTheSource(ours)
	n.refusesGrouped(ours)

	// The terms of a trial are those that it was begun with.
	kept := n.groupedConfigMap("kept", map[string]any{"crashLoopThreshold": 2}, map[string]any{"maxPods": 121})
	n.assign(kept)
	n.is(allChecksPassed(kept))
	n.onTrial(kept, 10*time.Minute, 2)
	n.healthyWith(kept)
	n.stop()
	n.Flags = []string{"--config-trial-duration=1s", "--crash-loop-threshold=7"}
	n.up()
	n.onTrial(kept, 10*time.Minute, 2)
	n.eventually("it is longer than the flag says", func(ctx context.Context) error {
		nc, err := n.Get(ctx)
		if err != nil {
			return err
		}
		if l := nc.Status.LastKnownGood; l == nil || l.UID != ours.UID {
			t.Errorf("last-known-good is %+v", l)
		}
		if healthy := n.sample("evenkeel_trial_healthy_seconds"); healthy <= 3 {
			return fmt.Errorf("it was healthy for %v s", healthy)
		}
		return nil
	})

	n.groupedDropin(local)
}

// besideTheSource asks for the trial in spec.trial: of an upstream configuration, and of one that brings its own.
func (n *node) besideTheSource(own *corev1.ConfigMap) {
	n.t.Helper()
	spec := v1alpha1.NodeConfigSpec{ConfigSource: bed.Ref(own), Trial: &v1alpha1.TrialTerms{
		ConfigTrialDuration: &metav1.Duration{Duration: 2 * time.Second}, CrashLoopThreshold: new(int32(1)),
	}}
	set := func() {
		n.t.Helper()
		if err := n.SetSpec(n.t.Context(), spec); err != nil {
			n.t.Fatal(err)
		}
	}
	kubelet := n.steady()
	set()
	n.says("Unknown", "SyncFailed", "spec.trial and the payload (trial.configTrialDuration, trial.crashLoopThreshold) both have trial settings: remove one of them")
	kubelet.end(n.t)
	upstream := n.configMap("beside", map[string]any{"maxPods": 119})
	spec.ConfigSource = bed.Ref(upstream)
	set()
	n.onTrial(upstream, 2*time.Second, 1)
	n.lastKnownGood(upstream)
	n.assign(own)
	n.is(allChecksPassed(own))
	n.lastKnownGood(own)
}

// refusesGrouped assigns what the agent itself finds wrong.
func (n *node) refusesGrouped(running *corev1.ConfigMap) {
	n.t.Helper()
	kubelet := n.steady()
	using := fmt.Sprintf("using last-known-good (UID: %s)", running.UID)
	for i, c := range []struct{ key, data, words string }{
		{"kubelet", "networking: {maxPods: 50}\n", "networking.maxPods: maxPods belongs in resources: resources.maxPods"},
		{"kubelet", "maxPods: 50\n", "maxPods: maxPods belongs in resources: resources.maxPods"},
		{"kubelet", "resources: {evictionHard: {memory.available: 1Gi}}\n", "resources.evictionHard: evictionHard belongs in resources.eviction: resources.eviction.evictionHard"},
		{"kubelet", "resources: {MaxPods: 50}\n", "resources.MaxPods: no such field; did you mean resources.maxPods?"},
		{"kubelet", "resources: {crashLoopThreshold: 1}\n", "resources.crashLoopThreshold: no such field"},
		{"kubelet", "security: {authentication: {anonymus: {enabled: true}}}\n", "security.authentication.anonymus: no such field"},
		{"kubelet", "networking:\n", "networking: must be a mapping of fields, not null"},
		{"kubelet", "networking: {resolvConf: resolv.conf}\n", `networking.resolvConf is the relative path "resolv.conf"; paths must be absolute`},
		{"kubelet", "trial: {crashLoopThreshold: 11, configTrialDuration: forever}\n",
			`trial.configTrialDuration: must be a duration over 0 and up to 168h, such as "30m", not "forever"; trial.crashLoopThreshold: must be a whole number from 0 to 10, not 11`},
		{"kubelet-dropin", "trial: {allowPodLoss: maybe}\n", `trial.allowPodLoss: must be true or false, not "maybe"`},
	} {
		cm := n.create(fmt.Sprint(i), map[string]string{c.key: grouped + c.data})
		n.assign(cm)
		nc := n.is(rejected(cm, using, fmt.Sprintf("ConfigMap evenkeel-system/%s: key %q: %s", cm.Name, c.key, c.words)))
		if nc.Status.Trial != nil || nc.Status.BadConfigs[0].UID != cm.UID {
			n.t.Errorf("trial is %+v, badConfigs %+v", nc.Status.Trial, nc.Status.BadConfigs)
		}
		kubelet.check(n.t)
	}
	// The kubelet judges the rest like the upstream form.
	cm := n.groupedConfigMap("banana", nil, map[string]any{"evictionHard": map[string]string{"memory.available": "banana"}})
	n.assign(cm)
	n.is(rejected(cm, using, "quantities must match the regular expression"))
	kubelet.end(n.t)
}

// groupedDropin lays one over the local configuration.
func (n *node) groupedDropin(local component.Effective) {
	n.t.Helper()
	cm := n.create("dropin", map[string]string{payload.KeyKubeletDropin: grouped + `
trial:
  configTrialDuration: 3s
resources:
  maxPods: 130
  eviction:
    evictionHard: {memory.available: 70Mi}
logging:
  verbosity: 4
  containerLogMaxSize: 20Mi
`})
	n.assign(cm)
	nc := n.is(allChecksPassed(cm))
	if fmt.Sprint(nc.Status.OverriddenFields) != "[logging.verbosity]" { // the node has --v=2
		n.t.Errorf("overriddenFields are %q", nc.Status.OverriddenFields)
	}
	n.onTrial(cm, 3*time.Second, 7)
	n.healthyWith(cm)
	n.differ(n.kubeletHas(map[string]any{"maxPods": 130, "evictionHard[memory.available]": "70Mi", "evictionHard[imagefs.available]": "1%"}), local,
		"containerLogMaxSize", "evictionHard[memory.available]", "maxPods")
	n.lastKnownGood(cm)
}

func TestAPayloadThatToleratesNoCrashIsRolledBackAtTheFirst(t *testing.T) {
	t.Parallel()
	n := newNode(t, "nocrash", "--config-trial-duration=1s", "--crash-loop-threshold=3")
	n.wrap(`[ $mode = run ] && grep -qs '"maxPods": 123,' "$config" && exit 7`)
	n.up()
	cm := n.groupedConfigMap("a", map[string]any{"crashLoopThreshold": 0}, map[string]any{"maxPods": 123})
	n.assign(cm)
	w := rolledBack(cm, "CrashLooped", "(init)", "crash-looped: 1 start in its trial, last: exit status 7")
	n.is(w)
	n.event("Warning", "ConfigRolledBack", w.cause+"; going back to last-known-good (init)")
	n.healthyWith(nil)
	n.verdictIsFinal(cm)
	if got := n.starts(cm); got != 1 {
		t.Errorf("it was started %d times", got)
	}
}
