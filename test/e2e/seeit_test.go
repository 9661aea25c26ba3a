package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/agent"
	"github.com/evenkeel/evenkeel/internal/payload"
)

// statusOf runs `status -o json`, and returns what it says of the running agent
// and what it found wrong.
func (n *node) statusOf(args ...string) (running *agent.Configz, problems []string) {
	n.t.Helper()
	var out struct {
		Running  *agent.Configz
		Problems []string
	}
	args = append([]string{"status", "--dynamic-config-dir=" + n.Dir, "-o", "json"}, args...)
	if err := json.Unmarshal([]byte(n.runs(0, "", args)), &out); err != nil {
		n.t.Fatal(err)
	}
	return out.Running, out.Problems
}

// table returns the rows of `status --effective`, their cells separated by one
// space; a value may hold some itself.
func (n *node) table(form string) []string {
	n.t.Helper()
	text := n.runs(0, "", []string{"status", "--dynamic-config-dir=" + n.Dir, "--effective=" + form})
	_, table, found := strings.Cut(text, "\n\n")
	if !found || !strings.HasPrefix(table, "FIELD ") {
		n.t.Fatalf("there is no table in:\n%s", text)
	}
	var rows []string
	for line := range strings.Lines(table) {
		rows = append(rows, strings.Join(strings.Fields(line), " "))
	}
	return rows
}

func (n *node) wantRows(form string, want ...string) {
	n.t.Helper()
	rows := n.table(form)
	for _, row := range want {
		if !slices.Contains(rows, row) {
			n.t.Errorf("%s: there is no row %q in:\n%s", form, row, strings.Join(rows, "\n"))
		}
	}
}

// wantFields requires values and origins of effective fields; "default" is no
// origin.
func wantFields(t *testing.T, z agent.Configz, want map[string][2]any) {
	t.Helper()
	for field, w := range want {
		value, _ := z.Effective.Field(field)
		origin, found := z.Origins[field]
		if !found {
			origin = "default"
		}
		if value != w[0] || origin != component.Origin(w[1].(string)) {
			t.Errorf("%s is %v from %s, want %v from %s", field, value, origin, w[0], w[1])
		}
	}
}

// mayReadItsConfigz lets the node ask its own kubelet.
func (n *node) mayReadItsConfigz() {
	n.t.Helper()
	meta := metav1.ObjectMeta{Name: "configz-" + n.Node.Name()}
	roles := n.Kube.RbacV1()
	if _, err := roles.ClusterRoles().Create(n.t.Context(), &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes/configz"}, Verbs: []string{"get"}},
	}}, metav1.CreateOptions{}); err != nil {
		n.t.Fatal(err)
	}
	if _, err := roles.ClusterRoleBindings().Create(n.t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "system:node:" + n.Node.Name()}},
	}, metav1.CreateOptions{}); err != nil {
		n.t.Fatal(err)
	}
}

func TestEveryEffectiveFieldIsShownWithWhereItComesFrom(t *testing.T) {
	n := newNode(t, "seeit", "--config-trial-duration=1s", "--protected-fields=-clusterDNS")
	n.Kubelet = append(n.Kubelet, "--max-pods=50")
	n.mayReadItsConfigz()
	n.up()
	n.is(localInit)
	z := n.page("")
	wantFields(t, z, map[string][2]any{
		"maxPods": {50.0, "flag"}, "logging.verbosity": {2.0, "flag"}, "clusterDomain": {"cluster.local", "local"},
		"evictionHard[nodefs.available]": {"1%", "local"}, "eventBurst": {100.0, "default"}, "podPidsLimit": {-1.0, "default"},
	})
	if z.Remote != v1alpha1.RemoteConfigNodeConfig || z.Source.Kind != "init" || len(z.Differs) != 0 || len(z.Overridden) != 0 {
		t.Errorf("it runs %+v from a %s; differs %v, overridden %q", z.Source, z.Remote, z.Differs, z.Overridden)
	}

	// Over the local configuration.
	laid := n.create("laid", dropin("maxPods: 60\npodPidsLimit: 4000\nevictionHard: {memory.available: 60Mi}\n"))
	n.assign(laid)
	nc := n.is(allChecksPassed(laid))
	n.lastKnownGood(laid)
	z = n.page("")
	wantFields(t, z, map[string][2]any{
		"maxPods": {50.0, "flag"}, "podPidsLimit": {4000.0, "drop-in"}, "evictionHard[memory.available]": {"60Mi", "drop-in"},
		"evictionHard[nodefs.available]": {"1%", "local"}, "clusterDomain": {"cluster.local", "local"}, "eventBurst": {100.0, "default"},
	})
	differs := []payload.Difference{
		{Field: "evictionHard[memory.available]", Value: `"60Mi"`, Local: `"50Mi"`}, {Field: "podPidsLimit", Value: "4000", Local: "-1"},
	}
	if !slices.Equal(z.Differs, differs) || !slices.Equal(z.Overridden, []string{"maxPods"}) || !slices.Equal(nc.Status.OverriddenFields, z.Overridden) {
		t.Errorf("differs %v, overridden %q, in the NodeConfig %q", z.Differs, z.Overridden, nc.Status.OverriddenFields)
	}
	n.status(`Differs: evictionHard[memory.available] is "60Mi", locally "50Mi" (from: drop-in)`, "Differs: podPidsLimit is 4000, locally -1 (from: drop-in)", "Source: NodeConfig")

	// Instead of it.
	whole := n.configMap("whole", map[string]any{"maxPods": 60, "podPidsLimit": 4001, "clusterDNS": nil})
	n.assign(whole)
	n.is(allChecksPassed(whole))
	n.lastKnownGood(whole)
	n.seen(whole)
	n.asTheKubeletSays()

	// Local again, and then nothing runs.
	n.assign(nil)
	n.is(localInit)
	n.healthyWith(nil)
	if z := n.page(""); z.Source.Kind != "init" || len(z.Differs) != 0 || len(z.Overridden) != 0 {
		t.Errorf("it runs %+v; differs %v, overridden %q", z.Source, z.Differs, z.Overridden)
	}
	n.assign(whole)
	n.is(allChecksPassed(whole))
	n.stop()
	n.status("Runs: evenkeel-system/seeit-whole (UID: "+string(whole.UID)+")", "Why: it is current", "Agent: does not run")
	for _, form := range []string{"flat", "grouped"} {
		text := n.runs(0, "", []string{"status", "--dynamic-config-dir=" + n.Dir, "--effective", form},
			"\n\nThe effective configuration is not known: no agent runs here, or its kubelet did not print it.\n")
		if strings.Contains(text, "Differs:") || strings.Contains(text, "Source:") {
			t.Errorf("it speaks for an agent that does not run:\n%s", text)
		}
	}
	if running, problems := n.statusOf("--effective=grouped"); running != nil || len(problems) != 0 {
		t.Errorf("running is %+v, problems %q", running, problems)
	}
}

// seen requires that /configz and status show the node's configuration with
// maxPods 60, podPidsLimit 4001 and no clusterDNS, in both forms.
func (n *node) seen(whole *corev1.ConfigMap) {
	n.t.Helper()
	z := n.page("?form=flat")
	wantFields(n.t, z, map[string][2]any{
		"maxPods": {50.0, "flag"}, "podPidsLimit": {4001.0, "remote"}, "clusterDomain": {"cluster.local", "remote"},
		"evictionHard[memory.available]": {"50Mi", "remote"}, "eventBurst": {100.0, "default"},
	})
	differs := []payload.Difference{{Field: "clusterDNS", Value: "unset", Local: `["10.96.0.10"]`}, {Field: "podPidsLimit", Value: "4001", Local: "-1"}}
	if z.Source.UID != string(whole.UID) || !slices.Equal(z.Differs, differs) || !slices.Equal(z.Overridden, []string{"maxPods"}) {
		n.t.Errorf("it runs %+v; differs %v, overridden %q", z.Source, z.Differs, z.Overridden)
	}
	n.wantRows("flat", "FIELD VALUE FROM DIFFERS", "maxPods 50 flag", "podPidsLimit 4001 remote locally -1", "eventBurst 100 default",
		`evictionHard[memory.available] "50Mi" remote`, "logging.verbosity 2 flag")
	n.wantRows("grouped", "FIELD VALUE FROM DIFFERS", "resources.maxPods 50 flag", "resources.podPidsLimit 4001 remote locally -1", "events.eventBurst 100 default",
		`resources.eviction.evictionHard[memory.available] "50Mi" remote`, "logging.verbosity 2 flag", "security.authentication.anonymous.enabled false remote")
	n.status("Differs: podPidsLimit is 4001, locally -1 (from: remote)", `Differs: clusterDNS is unset, locally ["10.96.0.10"] (from: default)`)

	fields := map[string]float64{"resources.maxPods": 50, "resources.podPidsLimit": 4001, "events.eventBurst": 100}
	running, problems := n.statusOf("--effective=grouped")
	if len(problems) != 0 {
		n.t.Errorf("problems are %q", problems)
	}
	grouped := n.page("?form=grouped")
	for field, want := range fields {
		for where, e := range map[string]component.Effective{"/configz": grouped.Effective, "status": running.Effective, "the kubelet's own": grouped.Kubelet} {
			if got, _ := e.Field(field); got != want {
				n.t.Errorf("%s, grouped: %s is %v, want %v", where, field, got, want)
			}
		}
	}
	for i := range differs {
		differs[i].Field = payload.GroupedPath(differs[i].Field)
	}
	if !slices.Equal(grouped.Differs, differs) || grouped.Origins["resources.podPidsLimit"] != "remote" {
		n.t.Errorf("grouped: differs %v, podPidsLimit from %s", grouped.Differs, grouped.Origins["resources.podPidsLimit"])
	}
	if flat, _ := n.statusOf(); flat == nil || flat.Effective["maxPods"] != 50.0 || flat.Source.UID != string(whole.UID) {
		n.t.Errorf("status says %+v", flat)
	}

	n.runs(3, "", []string{"status", "--dynamic-config-dir=" + n.Dir, "--effective=yaml"}, `evenkeel-agent: --effective must be flat or grouped, not "yaml"`)
	res, err := http.Get("http://" + n.Listen + "/configz?form=bogus")
	if err != nil {
		n.t.Fatal(err)
	}
	defer res.Body.Close()
	if body, err := io.ReadAll(res.Body); err != nil || res.StatusCode != http.StatusBadRequest || string(body) != "form must be flat or grouped, not \"bogus\"\n" {
		n.t.Errorf("?form=bogus: %s, %q, %v", res.Status, body, err)
	}
}

// asTheKubeletSays compares what the dry run printed with what the running
// kubelet says of itself.
func (n *node) asTheKubeletSays() {
	n.t.Helper()
	var z agent.Configz
	n.eventually("the kubelet answers its node", func(context.Context) error {
		if z = n.page(""); z.KubeletSays != "" || z.Kubelet["podPidsLimit"] != 4001.0 {
			return fmt.Errorf("%s, podPidsLimit %v", z.KubeletSays, z.Kubelet["podPidsLimit"])
		}
		return nil
	})
	for _, d := range payload.Diff(z.Effective, z.Kubelet) {
		if d.Field == "apiVersion" || d.Field == "kind" || d.Local == "unset" && slices.Contains([]string{`""`, "0", "false"}, d.Value) {
			continue // the API's type leaves zeros out
		}
		n.t.Errorf("the dry run and the kubelet disagree: %s is %s and %s", d.Field, d.Value, d.Local)
	}
}

func TestStatusWorksWithAndWithoutTheAgent(t *testing.T) {
	n := newNode(t, "tells", "--config-trial-duration=1s")
	n.wrap(`while [ $mode = stage1 ] && [ -e "$dir/wait" ]; do sleep 0.1; done`)
	n.up()
	cm := n.configMap("a", map[string]any{"maxPods": 120})
	n.assign(cm)
	n.is(allChecksPassed(cm))
	n.lastKnownGood(cm)
	named := fmt.Sprintf("Runs: evenkeel-system/tells-a (UID: %s)", cm.UID)

	// The records do not know what the source says.
	n.assignRef(v1alpha1.ConfigMapReference{Namespace: v1alpha1.SystemNamespace, Name: "tells-nowhere", UID: "no-uid"})
	w := unclear(using(cm), "referenced ConfigMap evenkeel-system/tells-nowhere not found")
	n.is(w)
	n.status(named, "Why: "+w.message+": "+w.cause, fmt.Sprintf("Current: evenkeel-system/tells-a (UID: %s)", cm.UID), "Agent: runs")

	// The agent's file for the status command is lost or damaged.
	running := filepath.Join(n.Dir, "running")
	for about, spoil := range map[string]func() error{
		"the agent has not said yet what it runs; this is what the records say": func() error { return os.Remove(running) },
		"invalid character":      func() error { return os.WriteFile(running, []byte("garbage"), 0o600) },
		"unexpected end of JSON": func() error { return os.WriteFile(running, nil, 0o600) },
		"cannot unmarshal":       func() error { return os.WriteFile(running, []byte(`{"effective":"everything"}`), 0o600) },
	} {
		if err := spoil(); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		n.status(named, "Why: it is current", "Problem: ", "Agent: runs")
		says, problems := n.statusOf()
		if says != nil || len(problems) != 1 || !strings.Contains(problems[0], about) {
			t.Errorf("running is %+v, problems %q, want %q", says, problems, about)
		}
		n.runs(0, "", []string{"status", "--dynamic-config-dir=" + n.Dir, "--effective=flat"}, "The effective configuration is not known")
	}
	n.assign(cm) // and is there again when there is something to say
	n.is(allChecksPassed(cm))
	n.status(named, "Why: "+using(cm)+": all checks passed")

	// The file of an agent that has ended does not describe the next agent.
	n.stop()
	if err := os.WriteFile(n.beside("wait"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n.start()
	n.eventually("the agent has said nothing yet", func(context.Context) error {
		says, problems := n.statusOf()
		if says != nil || len(problems) != 1 {
			return fmt.Errorf("it says %+v, problems %q", says, problems)
		}
		return nil
	})
	if err := os.Remove(n.beside("wait")); err != nil {
		t.Fatal(err)
	}
	n.eventually("the agent says what it runs", func(context.Context) error {
		if says, problems := n.statusOf(); says == nil || says.Config().Revision != string(cm.UID) {
			return fmt.Errorf("it says %+v, problems %q", says, problems)
		}
		return nil
	})
	n.status(named, "Why: "+using(cm)+": all checks passed", "Agent: runs")
}
