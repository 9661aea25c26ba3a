// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func ago(d time.Duration) time.Time { return now.Add(-d) }

// fine is a node of which nothing is to be said, changed.
func fine(name string, change ...func(*Node)) Node {
	n := Node{
		Name: name, Ready: true, Reported: true, Agent: "v0.1.0", Standing: describe.Standing{Health: describe.HealthHealthy},
		Status: "True", Reason: v1alpha1.ReasonAllChecksPassed, Message: "using current", Since: ago(time.Hour),
	}
	for _, f := range change {
		f(&n)
	}

	return n
}

func condition(status, reason, message string, since time.Duration) func(*Node) {
	return func(n *Node) { n.Status, n.Reason, n.Message, n.Since = status, reason, message, ago(since) }
}

func assigned(uid string) func(*Node) {
	return func(n *Node) {
		n.Source = &v1alpha1.ConfigMapReference{Namespace: "evenkeel-system", Name: "workers-1", UID: types.UID(uid)}
	}
}

// labelled is a node that install or uninstall has labelled, so long ago.
func labelled(label string, since time.Duration) func(*Node) {
	return func(n *Node) { n.Label, n.LabelSince = label, ago(since) }
}

// bare is one without an agent.
func bare(name, label string, since time.Duration) Node {
	n := Node{Name: name, Ready: true, Selected: true}
	labelled(label, since)(&n)
	return n
}

// asked was asked so long ago and has answered, or not.
func asked(ago time.Duration, answered bool) func(*Node) {
	return func(n *Node) { n.Asked, n.Answered = now.Add(-ago), answered }
}

// failsLater makes 50 of 300 nodes unhealthy three minutes after a change.
func failsLater(f *Facts) {
	for i := range 300 {
		h := describe.NodeHealth{Suspect: describe.Suspect{Rollout: "workers", Revision: 6}}
		if i < 50 {
			h = describe.NodeHealth{Suspect: describe.Suspect{Rollout: "workers", Revision: 7, Symptom: "not Ready"}, Assigned: ago(time.Hour), Since: ago(57 * time.Minute)}
		}

		f.Situation.Healths = append(f.Situation.Healths, h)
	}
}

// health sets the standing of a node.
func health(h describe.Health) func(*Node) { return func(n *Node) { n.Standing.Health = h } }

func installers(version string) map[string]Installer {
	return map[string]Installer{
		"install":   {"DaemonSet evenkeel-install/evenkeel-installer", true, version},
		"uninstall": {"DaemonSet evenkeel-install/evenkeel-uninstaller", true, version},
	}
}

func rollout(name string, phase v1alpha1.RolloutPhase, message string, conditions ...metav1.Condition) v1alpha1.NodeConfigRollout {
	return v1alpha1.NodeConfigRollout{
		ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(ago(time.Hour))},
		Status:     v1alpha1.NodeConfigRolloutStatus{Phase: phase, Message: message, Conditions: conditions},
	}
}

// well are facts of which nothing is to be said, changed.
func well(t *testing.T, change func(*Facts)) *Facts {
	t.Helper()
	parts := assert.Value(Manifests())(t)
	for i := range parts {
		parts[i].Got = parts[i].Want.DeepCopy()
	}

	f := &Facts{
		Now: now, Parts: parts, HasConfig: true, Nodes: []Node{fine("a"), fine("b")},
		Lease:   Lease{Found: true, Alive: true, Holder: "pod-1", Version: "v0.1.0", Renewed: ago(time.Second)},
		Sources: map[types.NamespacedName]types.UID{{Namespace: "evenkeel-system", Name: "workers-1"}: "uid-1"},
		Read:    map[string]bool{"evenkeel-system": true},
	}
	if change != nil {
		change(f)
	}

	return f
}

// part returns the object of a kind and name of an installation.
func part(f *Facts, kind, name string) *Part {
	i := slices.IndexFunc(f.Parts, func(p Part) bool { return p.Want.GetKind() == kind && p.Want.GetName() == name })
	return &f.Parts[i]
}

func set(o *unstructured.Unstructured, value any, path ...string) {
	if err := unstructured.SetNestedField(o.Object, value, path...); err != nil {
		panic(err)
	}
}

// edited changes a field of an object of the installation.
func edited(kind, name string, value any, path ...string) func(*Facts) {
	return func(f *Facts) { set(part(f, kind, name).Got, value, path...) }
}

func TestEachFindingSaysWhatIsWrongAndWhatToDo(t *testing.T) {
	const showWorkers = "kubectl evenkeel rollout status workers"
	const logs = "kubectl -n evenkeel-system get pods; kubectl -n evenkeel-system logs deployment/evenkeel-controller"
	parts := len(well(t, nil).Parts)
	unserved := []any{map[string]any{"name": "v1alpha1", "served": false}}
	me := []any{map[string]any{"kind": "User", "name": "me", "apiGroup": "rbac.authorization.k8s.io"}}
	everything := []any{map[string]any{"apiGroups": []any{"*"}, "resources": []any{"*"}, "verbs": []any{"*"}}}
	one := []any{map[string]any{
		"apiGroups": []any{""}, "resources": []any{"configmaps"}, "resourceNames": []any{"one"}, "verbs": []any{"get", "list", "watch"},
	}}
	nodes := func(all ...Node) func(*Facts) { return func(f *Facts) { f.Nodes = all } }
	for _, tt := range []struct {
		name   string
		change func(*Facts)
		want   []string // severity check: about: what is wrong -> what to do
	}{
		{"all is well", nil, nil},
		{"the CRDs are gone", func(f *Facts) {
			*f = Facts{Now: now, Parts: f.Parts}
			removed(isCRD)(f)
		}, []string{
			fmt.Sprintf("error installation: evenkeel: is installed incompletely: 3 of its %d objects are missing (CustomResourceDefinition nodeconfigpreflights.evenkeel.dev; ", parts) +
				"CustomResourceDefinition nodeconfigrollouts.evenkeel.dev; CustomResourceDefinition nodeconfigs.evenkeel.dev) -> kubectl apply -k config/api",
			"error api: CustomResourceDefinition nodeconfigpreflights.evenkeel.dev: is missing: the API server does not support the objects that this build reads and writes -> kubectl apply -k config/api",
			"error api: CustomResourceDefinition nodeconfigrollouts.evenkeel.dev: is missing: the API server does not support the objects that this build reads and writes -> kubectl apply -k config/api",
			"error api: CustomResourceDefinition nodeconfigs.evenkeel.dev: is missing: the API server does not support the objects that this build reads and writes -> kubectl apply -k config/api",
			"note controller: Lease evenkeel-system/evenkeel-controller: is missing: no controller runs, and no rollout needs one -> kubectl apply -f install.yaml if you want rollouts; if it is already applied: kubectl -n evenkeel-system get pods; kubectl -n evenkeel-system logs deployment/evenkeel-controller",
		}},
		{"a CRD that does not serve the version", edited("CustomResourceDefinition", "nodeconfigs.evenkeel.dev", unserved, "spec", "versions"),
			[]string{"error api: CustomResourceDefinition nodeconfigs.evenkeel.dev: does not serve v1alpha1: the API server does not support the objects that this build reads and writes -> kubectl apply -k config/api"}},
		{"an old cluster", func(f *Facts) {
			p := part(f, "ValidatingAdmissionPolicy", "evenkeel-node")
			p.Got, p.Unserved = nil, true
		}, []string{"error api: ValidatingAdmissionPolicy evenkeel-node: the API server does not know admissionregistration.k8s.io/v1: a node could write the objects of another node -> upgrade Kubernetes"}},
		{"a policy that ignores its failures", edited("ValidatingAdmissionPolicy", "evenkeel-node", "Ignore", "spec", "failurePolicy"),
			[]string{"error api: ValidatingAdmissionPolicy evenkeel-node: its spec.failurePolicy is not what this build expects: a node could write the objects of another node -> kubectl apply -k config/api"}},
		{"a policy without what it judges by", edited("ValidatingAdmissionPolicy", "evenkeel-node", []any{}, "spec", "variables"),
			[]string{"error api: ValidatingAdmissionPolicy evenkeel-node: its spec.variables is not what this build expects: a node could write the objects of another node -> kubectl apply -k config/api"}},
		{"what the API server adds is nothing", edited("ValidatingAdmissionPolicyBinding", "evenkeel-node", "Equivalent", "spec", "matchPolicy"), nil},
		{"a binding that binds somebody else", edited("ClusterRoleBinding", "evenkeel-node", me, "subjects"),
			[]string{"error api: ClusterRoleBinding evenkeel-node: does not bind Group system:nodes: agents cannot read their assignments or report their status -> kubectl apply -k config/api"}},
		{"a role with a star", edited("ClusterRole", "evenkeel-node", everything, "rules"), nil},
		{"a role for one object only", edited("Role", "evenkeel-node", one, "rules"),
			[]string{"error api: Role evenkeel-system/evenkeel-node: does not grant get, list, watch on configmaps: agents cannot read their assignments or report their status -> kubectl apply -k config/api"}},
		{"people's roles are people's", func(f *Facts) { part(f, "ClusterRole", "evenkeel-view").Got = nil },
			[]string{"note api: ClusterRole evenkeel-view: is missing: it cannot be bound to users -> kubectl apply -k config/api"}},
		{"a controller without a right", func(f *Facts) { part(f, "ClusterRoleBinding", "evenkeel-controller").Got = nil },
			[]string{"error controller-rights: ClusterRoleBinding evenkeel-controller: is missing: the controller lacks a permission that it needs -> kubectl apply -f install.yaml"}},
		{"a flow schema", func(f *Facts) { part(f, "FlowSchema", "evenkeel-controller").Got = nil },
			[]string{"warning controller-rights: FlowSchema evenkeel-controller: is missing: under load, the API server does not prioritize the controller's requests -> kubectl apply -f install.yaml"}},
		{"rollouts, and nobody who has ever rolled out", func(f *Facts) {
			f.Lease, f.Rollouts = Lease{}, []v1alpha1.NodeConfigRollout{rollout("workers", "", "")}
		}, []string{"error controller: Lease evenkeel-system/evenkeel-controller: is missing: no controller has ever been leader, or it runs with --leader-elect=false; without a controller, rollouts neither proceed nor stop on failures -> " + logs}},
		{"a controller that has stopped", func(f *Facts) { f.Lease.Alive, f.Lease.Holder = false, "" },
			[]string{"error controller: Lease evenkeel-system/evenkeel-controller: has no holder: no controller runs; rollouts neither proceed nor stop on failures -> " + logs}},
		{"a controller that has died", func(f *Facts) { f.Lease.Alive, f.Lease.Renewed = false, ago(12*time.Minute) },
			[]string{"error controller: Lease evenkeel-system/evenkeel-controller: pod-1 has not renewed it since 2026-01-02T02:52:05Z: rollouts neither proceed nor stop on failures -> " + logs}},
		{"a lease that may not be read", func(f *Facts) {
			f.Lease, f.Denied = Lease{Denied: true}, []Denied{{"the Lease", "forbidden"}}
		}, []string{"unknown rights: the Lease: you are not allowed to read it: forbidden -> ask an administrator to run this command; the role evenkeel-operator covers nodes and rollouts"}},
		{"a part that may not be read", func(f *Facts) {
			p := part(f, "ClusterRole", "evenkeel-node")
			p.Got, p.Denied = nil, true
		}, nil},

		{"a dead end", nodes(fine("a"), fine("b", condition("False", "DeadEnd", "using current\n(init)", time.Minute))),
			[]string{"error dead-end: node b: the running configuration keeps failing, and no other is left to fall back to (DeadEnd): using current (init) -> kubectl evenkeel node b; journalctl -u kubelet on the node"}},
		{"failed trials, by reason, the most first", nodes(
			fine("a", condition("False", "NotReady", "x", 0)), fine("b", condition("False", "CrashLooped", "crash-looped", 0)), fine("c", condition("False", "CrashLooped", "y", 0)),
		), []string{
			"warning fallen-back: 2 nodes (b, c): went back to last-known-good (CrashLooped): crash-looped -> kubectl evenkeel node b; push a fixed configuration, or repair the node and retry",
			"warning fallen-back: node a: went back to last-known-good (NotReady): x -> kubectl evenkeel node a; push a fixed configuration, or repair the node and retry",
		}},
		{"refused", nodes(fine("a", condition("False", "NeedsDrain", "cpu manager", time.Hour))),
			[]string{"note refused: node a: is blocked: it keeps the previous configuration because of its pods (NeedsDrain): cpu manager -> kubectl evenkeel node a; its output says what to do"}},
		{"unclear for long", nodes(fine("a", condition("Unknown", "SyncFailed", "not found", 6*time.Minute))),
			[]string{"warning unclear: node a: cannot determine its assigned configuration, or whether that is valid (SyncFailed): not found -> kubectl evenkeel node a; fix what the message names"}},
		{"unclear for a moment", nodes(fine("a", condition("Unknown", "SyncFailed", "not found", 4*time.Minute))), nil},
		{"a trial that does not end", nodes(fine("a", func(n *Node) { n.TrialStart, n.TrialDuration = ago(71*time.Minute), 10*time.Minute })),
			[]string{"warning trial: node a: its trial should have ended an hour ago -> look for something unstable on the node: the API server, the container runtime, the kubelet's health"}},
		{"a trial by a clock that is behind", nodes(fine("a", func(n *Node) {
			n.TrialStart, n.TrialDuration, n.ClockAhead = ago(3*time.Hour), 10*time.Minute, -3*time.Hour
		})),
			[]string{"warning clock: node a: its clock is behind the API server's, by 3h0m0s on a -> set the clock, and look at the node's time service (such as chrony or systemd-timesyncd)"}},
		{"clocks that are ahead", nodes(fine("a", func(n *Node) { n.ClockAhead = 2 * time.Minute }), fine("b", func(n *Node) { n.ClockAhead = 5 * time.Minute }), fine("c", func(n *Node) { n.ClockAhead = time.Minute })),
			[]string{"warning clock: 2 nodes (a, b): its clock is ahead of the API server's, by 5m0s on b -> set the clock, and look at the node's time service (such as chrony or systemd-timesyncd)"}},
		{"a long trial", nodes(fine("a", func(n *Node) { n.TrialStart, n.TrialDuration = ago(71*time.Minute), time.Hour })), nil},
		{"a silent agent", nodes(fine("a", asked(2*time.Minute, false)), fine("b", asked(time.Minute, true))),
			[]string{"warning silent: node a: the Node is Ready, but its agent has not answered the newest spec of its NodeConfig -> systemctl status kubelet on the node; docs/troubleshooting.md, The agent does not start"}},
		{"an agent that has just been asked", nodes(fine("a", asked(30*time.Second, false))), nil},
		{"agents of which few were asked, and none answers", nodes(fine("a", asked(5*time.Minute, false)), fine("b", asked(2*time.Minute, false)), fine("c", asked(time.Hour, true)), fine("d")),
			[]string{"warning silent: 2 nodes (a, b): the Node is Ready, but its agent has not answered the newest spec of its NodeConfig; no agent that was asked since 2026-01-02T02:59:05Z has answered: the other 2 agents may be silent too -> systemctl status kubelet on the node; docs/troubleshooting.md, The agent does not start"}},
		{"nodes that are down", nodes(fine("a", asked(time.Hour, false), health(describe.HealthNotReady), func(n *Node) { n.Ready = false }), fine("b", health(describe.HealthNotReady))),
			[]string{"warning not-ready: 2 nodes (a, b): the Node is not Ready -> kubectl describe node NAME, then journalctl -u kubelet on the node"}},
		{"a failure that shows later", failsLater, []string{"warning later: NodeConfigRollout workers: 50 of 300 nodes are not Ready; all 50 run workers/7, received at most 3m earlier -> kubectl evenkeel nodes --rollout workers --problems"}},
		{"installations that failed", nodes(fine("a", func(n *Node) { n.Label, n.Because = "install-failed", "the kubelet did not\nbecome healthy" }),
			fine("b", func(n *Node) { n.Label = "uninstall-failed" }), fine("c", func(n *Node) { n.Label = "install-failed" })), []string{
			"warning install: 2 nodes (a, c): kubectl evenkeel install failed: the kubelet did not become healthy -> fix the cause, then kubectl evenkeel install --retry a c",
			"warning install: node b: kubectl evenkeel uninstall failed: -> fix the cause, then kubectl evenkeel uninstall --retry b",
		}},
		{"installations that go on", func(f *Facts) {
			f.Installers = installers("v0.1.0")
			f.Nodes = []Node{bare("a", "install", 14*time.Minute), fine("b", labelled("install", time.Hour)), fine("c", labelled("uninstall", time.Minute))}
		}, nil},
		{"installations that were interrupted", func(f *Facts) {
			f.Installers = installers("")
			f.Nodes = []Node{bare("a", "install", 16*time.Minute), fine("b", labelled("install", time.Hour)), fine("c", labelled("uninstall", 16*time.Minute))}
		}, []string{
			"warning install: node a: kubectl evenkeel install began more than 15 minutes ago and has not finished -> kubectl evenkeel install resumes it and prints what it waits for",
			"warning install: node c: kubectl evenkeel uninstall began more than 15 minutes ago and has not finished -> kubectl evenkeel uninstall resumes it and prints what it waits for",
		}},
		{"nodes that wait for an installer that is gone", func(f *Facts) {
			f.Installers = map[string]Installer{"install": {Object: "DaemonSet evenkeel-install/evenkeel-installer"}}
			f.Nodes = []Node{bare("a", "install", time.Hour), fine("b", labelled("install", time.Hour))}
		}, []string{
			"warning install: node a: is labelled evenkeel.dev/agent=install, but DaemonSet evenkeel-install/evenkeel-installer does not exist -> kubectl apply -f install.yaml, then kubectl evenkeel install",
			"note install: node b: is labelled evenkeel.dev/agent=install, but DaemonSet evenkeel-install/evenkeel-installer does not exist: the node gets no upgrades -> kubectl apply -f install.yaml, then kubectl evenkeel install",
		}},
		{"an installer of another version than the controller", func(f *Facts) {
			f.Installers = map[string]Installer{"install": installers("v0.0.9")["install"]}
			f.Nodes = []Node{fine("b", labelled("install", time.Hour))}
		}, []string{"note install: DaemonSet evenkeel-install/evenkeel-installer: its image is v0.0.9, the controller is v0.1.0 -> kubectl apply -f install.yaml of one version, then kubectl evenkeel install"}},
		{"an installer that may not be read", nodes(fine("b", labelled("install", time.Hour))), nil},
		{"nodes without an agent", nodes(Node{Name: "a", Selected: true}, Node{Name: "b"}, Node{Name: "new", Selected: true, Standing: describe.Standing{New: true}}, fine("c")), []string{
			"warning no-agent: node a: a rollout selects it, but no agent has ever reported -> kubectl evenkeel install a, or change the rollout's selector",
			"note no-agent: node b: no agent has ever reported, and no rollout selects it -> ",
		}},
		{"nodes that a person configured", nodes(fine("a", func(n *Node) { n.Selected, n.Manual = true, true }), fine("b", func(n *Node) { n.Manual = true }), fine("c")),
			[]string{"note manual: node a: a person set its configuration, and its rollout skips it -> kubectl evenkeel assign NODE --release returns a node to the rollout"}},
		{"NodeConfigs that may not be read", func(f *Facts) { f.HasConfig, f.Nodes = false, []Node{{Name: "a", Selected: true}} }, nil},
		{"a ConfigMap that is there", nodes(fine("a", assigned("uid-1"))), nil},
		{"a ConfigMap that was made anew", nodes(fine("a", assigned("uid-0")), fine("b", assigned("uid-0")), fine("c", assigned("uid-0")), fine("d", assigned("uid-0"))),
			[]string{"warning sources: 4 nodes (a, b, c, ...): the assigned ConfigMap evenkeel-system/workers-1 was deleted and created again; nodes that run it keep it from their checkpoint, and no other node can get it -> push again, or assign an existing ConfigMap"}},
		{"a ConfigMap that is gone", func(f *Facts) { clear(f.Sources); f.Nodes = []Node{fine("a", assigned("uid-1"))} },
			[]string{"warning sources: node a: the assigned ConfigMap evenkeel-system/workers-1 does not exist; nodes that run it keep it from their checkpoint, and no other node can get it -> push again, or assign an existing ConfigMap"}},
		{"ConfigMaps that may not be read", func(f *Facts) { clear(f.Sources); clear(f.Read); f.Nodes = []Node{fine("a", assigned("uid-1"))} }, nil},
		{"rollouts", func(f *Facts) {
			degraded := metav1.Condition{Type: "Degraded", Status: "True", Reason: "NodesFailed", Message: "1 node failed"}
			f.Rollouts = []v1alpha1.NodeConfigRollout{
				rollout("a", v1alpha1.RolloutComplete, "done"), rollout("b", v1alpha1.RolloutProgressing, "on its way"),
				rollout("workers", v1alpha1.RolloutHalted, "revision 2 was stopped", degraded),
				rollout("workers", v1alpha1.RolloutComplete, "done", degraded),
				rollout("workers", v1alpha1.RolloutAwaitingApproval, "step 1"),
				rollout("workers", "", ""),
				rollout("back", v1alpha1.RolloutRollingBack, "2 nodes to roll back"), rollout("held", v1alpha1.RolloutRollingBack, "2 nodes to roll back"),
				rollout("cold", v1alpha1.RolloutFrozen, "no node moves"), rollout("cool", v1alpha1.RolloutFrozen, "no node moves"),
			}
			f.Rollouts[7].Spec.Frozen, f.Rollouts[8].Status.Nodes.Pending = true, 3
		}, []string{
			"warning rollouts: NodeConfigRollout workers: is Halted: revision 2 was stopped -> " + showWorkers,
			"warning rollouts: NodeConfigRollout workers: is degraded (NodesFailed): 1 node failed -> " + showWorkers,
			"warning rollouts: NodeConfigRollout workers: the controller has not processed it: see the controller's log -> " + showWorkers,
			"warning rollouts: NodeConfigRollout back: is RollingBack: 2 nodes to roll back -> kubectl evenkeel rollout status back",
			"warning rollouts: NodeConfigRollout held: is frozen and RollingBack: 2 nodes to roll back -> kubectl evenkeel rollout status held",
			"warning rollouts: NodeConfigRollout cold: is Frozen: no node moves -> kubectl evenkeel rollout status cold",
			"note rollouts: NodeConfigRollout workers: is AwaitingApproval: step 1 -> " + showWorkers,
			"note rollouts: NodeConfigRollout cool: is Frozen: no node moves -> kubectl evenkeel rollout status cool",
		}},
		{"a rollout that nodes can join by themselves", func(f *Facts) {
			open, closed := rollout("open", v1alpha1.RolloutComplete, "done"), rollout("closed", v1alpha1.RolloutComplete, "done")
			open.Spec.NodeSelector.MatchLabels = map[string]string{"pool": "a"}
			closed.Spec.NodeSelector.MatchLabels = map[string]string{"node-restriction.kubernetes.io/pool": "a"}
			f.Rollouts = []v1alpha1.NodeConfigRollout{open, closed}
		}, []string{"note rollouts: NodeConfigRollout open: a node may set every label of the selector on itself (pool), and so join or leave the rollout: " +
			"use a label that only administrators set, such as node-restriction.kubernetes.io/pool -> see docs/security.md for the labels that nodes can set on themselves"}},
		{"agents of several versions", nodes(fine("a"), fine("b", func(n *Node) { n.Agent = "v0.0.9" }), fine("c")),
			[]string{"note versions: node b: runs a different agent version than most nodes: v0.1.0 on 2, v0.0.9 on 1 -> kubectl evenkeel nodes -o wide shows which; upgrade them if no upgrade is in progress"}},
		{"a controller of another version", func(f *Facts) { f.Lease.Version = "v0.2.0" },
			[]string{"note versions: the controller: is v0.2.0, the agents are v0.1.0 -> upgrade the older ones"}},
		{"NodeConfigs that are left over", func(f *Facts) { f.Orphans = []string{"x", "y"} },
			[]string{"note left-over: 2 NodeConfigs: have no Node: x, y -> nothing: the controller deletes those that a rollout assigned after an hour; for others: kubectl delete nodeconfig NAME"}},
	} {
		var got []string
		for _, f := range Judge(well(t, tt.change)) {
			got = append(got, fmt.Sprintf("%s %s: %s: %s -> %s", f.Severity, f.Check, f.About(), strings.Join(strings.Fields(f.Wrong), " "), f.Do))
		}

		assert.That(t, slices.Equal(got, tt.want), "%s: got:\n%s\nwant:\n%s", tt.name, strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
	}
}

func TestAnOlderOrNewerCRDIsToldByItsFieldsAndRules(t *testing.T) {
	crd := func(schema map[string]any) map[string]any {
		return map[string]any{"spec": map[string]any{"versions": []any{map[string]any{"name": "v1alpha1", "served": true, "schema": map[string]any{"openAPIV3Schema": schema}}}}}
	}
	fields := func(names ...string) map[string]any {
		out := map[string]any{}
		for _, n := range names {
			out[n] = map[string]any{"type": "string"}
		}

		return map[string]any{"properties": out}
	}
	deep := map[string]any{"properties": map[string]any{"list": map[string]any{"items": fields("a", "b")}, "map": map[string]any{"additionalProperties": fields("c")}}}
	rule := func(text string) map[string]any {
		return map[string]any{"x-kubernetes-validations": []any{map[string]any{"rule": text, "message": "x"}}, "properties": map[string]any{}}
	}
	for _, tt := range []struct {
		name        string
		want, got   map[string]any
		lacks, more string
	}{
		{"the same", deep, deep, "", ""},
		{"a field less", fields("a", "b"), fields("a"), "is older than this build: it lacks b", ""},
		{"a field more", fields("a"), fields("a", "b"), "", "b"},
		{"what is below it goes without saying", deep, fields("map"), "is older than this build: it lacks list; is older than this build: it lacks map.c", ""},
		{"a rule less", rule("a  ==\n b"), fields(), `is older than this build: it lacks the rule "a == b" of the object`, ""},
		{"a rule more is its own affair", fields(), rule("a"), "", ""},
	} {
		lacks, more := compareCRDs(crd(tt.want), crd(tt.got))
		assert.That(t, strings.Join(lacks, "; ") == tt.lacks && strings.Join(more, "; ") == tt.more, "%s: lacks %q, more %q", tt.name, lacks, more)
	}
}

func TestEveryCheckAndExplanationSaysWhy(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range checks {
		assert.That(t, c.name != "" && c.why != "" && !seen[c.name], "check %q: %q", c.name, c.why)
		seen[c.name] = true
	}

	for i, e := range explanations {
		assert.That(t, e.why != "", "explanation %d does not", i)
	}
}

// What `kubectl apply -k` sends is what kustomize writes, which folds the lines
// of expressions anew.
func TestWhatKustomizeMakesOfTheManifestsIsWhatIsExpected(t *testing.T) {
	localcluster.SkipShort(t)
	made := map[string]*unstructured.Unstructured{}
	out := assert.Value(exec.CommandContext(t.Context(), "../../../bin/tools/kubectl", "kustomize", "../../../config/base").Output())(t)
	for decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(out), 4096); ; {
		o := &unstructured.Unstructured{}
		if err := decoder.Decode(o); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}

		made[nameOf(o)] = o
	}

	f := well(t, func(f *Facts) {
		for i := range f.Parts {
			f.Parts[i].Got = made[nameOf(f.Parts[i].Want)]
		}
	})
	found := Judge(f)
	assert.That(t, len(found) == 0, "of what has just been applied: %v", found)
}
