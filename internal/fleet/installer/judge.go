package installer

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet/report"
)

// Operation is what the commands install and uninstall differ in.
type Operation struct {
	Verb, Past    string // install, installed
	DaemonSet     string
	label, failed string // values of LabelAgent
}

var (
	Install   = Operation{"install", "installed", v1alpha1.InstallerName, v1alpha1.AgentInstall, v1alpha1.AgentInstallFailed}
	Uninstall = Operation{"uninstall", "uninstalled", v1alpha1.UninstallerName, v1alpha1.AgentUninstall, v1alpha1.AgentUninstallFailed}
)

// Desired is what the operation's DaemonSet is now.
type Desired struct {
	Revision string // of its pods
	Image    string
	Version  string        // that agents are to report; empty: whatever
	ReadyFor time.Duration // that a pod must have been ready for
}

// target is what the API says of a node and of its pods of the operation's DaemonSet, those that are being deleted left out.
type target struct {
	report.Pair
	pods []corev1.Pod
}

// Stage is how far a node is.
type Stage string

const (
	Skipped Stage = "Skipped" // nothing is to be done here, or cannot be now
	Failed  Stage = "Failed"
	ToDo    Stage = "ToDo"
	Doing   Stage = "Doing"
	Done    Stage = "Done"
)

// State is how far a node is, and why it is no further.
type State struct {
	Stage Stage
	Why   string
	Said  string // by its pod, which has failed: many lines
}

// judge says how a node stands.
func (m Operation) judge(t target, w Desired) State {
	switch label := t.Node.Labels[v1alpha1.LabelAgent]; {
	case label == m.failed:
		return State{Stage: Failed, Why: cmp.Or(t.Node.Annotations[v1alpha1.AnnotationAgentFailed], "it is labelled so, and not why")}
	case label != m.label:
		return m.untouched(t)
	case len(t.pods) > 0 && t.podOf(w.Revision) == nil:
		return m.untouched(t) // by what the DaemonSet is now
	case m == Install && t.waitsForItsTurn(w.Revision):
		return m.untouched(t)
	}
	return m.underWay(t, w)
}

// untouched is how a node stands that nothing has been asked of.
func (m Operation) untouched(t target) State {
	labels := t.Node.Labels
	skip := func(why string) State { return State{Stage: Skipped, Why: why} }
	switch {
	case t.Node.DeletionTimestamp != nil:
		return skip("it is being deleted")
	case labels[corev1.LabelOSStable] != "linux":
		return skip(fmt.Sprintf("its label %s is %q, and evenkeel is for linux", corev1.LabelOSStable, labels[corev1.LabelOSStable]))
	case m == Install && labels["evenkeel.dev/kubelet"] == "self-hosted":
		return skip("its kubelet runs in a pod that has the agent already (evenkeel.dev/kubelet=self-hosted)")
	case m == Install && labels[v1alpha1.LabelAgent] == v1alpha1.AgentUninstall:
		return skip("it is being uninstalled: kubectl evenkeel uninstall " + t.Node.Name)
	case t.Node.Spec.Unschedulable:
		return skip("it is cordoned")
	case !report.IsReady(t.Node):
		return skip("it is not Ready")
	}
	return State{Stage: ToDo}
}

// underWay is how a node stands that is labelled for the operation.
func (m Operation) underWay(t target, w Desired) State {
	wait := func(format string, args ...any) State {
		return State{Stage: Doing, Why: fmt.Sprintf(format, args...)}
	}
	pod := t.podOf(w.Revision)
	if pod == nil {
		return wait("waits for its pod")
	}
	if !PodReady(pod) {
		return troubleOf(pod)
	}
	switch {
	case !report.IsReady(t.Node):
		return wait("its kubelet is back, the Node is not Ready")
	case m != Install:
		return State{Stage: Done}
	case t.Config == nil || !report.HasReported(t.Config):
		return wait("its kubelet is back, no agent has reported to the API")
	case w.Version != "" && t.Config.Status.AgentVersion != w.Version:
		return wait("its kubelet is back, and the agent that reports is %s, not %s", cmp.Or(t.Config.Status.AgentVersion, "of no version"), w.Version)
	}
	return State{Stage: Done, Why: t.Config.Status.AgentVersion}
}

func (t target) podOf(revision string) *corev1.Pod {
	for i := range t.pods {
		if t.pods[i].Labels["controller-revision-hash"] == revision {
			return &t.pods[i]
		}
	}
	return nil
}

// waitsForItsTurn tells whether a pod finds another agent there and may not change it: nobody has said that to this revision.
func (t target) waitsForItsTurn(revision string) bool {
	pod := t.podOf(revision)
	return pod != nil && !PodReady(pod) && t.Config != nil && report.HasReported(t.Config) &&
		t.Node.Annotations[v1alpha1.AnnotationAgentTurn] != revision &&
		slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.State.Running != nil })
}

// begun tells whether a process of the operation may have run on the node.
func (t target) begun() bool {
	return slices.ContainsFunc(t.pods, func(p corev1.Pod) bool {
		return slices.ContainsFunc(p.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
			return c.ContainerID != "" || c.RestartCount > 0
		})
	})
}

func PodReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// How an installer ends that will not do better the next time: it has taken back what it did, or cannot begin.
var finalExits = map[int32]string{
	2: "it was tried and taken back",
	3: "it was given a wrong command line",
	6: "it cannot get on the host",
}

// mostRestarts is how often an installer may end with an error that has changed nothing.
const mostRestarts = 2

// troubleOf says what a pod that is not ready does, or why it never will be.
func troubleOf(pod *corev1.Pod) State {
	say := func(final bool, words string) State {
		if final {
			return State{Stage: Failed, Why: words}
		}
		return State{Stage: Doing, Why: words}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return say(false, "its pod is not scheduled: "+c.Message)
		}
	}
	if len(pod.Status.ContainerStatuses) == 0 {
		return say(false, "its pod is "+strings.ToLower(cmp.Or(report.JoinWords(string(pod.Status.Phase), pod.Status.Message), "new")))
	}
	c := &pod.Status.ContainerStatuses[0]
	ended := cmp.Or(c.State.Terminated, c.LastTerminationState.Terminated)
	if ended != nil {
		s := State{Stage: Doing, Said: strings.TrimSpace(ended.Message)}
		words, final := finalExits[ended.ExitCode]
		s.Why = report.JoinWords(cmp.Or(words, fmt.Sprintf("its installer ended with %d", ended.ExitCode)), lastWords(s.Said))
		if final || c.RestartCount >= mostRestarts {
			s.Stage = Failed
		}
		return s
	}
	if w := c.State.Waiting; w != nil {
		// The first of these may pass; who backs off has tried again.
		final := w.Reason == "ImagePullBackOff" || w.Reason == "InvalidImageName" || w.Reason == "ErrImageNeverPull"
		return say(final, "its pod waits: "+report.JoinWords(w.Reason, w.Message))
	}
	return say(false, "its pod runs, and has not seen the kubelet come back yet")
}

// lastWords is the last line of what a program said, without what the agent's main begins it with.
func lastWords(said string) string {
	lines := strings.Split(said, "\n")
	return strings.TrimPrefix(report.OneLine(lines[len(lines)-1]), "evenkeel-agent: ")
}
