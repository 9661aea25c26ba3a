package cli

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet/describe"
	"github.com/evenkeel/evenkeel/internal/fleet/policy"
	"github.com/evenkeel/evenkeel/internal/payload"
)

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubelet.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestConfigDiffComparesANodeWithARolloutAndItsRevisions(t *testing.T) {
	first, second := createRevision(t, "compared", 1, "maxPods: 110\n"), createRevision(t, "compared", 2, "maxPods: 120\npodsPerCore: 7\n")
	createRollout(t, "compared", "compared", pods(130), func(r *v1alpha1.NodeConfigRollout) {
		r.Status.History = []v1alpha1.RolloutOutcome{succeededAs(2, second), succeededAs(1, first)}
	})
	createNode(t, "compared-a", "compared", "z1")
	createNodeConfig(t, "compared-a", byRollout("compared", 2, second, first), func(st *v1alpha1.NodeConfigStatus) { st.Active = runs(first) })

	got := evenkeel(t, "config", "diff", "node/compared-a", "rollout/compared@2")
	want := fmt.Sprintf("--- node/compared-a (ConfigMap evenkeel-system/%s)\n+++ rollout/compared@2 (ConfigMap evenkeel-system/%s)\nmaxPods: 110 -> 120\npodsPerCore: unset -> 7\n", first.Name, second.Name)
	if got.out != want || got.code != 0 {
		t.Errorf("got %+v, want %s", got, want)
	}
	evenkeel(t, "config", "diff", "rollout/compared@2", "rollout/compared", "--form", "grouped").wantOutput(t,
		"+++ rollout/compared (spec.template)\n", "resources.maxPods: 120 -> 130\n", "resources.podsPerCore: 7 -> unset\n")
	evenkeel(t, "config", "diff", "node/compared-a", "rollout/compared@1").wantOutput(t, "no differences\n")
	var d describe.Comparison
	if err := json.Unmarshal([]byte(evenkeel(t, "config", "diff", "rollout/compared@1", "rollout/compared", "-o", "json").out), &d); err != nil {
		t.Fatal(err)
	}
	if len(d.Differences) != 1 || d.Differences[0] != (describe.Difference{Field: "maxPods", A: "110", B: "130"}) || d.A.Name != "rollout/compared@1" {
		t.Errorf("as JSON: %+v", d)
	}
}

func TestConfigDiffOfADropInComparesOnlyItsFields(t *testing.T) {
	createRollout(t, "dropped", "dropped", "", func(r *v1alpha1.NodeConfigRollout) {
		r.Spec.Template = v1alpha1.RolloutTemplate{KubeletDropIn: &runtime.RawExtension{Raw: []byte(pods(120))}}
	})
	evenkeel(t, "config", "diff", "rollout/dropped", write(t, header+"maxPods: 110\npodsPerCore: 7\n")).wantOutput(t,
		"maxPods: 120 -> 110\nnot compared: 1 field that only one of them has, because a configuration as written is compared with a drop-in\n")
}

func TestConfigDiffComparesBothFormsAndMasksSecrets(t *testing.T) {
	upstream := write(t, header+"maxPods: 110\nstaticPodURL: https://pods.example/a?token=hush\nstaticPodURLHeader: {Authorization: [hush]}\n")
	grouped := write(t, "apiVersion: evenkeel.dev/v1alpha1\nkind: KubeletConfiguration\nresources: {maxPods: 120}\ntrial: {configTrialDuration: 5m, crashLoopThreshold: 1, allowPodLoss: true}\n"+
		"staticPods: {staticPodURL: 'https://pods.example/a?token=shout', staticPodURLHeader: {Authorization: [shout]}}\n")
	got := evenkeel(t, "config", "diff", upstream, grouped)
	got.wantOutput(t, "maxPods: 110 -> 120\n", "staticPodURL: masked -> masked\n", "staticPodURLHeader.Authorization: masked -> masked\n",
		"trial.allowPodLoss: unset -> true\n", "trial.configTrialDuration: unset -> \"5m0s\"\n", "trial.crashLoopThreshold: unset -> 1\n")
	if strings.Contains(got.out, "hush") || strings.Contains(got.out, "shout") {
		t.Errorf("a secret is shown: %s", got.out)
	}
}

func TestConfigDiffOfUnreadableConfigurationsIsAnError(t *testing.T) {
	rev := createRevision(t, "unreadable", 3, "maxPods: 110\n")
	createRollout(t, "unreadable", "unreadable", pods(130), func(r *v1alpha1.NodeConfigRollout) {
		r.Status.History = []v1alpha1.RolloutOutcome{succeededAs(3, rev), {Revision: 2, ConfigMap: "unreadable-0000000000", Outcome: "Succeeded"}}
	})
	fine := write(t, header)
	gone, edited, broken, anew := *runs(rev), *runs(rev), *runs(rev), *runs(rev)
	gone.Name = "nowhere"
	edited.SHA256 = strings.Repeat("0", 64)
	anew.UID = "another"
	bad := create(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: rev.Namespace, Name: "broken-payload"}, Data: map[string]string{"kubelet": "a: ["}})
	broken.Name, broken.UID = bad.Name, bad.UID
	for name, active := range map[string]*v1alpha1.ConfigRevision{"runs-gone": &gone, "runs-edited": &edited, "runs-broken": &broken, "runs-anew": &anew, "runs-local": nil} {
		createNode(t, name, "unreadable", "z1")
		createNodeConfig(t, name, nil, func(st *v1alpha1.NodeConfigStatus) { st.Active = active })
	}
	createNode(t, "runs-nothing", "unreadable", "z1")
	for _, tt := range []struct {
		a    string
		want []string
	}{
		{"nowhere.yaml", []string{"nowhere.yaml", "node/NAME"}},
		{write(t, "kind: Pod\napiVersion: v1\n"), []string{"is not a KubeletConfiguration"}},
		{write(t, "a: ["), []string{"is not a KubeletConfiguration"}},
		{"node/nowhere", []string{`node "nowhere" does not exist`}},
		{"node/runs-nothing", []string{"the agent of node runs-nothing has not reported what it runs", "--live"}},
		{"node/runs-local", []string{"node runs-local runs its local configuration", "--live"}},
		{"node/runs-gone", []string{"node runs-gone runs ConfigMap evenkeel-system/nowhere", "which was deleted", "--live"}},
		{"node/runs-anew", []string{"which was deleted; the node keeps a copy", "--live"}},
		{"node/runs-edited", []string{"as it was before it was changed", "--live"}},
		{"node/runs-broken", []string{"evenkeel-system/broken-payload", "which was changed since", "--live"}},
		{"rollout/nowhere", []string{`"nowhere"`}},
		{"rollout/unreadable@2", []string{"unreadable-0000000000", "was deleted", "3"}},
		{"rollout/unreadable@7", []string{"no revision 7", "3"}},
		{"rollout/unreadable@x", []string{`"x" is not a revision number`}},
	} {
		evenkeel(t, "config", "diff", tt.a, fine).wantError(t, tt.want...)
		evenkeel(t, "config", "diff", fine, tt.a).wantError(t, tt.want...)
	}
	createRollout(t, "templateless", "unreadable", "", func(r *v1alpha1.NodeConfigRollout) {
		r.Spec.Template = v1alpha1.RolloutTemplate{ConfigMapRef: &v1alpha1.TemplateConfigMap{Namespace: "evenkeel-system", Name: "nowhere"}}
	})
	evenkeel(t, "config", "diff", fine, "rollout/templateless").wantError(t, "templateless", "evenkeel-system/nowhere")
	evenkeel(t, "config", "diff", fine, fine, "--form", "round").wantError(t, `unknown form "round"`)
	evenkeel(t, "config", "diff", fine, fine, "--live").wantError(t, "--live needs node/NAME")
	evenkeel(t, "config", "diff", fine, fine, "-o", "xml").wantError(t, "json")
	grant(t, "sees-rollouts-only", "nodeconfigrollouts", v1alpha1.GroupVersion.Group)
	evenkeelAs(t, userOf(t, "sees-rollouts-only"), "config", "diff", fine, "rollout/unreadable@3").wantError(t, "list the ConfigMaps of the revisions", "forbidden")
	for _, what := range []string{"node/x", "rollout/x"} {
		evenkeelAs(t, fine, "config", "diff", fine, what).wantError(t, fine)
		evenkeelAs(t, fine, "config", "diff", fine, "--live", "node/x").wantError(t, fine)
	}
	evenkeelAs(t, userOf(t, "nobody"), "config", "diff", fine, "node/x").wantError(t, "get NodeConfig x", "forbidden")
	grant(t, "sees-nodes-too", "nodes", "")
	grant(t, "sees-no-maps", "nodeconfigs", v1alpha1.GroupVersion.Group)
	bind(t, "sees-no-maps", "sees-nodes-too", "nodes", "")
	evenkeelAs(t, userOf(t, "sees-no-maps"), "config", "diff", fine, "node/runs-edited").wantError(t, "read the configuration of node runs-edited", "forbidden")
}

// kubelet answers /configz like a kubelet, at an address that the API server connects to.
func kubelet(t *testing.T, answer string) (address string, port int32) {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.IsGlobalUnicast() && ip.IP.To4() != nil {
			address = ip.IP.String()
		}
	}
	if address == "" {
		t.Skip("no address but loopback ones: the API server proxies to none of these")
	}
	listener, err := net.Listen("tcp4", net.JoinHostPort(address, "0"))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/configz" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, answer)
	}))
	server.Listener.Close()
	server.Listener = listener
	server.StartTLS()
	t.Cleanup(server.Close)
	return address, int32(listener.Addr().(*net.TCPAddr).Port)
}

// answering sets the address of a Node to a server that answers like its kubelet.
func answering(t *testing.T, node *corev1.Node, answer string) {
	t.Helper()
	address, port := kubelet(t, answer)
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = port
	if err := admin.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
}

func TestConfigDiffLiveReadsTheEffectiveConfiguration(t *testing.T) {
	answering(t, createNode(t, "lively", "lively", "z1"), `{"kubeletconfig": {"maxPods": 110, "podsPerCore": 0, "evictionHard": {"memory.available": "1Mi", "nodefs.available": "10%"}}}`)
	file := write(t, header+"maxPods: 120\nevictionHard: {memory.available: 1Mi}\nserializeImagePulls: false\n")
	evenkeel(t, "config", "diff", "--live", "node/lively", file).wantOutput(t,
		"--- node/lively (the kubelet's /configz)\n", "maxPods: 110 -> 120\n", "serializeImagePulls: unset -> false\n",
		"not compared: 2 fields that only one of them has, because the effective configuration is compared with a configuration as written\n")
	evenkeel(t, "config", "diff", "--live", file, "node/lively").wantOutput(t, "maxPods: 120 -> 110\n", "serializeImagePulls: false -> unset\n", "not compared: 2 fields")

	answering(t, createNode(t, "odd", "lively", "z1"), `hello`)
	evenkeel(t, "config", "diff", "--live", "node/odd", file).wantError(t, "/configz of the kubelet of node odd is not a configuration", "hello")
	evenkeel(t, "config", "diff", "--live", "node/nowhere", file).wantError(t, `node "nowhere" does not exist`)
	createNode(t, "silent", "lively", "z1")
	evenkeel(t, "config", "diff", "--live", "node/silent", file).wantError(t, "the API server cannot reach the kubelet of node silent", "omit --live")
	grant(t, "sees-all-nodes", "nodes", "")
	evenkeelAs(t, userOf(t, "sees-all-nodes"), "config", "diff", "--live", "node/lively", file).wantError(t, "--live needs permission to get nodes/proxy of node lively", "an administrator can grant it")
}

func TestContentDiff(t *testing.T) {
	whole := func(text string) policy.Content {
		return policy.Content{Key: payload.KeyKubelet, Data: header + text}
	}
	dropin := policy.Content{Key: payload.KeyKubeletDropin, Data: header + "maxPods: 110\n"}
	for _, tt := range []struct {
		name          string
		before, after policy.Content
		want          string
	}{
		{"from local", policy.Content{}, whole("maxPods: 110\n"), "the local configuration of each node -> a whole configuration\nmaxPods: unset -> 110\n"},
		{"nothing", whole("maxPods: 110\n"), whole("maxPods: 110 # the same\n"), ""},
		{"a field", whole("maxPods: 110\n"), whole("maxPods: 120\n"), "maxPods: 110 -> 120\n"},
		{"a kind", whole("maxPods: 110\n"), dropin, "a whole configuration -> a drop-in, merged over the local configuration of each node\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got, err := describe.ContentDiff(tt.before, tt.after); got != tt.want || err != nil {
				t.Errorf("got %q, %v, want %q", got, err, tt.want)
			}
		})
	}
	bad := policy.Content{Key: payload.KeyKubelet, Data: "a: ["}
	if _, err := describe.ContentDiff(bad, dropin); err == nil || !strings.Contains(err.Error(), "neither JSON nor YAML") {
		t.Errorf("before: %v", err)
	}
	if _, err := describe.ContentDiff(dropin, bad); err == nil || !strings.Contains(err.Error(), "neither JSON nor YAML") {
		t.Errorf("after: %v", err)
	}
}
