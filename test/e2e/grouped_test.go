package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// grouped begins a KubeletConfiguration of evenkeel's own form.
const grouped = "apiVersion: evenkeel.dev/v1alpha1\nkind: KubeletConfiguration\n"

// groupedConfig is Config in the grouped form, with the trial that it asks for.
func (n *node) groupedConfig(trial, changes map[string]any) string {
	n.t.Helper()
	var fields map[string]any
	assert.NoError(n.t, yaml.Unmarshal([]byte(n.text(changes)), &fields))
	fields = payload.Group(fields)
	if trial != nil {
		fields["trial"] = trial
	}
	out := assert.Value(yaml.Marshal(fields))(n.t)
	return string(out)
}

// groupedConfigMap creates a ConfigMap with it.
func (n *node) groupedConfigMap(name string, trial, changes map[string]any) *corev1.ConfigMap {
	n.t.Helper()
	return n.CreateMap(name, map[string]string{payload.KeyKubelet: n.groupedConfig(trial, changes)})
}

// onTrial waits until the status shows the trial of a ConfigMap, and requires its
// terms.
func (n *node) onTrial(cm *corev1.ConfigMap, duration time.Duration, threshold int64) {
	n.t.Helper()
	var p *v1alpha1.Trial
	n.Eventually(cm.Name+" is on trial", func(ctx context.Context) error {
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
	n.Up()
	local := n.kubeletHas(map[string]any{"maxPods": 110})
	changes := map[string]any{
		"maxPods": 120, "hairpinMode": "hairpin-veth", "imageMinimumGCAge": "3m", "eventBurst": 44, "podPidsLimit": 4096,
		"evictionHard": map[string]string{"memory.available": "60Mi"}, "logging": map[string]any{"flushFrequency": "7s"},
		"containerLogMaxSize": "20Mi", "shutdownGracePeriod": "10s", "systemReserved": map[string]string{"cpu": "100m"},
	}
	twin := n.assignNew("twin", changes)
	n.is(allChecksPassed(twin))
	n.onTrial(twin, 10*time.Minute, 3)
	n.healthyWith(twin)
	is := n.kubeletHas(map[string]any{"maxPods": 120, "hairpinMode": "hairpin-veth", "logging.flushFrequency": "7s"})

	ours := n.groupedConfigMap("ours", map[string]any{"configTrialDuration": "3s", "crashLoopThreshold": 0}, changes)
	n.AssignMap(ours)
	n.is(allChecksPassed(ours))
	n.onTrial(ours, 3*time.Second, 0)
	n.healthyWith(ours)
	n.differ(n.kubeletHas(map[string]any{"maxPods": 120}), is)
	n.LastKnownGood(ours) // though the flag says 10m
	n.Event("Normal", "ConfigLastKnownGood", fmt.Sprintf("(UID: %s) became last-known-good after 3s of observed health", ours.UID))
	page := n.page("")
	n.origins(page, map[string]component.Origin{"maxPods": "remote", "logging.flushFrequency": "remote", "shutdownGracePeriod": "remote", "kubeAPIBurst": ""})
	if shown := n.page("?form=grouped").Effective; shown["apiVersion"] != "evenkeel.dev/v1alpha1" || shown["resources"].(map[string]any)["maxPods"] != 120.0 {
		t.Errorf("the grouped form is %v", shown)
	}

	n.groupedDropin(local)
}

// groupedDropin lays one over the local configuration.
func (n *node) groupedDropin(local component.Effective) {
	n.t.Helper()
	cm := n.CreateMap("dropin", map[string]string{payload.KeyKubeletDropin: grouped + `
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
	n.AssignMap(cm)
	nc := n.is(allChecksPassed(cm))
	if fmt.Sprint(nc.Status.OverriddenFields) != "[logging.verbosity]" { // the node has --v=2
		n.t.Errorf("overriddenFields are %q", nc.Status.OverriddenFields)
	}
	n.onTrial(cm, 3*time.Second, 3)
	n.healthyWith(cm)
	n.differ(n.kubeletHas(map[string]any{"maxPods": 130, "evictionHard[memory.available]": "70Mi", "evictionHard[imagefs.available]": "1%"}), local,
		"containerLogMaxSize", "evictionHard[memory.available]", "maxPods")
	n.LastKnownGood(cm)
}
