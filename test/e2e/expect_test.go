package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/atomicfile"
	"github.com/evenkeel/evenkeel/internal/node/checkpoint"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/bed"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
)

// in is the node, failing another test: a subtest.
func (n *node) in(t *testing.T) *node {
	m := *n
	m.t = t
	return &m
}

// want is ConfigOK in the proposal's terms, word for word: the message says
// what is used, the cause why. reason is the CamelCase one.
type want struct {
	status, reason string
	message, cause string
	err            string // that status.error begins with; empty: there is none
}

func allChecksPassed(cm *corev1.ConfigMap) want {
	return want{status: "True", reason: "AllChecksPassed", message: fmt.Sprintf("using current (UID: %s)", cm.UID), cause: "all checks passed"}
}

var localInit = want{
	status: "True", reason: "LocalInit", message: "using current (init)",
	cause: "current is set to the local default, and an init config was provided",
}

// is waits until ConfigOK is exactly that, in the NodeConfig and on the Node,
// and returns the NodeConfig.
func (n *node) is(w want) *v1alpha1.NodeConfig {
	n.t.Helper()
	var nc *v1alpha1.NodeConfig
	n.eventually(fmt.Sprintf("ConfigOK is %+v", w), func(ctx context.Context) (err error) {
		if nc, err = n.Get(ctx); err != nil {
			return err
		}
		c := bed.ConfigOK(nc)
		if string(c.Status) != w.status || c.Reason != w.reason || c.Message != w.message+": "+w.cause || c.ObservedGeneration != nc.Generation {
			return fmt.Errorf("NodeConfig of generation %d: %s, %s, %q at %d; error %q", nc.Generation, c.Status, c.Reason, c.Message, c.ObservedGeneration, nc.Status.Error)
		}
		if w.err == "" && nc.Status.Error != "" || !strings.HasPrefix(nc.Status.Error, w.err) {
			return fmt.Errorf("status.error is %q", nc.Status.Error)
		}
		return n.nodeSays(ctx, w)
	})
	return nc
}

// nodeSays compares the Node's own condition.
func (n *node) nodeSays(ctx context.Context, w want) error {
	c, err := n.nodeCondition(ctx)
	if err != nil {
		return err
	}
	if string(c.Status) != w.status || c.Reason != w.cause || c.Message != w.message {
		return fmt.Errorf("the Node: %s, %q, %q", c.Status, c.Message, c.Reason)
	}
	return nil
}

func (n *node) nodeCondition(ctx context.Context) (corev1.NodeCondition, error) {
	obj, err := n.Kube.CoreV1().Nodes().Get(ctx, n.Node.Name(), getOptions)
	if err != nil {
		return corev1.NodeCondition{}, err
	}
	i := slices.IndexFunc(obj.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == v1alpha1.ConditionConfigOK })
	if i < 0 {
		return corev1.NodeCondition{}, errors.New("the Node has no condition ConfigOK")
	}
	return obj.Status.Conditions[i], nil
}

// kubeletPID is the process ID of the kubelet that runs now.
func (n *node) kubeletPID() int {
	n.t.Helper()
	pid := 0
	n.eventually("a kubelet runs", func(context.Context) (err error) {
		pid, err = n.KubeletPID()
		return err
	})
	return pid
}

// running returns the revision that the kubelet was started with, and the digest
// of what it was given if that is a whole payload: another revision may have the
// same one. Both are empty for local.
func (n *node) running() (revision, digest string, err error) {
	pid, err := n.KubeletPID()
	if err != nil {
		return "", "", err
	}
	argv, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return "", "", err
	}
	for arg := range strings.SplitSeq(string(argv), "\x00") {
		flag, path, _ := strings.Cut(arg, "=")
		if _, rest, rendered := strings.Cut(path, "/rendered/"); rendered {
			revision, _, _ = strings.Cut(rest, "/")
			if flag == "--config" {
				data, err := os.ReadFile(path)
				return revision, payload.Digest(payload.KeyKubelet, data), err
			}
		}
	}
	return revision, "", nil
}

// onDisk is what the agent would find if it started now.
func (n *node) onDisk() trial.State {
	n.t.Helper()
	view, err := checkpoint.ReadOnly(atomicfile.OS{}, n.Dir, "")
	if err != nil {
		n.t.Fatal(err)
	}
	for _, p := range view.Problems {
		n.t.Errorf("on disk: %s", p)
	}
	return view.State
}

// recorded waits until current and last-known-good on disk are these
// revisions, "" being local.
func (n *node) recorded(current, lastKnownGood string) {
	n.t.Helper()
	n.eventually("the records on disk", func(context.Context) error {
		view, err := checkpoint.ReadOnly(atomicfile.OS{}, n.Dir, "")
		if err == nil && (view.State.Current.Revision != current || view.State.LastKnownGood.Revision != lastKnownGood) {
			err = fmt.Errorf("current is %q, last-known-good %q, want %q and %q", view.State.Current.Revision, view.State.LastKnownGood.Revision, current, lastKnownGood)
		}
		return err
	})
}

// steady is a kubelet that must not be disturbed: it is asked for its health
// all the time.
type steady struct {
	n    *node
	pid  int
	stop context.CancelFunc
	done chan struct{}

	mu    sync.Mutex
	asked int
	bad   []string
}

// arrived waits until the kubelet that runs, and is healthy, is the one that
// the NodeConfig speaks of: ConfigOK is written before it is started.
func (n *node) arrived() {
	n.t.Helper()
	n.eventually("the kubelet that was announced is there", func(ctx context.Context) error {
		nc, err := n.Get(ctx)
		if err != nil {
			return err
		}
		revision, digest, err := n.running()
		if err != nil {
			return err
		}
		active := nc.Status.Active
		if (active == nil) != (revision == "") || active != nil && active.Revision != revision && active.SHA256 != digest {
			return fmt.Errorf("active is %+v, and %q runs", active, revision)
		}
		return n.Healthy(ctx)
	})
}

// steady begins to look at the kubelet that the NodeConfig speaks of.
func (n *node) steady() *steady {
	n.t.Helper()
	n.arrived()
	return n.steadyFromNow()
}

// steadyFromNow begins to look at the kubelet that runs now, whatever the API
// says.
func (n *node) steadyFromNow() *steady {
	n.t.Helper()
	if err := n.Healthy(n.t.Context()); err != nil {
		n.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(n.t.Context())
	s := &steady{n: n, pid: n.kubeletPID(), stop: cancel, done: make(chan struct{})}
	go s.run(ctx)
	n.t.Cleanup(func() { cancel(); <-s.done })
	return s
}

func (s *steady) run(ctx context.Context) {
	defer close(s.done)
	tick := time.NewTicker(40 * time.Millisecond)
	defer tick.Stop()
	slow := 0
	for {
		err := s.n.Healthy(ctx)
		if ctx.Err() != nil {
			return
		}
		// A busy machine may let it wait for a second, but not for several.
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() && slow < 3 {
			slow, err = slow+1, nil
		} else {
			slow = 0
		}
		s.mu.Lock()
		s.asked++
		if err != nil && len(s.bad) < 3 {
			s.bad = append(s.bad, time.Now().Format(time.TimeOnly)+" "+err.Error())
		}
		s.mu.Unlock()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// check fails the test if the kubelet is another one, or was ever unhealthy.
func (s *steady) check(t *testing.T) {
	t.Helper()
	if pid := s.n.in(t).kubeletPID(); pid != s.pid {
		t.Errorf("the kubelet was restarted: process %d, was %d", pid, s.pid)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.bad) > 0 {
		t.Errorf("healthz, asked %d times: %v", s.asked, s.bad)
	}
	s.bad = nil
}

// end checks for the last time, and stops looking.
func (s *steady) end(t *testing.T) {
	t.Helper()
	s.check(t)
	s.stop()
	<-s.done
}

// event waits for an Event on the Node, whose message holds words.
func (n *node) event(severity, reason, words string) {
	n.t.Helper()
	n.eventually(fmt.Sprintf("event %s %s, %q", severity, reason, words), func(ctx context.Context) error {
		list, err := n.Kube.CoreV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{
			FieldSelector: fields.SelectorFromSet(fields.Set{"involvedObject.kind": "Node", "involvedObject.name": n.Node.Name(), "reason": reason}).String(),
		})
		if err != nil {
			return err
		}
		var others []string
		for _, e := range list.Items {
			if e.Type == severity && e.Source.Component == "evenkeel-agent" && strings.Contains(e.Message, words) {
				return nil
			}
			others = append(others, e.Type+": "+e.Message)
		}
		return fmt.Errorf("there are: %q", others)
	})
}

// podCPU is what each of these pods requests, in thousandths of a CPU.
const podCPU = 10

// runPods starts pods that sleep on the node, and waits until they run.
func (n *node) runPods(names ...string) {
	n.t.Helper()
	n.runPodsWith(func(*corev1.PodSpec) {}, names...)
}

// runPodsWith is runPods with a change of each pod.
func (n *node) runPodsWith(change func(*corev1.PodSpec), names ...string) {
	n.t.Helper()
	for _, name := range names {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: n.Node.Name() + "-" + name},
			Spec: corev1.PodSpec{
				NodeName: n.Node.Name(), AutomountServiceAccountToken: new(bool),
				Containers: []corev1.Container{{
					Name: "sleep", Image: localcluster.SleepImage,
					Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(podCPU, resource.DecimalSI)}},
				}},
			},
		}
		change(&pod.Spec)
		if _, err := n.Kube.CoreV1().Pods(metav1.NamespaceDefault).Create(n.t.Context(), pod, metav1.CreateOptions{}); err != nil {
			n.t.Fatal(err)
		}
	}
	n.eventually("the pods run", func(ctx context.Context) error {
		for _, name := range names {
			pod, err := n.Kube.CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, n.Node.Name()+"-"+name, getOptions)
			if err != nil {
				return err
			}
			if pod.Status.Phase != corev1.PodRunning {
				return fmt.Errorf("%s is %s %s %s", pod.Name, pod.Status.Phase, pod.Status.Reason, pod.Status.Message)
			}
		}
		return nil
	})
}

// deletePods deletes pods, and waits until they are gone.
func (n *node) deletePods(names ...string) {
	n.t.Helper()
	now := int64(1)
	for _, name := range names {
		err := n.Kube.CoreV1().Pods(metav1.NamespaceDefault).Delete(n.t.Context(), n.Node.Name()+"-"+name, metav1.DeleteOptions{GracePeriodSeconds: &now})
		if err != nil {
			n.t.Fatal(err)
		}
	}
	n.eventually("the pods are gone", func(ctx context.Context) error {
		list, err := n.Kube.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + n.Node.Name()})
		if err != nil {
			return err
		}
		for _, pod := range list.Items {
			if slices.Contains(names, strings.TrimPrefix(pod.Name, n.Node.Name()+"-")) {
				return fmt.Errorf("%s is still there", pod.Name)
			}
		}
		return nil
	})
}

// containers returns the ID and restart count of every container on the node.
func (n *node) containers() map[string]string {
	n.t.Helper()
	list, err := n.Kube.CoreV1().Pods(metav1.NamespaceDefault).List(n.t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + n.Node.Name()})
	if err != nil {
		n.t.Fatal(err)
	}
	out := map[string]string{}
	for _, pod := range list.Items {
		for _, c := range pod.Status.ContainerStatuses {
			out[pod.Name] = fmt.Sprintf("%s, phase %s, restarted %d times", c.ContainerID, pod.Status.Phase, c.RestartCount)
		}
	}
	return out
}
