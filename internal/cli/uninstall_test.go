package cli

import (
	"context"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli/command"
)

// rollout creates a rollout in a phase.
func (c *installCluster) rollout(name string, phase v1alpha1.RolloutPhase, change func(*v1alpha1.NodeConfigRolloutSpec)) {
	c.t.Helper()
	r := &v1alpha1.NodeConfigRollout{ObjectMeta: metav1.ObjectMeta{Name: name}}
	r.Spec.AllNodes = true
	r.Spec.Template.Kubelet = &rawMaxPods
	if change != nil {
		change(&r.Spec)
	}
	if err := c.Create(c.t.Context(), r); err != nil {
		c.t.Fatal(err)
	}
	r.Status.Phase = phase
	if err := c.Status().Update(c.t.Context(), r); err != nil {
		c.t.Fatal(err)
	}
}

func (c *installCluster) exists(object client.Object, namespace, name string) bool {
	c.t.Helper()
	err := c.Get(c.t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, object)
	if client.IgnoreNotFound(err) != nil {
		c.t.Fatal(err)
	}
	return err == nil
}

// controller creates the Deployment of the controller, without pods.
func (c *installCluster) controller() {
	c.t.Helper()
	none, is := int32(0), map[string]string{"is": "controller"}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: "evenkeel-controller"}}
	d.Spec.Replicas, d.Spec.Selector = &none, &metav1.LabelSelector{MatchLabels: is}
	d.Spec.Template.Labels = is
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "controller", Image: "evenkeel.dev/controller:v1.0.0"}}
	if err := c.Create(c.t.Context(), d); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		if err := client.IgnoreNotFound(c.Delete(context.Background(), d)); err != nil {
			c.t.Error(err)
		}
	})
}

func TestUninstallChangesTheNodesBeforeTheCluster(t *testing.T) {
	c := newInstallCluster(t)
	c.controller()
	for _, name := range []string{"a", "b"} {
		c.node(name, comesBack)
	}
	c.node("other", comesBack)
	c.evenkeel("install", "a", "b", "--yes").wantOutput(t, "2 of 2 nodes installed")
	c.rollout("done", v1alpha1.RolloutComplete, nil)
	c.rollout("held", v1alpha1.RolloutPaused, func(s *v1alpha1.NodeConfigRolloutSpec) { s.Paused = true })
	c.wantOrder(1, "a", "b")

	c.evenkeel("uninstall", "--dry-run").wantOutput(t, "2 nodes, 1 at a time, with evenkeel.dev/agent:v1.0.0: 2 to uninstall", "then rollouts would be paused")
	c.wantLabels(map[string]string{"a": "install", "b": "install"})

	c.evenkeel("uninstall", "--yes").wantOutput(t, "a: uninstalled, after", "b: uninstalled, after", "2 of 2 nodes uninstalled",
		"rollout done paused", "evenkeel-system/evenkeel-controller deleted", "evenkeel-install/evenkeel-installer deleted", "evenkeel-install/evenkeel-uninstaller deleted",
		"delete it with: kubectl evenkeel uninstall --purge")
	c.wantLabels(nil)
	c.eventually("no pod is left", func(context.Context) (bool, error) { return len(c.pods()) == 0, nil })
	if c.exists(&appsv1.Deployment{}, v1alpha1.SystemNamespace, "evenkeel-controller") || c.exists(&appsv1.DaemonSet{}, v1alpha1.InstallNamespace, "evenkeel-installer") {
		t.Error("the controller or the installer is still there")
	}
	r := &v1alpha1.NodeConfigRollout{}
	if !c.exists(r, "", "done") || !r.Spec.Paused || !c.exists(&v1alpha1.NodeConfig{}, "", "a") {
		t.Errorf("the rollout is %+v; it is to be paused, and NodeConfigs are to stay", r.Spec)
	}
	// Again there is nothing to do.
	c.evenkeel("uninstall", "--yes").wantOutput(t, "evenkeel-install/evenkeel-installer deleted")
}

func TestUninstallOfSomeNodesDoesNotChangeTheCluster(t *testing.T) {
	c := newInstallCluster(t)
	c.controller()
	c.node("a", comesBack)
	c.node("b", comesBack)
	c.evenkeel("install", "--all-nodes", "--yes").wantOutput(t, "2 of 2 nodes installed")
	c.evenkeel("uninstall", "a", "--yes").wantOutput(t, "a: uninstalled", "1 of 1 node uninstalled")
	c.wantLabels(map[string]string{"b": "install"})
	if !c.exists(&appsv1.Deployment{}, v1alpha1.SystemNamespace, "evenkeel-controller") {
		t.Error("the controller is gone")
	}
}

func TestUninstallStopsAtAFailedNode(t *testing.T) {
	c := newInstallCluster(t)
	c.controller()
	c.node("a", comesBack)
	c.node("b", comesBack)
	c.evenkeel("install", "--all-nodes", "--yes").wantOutput(t, "2 of 2 nodes installed")
	c.plays("a", takenBack)
	c.evenkeel("uninstall", "--yes").wantExit(t, command.ExitHalted, []string{"a: FAILED: tried and rolled back"}, "0 of 2 nodes uninstalled, 1 not started; failed on a, which still has its agent")
	c.wantLabels(map[string]string{"a": "uninstall-failed", "b": "install"})
	c.evenkeel("uninstall", "--yes").wantExit(t, command.ExitHalted, []string{"a: FAILED", "b: uninstalled"}, "1 of 2 nodes uninstalled; failed on a")
	c.wantLabels(map[string]string{"a": "uninstall-failed"})
	if !c.exists(&appsv1.Deployment{}, v1alpha1.SystemNamespace, "evenkeel-controller") {
		t.Error("the controller is gone")
	}
	c.plays("a", comesBack)
	c.evenkeel("uninstall", "--retry", "--yes").wantOutput(t, "a: uninstalled", "evenkeel-controller deleted")
	c.wantLabels(nil)
}

func TestUninstallOfTheClusterWaitsForCordonedNodes(t *testing.T) {
	c := newInstallCluster(t)
	c.node("a", comesBack, func(n *corev1.Node) { n.Spec.Unschedulable = true; n.Labels[v1alpha1.LabelAgent] = "install" })
	c.evenkeel("uninstall", "--yes").wantExit(t, command.ExitError, []string{"a: skipped: it is cordoned", "0 of 1 node uninstalled, 1 skipped"},
		"1 node still labelled evenkeel.dev/agent (a): the controller and the installer remain until these are done; run the command again then")
}

func TestUninstallRefusesDuringARollout(t *testing.T) {
	c := newInstallCluster(t)
	c.node("a", comesBack)
	c.rollout("going", v1alpha1.RolloutProgressing, nil)
	c.rollout("back", v1alpha1.RolloutRollingBack, func(s *v1alpha1.NodeConfigRolloutSpec) { s.Paused = true })
	c.rollout("frozen", v1alpha1.RolloutFrozen, func(s *v1alpha1.NodeConfigRolloutSpec) { s.Frozen = true })
	c.rollout("held", v1alpha1.RolloutProgressing, func(s *v1alpha1.NodeConfigRolloutSpec) { s.Paused = true })
	c.rollout("done", v1alpha1.RolloutComplete, nil)
	c.evenkeel("uninstall", "a", "--yes").wantError(t, "rollouts are in progress (back, going): pause them first (kubectl evenkeel rollout pause back), or use --force; nothing was changed")
	c.wantLabels(nil)
	c.evenkeel("uninstall", "a", "--yes", "--force").wantOutput(t, "1 of 1 node uninstalled")
}

func TestPurgeListsObjectsAndDeletesTheAPI(t *testing.T) {
	c := newInstallCluster(t)
	c.node("a", comesBack)
	c.evenkeel("install", "a", "--yes").wantOutput(t, "1 of 1 node installed")
	nc := &v1alpha1.NodeConfig{}
	if !c.exists(nc, "", "a") {
		t.Fatal("there is no NodeConfig")
	}
	nc.Spec.ConfigSource = &v1alpha1.NodeConfigSource{ConfigMapRef: &v1alpha1.ConfigMapReference{Namespace: "n", Name: "m", UID: "u"}}
	if err := c.Update(t.Context(), nc); err != nil {
		t.Fatal(err)
	}
	c.rollout("kept", v1alpha1.RolloutComplete, nil)
	const loss = "--purge permanently deletes 1 NodeConfig, of which 1 assign a configuration (a), and 1 rollout (kept)"
	c.evenkeel("uninstall", "--purge", "--dry-run").wantOutput(t, loss, "kubectl get nodeconfigs,nodeconfigrollouts -o yaml > evenkeel.yaml")
	c.evenkeel("uninstall", "--purge", "a").wantError(t, "--purge cannot be used with node names or --selector")
	t.Cleanup(func() {
		if err := c.cluster.Apply(context.Background(), "../../config/api"); err != nil {
			t.Error(err)
		}
	})
	c.evenkeel("uninstall", "--purge", "--yes").wantOutput(t, loss, "a: uninstalled", "nodeconfigrollouts.evenkeel.dev deleted, with all objects",
		"nodeconfigs.evenkeel.dev deleted, with all objects", "kubectl delete -f install.yaml")
	c.eventually("the API is gone", func(ctx context.Context) (bool, error) {
		err := c.List(ctx, &v1alpha1.NodeConfigList{})
		return apierrors.IsNotFound(err), nil
	})

	// Without the API there is nothing to install to, and nothing in the way of uninstalling again.
	if err := c.cluster.Apply(t.Context(), "../../config/installer"); err != nil {
		t.Fatal(err)
	}
	c.evenkeel("install", "a", "--yes").wantError(t, "the cluster has no CustomResourceDefinition nodeconfigs.evenkeel.dev, so agents cannot report: apply evenkeel's manifests first: kubectl apply -f install.yaml")
	c.evenkeel("uninstall", "--purge", "--yes").wantOutput(t, "--purge permanently deletes 0 NodeConfigs, and 0 rollouts", "evenkeel-installer deleted")
	c.wantLabels(nil)
}
