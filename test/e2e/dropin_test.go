package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/agent"
	"github.com/evenkeel/evenkeel/internal/payload"
)

// upstream begins a KubeletConfiguration of the form that the kubelet reads.
const upstream = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

// dropin creates a ConfigMap with a drop-in.
func (n *node) dropin(name, fields string) *corev1.ConfigMap {
	n.t.Helper()
	return n.create(name, map[string]string{payload.KeyKubeletDropin: upstream + fields})
}

// own writes one of the drop-ins that the node itself has, and gives the kubelet
// their directory.
func (n *node) own(name, fields string) {
	n.t.Helper()
	dir := filepath.Join(n.Node.Dir(), "kubelet.conf.d")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte(upstream+fields), 0o644); err != nil {
		n.t.Fatal(err)
	}
	if flag := "--config-dir=" + dir; !slices.Contains(n.Kubelet, flag) {
		n.Kubelet = append(n.Kubelet, flag)
	}
}

// kubeletHas waits until the kubelet's own /configz has these values, and
// returns all of it.
func (n *node) kubeletHas(want map[string]any) component.Effective {
	n.t.Helper()
	var all component.Effective
	n.eventually(fmt.Sprintf("the kubelet has %v", want), func(ctx context.Context) (err error) {
		if all, err = n.KubeletConfigz(ctx); err != nil {
			return err
		}
		for field, value := range want {
			if is, _ := all.Field(field); fmt.Sprint(is) != fmt.Sprint(value) {
				return fmt.Errorf("%s is %v", field, is)
			}
		}
		return nil
	})
	return all
}

// differ requires that two configurations differ in these fields alone.
func (n *node) differ(a, b component.Effective, fields ...string) {
	n.t.Helper()
	var found []string
	for _, d := range payload.Diff(a, b) {
		found = append(found, d.Field)
	}
	if !slices.Equal(found, fields) {
		n.t.Errorf("%q differ, want %q: %v", found, fields, payload.Diff(a, b))
	}
}

// origins requires where fields come from; "": they are defaults.
func (n *node) origins(page agent.Configz, want map[string]component.Origin) {
	n.t.Helper()
	for field, origin := range want {
		if got := page.Origins[field]; got != origin {
			n.t.Errorf("/configz says that %s is of origin %q, want %q", field, got, origin)
		}
	}
}

func TestADropInIsMergedOverTheNodesConfiguration(t *testing.T) {
	t.Parallel()
	n := newNode(t, "dropin", "--config-trial-duration=2s")
	n.own("10-pods.conf", "maxPods: 90\n")
	n.own("20-registry.conf", "registryBurst: 21\n")
	n.up()
	n.is(localInit)
	local := n.kubeletHas(map[string]any{"maxPods": 90, "registryBurst": 21})

	over := n.dropin("over", "maxPods: 77\nevictionHard: {imagefs.available: 2%}\n")
	n.assign(over)
	nc := n.is(allChecksPassed(over))
	if a := nc.Status.Active; a == nil || a.UID != over.UID || a.SHA256 != payload.Digest("kubelet-dropin", []byte(over.Data["kubelet-dropin"])) {
		t.Errorf("active is %+v", a)
	}
	n.healthyWith(over)
	laidOver := map[string]any{"maxPods": 77, "registryBurst": 21, "evictionHard[imagefs.available]": "2%", "evictionHard[memory.available]": "50Mi", "clusterDomain": "cluster.local"}
	n.differ(n.kubeletHas(laidOver), local, "evictionHard[imagefs.available]", "maxPods")
	n.lastKnownGood(over)
	n.event("Normal", "ConfigLastKnownGood", fmt.Sprintf("(UID: %s) became last-known-good after 2s of observed health", over.UID))
	n.metrics(which("active", over), which("last_known_good", over), `evenkeel_kubelet_starts_total{cause="change"} 1`)

	page := n.page("")
	if page.Source.Kind != "remote" || page.Source.UID != string(over.UID) {
		t.Errorf("/configz is of %+v", page.Source)
	}
	n.origins(page, map[string]component.Origin{
		"maxPods": "drop-in", "evictionHard[imagefs.available]": "drop-in", "evictionHard[memory.available]": "local",
		"registryBurst": "local", "clusterDomain": "local", "logging.verbosity": "flag", "kubeAPIBurst": "",
	})
	if d := page.Differs; len(d) != 2 || d[0].String() != `evictionHard[imagefs.available] would be "2%", but is "1%" locally` || d[1].String() != "maxPods would be 77, but is 90 locally" {
		t.Errorf("/configz says that these differ from local: %v", d)
	}
	for _, d := range payload.Diff(n.kubeletHas(laidOver), page.Effective) { // the judged configuration is the running one
		if d.Value != "unset" && d.Field != "apiVersion" && d.Field != "kind" { // the kubelet omits empty values
			t.Errorf("the kubelet's configuration differs from the agent's /configz: %s", d)
		}
	}

	// What the node has below is read at each start, also by one that hears
	// nothing from the API.
	n.stop()
	n.own("20-registry.conf", "registryBurst: 22\n")
	n.up()
	n.is(allChecksPassed(over))
	n.event("Normal", "ConfigOnTrial", fmt.Sprintf("last-known-good (UID: %s) has not passed a trial with this kubelet version and local configuration", over.UID))
	laidOver["registryBurst"] = 22
	n.kubeletHas(laidOver)
	n.stop()
	n.own("20-registry.conf", "registryBurst: 23\nmaxPods: 91\n")
	f := &fault{}
	n.behind(f)
	f.begin(func(w http.ResponseWriter, _ *http.Request) bool {
		code(http.StatusServiceUnavailable)(w, nil)
		return true
	})
	n.start()
	n.healthyWith(over)
	n.agentSays("Unknown", "SyncFailed", fmt.Sprintf("using current (UID: %s): failed to sync, desired config unclear, cause: NodeConfig dropin cannot be read: the API server failed (503)", over.UID))
	laidOver["registryBurst"] = 23
	n.kubeletHas(laidOver)
	f.begin(nil)
	n.is(allChecksPassed(over))

	// A whole payload takes the place of all that the node has.
	whole := n.configMap("whole", map[string]any{"maxPods": 120})
	n.assign(whole)
	n.is(allChecksPassed(whole))
	n.healthyWith(whole)
	n.kubeletHas(map[string]any{"maxPods": 120, "registryBurst": 10, "evictionHard[imagefs.available]": "1%"})
	n.lastKnownGood(whole)

	// It was promoted once, and is what a failure goes back to only when it has been well again.
	n.assign(over)
	n.is(allChecksPassed(over))
	n.healthyWith(over)
	n.kubeletHas(laidOver)
	n.lastKnownGood(over)

	n.assign(nil)
	nc = n.is(localInit)
	if nc.Status.Active != nil || nc.Status.LastKnownGood != nil {
		t.Errorf("active is %+v, last-known-good %+v", nc.Status.Active, nc.Status.LastKnownGood)
	}
	n.healthyWith(nil)
	n.kubeletHas(map[string]any{"maxPods": 91, "registryBurst": 23, "evictionHard[imagefs.available]": "1%"})
	n.recorded("", "")
	n.eventually("nothing of it is left on disk", func(context.Context) error {
		left, err := filepath.Glob(filepath.Join(n.Dir, "*", "*"+string(over.UID)+"*"))
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("there are %q", left)
		}
		return err
	})
}

func TestABadDropInIsRejectedOrRolledBack(t *testing.T) {
	t.Parallel()
	n := newNode(t, "baddropin", "--config-trial-duration=2s", "--crash-loop-threshold=1")
	n.own("10-images.conf", "imageGCLowThresholdPercent: 95\n")
	n.up()
	good := n.dropin("good", "maxPods: 77\n")
	n.assign(good)
	n.is(allChecksPassed(good))
	n.lastKnownGood(good)
	using := fmt.Sprintf("using last-known-good (UID: %s)", good.UID)
	kubelet := n.steady()
	for i, c := range []struct{ name, data, words string }{
		{"no kind", "maxPods: 3\n", `ConfigMap evenkeel-system/baddropin-0: key "kubelet-dropin": apiVersion is "" and kind is "", but must be "kubelet.config.k8s.io/v1beta1" or "evenkeel.dev/v1alpha1", and "KubeletConfiguration"`},
		{"relative path", upstream + "resolvConf: resolv.conf\n", `ConfigMap evenkeel-system/baddropin-1: key "kubelet-dropin": resolvConf is the relative path "resolv.conf"; paths must be absolute`},
		{"unknown field", upstream + "maxPodz: 3\n", `strict decoding error: unknown field "maxPodz"`},
		{"wrong case, which would take effect", upstream + "MaxPods: 3\n", `strict decoding error: unknown field "MaxPods"`},
		{"wrong type", upstream + "maxPods: many\n", `failed to unmarshal merged JSON into kubelet configuration: json: cannot unmarshal string into Go struct field KubeletConfiguration.maxPods of type int32`},
		{"invalid over what the node has", upstream + "imageGCHighThresholdPercent: 90\n", "invalid configuration: imageGCLowThresholdPercent (--image-gc-low-threshold) 95 must be less than imageGCHighThresholdPercent (--image-gc-high-threshold) 90"},
		{"only this host: a threshold that is no quantity", upstream + "evictionHard: {memory.available: banana}\n", "quantities must match the regular expression"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := n.in(t)
			cm := n.create(fmt.Sprint(i), map[string]string{payload.KeyKubeletDropin: c.data})
			n.assign(cm)
			nc := n.is(rejected(cm, using, c.words))
			if a := nc.Status.Active; a == nil || a.UID != good.UID || nc.Status.BadConfigs[0].UID != cm.UID || nc.Status.BadConfigs[0].Reason != nc.Status.Error {
				t.Errorf("active is %+v, badConfigs %+v", a, nc.Status.BadConfigs)
			}
			n.event("Warning", "ConfigRejected", fmt.Sprintf("failed to validate current (UID: %s): %s", cm.UID, c.words))
			kubelet.check(t)
		})
	}
	kubelet.end(t)

	// The kubelet compares this with the node's memory when it has passed all that
	// a dry run can see.
	crashes := n.dropin("crashes", "systemReserved: {memory: 100Ti}\n")
	n.assign(crashes)
	w := rolledBack(crashes, "CrashLooped", fmt.Sprintf("(UID: %s)", good.UID), "crash-looped: 2 starts in its trial, last: exit status 1")
	n.is(w)
	n.event("Warning", "ConfigRolledBack", w.cause+fmt.Sprintf("; going back to last-known-good (UID: %s)", good.UID))
	n.healthyWith(good)
	n.kubeletHas(map[string]any{"maxPods": 77, "imageGCLowThresholdPercent": 95, "systemReserved": nil})
	n.recorded(string(crashes.UID), string(good.UID))
}

// asVersion makes the kubelet say that it is of a version.
func (n *node) asVersion(version string) {
	n.t.Helper()
	n.wrap(`[ $mode = version ] && echo 'Kubernetes ` + version + `' && exit 0`)
}

func TestAKubeletThatIsTooOldForDropInsRejectsThemAndTakesWholePayloads(t *testing.T) {
	t.Parallel()
	n := newNode(t, "old", "--config-trial-duration=1s")
	n.asVersion("v1.29.15")
	n.up()
	tooOld := "kubelet v1.29.15 is too old for a drop-in: --config-dir works from v1.30 on; use the key \"kubelet\""
	over := n.dropin("over", "maxPods: 77\n")
	kubelet := n.steady()
	n.assign(over)
	nc := n.is(rejected(over, "using last-known-good (init)", tooOld))
	if nc.Status.ComponentVersion != "v1.29.15" {
		t.Errorf("the version is %q", nc.Status.ComponentVersion)
	}
	kubelet.end(t)
	whole := n.configMap("whole", map[string]any{"maxPods": 120})
	n.assign(whole)
	n.is(allChecksPassed(whole))
	n.lastKnownGood(whole)
	n.kubeletHas(map[string]any{"maxPods": 120})

	// The verdict was on the old kubelet.
	n.assign(over)
	n.is(rejected(over, fmt.Sprintf("using last-known-good (UID: %s)", whole.UID), tooOld))
	n.stop()
	n.wrap("")
	n.start()
	n.is(allChecksPassed(over))
	n.lastKnownGood(over)
	n.kubeletHas(map[string]any{"maxPods": 77})

	// Back again: a proof by another kubelet version does not count.
	n.stop()
	n.asVersion("v1.29.15")
	n.start()
	n.healthyWith(nil)
	n.kubeletHas(map[string]any{"maxPods": 110})
	nc = n.is(rejected(over, "using (init)", tooOld))
	if nc.Status.Active != nil || nc.Status.ComponentVersion != "v1.29.15" {
		t.Errorf("active is %+v, of version %q", nc.Status.Active, nc.Status.ComponentVersion)
	}
}

// ofFlags are flags of the kubelet that say what the node's file says.
var ofFlags = map[string]string{
	"address": "address", "port": "port", "read-only-port": "readOnlyPort", "healthz-bind-address": "healthzBindAddress", "healthz-port": "healthzPort",
	"anonymous-auth": "authentication.anonymous.enabled", "authentication-token-webhook": "authentication.webhook.enabled",
	"client-ca-file": "authentication.x509.clientCAFile", "authorization-mode": "authorization.mode",
	"container-runtime-endpoint": "containerRuntimeEndpoint", "cgroup-driver": "cgroupDriver", "cgroup-root": "cgroupRoot",
	"fail-cgroupv1": "failCgroupV1", "fail-swap-on": "failSwapOn", "pod-manifest-path": "staticPodPath", "volume-plugin-dir": "volumePluginDir",
	"resolv-conf": "resolvConf", "make-iptables-util-chains": "makeIPTablesUtilChains", "node-status-update-frequency": "nodeStatusUpdateFrequency",
	"image-gc-high-threshold": "imageGCHighThresholdPercent",
}

func TestADropInIsMergedOverFlagsIfTheKubeletHasNoFile(t *testing.T) {
	t.Parallel()
	n := newNode(t, "nofile", "--config-trial-duration=1s")
	raw, err := os.ReadFile(n.Node.KubeletConfig())
	if err != nil {
		t.Fatal(err)
	}
	var file component.Effective
	if err := yaml.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	n.Kubelet = slices.DeleteFunc(n.Kubelet, func(arg string) bool { return arg == "--config="+n.Node.KubeletConfig() })
	for flag, field := range ofFlags {
		value, ok := file.Field(field)
		if !ok {
			t.Fatalf("the node's file has no %s", field)
		}
		n.Kubelet = append(n.Kubelet, fmt.Sprintf("--%s=%v", flag, value))
	}
	n.Kubelet = append(n.Kubelet, "--eviction-hard=memory.available<50Mi,nodefs.available<1%,imagefs.available<1%", "--registry-burst=31")
	// No flag says where the logs of pods are, and a kubelet removes those that it
	// does not know.
	n.Prefix = []string{"unshare", "--mount", "--propagation=slave", "sh", "-c", `mount -t tmpfs none /var/log && exec "$0" "$@"`}
	n.up()
	n.is(want{
		status: "True", reason: "LocalDefault", message: "using current (default)",
		cause: "current is set to the local default, and no init config was provided",
	})
	local := n.kubeletHas(map[string]any{"maxPods": 110, "registryBurst": 31, "eventBurst": 100, "podLogsDir": "/var/log/pods"})

	over := n.dropin("over", "maxPods: 77\neventBurst: 44\nregistryBurst: 55\n")
	n.assign(over)
	nc := n.is(allChecksPassed(over))
	if !slices.Equal(nc.Status.OverriddenFields, []string{"registryBurst"}) || nc.Status.Local != "Default" {
		t.Errorf("overriddenFields are %q, local is %s", nc.Status.OverriddenFields, nc.Status.Local)
	}
	n.lastKnownGood(over)
	n.differ(n.kubeletHas(map[string]any{"maxPods": 77, "eventBurst": 44, "registryBurst": 31}), local, "eventBurst", "maxPods")
	n.origins(n.page(""), map[string]component.Origin{"maxPods": "drop-in", "eventBurst": "drop-in", "registryBurst": "flag", "healthzPort": "flag", "kubeAPIBurst": ""})

	n.assign(nil)
	nc = n.is(want{
		status: "True", reason: "LocalDefault", message: "using current (default)",
		cause: "current is set to the local default, and no init config was provided",
	})
	if nc.Status.LastKnownGood != nil {
		t.Errorf("last-known-good is %+v", nc.Status.LastKnownGood)
	}
	n.differ(n.kubeletHas(map[string]any{"maxPods": 110}), local)
}
