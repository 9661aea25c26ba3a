package cli

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

// mission is what the commands install and uninstall differ in.
type mission struct {
	verb, doing, done string // install, installing, installed
	daemonSet         string
	label, failed     string // values of LabelAgent
}

var (
	installing   = mission{"install", "installing", "installed", v1alpha1.InstallerName, v1alpha1.AgentInstall, v1alpha1.AgentInstallFailed}
	uninstalling = mission{"uninstall", "uninstalling", "uninstalled", v1alpha1.UninstallerName, v1alpha1.AgentUninstall, v1alpha1.AgentUninstallFailed}
)

// wanted is what the mission's DaemonSet is now.
type wanted struct {
	revision string // of its pods
	image    string
	version  string        // that agents are to report; empty: whatever
	settle   time.Duration // that a pod must have been ready for
}

// target is what the API says of a node and of its pods of the mission's DaemonSet, those that are being deleted left out.
type target struct {
	report.Pair
	pods []corev1.Pod
}

// stage is how far a node is.
type stage string

const (
	stageSkipped stage = "Skipped" // nothing is to be done here, or cannot be now
	stageFailed  stage = "Failed"
	stageToDo    stage = "ToDo"
	stageDoing   stage = "Doing"
	stageDone    stage = "Done"
)

// standing is how far a node is, and why it is no further.
type standing struct {
	stage stage
	why   string
	said  string // by its pod, which has failed: many lines
}

// judge says how a node stands.
func (m mission) judge(t target, w wanted) standing {
	switch label := t.Node.Labels[v1alpha1.LabelAgent]; {
	case label == m.failed:
		return standing{stage: stageFailed, why: cmp.Or(t.Node.Annotations[v1alpha1.AnnotationAgentFailed], "it is labelled so, and not why")}
	case label != m.label:
		return m.untouched(t)
	case len(t.pods) > 0 && t.podOf(w.revision) == nil:
		return m.untouched(t) // by what the DaemonSet is now
	case m == installing && t.waitsForItsTurn(w.revision):
		return m.untouched(t)
	}
	return m.underWay(t, w)
}

// untouched is how a node stands that nothing has been asked of.
func (m mission) untouched(t target) standing {
	labels := t.Node.Labels
	skip := func(why string) standing { return standing{stage: stageSkipped, why: why} }
	switch {
	case t.Node.DeletionTimestamp != nil:
		return skip("it is being deleted")
	case labels[corev1.LabelOSStable] != "linux":
		return skip(fmt.Sprintf("its label %s is %q, and evenkeel is for linux", corev1.LabelOSStable, labels[corev1.LabelOSStable]))
	case m == installing && labels["evenkeel.dev/kubelet"] == "self-hosted":
		return skip("its kubelet runs in a pod that has the agent already (evenkeel.dev/kubelet=self-hosted)")
	case m == installing && labels[v1alpha1.LabelAgent] == v1alpha1.AgentUninstall:
		return skip("it is being uninstalled: kubectl evenkeel uninstall " + t.Node.Name)
	case t.Node.Spec.Unschedulable:
		return skip("it is cordoned")
	case !report.IsReady(t.Node):
		return skip("it is not Ready")
	}
	return standing{stage: stageToDo}
}

// underWay is how a node stands that is labelled for the mission.
func (m mission) underWay(t target, w wanted) standing {
	wait := func(format string, args ...any) standing {
		return standing{stage: stageDoing, why: fmt.Sprintf(format, args...)}
	}
	pod := t.podOf(w.revision)
	if pod == nil {
		return wait("waits for its pod")
	}
	if !podReady(pod) {
		return troubleOf(pod)
	}
	switch {
	case !report.IsReady(t.Node):
		return wait("its kubelet is back, the Node is not Ready")
	case m != installing:
		return standing{stage: stageDone}
	case t.Config == nil || !report.HasReported(t.Config):
		return wait("its kubelet is back, no agent has reported to the API")
	case w.version != "" && t.Config.Status.AgentVersion != w.version:
		return wait("its kubelet is back, and the agent that reports is %s, not %s", cmp.Or(t.Config.Status.AgentVersion, "of no version"), w.version)
	}
	return standing{stage: stageDone, why: t.Config.Status.AgentVersion}
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
	return pod != nil && !podReady(pod) && t.Config != nil && report.HasReported(t.Config) &&
		t.Node.Annotations[v1alpha1.AnnotationAgentTurn] != revision &&
		slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.State.Running != nil })
}

// begun tells whether a process of the mission may have run on the node.
func (t target) begun() bool {
	return slices.ContainsFunc(t.pods, func(p corev1.Pod) bool {
		return slices.ContainsFunc(p.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
			return c.ContainerID != "" || c.RestartCount > 0
		})
	})
}

func podReady(pod *corev1.Pod) bool {
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
func troubleOf(pod *corev1.Pod) standing {
	say := func(final bool, words string) standing {
		if final {
			return standing{stage: stageFailed, why: words}
		}
		return standing{stage: stageDoing, why: words}
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
		s := standing{stage: stageDoing, said: strings.TrimSpace(ended.Message)}
		words, final := finalExits[ended.ExitCode]
		s.why = report.JoinWords(cmp.Or(words, fmt.Sprintf("its installer ended with %d", ended.ExitCode)), lastWords(s.said))
		if final || c.RestartCount >= mostRestarts {
			s.stage = stageFailed
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
