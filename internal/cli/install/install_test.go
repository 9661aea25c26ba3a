// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/internal/operator/doctor"
	"github.com/evenkeel/evenkeel/internal/operator/installer"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/fakeapi"
)

// The decisions of an operation have transcripts in
// internal/operator/installer; here is what the commands make of them.

// cluster is a cluster with evenkeel's installer.
type cluster struct {
	*fakeapi.API
	t          *testing.T
	installers *fakeapi.Installers
}

// with calls f with a cluster in which time passes at once.
func with(t *testing.T, f func(*cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		api := fakeapi.New(t, Command, UninstallCommand)
		c := &cluster{api, t, &fakeapi.Installers{Client: api}}
		for _, p := range assert.Value(doctor.Manifests())(t) {
			if p.Want.GetKind() == "CustomResourceDefinition" {
				c.must(api.Create(t.Context(), p.Want))
			}
		}

		fakeapi.Add(api, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: "evenkeel-controller"}})
		c.image("v1.0.0")
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- c.installers.Run(ctx, time.Second/2) }()
		f(c)
		stop()
		c.must(<-ended)
	})
}

func (c *cluster) must(err error) {
	c.t.Helper()
	assert.NoError(c.t, err)
}

func (c *cluster) image(version string) {
	c.t.Helper()
	c.must(c.installers.Image(c.t.Context(), "evenkeel.dev/agent:"+version))
}

// node adds a Ready node whose installer pod behaves like play.
func (c *cluster) node(name string, play fakeapi.Play, change ...func(*corev1.Node)) {
	c.installers.Plays(name, play)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pool": "workers", corev1.LabelOSStable: "linux"}}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	for _, change := range change {
		change(node)
	}

	fakeapi.Add(c.API, node)
}

func withLabel(key, value string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Labels[key] = value }
}

// wantLabels compares the values of LabelAgent, such as "a=install
// b=install-failed".
func (c *cluster) wantLabels(want string) {
	c.t.Helper()
	list, found := &corev1.NodeList{}, map[string]string{}
	c.must(c.List(c.t.Context(), list))
	for _, node := range list.Items {
		if value, ok := node.Labels[v1alpha1.LabelAgent]; ok {
			found[node.Name] = value
		}
	}

	var got []string
	for _, name := range slices.Sorted(maps.Keys(found)) {
		got = append(got, name+"="+found[name])
	}

	assert.That(c.t, strings.Join(got, " ") == want, "the labels are %q, want %q", got, want)
}

// wantOrder demands that pods became ready in an order, and never more than so
// many were busy at a time.
func (c *cluster) wantOrder(most int, order ...string) {
	c.t.Helper()
	if got, busy := c.installers.Order(); !slices.Equal(got, order) || busy != most {
		c.t.Errorf("pods became ready on %q, at most %d at a time; want %q and %d", got, busy, order, most)
	}
}

func (c *cluster) exists(o client.Object, namespace, name string) bool {
	c.t.Helper()
	err := c.Get(c.t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, o)
	c.must(client.IgnoreNotFound(err))
	return err == nil
}

func TestInstallChangesOneNodeAfterAnother(t *testing.T) {
	with(t, func(c *cluster) {
		c.node("a-control", fakeapi.ComesBack, withLabel("node-role.kubernetes.io/control-plane", ""))
		c.node("b", fakeapi.ComesBack)
		c.node("c", fakeapi.ComesBack)
		c.node("cordoned", fakeapi.ComesBack, func(n *corev1.Node) { n.Spec.Unschedulable = true })
		c.node("down", fakeapi.ComesBack, func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse })
		c.node("pivoted", fakeapi.ComesBack, withLabel("evenkeel.dev/kubelet", "self-hosted"))
		c.node("windows", fakeapi.ComesBack, withLabel(corev1.LabelOSStable, "windows"))
		c.node("other", fakeapi.ComesBack, withLabel("pool", "others"))

		c.Run("install", "-l", "pool=workers", "--dry-run").WantOutput(t,
			"7 nodes, 1 at a time, with evenkeel.dev/agent:v1.0.0: 3 to install, 4 skipped", "cordoned: skipped: it is cordoned", "down: skipped: it is not Ready",
			"pivoted: skipped: its kubelet runs in a pod that has the agent already", `windows: skipped: its label kubernetes.io/os is "windows", and evenkeel is for linux`,
			"in this order: b, c, a-control")
		c.Run("install", "-l", "pool=workers").Want(t, command.ExitError, nil, "use --yes, or --dry-run to only look; nothing was written")
		c.wantLabels("")
		c.Run("install", "-l", "pool=workers", "--yes").WantOutput(t, "b: started", "b: installed v1.0.0, after", "c: installed v1.0.0, after", "a-control: installed v1.0.0, after",
			"3 of 7 nodes installed, 4 skipped")
		c.wantLabels("a-control=install b=install c=install")
		c.wantOrder(1, "b", "c", "a-control")

		// Again: they are done. And without a choice it is about those that are
		// labelled.
		c.Run("install", "--yes").WantOutput(t, "3 nodes, 1 at a time, with evenkeel.dev/agent:v1.0.0: 3 installed already", "3 of 3 nodes installed")
		c.wantOrder(0)

		// Pods of the next manifests start only when their nodes' turn comes.
		before, err := c.installers.PodsOf(c.t.Context())
		c.must(err)
		c.image("v1.1.0")
		next := fakeapi.ComesBack
		next.Version = "v1.1.0"
		for name := range before {
			c.installers.Plays(name, next)
		}

		time.Sleep(time.Minute)
		now, err := c.installers.PodsOf(c.t.Context())
		assert.That(t, err == nil && maps.Equal(now, before), "pods were %v, and are %v with the next manifests, %v", before, now, err)

		c.Run("install", "--yes").WantOutput(t, "with evenkeel.dev/agent:v1.1.0: 3 to install", "b: installed v1.1.0", "3 of 3 nodes installed")
		c.wantOrder(1, "b", "c", "a-control")
	})
}

func TestInstallStopsAtTheFirstFailedNode(t *testing.T) {
	with(t, func(c *cluster) {
		for _, name := range []string{"a", "b", "c"} {
			c.node(name, fakeapi.ComesBack)
		}

		c.installers.Plays("b", fakeapi.TakenBack)
		fakeapi.Add(c.API, &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "b.1"}, InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: "b"},
			Type: "Warning", Reason: "EvenkeelInstallFailed", Message: "the kubelet was not healthy for 2m0s", LastTimestamp: metav1.NewTime(time.Now().Add(time.Hour)),
		})
		const why = "tried and rolled back: the kubelet did not come back: /healthz: connection refused"
		c.Run("install", "--all-nodes", "--yes").Want(t, command.ExitHalted,
			[]string{"a: installed v1.0.0", "b: FAILED: " + why, "last output of its pod:", "level=INFO msg=restarting", "last Events of the Node:", "Warning EvenkeelInstallFailed the kubelet was not healthy for 2m0s"},
			"1 of 3 nodes installed, 1 not started; failed on b", "kubectl evenkeel install --retry b")
		c.wantLabels("a=install b=install-failed")
		node := &corev1.Node{}
		c.exists(node, "", "b")
		assert.Equal(t, node.Annotations[v1alpha1.AnnotationAgentFailed], why)

		// Again it goes on with the others, and leaves that one alone.
		c.Run("install", "--all-nodes", "--yes", "-o", "json").Want(t, command.ExitHalted, []string{`"state": "Failed"`}, "b: FAILED: "+why, "in this order: c", "c: installed v1.0.0", "2 of 3 nodes installed; failed on b")
		c.wantLabels("a=install b=install-failed c=install")
		c.wantOrder(1, "a", "c")
		c.installers.Plays("b", fakeapi.ComesBack)
		c.Run("install", "--retry", "b", "--yes").WantOutput(t, "b: installed v1.0.0", "1 of 1 node installed")
		c.wantLabels("a=install b=install c=install")
		c.exists(node, "", "b")
		assert.Equal(t, node.Annotations[v1alpha1.AnnotationAgentFailed], "")
	})
}

func TestInstallEndsAtNodesThatDoNotFinish(t *testing.T) {
	for name, tt := range map[string]struct {
		play fakeapi.Play
		code int
		why  string
	}{
		"no-report": {fakeapi.Play{Ready: true}, command.ExitTimeout, "not finished within 1m0s: its kubelet is back, no agent has reported to the API"},
		"old-agent": {fakeapi.Play{Ready: true, Version: "v0.9.0"}, command.ExitTimeout, "not finished within 1m0s: its kubelet is back, and the agent that reports is v0.9.0, not v1.0.0"},
		"slow":      {fakeapi.Play{Waiting: "ContainerCreating"}, command.ExitTimeout, "not finished within 1m0s: its pod waits: ContainerCreating"},
		"no-image":  {fakeapi.Play{Waiting: "ImagePullBackOff: Back-off pulling image"}, command.ExitHalted, "its pod waits: ImagePullBackOff: Back-off pulling image"},
	} {
		with(t, func(c *cluster) {
			c.node(name, tt.play)
			c.node("z", fakeapi.ComesBack)
			got := c.Run("install", "--all-nodes", "--yes", "--timeout", "1m", "-o", "json")
			got.Want(t, tt.code, nil, name+": FAILED: "+tt.why, "failed on "+name)
			r := fakeapi.Decoded[Report](c.t, got)
			assert.That(t, len(r.Nodes) == 2 && r.Nodes[0].Name == name && r.Nodes[0].State == installer.Failed &&
				strings.HasPrefix(r.Nodes[0].Why, tt.why) && r.Image == "evenkeel.dev/agent:v1.0.0", "the report is %+v", r)

			c.wantLabels(name + "=install-failed")
		})
	}
}

func TestInstallNeverExceedsMaxUnavailable(t *testing.T) {
	with(t, func(c *cluster) {
		for i := range 5 {
			c.node(fmt.Sprint("n", i), fakeapi.ComesBack)
		}

		c.Run("install", "--all-nodes", "--max-unavailable", "40%", "--yes", "-o", "json").WantOutput(t, `"state": "Done"`)
		order, most := c.installers.Order()
		assert.That(t, most == 2 && len(order) == 5, "%d at a time, %q; want 2 and all", most, order)
	})
}

func TestInterruptedInstallReleasesNodesThatHaveNotStarted(t *testing.T) {
	with(t, func(c *cluster) {
		c.node("begun", fakeapi.Play{})
		c.node("pending", fakeapi.Play{Unseen: true})
		c.node("waiting", fakeapi.ComesBack)
		r := c.Begin("install", "--all-nodes", "--yes", "--max-unavailable", "2")
		time.Sleep(10 * time.Second)
		r.Interrupt()
		(<-r.Ended).Want(t, command.ExitError, []string{"begun: finishes without this command: installed, or restored", "pending, waiting: not started"}, "the command was interrupted: run it again")
		c.wantLabels("begun=install")
		c.wantOrder(2)

		// The next one waits for the node in progress first.
		r = c.Begin("install", "--all-nodes", "--yes")
		time.Sleep(10 * time.Second)
		c.wantLabels("begun=install")
		c.installers.Plays("begun", fakeapi.ComesBack)
		c.installers.Plays("pending", fakeapi.ComesBack)
		(<-r.Ended).WantOutput(t, "2 to install, 1 in progress", "begun: ", "begun: installed v1.0.0", "pending: started", "3 of 3 nodes installed")
	})
}

func theCRD() *unstructured.Unstructured {
	crd := &unstructured.Unstructured{}
	crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	return crd
}

func TestInstallNeedsANewCRDAndRightFlags(t *testing.T) {
	with(t, func(c *cluster) {
		c.node("a", fakeapi.ComesBack)
		for _, tt := range []struct {
			args []string
			want string
		}{
			{[]string{"install", "a", "--all-nodes"}, "use only one of node names, --selector and --all-nodes"},
			{[]string{"install", "a", "--max-unavailable", "0"}, `--max-unavailable: "0" is neither a number from 1 nor a percentage up to 100%`},
			{[]string{"install", "a", "--timeout", "0s"}, "--timeout must be longer than 0, not 0s"},
			{[]string{"install", "-l", "(a"}, `--selector "(a": `},
			{[]string{"uninstall", "a", "-l", "b"}, "use only one of node names, --selector and --all-nodes"},
			{[]string{"uninstall", "-l", "b", "--purge"}, "--purge cannot be used with node names or --selector"},
			{[]string{"install", "-o", "wide"}, "must be one of json, yaml"},
		} {
			c.Run(tt.args...).WantError(t, tt.want)
		}

		c.Forbid("patch", "Node")
		c.Run("install", "a", "--yes").Want(t, command.ExitError, []string{"in this order: a"}, `begin with node a: nodes is forbidden: User "nobody" cannot patch resource "nodes"`, "an administrator can grant it")
		crd := theCRD()
		c.exists(crd, "", doctor.CRDName)
		versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
		status := []string{"schema", "openAPIV3Schema", "properties", "status", "properties"}
		unstructured.RemoveNestedField(versions[0].(map[string]any), append(status, "runMode")...)
		unstructured.RemoveNestedField(versions[0].(map[string]any), append(status, "badConfigs", "items", "properties", "reason")...)
		c.must(unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions"))
		c.Write(crd)
		c.Run("install", "a", "--yes").WantError(t,
			"the CustomResourceDefinition nodeconfigs.evenkeel.dev is older than this program, and lacks status.badConfigs.reason, status.runMode: apply evenkeel's manifests first: kubectl apply -f install.yaml")
		c.wantLabels("")
	})
}

// rollout adds a rollout of all nodes in a phase.
func (c *cluster) rollout(name string, phase v1alpha1.RolloutPhase, change func(*v1alpha1.NodeConfigRolloutSpec)) {
	c.AddRollout(name, "workers", fakeapi.Pods(120), func(r *v1alpha1.NodeConfigRollout) {
		r.Status.Phase = phase
		if change != nil {
			change(&r.Spec)
		}
	})
}

func paused(s *v1alpha1.NodeConfigRolloutSpec) { s.Paused = true }

func TestUninstallChangesTheNodesBeforeTheCluster(t *testing.T) {
	with(t, func(c *cluster) {
		for _, name := range []string{"a", "b", "c", "other"} {
			c.node(name, fakeapi.ComesBack)
		}

		c.Run("install", "a", "b", "c", "--yes").WantOutput(t, "3 of 3 nodes installed")
		c.rollout("done", v1alpha1.RolloutComplete, nil)
		c.rollout("held", v1alpha1.RolloutPaused, paused)

		// Some nodes: the cluster stays.
		c.Run("uninstall", "c", "--yes").WantOutput(t, "c: uninstalled", "1 of 1 node uninstalled")
		c.wantLabels("a=install b=install")
		c.installers.Order()

		c.Run("uninstall", "--dry-run").WantOutput(t, "2 nodes, 1 at a time, with evenkeel.dev/agent:v1.0.0: 2 to uninstall", "then rollouts would be paused")
		c.wantLabels("a=install b=install")

		// A failed node and a cordoned one: the cluster stays too.
		c.installers.Plays("a", fakeapi.TakenBack)
		c.Run("uninstall", "--yes").Want(t, command.ExitHalted, []string{"a: FAILED: tried and rolled back"}, "0 of 2 nodes uninstalled, 1 not started; failed on a, which still has its agent")
		c.wantLabels("a=uninstall-failed b=install")
		b := &corev1.Node{}
		c.exists(b, "", "b")
		b.Spec.Unschedulable = true
		c.Write(b)
		c.installers.Plays("a", fakeapi.ComesBack)
		c.Run("uninstall", "--retry", "--yes").Want(t, command.ExitError, []string{"b: skipped: it is cordoned", "a: uninstalled", "1 of 2 nodes uninstalled, 1 skipped"},
			"1 node still labelled evenkeel.dev/agent (b): the controller and the installer remain until these are done; run the command again then")
		assert.That(t, c.exists(&appsv1.Deployment{}, v1alpha1.SystemNamespace, "evenkeel-controller"), "the controller is gone")

		c.exists(b, "", "b")
		b.Spec.Unschedulable = false
		c.Write(b)
		c.Run("uninstall", "--yes").WantOutput(t, "b: uninstalled, after", "1 of 1 node uninstalled", "rollout done paused", "evenkeel-system/evenkeel-controller deleted",
			"evenkeel-install/evenkeel-installer deleted", "evenkeel-install/evenkeel-uninstaller deleted", "with NodeConfigs and rollouts; delete them with: kubectl evenkeel uninstall --purge")
		c.wantLabels("")
		c.wantOrder(1, "a", "b")
		if c.exists(&appsv1.Deployment{}, v1alpha1.SystemNamespace, "evenkeel-controller") || c.exists(&appsv1.DaemonSet{}, v1alpha1.InstallNamespace, "evenkeel-installer") {
			t.Error("the controller or the installer is still there")
		}

		r := &v1alpha1.NodeConfigRollout{}
		assert.That(t, c.exists(r, "", "done") && r.Spec.Paused && c.exists(&v1alpha1.NodeConfig{}, "", "a"),
			"the rollout is %+v; it is to be paused, and NodeConfigs are to stay", r.Spec)

		c.Run("uninstall", "--yes").WantOutput(t, "evenkeel-install/evenkeel-installer deleted") // nothing is left to do
	})
}

func TestUninstallRefusesDuringARollout(t *testing.T) {
	with(t, func(c *cluster) {
		c.node("a", fakeapi.ComesBack)
		c.rollout("going", v1alpha1.RolloutProgressing, nil)
		c.rollout("back", v1alpha1.RolloutRollingBack, paused)
		c.rollout("frozen", v1alpha1.RolloutFrozen, func(s *v1alpha1.NodeConfigRolloutSpec) { s.Frozen = true })
		c.rollout("held", v1alpha1.RolloutProgressing, paused)
		c.rollout("done", v1alpha1.RolloutComplete, nil)
		c.Run("uninstall", "a", "--yes").WantError(t, "rollouts are in progress (back, going): pause them first (kubectl evenkeel rollout pause back), or use --force; nothing was changed")
		c.wantLabels("")
		c.Run("uninstall", "a", "--yes", "--force").WantOutput(t, "1 of 1 node uninstalled")
	})
}

func TestPurgeListsObjectsAndDeletesTheAPI(t *testing.T) {
	with(t, func(c *cluster) {
		c.node("a", fakeapi.ComesBack)
		c.Run("install", "a", "--yes").WantOutput(t, "1 of 1 node installed")
		nc := &v1alpha1.NodeConfig{}
		c.exists(nc, "", "a")
		nc.Spec.ConfigSource = &v1alpha1.NodeConfigSource{ConfigMapRef: &v1alpha1.ConfigMapReference{Namespace: "n", Name: "m", UID: "u"}}
		c.Write(nc)
		c.rollout("kept", v1alpha1.RolloutComplete, nil)
		const loss = "--purge permanently deletes 1 NodeConfig, of which 1 assign a configuration (a), and 1 rollout (kept)"
		c.Run("uninstall", "--purge", "--dry-run").WantOutput(t, loss, "kubectl get nodeconfigs,nodeconfigrollouts -o yaml > evenkeel.yaml")
		c.Run("uninstall", "--purge", "--yes").WantOutput(t, loss, "a: uninstalled",
			"nodeconfigrollouts.evenkeel.dev and all its objects are being deleted", "nodeconfigs.evenkeel.dev and all its objects are being deleted",
			"its namespaces, roles and policies remain; delete them with: kubectl delete --ignore-not-found -f install.yaml (Helm: helm uninstall RELEASE)")
		assert.That(t, !c.exists(theCRD(), "", doctor.CRDName), "the API is still there")
		c.image("v1.0.1")
		c.Run("install", "a", "--yes").WantError(t, "the cluster has no CustomResourceDefinition nodeconfigs.evenkeel.dev, so agents cannot report: apply evenkeel's manifests first: kubectl apply -f install.yaml")
		c.Run("uninstall", "--purge", "--yes").WantOutput(t, "--purge permanently deletes ", "evenkeel-installer deleted")
		c.wantLabels("")
	})
}
