package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet/policy"
)

const (
	answers = time.Minute      // an agent that is there has answered by then
	patient = 5 * time.Minute  // what is Unknown for less may pass
	overdue = time.Hour        // a trial that has stood still for so long in all
	left    = 24 * time.Hour   // a NodeConfig without a Node for less than that is the controller's to remove
	unseen  = 30 * time.Second // a rollout that is new
	labour  = 15 * time.Minute // more than install and uninstall give a node
)

// controllerAlive judges whether somebody rolls out.
func controllerAlive(f *Facts) []Finding {
	object := "Lease " + policy.SettingsIn(f.Rollouts).Namespace + "/" + v1alpha1.ControllerLease
	const look = "kubectl -n evenkeel-system get pods; kubectl -n evenkeel-system logs deployment/evenkeel-controller"
	switch l := f.Lease; {
	case l.Denied || l.Alive:
		return nil
	case !l.Found && len(f.Rollouts) == 0:
		return []Finding{{Severity: Note, Object: object, Wrong: "is missing: there is no controller, and no rollout that needs one", Do: applyAll + " if you want rollouts; if that is done: " + look}}
	case !l.Found:
		return []Finding{{Severity: Error, Object: object, Do: look,
			Wrong: "is missing: no controller has ever led, or it runs with --leader-elect=false; without one no rollout moves, and none is stopped"}}
	case l.Holder == "":
		return []Finding{{Severity: Error, Object: object, Do: look, Wrong: "nobody holds it: no controller runs; no rollout moves, and none is stopped"}}
	default:
		return []Finding{{Severity: Error, Object: object, Do: look,
			Wrong: fmt.Sprintf("%s has not renewed it since %s: no rollout moves, and none is stopped", l.Holder, l.Renewed.UTC().Format(time.RFC3339))}}
	}
}

// grouped returns the nodes for which something is so, by a key; "" is none.
func grouped(f *Facts, key func(*Node) string) []group {
	by := map[string][]*Node{}
	for i := range f.Nodes {
		if k := key(&f.Nodes[i]); k != "" {
			by[k] = append(by[k], &f.Nodes[i])
		}
	}
	out := []group{}
	for _, k := range slices.Sorted(maps.Keys(by)) {
		out = append(out, group{k, by[k]})
	}
	slices.SortStableFunc(out, func(a, b group) int { return len(b.nodes) - len(a.nodes) })
	return out
}

type group struct {
	key   string
	nodes []*Node
}

// example is what one node of a group says.
func (g group) example() string {
	return cut(g.nodes[0].Message)
}

// cut keeps what may be long to one line of a bounded length.
func cut(words string) string {
	words = strings.Join(strings.Fields(words), " ")
	const most = 200
	if len(words) > most {
		words = strings.ToValidUTF8(words[:most], "") + "..."
	}
	return words
}

// see is the command that says more of a node.
func (g group) see() string { return "kubectl evenkeel node " + g.nodes[0].Name }

// byReason returns findings for nodes of which ConfigOK has one of these reasons, a finding for each reason.
func byReason(f *Facts, severity Severity, wrong, do string, which func(*Node) bool) []Finding {
	var out []Finding
	for _, g := range grouped(f, func(n *Node) string {
		if !n.Reported || !which(n) {
			return ""
		}
		return n.Reason
	}) {
		out = append(out, of(severity, g.nodes, fmt.Sprintf("%s (%s): %s", wrong, g.key, g.example()), g.see()+"; "+do))
	}
	return out
}

func deadEnd(f *Facts) []Finding {
	return byReason(f, Error, "what runs keeps failing, and there is nothing to fall back to", "journalctl -u kubelet there",
		func(n *Node) bool { return n.Reason == v1alpha1.ReasonDeadEnd })
}

// failures are the reasons of a trial that failed.
var failures = []string{
	v1alpha1.ReasonCrashLooped, v1alpha1.ReasonNotHealthy, v1alpha1.ReasonNotReady, v1alpha1.ReasonWorkloadHarmed, v1alpha1.ReasonLostAPI,
}

func fallenBack(f *Facts) []Finding {
	return byReason(f, Warning, "went back to last-known-good", "push a fixed configuration, or mend the node and retry",
		func(n *Node) bool { return n.Exists && n.Status == "False" && slices.Contains(failures, n.Reason) })
}

func refused(f *Facts) []Finding {
	return byReason(f, Warning, "does not take what is assigned, and runs on as before", "it says what would help",
		func(n *Node) bool {
			return n.Exists && n.Status == "False" && n.Reason != v1alpha1.ReasonDeadEnd && !slices.Contains(failures, n.Reason)
		})
}

func unclear(f *Facts) []Finding {
	return byReason(f, Warning, "cannot tell what it is to run, or whether that is valid", "mend what it names",
		func(n *Node) bool { return n.Exists && n.Status == "Unknown" && f.Now.Sub(n.Since) > patient })
}

// limited says what cannot be done with the kubelets of nodes.
func limited(f *Facts) []Finding {
	var out []Finding
	for _, g := range grouped(f, func(n *Node) string {
		if !n.Exists {
			return ""
		}
		return n.Limited
	}) {
		out = append(out, of(Warning, g.nodes, fmt.Sprintf("evenkeel can do less with its kubelet (%s): %s", g.key, cut(g.nodes[0].Limits)),
			"docs/kubelets.md, What is limited; on the node: evenkeel-agent check --self-test"))
	}
	return out
}

func trialStuck(f *Facts) []Finding {
	return one(f, Warning, "its trial should have ended an hour ago", "look for what comes and goes there: the API, the container runtime, the kubelet's health",
		func(n *Node) bool {
			return n.Exists && !n.TrialStart.IsZero() && f.Now.Sub(n.TrialStart) > n.TrialDuration+overdue
		})
}

// one returns a finding about the nodes for which something is so, if there are any.
func one(f *Facts, severity Severity, wrong, do string, which func(*Node) bool) []Finding {
	for _, g := range grouped(f, func(n *Node) string {
		if which(n) {
			return "so"
		}
		return ""
	}) {
		return []Finding{of(severity, g.nodes, wrong, do)}
	}
	return nil
}

func silent(f *Facts) []Finding {
	return one(f, Warning, "the Node is Ready, but its agent has not answered the newest spec of its NodeConfig", "systemctl status kubelet there; docs/troubleshooting.md, The agent does not start",
		func(n *Node) bool {
			return n.Exists && n.Ready && n.Reported && !n.Unanswered.IsZero() && f.Now.Sub(n.Unanswered) > answers
		})
}

// installation judges nodes by the label that install and uninstall give them.
func installation(f *Facts) []Finding {
	var out []Finding
	for _, g := range grouped(f, func(n *Node) string {
		switch n.Label {
		case v1alpha1.AgentInstallFailed:
			return v1alpha1.AgentInstall
		case v1alpha1.AgentUninstallFailed:
			return v1alpha1.AgentUninstall
		}
		return ""
	}) {
		command := "kubectl evenkeel " + g.key
		out = append(out, of(Warning, g.nodes, fmt.Sprintf("%s failed: %s", command, cut(g.nodes[0].Because)),
			"mend what it names, then "+command+" --retry "+g.nodes[0].Name))
	}
	for _, label := range []string{v1alpha1.AgentInstall, v1alpha1.AgentUninstall} {
		command := "kubectl evenkeel " + label
		crew, known := f.Crews[label]
		labelled := func(n *Node) bool { return n.Exists && n.Label == label }
		// Where the installer has done its work it stays for the next version alone; the uninstaller's label goes with its work.
		waits := func(n *Node) bool { return labelled(n) && (label == v1alpha1.AgentUninstall || !n.Reported) }
		switch {
		case known && !crew.Found:
			wrong := fmt.Sprintf("is labelled %s=%s, and there is no %s", v1alpha1.LabelAgent, label, crew.Object)
			const do = "kubectl apply -k config/installer, then "
			out = append(out, one(f, Warning, wrong, do+command, waits)...)
			out = append(out, one(f, Note, wrong+": no upgrade gets there", do+command, func(n *Node) bool { return labelled(n) && !waits(n) })...)
			continue
		case known && crew.Version != "" && f.Lease.Alive && f.Lease.Version != "" && crew.Version != f.Lease.Version:
			out = append(out, Finding{Severity: Note, Object: crew.Object, Wrong: fmt.Sprintf("its image is %s, the controller is %s", crew.Version, f.Lease.Version),
				Do: applyAll + " and -k config/installer of one version, then kubectl evenkeel install"})
		}
		out = append(out, one(f, Warning, fmt.Sprintf("%s was begun more than %d minutes ago, and has not come to its end", command, int(labour.Minutes())),
			command+" goes on, and says what it waits for", func(n *Node) bool { return waits(n) && f.Now.Sub(n.LabelSince) > labour })...)
	}
	return out
}

func noAgent(f *Facts) []Finding {
	if !f.HasConfig {
		return nil
	}
	// One that is labelled is the installation's.
	bare := func(n *Node) bool { return n.Exists && !n.Reported && n.Label != v1alpha1.AgentInstall }
	return append(
		one(f, Warning, "a rollout selects it, but no agent has ever reported", "kubectl evenkeel install, or keep the rollout off it",
			func(n *Node) bool { return bare(n) && n.Selected }),
		one(f, Note, "no agent has ever reported, and no rollout wants one", "", func(n *Node) bool { return bare(n) && !n.Selected })...)
}

func sources(f *Facts) []Finding {
	var out []Finding
	for _, g := range grouped(f, func(n *Node) string {
		if !n.Exists || n.Source == nil || !f.Read[n.Source.Namespace] {
			return ""
		}
		name := types.NamespacedName{Namespace: n.Source.Namespace, Name: n.Source.Name}
		switch uid := f.Sources[name]; uid {
		case n.Source.UID:
			return ""
		case "":
			return fmt.Sprintf("ConfigMap %s (UID: %s), which is assigned, is gone", name, n.Source.UID)
		default:
			return fmt.Sprintf("ConfigMap %s, which is assigned, was made anew: it has the UID %s, not %s", name, uid, n.Source.UID)
		}
	}) {
		out = append(out, of(Warning, g.nodes, g.key+"; who has it runs on from the checkpoint, nobody else can get it", "push again, or assign a ConfigMap that there is"))
	}
	return out
}

func rollouts(f *Facts) []Finding {
	var out []Finding
	for i := range f.Rollouts {
		r := &f.Rollouts[i]
		say := func(severity Severity, wrong string) {
			out = append(out, Finding{Severity: severity, Object: "NodeConfigRollout " + r.Name, Wrong: wrong, Do: "kubectl evenkeel rollout status " + r.Name})
		}
		if words := policy.SelfSelectionWarning(&r.Spec); words != "" {
			out = append(out, Finding{Severity: Note, Object: "NodeConfigRollout " + r.Name, Wrong: words, Do: "docs/security.md says which labels nodes set on themselves"})
		}
		degraded := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionDegraded)
		switch r.Status.Phase {
		case v1alpha1.RolloutHalted, v1alpha1.RolloutRolledBack, v1alpha1.RolloutStuck, v1alpha1.RolloutInvalid:
			say(Warning, fmt.Sprintf("is %s: %s", r.Status.Phase, r.Status.Message))
			continue
		case v1alpha1.RolloutAwaitingApproval, v1alpha1.RolloutPaused, v1alpha1.RolloutFrozen, v1alpha1.RolloutNoNodes:
			say(Note, fmt.Sprintf("is %s: %s", r.Status.Phase, r.Status.Message))
		case "":
			if f.Lease.Alive && f.Now.Sub(r.CreationTimestamp.Time) > unseen {
				say(Warning, "the controller has not looked at it: see its log")
			}
		}
		if degraded != nil && degraded.Status == metav1.ConditionTrue {
			say(Warning, fmt.Sprintf("is degraded (%s): %s", degraded.Reason, degraded.Message))
		}
	}
	return out
}

// versions says that agents are of several versions, or of another one than the controller.
func versions(f *Facts) []Finding {
	agents := grouped(f, func(n *Node) string { return n.Agent })
	if len(agents) == 0 {
		return nil
	}
	if len(agents) > 1 {
		var words []string
		for _, g := range agents[:min(len(agents), 5)] {
			words = append(words, fmt.Sprintf("%s on %d", g.key, len(g.nodes)))
		}
		others := slices.Concat(nodesOf(agents[1:])...)
		return []Finding{of(Note, others, "runs another version of the agent than most: "+strings.Join(words, ", "), "kubectl evenkeel nodes -o wide shows which; upgrade them if no upgrade is going on")}
	}
	if v := f.Lease.Version; f.Lease.Alive && v != "" && v != agents[0].key {
		return []Finding{{Severity: Note, Object: "the controller", Wrong: fmt.Sprintf("is %s, the agents are %s", v, agents[0].key), Do: "upgrade the older ones"}}
	}
	return nil
}

func nodesOf(groups []group) [][]*Node {
	var out [][]*Node
	for _, g := range groups {
		out = append(out, g.nodes)
	}
	return out
}

// leftOver says which NodeConfigs have no Node. The controller removes those of rollouts after an hour.
func leftOver(f *Facts) []Finding {
	return one(f, Note, "there is a NodeConfig, and no Node of this name", "kubectl delete nodeconfig NAME, if it will not come back",
		func(n *Node) bool { return n.Config && !n.Exists && f.Now.Sub(cmp.Or(n.Since, f.Now)) > left })
}
