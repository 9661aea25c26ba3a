package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/node/agent"
	"github.com/evenkeel/evenkeel/internal/payload"
)

// page is all that the agent's /configz says.
func (n *node) page(query string) agent.Configz {
	n.t.Helper()
	var out agent.Configz
	if err := json.Unmarshal([]byte(n.get("/configz"+query)), &out); err != nil {
		n.t.Fatal(err)
	}
	return out
}

// get asks the agent over HTTP.
func (n *node) get(path string) string {
	n.t.Helper()
	res, err := http.Get("http://" + n.Listen + path)
	if err != nil {
		n.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		n.t.Fatalf("%s: %s, %v: %s", path, res.Status, err, body)
	}
	return string(body)
}

// metrics waits until every line is among the agent's metrics.
func (n *node) metrics(lines ...string) {
	n.t.Helper()
	n.eventually("the metrics", func(context.Context) error {
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

// writes are the versions of a node's NodeConfig, and of the condition of its
// Node, that there were.
type writes struct {
	mu      sync.Mutex
	configs []string
	status  []v1alpha1.NodeConfigStatus
	node    []corev1.NodeCondition
}

// writes collects all writes from now on.
func (n *node) writes() *writes {
	n.t.Helper()
	w := &writes{}
	nc, err := n.Get(n.t.Context())
	if err != nil {
		n.t.Fatal(err)
	}
	obj, err := n.Kube.CoreV1().Nodes().Get(n.t.Context(), n.Node.Name(), getOptions)
	if err != nil {
		n.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(n.t.Context())
	n.t.Cleanup(cancel)
	configs, err := n.WatchNodeConfig(ctx, nc.ResourceVersion)
	if err != nil {
		n.t.Fatal(err)
	}
	nodes, err := n.Kube.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + n.Node.Name(), ResourceVersion: obj.ResourceVersion})
	if err != nil {
		n.t.Fatal(err)
	}
	was, err := n.nodeCondition(ctx)
	if err != nil {
		n.t.Fatal(err)
	}
	go func() {
		for e := range configs.ResultChan() {
			if nc, ok := e.Object.(*v1alpha1.NodeConfig); ok && e.Type == watch.Modified {
				w.mu.Lock()
				w.configs = append(w.configs, nc.ResourceVersion)
				w.status = append(w.status, nc.Status)
				w.mu.Unlock()
			}
		}
	}()
	go func() {
		for e := range nodes.ResultChan() {
			obj, ok := e.Object.(*corev1.Node)
			if !ok {
				continue
			}
			i := slices.IndexFunc(obj.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == v1alpha1.ConditionConfigOK })
			if i >= 0 && obj.Status.Conditions[i] != was {
				was = obj.Status.Conditions[i]
				w.mu.Lock()
				w.node = append(w.node, was)
				w.mu.Unlock()
			}
		}
	}()
	return w
}

// upTo waits until a version of the NodeConfig was seen, and a change of the
// Node's condition, and returns all that was.
func (w *writes) upTo(n *node, version string) ([]v1alpha1.NodeConfigStatus, []corev1.NodeCondition) {
	n.t.Helper()
	var status []v1alpha1.NodeConfigStatus
	var conditions []corev1.NodeCondition
	n.eventually("the watch has seen it", func(context.Context) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		i := slices.Index(w.configs, version)
		if i < 0 || len(w.node) == 0 {
			return fmt.Errorf("seen are %q, not %s; conditions %+v", w.configs, version, w.node)
		}
		status, conditions = w.status[:i+1], slices.Clone(w.node)
		return nil
	})
	return status, conditions
}

func TestEventsAndStatusWritesOfAChange(t *testing.T) {
	n := newNode(t, "report", "--config-trial-duration=3s", "--crash-loop-threshold=0")
	n.up()
	n.is(localInit)
	if said := n.get("/healthz"); said != "ok\n" {
		t.Errorf("/healthz says %q", said)
	}
	page := n.page("")
	if page.Source.Kind != "init" || page.Source.UID != "" || page.Component != underTest.version || page.Effective["maxPods"] != 110.0 || page.ConfigOK.Message != localInit.message || page.Error != "" {
		t.Errorf("/configz says %+v, %+v, maxPods %v, error %q", page.Source, page.ConfigOK, page.Effective["maxPods"], page.Error)
	}
	// A node may not read its own kubelet's /configz, unless somebody lets it.
	if !strings.Contains(page.KubeletSays, "403 Forbidden") || page.Kubelet != nil {
		t.Errorf("kubeletConfigzError is %q, kubeletConfigz %v", page.KubeletSays, page.Kubelet)
	}
	n.metrics(which("assigned", nil), which("active", nil), which("last_known_good", nil), "evenkeel_node_config_error 0",
		`evenkeel_kubelet_starts_total{cause="boot"} 1`, `evenkeel_validations_total{verdict="accepted"} 1`,
		"evenkeel_trial_duration_seconds 0", "evenkeel_trial_healthy_seconds 0", "evenkeel_trial_restarts 0",
		"evenkeel_validation_duration_seconds_count 1", "evenkeel_change_duration_seconds_count 0")

	// One good change, until it is last-known-good.
	began := time.Now().Truncate(time.Second)
	seen := n.writes()
	good := n.configMap("good", map[string]any{"maxPods": 140})
	n.assign(good)
	nc := n.is(allChecksPassed(good))
	if nc.Status.Trial != nil {
		n.metrics(which("assigned", good), which("active", good), which("last_known_good", nil), "evenkeel_trial_duration_seconds 3")
	}
	n.lastKnownGood(good)
	nc, err := n.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	status, conditions := seen.upTo(n, nc.ResourceVersion)
	progress := 0
	for i := range status[1:] {
		before, after := status[i].DeepCopy(), status[i+1].DeepCopy()
		if before.Trial == nil || after.Trial == nil {
			continue
		}
		before.Trial.HealthySeconds, after.Trial.HealthySeconds = 0, 0
		if reflect.DeepEqual(before, after) {
			progress++
		}
	}
	if len(status)-progress > 4 || progress > 9 {
		t.Errorf("the NodeConfig was written %d times, %d of them for the progress of the trial, want the assignment, at most 3 more, and at most 9 of progress:", len(status), progress)
		for _, s := range status {
			t.Logf("%+v; trial %+v; last-known-good %+v; error %q", s.Conditions, s.Trial, s.LastKnownGood, s.Error)
		}
	}
	t.Logf("writes of the NodeConfig: the assignment and %d more, and %d of progress", len(status)-1-progress, progress)
	if len(conditions) != 1 || conditions[0].LastHeartbeatTime.Time.Before(began) || conditions[0].LastTransitionTime.Time.Before(began) {
		t.Errorf("the Node's condition was written %d times, want once, with new times: %+v", len(conditions), conditions)
	}
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
	n.event("Normal", "ConfigChanged", fmt.Sprintf("now using current (UID: %s)", good.UID))
	n.event("Normal", "ConfigLastKnownGood", fmt.Sprintf("(UID: %s) became last-known-good after 3s of observed health", good.UID))

	// One that is rejected, and one that is rolled back.
	seen = n.writes()
	bad := n.configMap("bad", map[string]any{"maxPodz": 3})
	n.assign(bad)
	nc = n.is(rejected(bad, fmt.Sprintf("using last-known-good (UID: %s)", good.UID), `strict decoding error: unknown field "maxPodz"`))
	if status, conditions := seen.upTo(n, nc.ResourceVersion); len(status) > 2 || len(conditions) != 1 {
		t.Errorf("the NodeConfig was written %d times, want twice, the Node's condition %d times, want once", len(status), len(conditions))
	}
	n.metrics(which("assigned", bad), which("active", good), which("last_known_good", good), "evenkeel_node_config_error 1", `evenkeel_validations_total{verdict="rejected"} 1`)
	n.event("Warning", "ConfigRejected", fmt.Sprintf("failed to validate current (UID: %s): strict decoding error", bad.UID))

	seen = n.writes()
	crash := n.configMap("crash", crashesAtItsStart)
	n.assign(crash)
	cause := fmt.Sprintf("current (UID: %s) crash-looped: 1 start in its trial, last: exit status 1", crash.UID)
	nc = n.is(want{"False", "CrashLooped", fmt.Sprintf("using last-known-good (UID: %s)", good.UID), cause, cause})
	n.eventually("the kubelet is healthy again", n.Healthy)
	if status, conditions := seen.upTo(n, nc.ResourceVersion); len(status) > 3 || len(conditions) > 2 {
		t.Errorf("the NodeConfig was written %d times, want three times, the Node's condition %d times, want twice", len(status), len(conditions))
	}
	n.event("Warning", "ConfigRolledBack", cause)
	n.metrics(`evenkeel_rollbacks_total{reason="CrashLooped"} 1`, `evenkeel_kubelet_starts_total{cause="rollback"} 1`, which("active", good), "evenkeel_node_config_error 1")
}

func TestLocalIsInitOrDefault(t *testing.T) {
	n := newNode(t, "local")
	// The node has drop-ins, which apply to init and default, and no configuration file.
	whole, err := os.ReadFile(n.Node.KubeletConfig())
	if err != nil {
		t.Fatal(err)
	}
	dropins, init := filepath.Join(n.Node.Dir(), "dropins"), filepath.Join(n.Node.Dir(), "init")
	for file, data := range map[string]string{
		filepath.Join(dropins, "10-node.conf"): string(whole),
		filepath.Join(init, "kubelet"):         strings.ReplaceAll(string(whole), "maxPods: 110", "maxPods: 111"),
	} {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	n.Kubelet = append(slices.DeleteFunc(n.Kubelet, func(arg string) bool { return strings.HasPrefix(arg, "--config=") }), "--config-dir="+dropins)
	n.up()
	nc := n.is(want{
		status: "True", reason: "LocalDefault", message: "using current (default)",
		cause: "current is set to the local default, and no init config was provided",
	})
	if page := n.page(""); page.Source.Kind != "default" || page.Effective["maxPods"] != 110.0 || nc.Status.Local != v1alpha1.LocalConfigDefault {
		t.Errorf("/configz says %+v, maxPods %v; local is %s", page.Source, page.Effective["maxPods"], nc.Status.Local)
	}
	n.stop()

	n.Flags = append(n.Flags, "--init-config-dir="+init)
	n.up()
	nc = n.is(localInit)
	if page := n.page(""); page.Source.Kind != "init" || page.Effective["maxPods"] != 111.0 || nc.Status.Local != v1alpha1.LocalConfigInit {
		t.Errorf("/configz says %+v, maxPods %v; local is %s", page.Source, page.Effective["maxPods"], nc.Status.Local)
	}
	n.eventually("the kubelet runs with it", func(ctx context.Context) error {
		config, err := n.KubeletConfigz(ctx)
		if err == nil && config["maxPods"] != 111.0 {
			err = fmt.Errorf("maxPods is %v", config["maxPods"])
		}
		return err
	})
}
