package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/node/agent"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// page is all that the agent's /configz says.
func (n *node) page(query string) agent.Configz {
	n.t.Helper()
	var out agent.Configz
	assert.NoError(n.t, json.Unmarshal([]byte(n.get("/configz"+query)), &out))
	return out
}

// get asks the agent over HTTP.
func (n *node) get(path string) string {
	n.t.Helper()
	body := assert.Value(n.AskAgent(n.t.Context(), path))(n.t)
	return string(body)
}

// metrics waits until every line is among the agent's metrics.
func (n *node) metrics(lines ...string) {
	n.t.Helper()
	n.Eventually("the metrics", func(context.Context) error {
		text := n.get("/metrics")
		all := strings.Split(text, "\n")
		for _, line := range lines {
			if !slices.Contains(all, line) {
				return fmt.Errorf("there is no %q in:\n%s", line, text)
			}
		}
		return nil
	})
}

// which is a metric that says which configuration is one of three.
func which(metric string, cm *corev1.ConfigMap) string {
	source, uid, version, key := "local", "", "", ""
	if cm != nil {
		source, uid, version = "/api/v1/namespaces/"+cm.Namespace+"/configmaps/"+cm.Name, string(cm.UID), cm.ResourceVersion
		for key = range cm.Data {
		}
	}
	return fmt.Sprintf(`evenkeel_node_config_%s{node_config_kubelet_key=%q,node_config_resource_version=%q,node_config_source=%q,node_config_uid=%q} 1`, metric, key, version, source, uid)
}

func TestStatusPageMetricsAndEventsOfAChange(t *testing.T) {
	t.Parallel()
	n := newNode(t, "report", "--config-trial-duration=3s", "--crash-loop-threshold=0")
	n.Up()
	n.is(localInit)
	assert.Equal(t, n.get("/healthz"), "ok\n", "/healthz")
	page := n.page("")
	if page.Source.Kind != "init" || page.Source.UID != "" || page.Component != underTest.version || page.Effective["maxPods"] != 110.0 || page.ConfigOK.Message != localInit.message || page.Error != "" {
		t.Errorf("/configz says %+v, %+v, maxPods %v, error %q", page.Source, page.ConfigOK, page.Effective["maxPods"], page.Error)
	}
	// A node may not read its own kubelet's /configz, unless somebody lets it, as the test of drift does at some time.
	assert.That(t, strings.Contains(page.KubeletSays, "403 Forbidden") == (page.Kubelet == nil),
		"kubeletConfigzError is %q, kubeletConfigz %v", page.KubeletSays, page.Kubelet)
	n.metrics(which("assigned", nil), which("active", nil), which("last_known_good", nil), "evenkeel_node_config_error 0",
		`evenkeel_kubelet_starts_total{cause="boot"} 1`, `evenkeel_validations_total{verdict="accepted"} 1`,
		"evenkeel_trial_duration_seconds 0", "evenkeel_trial_healthy_seconds 0", "evenkeel_trial_restarts 0",
		"evenkeel_validation_duration_seconds_count 1", "evenkeel_change_duration_seconds_count 0")

	// One good change, until it is last-known-good.
	good := n.assignNew("good", map[string]any{"maxPods": 140})
	nc := n.is(allChecksPassed(good))
	if nc.Status.Trial != nil {
		n.metrics(which("assigned", good), which("active", good), which("last_known_good", nil), "evenkeel_trial_duration_seconds 3")
	}
	n.LastKnownGood(good)
	nc = n.config()
	if nc.Status.ComponentVersion != underTest.version || nc.Status.AgentVersion == "" || nc.Status.RunMode != v1alpha1.RunModeHost ||
		nc.Status.RemoteConfig != v1alpha1.RemoteConfigNodeConfig || nc.Status.Local != v1alpha1.LocalConfigInit || nc.Status.Trial != nil {
		t.Errorf("status is %+v", nc.Status)
	}
	digest := payload.Digest("kubelet", []byte(good.Data["kubelet"]))
	if l := nc.Status.LastKnownGood; l.Namespace != good.Namespace || l.Name != good.Name || l.SHA256 != digest || l.Revision != string(good.UID) || l.Since == nil || nc.Status.Active.SHA256 != digest {
		t.Errorf("last-known-good is %+v, active %+v", l, nc.Status.Active)
	}
	page = n.page("")
	if page.Source.Kind != "remote" || page.Source.UID != string(good.UID) || page.Source.Name != good.Name || page.Source.SHA256 != digest || page.Effective["maxPods"] != 140.0 {
		t.Errorf("/configz says %+v, maxPods %v", page.Source, page.Effective["maxPods"])
	}
	n.metrics(which("assigned", good), which("active", good), which("last_known_good", good), "evenkeel_node_config_error 0",
		`evenkeel_kubelet_starts_total{cause="change"} 1`, "evenkeel_change_duration_seconds_count 1", "evenkeel_trial_duration_seconds 0")
	n.Event("Normal", "ConfigChanged", fmt.Sprintf("now using current (UID: %s)", good.UID))
	n.Event("Normal", "ConfigLastKnownGood", fmt.Sprintf("(UID: %s) became last-known-good after 3s of observed health", good.UID))
}

func TestLocalIsInitOrDefault(t *testing.T) {
	t.Parallel()
	n := newNode(t, "local")
	// The node has drop-ins, which apply to init and default, and no configuration file.
	whole := assert.Value(os.ReadFile(n.Node.KubeletConfig()))(t)
	dropins, init := filepath.Join(n.Node.Dir(), "dropins"), filepath.Join(n.Node.Dir(), "init")
	for file, data := range map[string]string{
		filepath.Join(dropins, "10-node.conf"): string(whole),
		filepath.Join(init, "kubelet"):         strings.ReplaceAll(string(whole), "maxPods: 110", "maxPods: 111"),
	} {
		assert.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		assert.NoError(t, os.WriteFile(file, []byte(data), 0o600))
	}
	n.Kubelet = append(slices.DeleteFunc(n.Kubelet, func(arg string) bool { return strings.HasPrefix(arg, "--config=") }), "--config-dir="+dropins)
	n.Up()
	nc := n.is(want{
		status: "True", reason: "LocalDefault", message: "using current (default)",
		cause: "current is set to the local default, and no init config was provided",
	})
	if page := n.page(""); page.Source.Kind != "default" || page.Effective["maxPods"] != 110.0 || nc.Status.Local != v1alpha1.LocalConfigDefault {
		t.Errorf("/configz says %+v, maxPods %v; local is %s", page.Source, page.Effective["maxPods"], nc.Status.Local)
	}
	n.stop()

	n.Flags = append(n.Flags, "--init-config-dir="+init)
	n.Up()
	nc = n.is(localInit)
	if page := n.page(""); page.Source.Kind != "init" || page.Effective["maxPods"] != 111.0 || nc.Status.Local != v1alpha1.LocalConfigInit {
		t.Errorf("/configz says %+v, maxPods %v; local is %s", page.Source, page.Effective["maxPods"], nc.Status.Local)
	}
	n.KubeletHas("maxPods", 111)
}
