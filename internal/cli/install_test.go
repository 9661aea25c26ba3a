package cli

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/internal/cli/install"
	"github.com/evenkeel/evenkeel/internal/fleet/installer"
)

var quantity = resource.MustParse

func withLabel(key, value string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Labels[key] = value }
}

func TestInstallChangesOneNodeAfterAnother(t *testing.T) {
	c := newInstallCluster(t)
	c.node("a-control", comesBack, withLabel("node-role.kubernetes.io/control-plane", ""))
	c.node("b", comesBack)
	c.node("c", comesBack)
	c.node("cordoned", comesBack, func(n *corev1.Node) { n.Spec.Unschedulable = true })
	c.node("down", comesBack, func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse })
	c.node("pivoted", comesBack, withLabel("evenkeel.dev/kubelet", "self-hosted"))
	c.node("windows", comesBack, withLabel(corev1.LabelOSStable, "windows"))
	c.node("other", comesBack, withLabel("pool", "others"))

	c.evenkeel("install", "-l", "pool=workers", "--dry-run").wantOutput(t,
		"7 nodes, 1 at a time, with evenkeel.dev/agent:v1.0.0: 3 to install, 4 skipped",
		"cordoned: skipped: it is cordoned",
		"down: skipped: it is not Ready",
		"pivoted: skipped: its kubelet runs in a pod that has the agent already",
		`windows: skipped: its label kubernetes.io/os is "windows", and evenkeel is for linux`,
		"in this order: b, c, a-control")
	c.wantLabels(nil)

	c.evenkeel("install", "-l", "pool=workers").wantExit(t, command.ExitError, nil, "use --yes, or --dry-run to only look; nothing was written")
	c.wantLabels(nil)

	c.evenkeel("install", "-l", "pool=workers", "--yes").wantOutput(t,
		"b: started", "b: installed v1.0.0, after", "c: installed v1.0.0, after", "a-control: installed v1.0.0, after",
		"3 of 7 nodes installed, 4 skipped")
	c.wantLabels(map[string]string{"a-control": "install", "b": "install", "c": "install"})
	c.wantOrder(1, "b", "c", "a-control")

	// Again: they are done. And without a choice it is about those that are labelled.
	again := c.evenkeel("install", "--yes")
	again.wantOutput(t, "3 nodes, 1 at a time, with evenkeel.dev/agent:v1.0.0: 3 installed already", "3 of 3 nodes installed")
	c.wantOrder(0)
}

func TestInstallNeverExceedsMaxUnavailable(t *testing.T) {
	c := newInstallCluster(t)
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		c.node(name, comesBack)
	}
	c.mu.Lock()
	c.together = 2
	c.mu.Unlock()
	c.evenkeel("install", "--all-nodes", "--max-unavailable", "40%", "--yes", "-o", "json").wantOutput(t, `"state": "Done"`)
	c.mu.Lock()
	if c.most != 2 || len(c.order) != 5 {
		t.Errorf("%d at a time, %q; want 2 and all", c.most, c.order)
	}
	c.mu.Unlock()
}

func TestInstallStopsAtTheFirstFailedNode(t *testing.T) {
	c := newInstallCluster(t)
	c.node("a", comesBack)
	c.node("b", takenBack)
	c.node("c", comesBack)
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: "default", Name: "b.1"},
		InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: "b"}, Type: "Warning", Reason: "EvenkeelInstallFailed",
		Message: "the kubelet was not healthy for 2m0s", LastTimestamp: metav1.NewTime(time.Now().Add(time.Hour)),
	}
	if err := c.Create(t.Context(), event); err != nil {
		t.Fatal(err)
	}
	got := c.evenkeel("install", "--all-nodes", "--yes")
	const why = "tried and rolled back: the kubelet did not come back: /healthz: connection refused"
	got.wantExit(t, command.ExitHalted,
		[]string{"a: installed v1.0.0", "b: FAILED: " + why, "last output of its pod:", "level=INFO msg=restarting", "last Events of the Node:",
			"Warning EvenkeelInstallFailed the kubelet was not healthy for 2m0s"},
		"1 of 3 nodes installed, 1 not started; failed on b", "kubectl evenkeel install --retry b")
	c.wantLabels(map[string]string{"a": "install", "b": "install-failed"})
	node := &corev1.Node{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "b"}, node); err != nil || node.Annotations[v1alpha1.AnnotationAgentFailed] != why {
		t.Errorf("its annotations are %v (%v), want why", node.Annotations, err)
	}
	c.eventually("its pod is gone", func(context.Context) (bool, error) { return len(c.pods()) == 1, nil })

	// Again it goes on with the others, and leaves that one alone.
	c.evenkeel("install", "--all-nodes", "--yes").wantExit(t, command.ExitHalted, []string{"b: FAILED: " + why, "in this order: c", "c: installed v1.0.0"}, "2 of 3 nodes installed; failed on b")
	c.wantLabels(map[string]string{"a": "install", "b": "install-failed", "c": "install"})
	c.wantOrder(1, "a", "c")

	c.plays("b", comesBack)
	c.evenkeel("install", "--retry", "b", "--yes").wantOutput(t, "b: installed v1.0.0", "1 of 1 node installed")
	c.wantLabels(map[string]string{"a": "install", "b": "install", "c": "install"})
	if err := c.Get(t.Context(), client.ObjectKey{Name: "b"}, node); err != nil || len(node.Annotations[v1alpha1.AnnotationAgentFailed]) > 0 {
		t.Errorf("its annotations are %v (%v), want none of why", node.Annotations, err)
	}
}

func TestInstallStopsAtATimeout(t *testing.T) {
	for name, tt := range map[string]struct {
		play  part
		words string
	}{
		"no-report": {part{ready: true}, "its kubelet is back, no agent has reported to the API"},
		"old-agent": {part{ready: true, version: "v0.9.0"}, "its kubelet is back, and the agent that reports is v0.9.0, not v1.0.0"},
		"slow":      {part{waiting: "ContainerCreating"}, "its pod waits: ContainerCreating"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newInstallCluster(t)
			c.node(name, tt.play)
			c.node("z", comesBack)
			c.evenkeel("install", "--all-nodes", "--yes", "--timeout", "3s").wantExit(t, command.ExitTimeout,
				[]string{name + ": FAILED: not finished within 3s: " + tt.words}, "failed on "+name)
			c.wantLabels(map[string]string{name: "install-failed"})
		})
	}
}

func TestInstallWaitsUntilANodeStaysReady(t *testing.T) {
	c := newInstallCluster(t)
	c.node("a", comesBack)
	r := c.begin("install", "a", "--yes", "-o", "json")
	c.eventually("its pod was ready", func(context.Context) (bool, error) { c.mu.Lock(); defer c.mu.Unlock(); return len(c.order) == 1, nil })
	falters := takenBack
	falters.falters = true
	c.plays("a", falters)
	(<-r.ended).wantExit(t, command.ExitHalted, []string{`"state": "Failed"`}, "a: started", "a: FAILED: tried and rolled back", "failed on a")
}

func TestInstallStopsAtAnImagePullErrorBeforeAnyRestart(t *testing.T) {
	c := newInstallCluster(t)
	c.node("a", part{waiting: "ImagePullBackOff: Back-off pulling image"})
	c.evenkeel("install", "a", "--yes").wantExit(t, command.ExitHalted, []string{"a: FAILED: its pod waits: ImagePullBackOff: Back-off pulling image"}, "failed on a")
	c.wantLabels(map[string]string{"a": "install-failed"})
}

func TestUpgradeRestartsNoKubeletBeforeItsTurn(t *testing.T) {
	c := newInstallCluster(t)
	c.node("a", comesBack)
	c.node("b", comesBack)
	c.evenkeel("install", "--all-nodes", "--yes").wantOutput(t, "2 of 2 nodes installed")
	before := c.pods()
	c.wantOrder(1, "a", "b")

	next := comesBack
	next.version = "v1.1.0"
	c.plays("a", next)
	c.plays("b", next)
	c.image("evenkeel.dev/agent:v1.1.0")
	if got := c.pods(); got["a"] != before["a"] || got["b"] != before["b"] {
		t.Errorf("pods were %v, and are %v with the next manifests", before, got)
	}
	c.evenkeel("install", "--yes").wantOutput(t, "with evenkeel.dev/agent:v1.1.0: 2 to install", "a: installed v1.1.0", "b: installed v1.1.0", "2 of 2 nodes installed")
	c.wantOrder(1, "a", "b")
	if got := c.pods(); got["a"] == before["a"] || got["b"] == before["b"] {
		t.Errorf("pods were %v, and are %v after the upgrade", before, got)
	}
	c.wantLabels(map[string]string{"a": "install", "b": "install"})
}

func TestPodsOfARecreatedInstallerWaitForTheirTurn(t *testing.T) {
	c := newInstallCluster(t)
	c.node("a", comesBack)
	c.node("b", comesBack)
	c.evenkeel("install", "--all-nodes", "--yes").wantOutput(t, "2 of 2 nodes installed")
	c.wantOrder(1, "a", "b")
	before := c.turn("a")
	if before == "" || c.turn("b") != before {
		t.Errorf("turns are %q and %q", before, c.turn("b"))
	}

	// Pods of the next image are on both nodes at once, where the agent of each waits.
	waits := part{said: "waits", awaits: true, ready: true, version: "v1.1.0"}
	c.plays("a", waits)
	c.plays("b", waits)
	d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.InstallNamespace, Name: installer.Install.DaemonSet}}
	if err := c.Delete(t.Context(), d, client.PropagationPolicy("Foreground")); err != nil {
		t.Fatal(err)
	}
	c.eventually("the DaemonSet and its pods are gone", func(ctx context.Context) (bool, error) {
		err := c.Get(ctx, client.ObjectKeyFromObject(d), &appsv1.DaemonSet{})
		return apierrors.IsNotFound(err) && len(c.pods()) == 0, client.IgnoreNotFound(err)
	})
	if err := c.cluster.Apply(t.Context(), "../../config/installer"); err != nil {
		t.Fatal(err)
	}
	c.image("evenkeel.dev/agent:v1.1.0")
	w, err := installer.Newest(t.Context(), c, installer.Install)
	if err != nil {
		t.Fatal(err)
	}
	pods := &corev1.PodList{}
	c.eventually("both nodes have a pod of the new revision that runs", func(ctx context.Context) (bool, error) {
		err := c.List(ctx, pods, client.InNamespace(v1alpha1.InstallNamespace))
		running := 0
		for _, pod := range pods.Items {
			switch {
			case pod.DeletionTimestamp != nil:
			case pod.Labels[appsv1.ControllerRevisionHashLabelKey] != w.Revision:
				err = errors.Join(err, client.IgnoreNotFound(c.Delete(ctx, &pod)))
			case len(pod.Status.ContainerStatuses) > 0:
				running++
			}
		}
		return running == 2 && len(pods.Items) == 2, err
	})
	c.wantOrder(0)
	c.evenkeel("install", "--yes").wantOutput(t, "with evenkeel.dev/agent:v1.1.0: 2 to install", "a: installed v1.1.0", "b: installed v1.1.0", "2 of 2 nodes installed")
	c.wantOrder(1, "a", "b")
	if after := c.pods(); len(after) != 2 || c.turn("a") != w.Revision || c.turn("b") != w.Revision {
		t.Errorf("turns are %q and %q, want %q; pods %v", c.turn("a"), c.turn("b"), w.Revision, after)
	}
}

func TestInterruptedInstallReleasesNodesThatHaveNotStarted(t *testing.T) {
	c := newInstallCluster(t)
	c.node("begun", part{said: "runs"})
	c.node("pending", part{})
	c.node("waiting", comesBack)
	r := c.begin("install", "--all-nodes", "--yes", "--max-unavailable", "2")
	c.eventually("one has begun, and another has a pod", func(ctx context.Context) (bool, error) {
		list := &corev1.PodList{}
		err := c.List(ctx, list, client.InNamespace(v1alpha1.InstallNamespace))
		begun := false
		for _, pod := range list.Items {
			begun = begun || len(pod.Status.ContainerStatuses) > 0
		}
		return begun && len(list.Items) == 2, err
	})
	r.interrupt()
	got := <-r.ended
	got.wantExit(t, command.ExitError, []string{"begun: finishes without this command: installed, or restored", "pending, waiting: not started"},
		"the command was interrupted: run it again")
	c.wantLabels(map[string]string{"begun": "install"})

	// It has come to its end, and the next time is found there.
	c.plays("begun", comesBack)
	c.eventually("it has come to its end", func(ctx context.Context) (bool, error) {
		list := &corev1.PodList{}
		err := c.List(ctx, list, client.InNamespace(v1alpha1.InstallNamespace))
		return slices.ContainsFunc(list.Items, func(pod corev1.Pod) bool { return pod.Spec.NodeName == "begun" && installer.PodReady(&pod) }), err
	})
	c.plays("pending", comesBack)
	c.evenkeel("install", "--all-nodes", "--yes").wantOutput(t, "2 to install, 1 installed already", "3 of 3 nodes installed")
}

func TestInstallWaitsForNodesInProgressFirst(t *testing.T) {
	c := newInstallCluster(t)
	c.node("a", comesBack)
	c.node("m", part{said: "runs"})
	if err := installer.SetLabel(t.Context(), c, "m", v1alpha1.AgentInstall, ""); err != nil {
		t.Fatal(err)
	}
	c.eventually("its pod has started", func(ctx context.Context) (bool, error) {
		list := &corev1.PodList{}
		err := c.List(ctx, list, client.InNamespace(v1alpha1.InstallNamespace))
		return len(list.Items) == 1 && len(list.Items[0].Status.ContainerStatuses) > 0, err
	})
	r := c.begin("install", "--all-nodes", "--yes")
	r.out.waitFor(t, "1 to install, 1 in progress", 1)
	c.plays("m", comesBack)
	(<-r.ended).wantOutput(t, "1 to install, 1 in progress", "m: ", "m: installed v1.0.0", "a: started", "2 of 2 nodes installed")
	c.wantOrder(1, "m", "a")
}

func TestInstallChecksANodeAgainBeforeItsTurn(t *testing.T) {
	c := newInstallCluster(t)
	c.node("a", part{said: "runs"})
	c.node("b", comesBack)
	r := c.begin("install", "--all-nodes", "--yes")
	c.eventually("the first has begun", func(context.Context) (bool, error) { return c.labels()["a"] == "install", nil })
	node := &corev1.Node{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "b"}, node); err != nil {
		t.Fatal(err)
	}
	before := node.DeepCopy()
	node.Spec.Unschedulable = true
	if err := c.Patch(t.Context(), node, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	c.plays("a", comesBack)
	(<-r.ended).wantOutput(t, "a: installed", "b: skipped: it is cordoned", "1 of 2 nodes installed, 1 skipped")
}

func TestInstallSkipsANodeThatFailedInTheMeantime(t *testing.T) {
	c := newInstallCluster(t)
	c.node("a", part{said: "runs"})
	c.node("b", comesBack)
	r := c.begin("install", "--all-nodes", "--yes")
	c.eventually("the first has begun", func(context.Context) (bool, error) { return c.labels()["a"] == "install", nil })
	if err := installer.SetLabel(t.Context(), c, "b", v1alpha1.AgentInstallFailed, "another command saw it fail"); err != nil {
		t.Fatal(err)
	}
	c.plays("a", comesBack)
	(<-r.ended).wantExit(t, command.ExitHalted, []string{"b: FAILED: another command saw it fail"}, "1 of 2 nodes installed", "failed on b")
	c.wantLabels(map[string]string{"a": "install", "b": "install-failed"})
}

func TestInstallPrintsJSON(t *testing.T) {
	c := newInstallCluster(t)
	c.node("a", comesBack)
	c.node("b", takenBack)
	got := c.evenkeel("install", "a", "b", "--yes", "-o", "json")
	var r install.Report
	if err := json.Unmarshal([]byte(got.out), &r); err != nil {
		t.Fatalf("%v: %s", err, got.out)
	}
	if got.code != command.ExitHalted || len(r.Nodes) != 2 || r.Nodes[0] != (install.NodeReport{Name: "a", State: installer.Done, Why: "v1.0.0"}) ||
		r.Nodes[1].State != installer.Failed || !strings.HasPrefix(r.Nodes[1].Why, "tried and rolled back") || r.Image != "evenkeel.dev/agent:v1.0.0" {
		t.Errorf("exit %d, %+v", got.code, r)
	}
	if !strings.Contains(got.err, "a: installed v1.0.0") {
		t.Errorf("what people read is not on stderr: %s", got.err)
	}
}
