// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

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
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/internal/printable"
)

const (
	answerTimeout  = time.Minute      // a running agent answers within this time
	unknownGrace   = 5 * time.Minute  // ConfigOK can be Unknown for this long without a finding
	trialGrace     = time.Hour        // added to the length of a trial
	rolloutTimeout = 30 * time.Second // a running controller processes a new rollout within this time
	clockTolerance = time.Minute      // a kubelet's report can take this long to be written
	installTimeout = 15 * time.Minute // longer than install and uninstall allow for a node
)

// controllerAlive checks that a controller runs.
func controllerAlive(f *Facts) []Finding {
	namespace := fleet.SettingsIn(f.Rollouts).Namespace
	object := "Lease " + namespace + "/" + v1alpha1.ControllerLease
	look := fmt.Sprintf("kubectl -n %[1]s get pods; kubectl -n %[1]s logs deployment/evenkeel-controller", namespace)
	wrong := ""
	switch l := f.Lease; {
	case l.Denied || l.Alive:
		return nil
	case !l.Found && len(f.Rollouts) == 0:
		return []Finding{{Severity: Note, Object: object, Wrong: "is missing: no controller runs, and no rollout needs one",
			Do: applyAll + " if you want rollouts; if it is already applied: " + look}}
	case !l.Found:
		wrong = "is missing: no controller has ever been leader, or it runs with --leader-elect=false; without a controller, "
	case l.Holder == "":
		wrong = "has no holder: no controller runs; "
	default:
		wrong = fmt.Sprintf("%s has not renewed it since %s: ", l.Holder, l.Renewed.UTC().Format(time.RFC3339))
	}

	return []Finding{{Severity: Error, Object: object, Do: look, Wrong: wrong + "rollouts neither proceed nor stop on failures"}}
}

// groupBy groups nodes by a key, the largest group first. It leaves out nodes
// whose key is empty.
func groupBy(f *Facts, key func(*Node) string) []group {
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

// example returns the message of the first node.
func (g group) example() string {
	return cut(describe.WithoutUIDs(g.nodes[0].Message))
}

// cut returns one line of at most 200 bytes.
func cut(words string) string {
	return printable.Truncate(strings.Join(strings.Fields(words), " "), 200)
}

// see returns the command that describes the first node.
func (g group) see() string { return "kubectl evenkeel node " + g.nodes[0].Name }

// byReason returns one finding for each reason of ConfigOK among the nodes that
// selects returns true for.
func byReason(f *Facts, severity Severity, wrong, do string, selects func(*Node) bool) []Finding {
	var out []Finding
	for _, g := range groupBy(f, func(n *Node) string {
		if !n.Reported || !selects(n) {
			return ""
		}

		return n.Reason
	}) {
		out = append(out, of(severity, g.nodes, fmt.Sprintf("%s (%s): %s", wrong, g.key, g.example()), g.see()+"; "+do))
	}

	return out
}

func deadEnd(f *Facts) []Finding {
	return byReason(f, Error, "the running configuration keeps failing, and no other is left to fall back to",
		"journalctl -u kubelet on the node",
		func(n *Node) bool { return n.Reason == v1alpha1.ReasonDeadEnd })
}

func fallenBack(f *Facts) []Finding {
	return byReason(f, Warning, "went back to last-known-good", "push a fixed configuration, or repair the node and retry",
		func(n *Node) bool { return n.Status == "False" && describe.IsTrialFailure(n.Reason) })
}

func refused(f *Facts) []Finding {
	refuses := func(pods bool) func(*Node) bool {
		return func(n *Node) bool {
			return n.Status == "False" && n.Reason != v1alpha1.ReasonDeadEnd && !describe.IsTrialFailure(n.Reason) &&
				describe.AboutPods(n.Reason) == pods
		}
	}
	return append(
		byReason(f, Warning, "refuses the assigned configuration and keeps the previous one", "its output says what to do", refuses(false)),
		byReason(f, Note, "is blocked: it keeps the previous configuration because of its pods", "its output says what to do", refuses(true))...)
}

func unclear(f *Facts) []Finding {
	return byReason(f, Warning, "cannot determine its assigned configuration, or whether that is valid", "fix what the message names",
		func(n *Node) bool { return n.Status == "Unknown" && f.Now.Sub(n.Since) > unknownGrace })
}

// limited reports kubelets with which evenkeel's features are limited.
func limited(f *Facts) []Finding {
	var out []Finding
	for _, g := range groupBy(f, func(n *Node) string {
		return n.Limited
	}) {
		out = append(out, of(Warning, g.nodes, fmt.Sprintf("evenkeel's features are limited with its kubelet (%s): %s", g.key,
			cut(g.nodes[0].Limits)),
			"docs/kubelets.md, What is limited"))
	}

	return out
}

func trialStuck(f *Facts) []Finding {
	return one(f, Warning, "its trial should have ended an hour ago",
		"look for something unstable on the node: the API server, the container runtime, the kubelet's health",
		func(n *Node) bool {
			return !n.TrialStart.IsZero() && f.Now.Add(n.ClockAhead).Sub(n.TrialStart) > n.TrialDuration+trialGrace
		})
}

func wrongClock(f *Facts) []Finding {
	var out []Finding
	for _, g := range groupBy(f, func(n *Node) string {
		switch {
		case n.ClockAhead > clockTolerance:
			return "ahead of"
		case n.ClockAhead < -clockTolerance:
			return "behind"
		}

		return ""
	}) {
		most := slices.MaxFunc(g.nodes, func(a, b *Node) int { return cmp.Compare(a.ClockAhead.Abs(), b.ClockAhead.Abs()) })
		out = append(out, of(Warning, g.nodes,
			fmt.Sprintf("its clock is %s the API server's, by %s on %s", g.key, most.ClockAhead.Abs().Round(time.Second), most.Name),
			"set the clock, and look at the node's time service (such as chrony or systemd-timesyncd)"))
	}

	return out
}

// one returns a finding about the nodes that selects returns true for, if there
// are any.
func one(f *Facts, severity Severity, wrong, do string, selects func(*Node) bool) []Finding {
	for _, g := range groupBy(f, func(n *Node) string {
		if selects(n) {
			return "selected"
		}

		return ""
	}) {
		return []Finding{of(severity, g.nodes, wrong, do)}
	}

	return nil
}

// silent reports agents that do not answer. An agent has no heartbeat, so those
// that were asked nothing are only counted.
func silent(f *Facts) []Finding {
	is := func(n *Node) bool {
		return n.Ready && n.Reported && !n.Answered && !n.Asked.IsZero() && f.Now.Sub(n.Asked) > answerTimeout
	}
	found := one(f, Warning, "the Node is Ready, but its agent has not answered the newest spec of its NodeConfig",
		"systemctl status kubelet on the node; docs/troubleshooting.md, The agent does not start", is)
	if len(found) == 0 {
		return nil
	}

	since := slices.MinFunc(found[0].nodes, func(a, b *Node) int { return a.Asked.Compare(b.Asked) }).Asked
	answered, others := 0, 0
	for i := range f.Nodes {
		if n := &f.Nodes[i]; n.Ready && n.Reported && !is(n) {
			others++
			if n.Answered && !n.Asked.Before(since) {
				answered++
			}
		}
	}

	if answered == 0 && others > 0 {
		found[0].Wrong += fmt.Sprintf("; no agent that was asked since %s has answered: the other %s may be silent too",
			since.UTC().Format(time.RFC3339), printable.Count(others, "agent"))
	}

	return found
}

// notReady reports Nodes that are not Ready.
func notReady(f *Facts) []Finding {
	return one(f, Warning, "the Node is not Ready", "kubectl describe node NAME, then journalctl -u kubelet on the node",
		func(n *Node) bool { return n.Standing.Health == describe.HealthNotReady && n.counted() })
}

// later reports failures that began after a change of configuration.
func later(f *Facts) []Finding {
	var out []Finding
	for _, l := range summaryOf(f, nil) {
		if l.Reason == describe.ReasonSuspected {
			out = append(out, Finding{Severity: Warning, Object: "NodeConfigRollout " + l.Object, Wrong: l.Words, Do: l.Next})
		}
	}

	return out
}

// installation reports installs and uninstalls that failed or were interrupted.
func installation(f *Facts) []Finding {
	var out []Finding
	for _, g := range groupBy(f, func(n *Node) string {
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
			"fix the cause, then "+command+" --retry NAMES"))
	}

	for _, label := range []string{v1alpha1.AgentInstall, v1alpha1.AgentUninstall} {
		command := "kubectl evenkeel " + label
		set, known := f.Installers[label]
		labelled := func(n *Node) bool { return n.Label == label }
		// Once a node has an agent, the installer only upgrades it. A
		// successful uninstall removes its label.
		waits := func(n *Node) bool { return labelled(n) && (label == v1alpha1.AgentUninstall || !n.Reported) }
		switch {
		case known && !set.Found:
			wrong := fmt.Sprintf("is labelled %s=%s, but %s does not exist", v1alpha1.LabelAgent, label, set.Object)
			const do = applyAll + ", then "
			out = append(out, one(f, Warning, wrong, do+command, waits)...)
			out = append(out, one(f, Note, wrong+": the node gets no upgrades", do+command,
				func(n *Node) bool { return labelled(n) && !waits(n) })...)
			continue
		case known && set.Version != "" && f.Lease.Alive && f.Lease.Version != "" && set.Version != f.Lease.Version:
			out = append(out, Finding{Severity: Note, Object: set.Object,
				Wrong: fmt.Sprintf("its image is %s, the controller is %s", set.Version, f.Lease.Version),
				Do:    applyAll + " of one version, then kubectl evenkeel install"})
		}

		out = append(out, one(f, Warning, fmt.Sprintf("%s began more than %d minutes ago and has not finished", command,
			int(installTimeout.Minutes())),
			command+" resumes it and prints what it waits for", func(n *Node) bool {
				return waits(n) &&
					f.Now.Sub(n.LabelSince) > installTimeout
			})...)
	}

	return out
}

func noAgent(f *Facts) []Finding {
	if !f.HasConfig {
		return nil
	}

	// The check "install" reports labelled nodes.
	bare := func(n *Node) bool { return !n.Reported && n.Label != v1alpha1.AgentInstall }

	return append(
		one(f, Warning, "a rollout selects it, but no agent has ever reported",
			"kubectl evenkeel install NAMES, or change the rollout's selector",
			func(n *Node) bool { return bare(n) && n.Selected && !n.Standing.New }),
		one(f, Note, "no agent has ever reported, and no rollout selects it", "", func(n *Node) bool { return bare(n) && !n.Selected })...)
}

// manual reports nodes that their rollouts skip, maybe since somebody forgot an
// experiment.
func manual(f *Facts) []Finding {
	return one(f, Note, "a person set its configuration, and its rollout skips it",
		"kubectl evenkeel assign NODE --release returns a node to the rollout",
		func(n *Node) bool { return n.Selected && n.Manual })
}

func sources(f *Facts) []Finding {
	var out []Finding
	for _, g := range groupBy(f, func(n *Node) string {
		if n.Source == nil || !f.Read[n.Source.Namespace] {
			return ""
		}

		name := types.NamespacedName{Namespace: n.Source.Namespace, Name: n.Source.Name}
		switch f.Sources[name] {
		case n.Source.UID:
			return ""
		case "":
			return fmt.Sprintf("the assigned ConfigMap %s does not exist", name)
		default:
			return fmt.Sprintf("the assigned ConfigMap %s was deleted and created again", name)
		}
	}) {
		out = append(out, of(Warning, g.nodes, g.key+"; nodes that run it keep it from their checkpoint, and no other node can get it",
			"push again, or assign an existing ConfigMap"))
	}

	return out
}

func rollouts(f *Facts) []Finding {
	var out []Finding
	for i := range f.Rollouts {
		r := &f.Rollouts[i]
		say := func(severity Severity, wrong string) {
			out = append(out, Finding{Severity: severity, Object: objectOf(r), Wrong: wrong, Do: "kubectl evenkeel rollout status " + r.Name})
		}
		if words := fleet.SelfSelectionWarning(&r.Spec); words != "" {
			out = append(out, Finding{Severity: Note, Object: objectOf(r), Wrong: words,
				Do: "see docs/security.md for the labels that nodes can set on themselves"})
		}

		level := describe.UrgencyOf(r).Level
		degraded := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionDegraded)
		words := fmt.Sprintf("is %s: %s", r.Status.Phase, r.Status.Message)
		switch {
		case describe.Stopped(r.Status.Phase):
			if r.Spec.Frozen && r.Status.Phase == v1alpha1.RolloutRollingBack {
				words = "is frozen and " + strings.TrimPrefix(words, "is ")
			}

			say(Warning, words)
			continue
		case r.Status.Phase == v1alpha1.RolloutFrozen && level == describe.LevelProblem:
			say(Warning, words)
		case r.Status.Phase == "":
			if f.Lease.Alive && f.Now.Sub(r.CreationTimestamp.Time) > rolloutTimeout {
				say(Warning, "the controller has not processed it: see the controller's log")
			}
		case r.Status.Phase != v1alpha1.RolloutComplete && r.Status.Phase != v1alpha1.RolloutProgressing &&
			r.Status.Phase != v1alpha1.RolloutWaiting:
			say(Note, words)
		}

		if degraded != nil && degraded.Status == metav1.ConditionTrue {
			say(Warning, fmt.Sprintf("is degraded (%s): %s", degraded.Reason, degraded.Message))
		}
	}

	return out
}

// versions reports agents of several versions, or of a different version than
// the controller.
func versions(f *Facts) []Finding {
	agents := groupBy(f, func(n *Node) string { return n.Agent })
	if len(agents) == 0 {
		return nil
	}

	if len(agents) > 1 {
		var words []string
		for _, g := range agents[:min(len(agents), 5)] {
			words = append(words, fmt.Sprintf("%s on %d", g.key, len(g.nodes)))
		}

		var others []*Node
		for _, g := range agents[1:] {
			others = append(others, g.nodes...)
		}

		return []Finding{of(Note, others, "runs a different agent version than most nodes: "+strings.Join(words, ", "),
			"kubectl evenkeel nodes -o wide shows which; upgrade them if no upgrade is in progress")}
	}

	if v := f.Lease.Version; f.Lease.Alive && v != "" && v != agents[0].key {
		return []Finding{{Severity: Note, Object: "the controller", Wrong: fmt.Sprintf("is %s, the agents are %s", v, agents[0].key),
			Do: "upgrade the older ones"}}
	}

	return nil
}

// leftOver reports NodeConfigs without a Node, which no number counts.
func leftOver(f *Facts) []Finding {
	if len(f.Orphans) == 0 {
		return nil
	}

	return []Finding{{Severity: Note, Object: printable.Count(len(f.Orphans), "NodeConfig"),
		Wrong: printable.Verb(len(f.Orphans), "has", "have") + " no Node: " + printable.Few(f.Orphans),
		Do:    "nothing: the controller deletes those that a rollout assigned after an hour; for others: kubectl delete nodeconfig NAME"}}
}
