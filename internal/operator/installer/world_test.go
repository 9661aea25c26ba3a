// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// world is a cluster whose nodes do with pods of the installer what a test
// says, in a time of its own.
type world struct {
	policy   Policy
	progress Progress
	nodes    []*simulated
	now      time.Time
	read     []string
	last     string // verdict and reason
	told     map[string]State
	apiDown  bool
	ended    bool
}

// simulated is a node.
type simulated struct {
	Node
	does    string // how a pod of the newest revision behaves
	podAge  int    // seconds
	removed bool
}

func newWorld() *world {
	return &world{
		policy: Policy{
			Operation: Install, Desired: Desired{Revision: "r2", Image: "agent:v2", Version: "v2", ReadyFor: 2 * time.Second},
			MaxUnavailable: 1, Timeout: time.Minute,
		},
		now: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC), told: map[string]State{},
	}
}

func (w *world) node(name string) *simulated {
	for _, n := range w.nodes {
		if n.Name == name {
			return n
		}
	}

	n := &simulated{Node: Node{Name: name, OS: "linux", Ready: true}, does: "comes-back"}
	w.nodes = append(w.nodes, n)

	return n
}

// set changes a node.
func (w *world) set(name, verb string) error {
	n := w.node(name)
	verb, value, _ := strings.Cut(verb, ":")
	switch verb {
	case "ready", "not-ready":
		n.Ready = verb == "ready"
	case "cordoned":
		n.Cordoned = true
	case "self-hosted":
		n.SelfHosted = true
	case "control-plane":
		n.ControlPlane = true
	case "os":
		n.OS = value
	case "deleting":
		n.Deleting = true
	case "gone":
		n.removed = true
	case "label":
		n.Label = value
	case "failed":
		n.Label, n.Failure = w.policy.Operation.failed, value
	case "agent": // an agent of this version is there
		n.Reported, n.AgentVersion = true, value
	case "pod": // of this revision, which is ready
		ready := newPod(n.Name+"-"+value, value)
		ready.Status.Conditions, ready.Status.ContainerStatuses = isReady, isRunning
		n.Pods = []corev1.Pod{ready}
	case "does":
		n.does = value
	default:
		return fmt.Errorf("unknown %q", verb)
	}

	return nil
}

// second is what the DaemonSet and the kubelets do in a second.
func (w *world) second() {
	for _, n := range w.nodes {
		if n.Label != w.policy.Operation.label {
			n.Pods, n.podAge = nil, 0
			continue
		}

		if len(n.Pods) == 0 && n.does != "no-pod" {
			n.podAge = 0
			n.Pods = []corev1.Pod{newPod(n.Name+"-new", w.policy.Desired.Revision)}
		}

		for i := range n.Pods {
			if revisionOf(&n.Pods[i]) == w.policy.Desired.Revision && !n.waitsForTurn(w.policy.Desired.Revision) {
				n.podAge++
				n.run(&n.Pods[i])
			}
		}
	}
}

// isReady and isRunning are the status of a pod.
var (
	isReady   = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	isRunning = []corev1.ContainerStatus{{ContainerID: "c", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
)

// newPod returns a pod that has just been created.
func newPod(name, revision string) corev1.Pod {
	return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{appsv1.ControllerRevisionHashLabelKey: revision}},
		Status: corev1.PodStatus{Phase: corev1.PodPending}}
}

// waiting returns the status of a container.
func waiting(reason, message string) corev1.ContainerStatus {
	return corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}
}

// run is what a node does with a pod of the newest revision in the second of
// its age.
func (n *simulated) run(p *corev1.Pod) {
	exit := func(code int32, said string) {
		c := waiting("CrashLoopBackOff", "")
		c.ContainerID = "c"
		c.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: code, Message: said}
		p.Status.Conditions, p.Status.ContainerStatuses = nil, []corev1.ContainerStatus{c}
	}
	switch {
	case n.does == "unscheduled":
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
			Message: "0/1 nodes are available: 1 Insufficient cpu."}}
	case n.podAge < 2, n.does == "pending":
	case n.does == "no-image":
		p.Status.ContainerStatuses = []corev1.ContainerStatus{waiting("ErrImagePull", "no such host")}
		if n.podAge >= 4 {
			p.Status.ContainerStatuses[0].State.Waiting.Reason = "ImagePullBackOff"
		}
	case n.podAge < 4, n.does == "hangs":
		p.Status.ContainerStatuses = isRunning
	case n.does == "taken-back":
		exit(2, "restarting\nevenkeel-agent: the kubelet did not come back")
	case n.does == "crashes":
		exit(1, "evenkeel-agent: no D-Bus")
		p.Status.ContainerStatuses[0].RestartCount = int32(n.podAge / 4)
	case n.does == "falters" && n.podAge >= 5:
		exit(2, "evenkeel-agent: the kubelet did not stay healthy")
	default:
		p.Status.Conditions, p.Status.ContainerStatuses = isReady, isRunning
		if n.does != "silent" {
			n.Reported, n.AgentVersion = true, map[bool]string{true: "v1", false: "v2"}[n.does == "old-agent"]
		}

		n.Ready = n.does != "loses-ready"
	}
}

// observed are the nodes as a decision is told of them.
func (w *world) observed() []Node {
	var nodes []Node
	for _, name := range w.read {
		switch n := w.node(name); {
		case n.removed:
			nodes = append(nodes, Node{Name: name, Gone: true})
		case w.apiDown:
			nodes = append(nodes, Node{Name: name, Unread: "connection refused"})
		default:
			copied := n.Node
			copied.Pods = slices.Clone(n.Pods)
			nodes = append(nodes, copied)
		}
	}

	return nodes
}

// decide makes one decision and carries it out.
func (w *world) decide(interrupted bool) Decision {
	d := Decide(w.policy, w.progress, Observed{Now: w.now, Nodes: w.observed(), Interrupted: interrupted})
	w.progress = d.Next
	for _, s := range d.Steps {
		n := w.node(s.Node)
		switch s.Action {
		case Begin:
			n.Label, n.Failure, n.Turn = w.policy.Operation.label, "", w.policy.Desired.Revision
			for _, old := range s.Pods {
				n.Pods = slices.DeleteFunc(n.Pods, func(p corev1.Pod) bool { return p.Name == old.Name })
			}
		case MarkFailed:
			n.Label, n.Failure = w.policy.Operation.failed, s.Why
		case RemoveLabel, RestoreLabel:
			n.Label = s.Label
		}
	}

	return d
}

// start judges all nodes.
func (w *world) start() {
	var nodes []Node
	for _, n := range w.nodes {
		nodes = append(nodes, n.Node)
	}

	w.progress, w.last, w.ended, w.told = Start(w.policy, nodes), "", false, map[string]State{}
	w.read = w.progress.In(Doing)
}

// run decides until the operation ends, or for some time, and writes what
// happens.
func (w *world) run(out *strings.Builder, most time.Duration, interrupted bool) {
	begin := w.now
	for !w.ended && w.now.Sub(begin) < most {
		read := w.read
		d := w.decide(interrupted)
		at := fmt.Sprintf("%4s  ", w.now.Sub(begin))
		for _, s := range d.Steps {
			fmt.Fprintf(out, "%s> %s %s", at, s.Action, s.Node)
			if s.Action == RestoreLabel {
				fmt.Fprintf(out, " to %q", s.Label)
			}

			for _, p := range s.Pods {
				fmt.Fprintf(out, ", delete pod %s", p.Name)
			}

			out.WriteString("\n")
		}

		for _, n := range d.Next.Nodes {
			if s := (State{Stage: n.State.Stage, Why: n.State.Why}); slices.Contains(read, n.Name) && w.told[n.Name] != s {
				w.told[n.Name] = s
				fmt.Fprintf(out, "%s%s\n", at, strings.TrimSuffix(fmt.Sprintf("%s %s: %s", n.Name, s.Stage, s.Why), ": "))
			}
		}

		verdict := strings.TrimSpace(fmt.Sprintf("%s %s", d.Verdict, strings.Join(d.Read, " ")))
		if verdict != w.last {
			w.last = verdict
			fmt.Fprintf(out, "%s%s\n", at, verdict)
		}

		w.read = d.Read
		switch d.Verdict {
		case End:
			w.ended = true
			if !interrupted {
				outcome := "Succeeded"
				if d.Next.TimedOut() {
					outcome = "TimedOut"
				} else if len(d.Next.In(Failed)) > 0 {
					outcome = "NodeFailed"
				}

				fmt.Fprintf(out, "%s%s\n", at, outcome)
			}
		case Wait:
			w.now = w.now.Add(time.Second)
			w.second()
		}
	}
}

// labels are the values of the label, by node.
func (w *world) labels() string {
	var all []string
	for _, n := range w.nodes {
		if n.Label != "" && !n.removed {
			all = append(all, n.Name+"="+n.Label)
		}
	}

	return strings.TrimSpace(v1alpha1.LabelAgent + ": " + strings.Join(all, " "))
}
