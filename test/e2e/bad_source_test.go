package e2e

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/bed"
)

// unclear is ConfigOK when the desired configuration is unknown.
func unclear(using, cause string) want {
	cause = "failed to sync, desired config unclear, cause: " + cause
	return want{"Unknown", "SyncFailed", using, cause, cause}
}

func using(cm *corev1.ConfigMap) string { return fmt.Sprintf("using current (UID: %s)", cm.UID) }

// notice is a source that stays correct, with something to say about it.
func notice(cm *corev1.ConfigMap, words string) want {
	w := allChecksPassed(cm)
	w.err = words
	return w
}

func (n *node) assignRef(ref v1alpha1.ConfigMapReference) {
	n.t.Helper()
	if err := n.Assign(n.t.Context(), &v1alpha1.NodeConfigSource{ConfigMapRef: &ref}); err != nil {
		n.t.Fatal(err)
	}
}

// edit changes a ConfigMap in place.
func (n *node) edit(cm *corev1.ConfigMap, change func(*corev1.ConfigMap)) {
	n.t.Helper()
	now, err := n.Kube.CoreV1().ConfigMaps(cm.Namespace).Get(n.t.Context(), cm.Name, getOptions)
	if err != nil {
		n.t.Fatal(err)
	}
	change(now)
	if _, err := n.Kube.CoreV1().ConfigMaps(cm.Namespace).Update(n.t.Context(), now, metav1.UpdateOptions{}); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) deleteConfigMap(cm *corev1.ConfigMap) {
	n.t.Helper()
	if err := n.Kube.CoreV1().ConfigMaps(cm.Namespace).Delete(n.t.Context(), cm.Name, metav1.DeleteOptions{}); err != nil {
		n.t.Fatal(err)
	}
}

func TestAnInvalidSourceChangesNothing(t *testing.T) {
	n := newNode(t, "source", "--config-trial-duration=1s")
	n.up()
	n.is(localInit)
	kubelet := n.steady()

	good := n.configMap("good", map[string]any{"maxPods": 101})
	ref := *bed.Ref(good).ConfigMapRef
	t.Run("the uid of another object", func(t *testing.T) {
		n, ref := n.in(t), ref
		other := n.create("other", map[string]string{"kubelet": "maxPods: 3\n"})
		ref.UID = other.UID
		n.assignRef(ref)
		n.is(unclear("using current (init)", fmt.Sprintf(
			"invalid NodeConfigSource, uid %s names another object than ConfigMap evenkeel-system/source-good, whose uid is %s", other.UID, good.UID)))
		kubelet.check(t)
	})
	t.Run("no such object, then one of that name", func(t *testing.T) {
		n, ref := n.in(t), ref
		ref.Name = "source-not-there"
		n.assignRef(ref)
		n.is(unclear("using current (init)", "referenced ConfigMap evenkeel-system/source-not-there not found"))
		late := n.create("not-there", map[string]string{"kubelet": "maxPods: 3\n"})
		n.is(unclear("using current (init)", fmt.Sprintf(
			"invalid NodeConfigSource, uid %s names another object than ConfigMap evenkeel-system/source-not-there, whose uid is %s", good.UID, late.UID)))
		kubelet.check(t)
	})
	t.Run("another payload than the one that is named", func(t *testing.T) {
		n, ref := n.in(t), ref
		ref.SHA256 = strings.Repeat("0", 64)
		n.assignRef(ref)
		n.is(unclear("using current (init)", fmt.Sprintf(
			"ConfigMap evenkeel-system/source-good (UID: %s) does not have the assigned payload: its sha256 is %s, not %s",
			good.UID, payload.Digest("kubelet", []byte(good.Data["kubelet"])), ref.SHA256)))
		kubelet.check(t)
	})
	t.Run("names that would leave the directory do not get past the API", func(t *testing.T) {
		for _, bad := range []v1alpha1.ConfigMapReference{
			{Namespace: "..", Name: ref.Name, UID: ref.UID},
			{Namespace: ref.Namespace, Name: "../../etc/passwd", UID: ref.UID},
			{Namespace: ref.Namespace, Name: ref.Name, UID: "../../../etc/passwd"},
			{Namespace: ref.Namespace, Name: ref.Name, UID: ".."},
		} {
			if err := n.Assign(t.Context(), &v1alpha1.NodeConfigSource{ConfigMapRef: &bad}); !apierrors.IsInvalid(err) {
				t.Errorf("%+v: %v", bad, err)
			}
		}
		kubelet.check(t)
	})
	t.Run("a namespace that is closed, until it is opened", func(t *testing.T) {
		n := n.in(t)
		data, err := n.Config(map[string]any{"maxPods": 102})
		if err != nil {
			t.Fatal(err)
		}
		elsewhere, err := n.Kube.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "elsewhere"}, Data: map[string]string{"kubelet": data},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		n.assign(elsewhere)
		n.is(unclear("using current (init)",
			"ConfigMap default/elsewhere cannot be read: forbidden to this node (403): grant the group system:nodes get, list and watch on configmaps in namespace default"))
		kubelet.end(t)
		n.open("default")
		n.is(allChecksPassed(elsewhere))
	})
	if t.Failed() {
		return
	}
	ref.SHA256 = payload.Digest("kubelet", []byte(good.Data["kubelet"]))
	n.assignRef(ref)
	n.is(allChecksPassed(good))
	n.lastKnownGood(good)
	n.stop()
	n.Flags = []string{"--config-trial-duration=1m"}
	n.up()
	n.invalidAtStart(good)
}

// invalidAtStart makes the source unclear while a configuration other than
// last-known-good is on trial. The trial continues, but the next start uses
// last-known-good, as the proposal requires, until the source is clear.
func (n *node) invalidAtStart(lastKnownGood *corev1.ConfigMap) {
	n.t.Helper()
	trying := n.configMap("trying", map[string]any{"maxPods": 107})
	n.assign(trying)
	n.is(allChecksPassed(trying))
	n.eventually("the kubelet is healthy with it", n.Healthy)
	kubelet := n.steady()
	ref := *bed.Ref(trying).ConfigMapRef
	ref.Name = "source-nowhere"
	n.assignRef(ref)
	const cause = "invalid NodeConfigSource, uid %s names another object: ConfigMap evenkeel-system/source-trying, not evenkeel-system/source-nowhere"
	n.is(unclear(using(trying), fmt.Sprintf(cause, trying.UID)))
	kubelet.end(n.t)
	n.stop()
	n.up()
	nc := n.is(unclear(fmt.Sprintf("using last-known-good (UID: %s)", lastKnownGood.UID), fmt.Sprintf(cause, trying.UID)))
	if nc.Status.Active == nil || nc.Status.Active.UID != lastKnownGood.UID || nc.Status.Trial != nil {
		n.t.Errorf("active is %+v, trial %+v", nc.Status.Active, nc.Status.Trial)
	}
	n.recorded(string(trying.UID), string(lastKnownGood.UID))
	n.assign(trying)
	nc = n.is(allChecksPassed(trying))
	if nc.Status.Trial == nil || nc.Status.Trial.Restarts != 0 {
		n.t.Errorf("the trial is %+v", nc.Status.Trial)
	}
}

// open opens a namespace to the nodes, as config/api/node-rbac.yaml says.
func (n *node) open(namespace string) {
	n.t.Helper()
	role, err := n.Kube.RbacV1().Roles(v1alpha1.SystemNamespace).Get(n.t.Context(), "evenkeel-node", getOptions)
	if err != nil {
		n.t.Fatal(err)
	}
	binding, err := n.Kube.RbacV1().RoleBindings(v1alpha1.SystemNamespace).Get(n.t.Context(), "evenkeel-node", getOptions)
	if err != nil {
		n.t.Fatal(err)
	}
	meta := metav1.ObjectMeta{Name: "evenkeel-node", Namespace: namespace}
	if _, err := n.Kube.RbacV1().Roles(namespace).Create(n.t.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: role.Rules}, metav1.CreateOptions{}); err != nil {
		n.t.Fatal(err)
	}
	if _, err := n.Kube.RbacV1().RoleBindings(namespace).Create(n.t.Context(), &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: binding.RoleRef, Subjects: binding.Subjects}, metav1.CreateOptions{}); err != nil {
		n.t.Fatal(err)
	}
}

func TestAnAppliedSourceStaysValidWithoutItsObject(t *testing.T) {
	n := newNode(t, "drift", "--config-trial-duration=1s")
	n.up()
	first := n.configMap("first", map[string]any{"maxPods": 103})
	n.assign(first)
	n.is(allChecksPassed(first))
	n.lastKnownGood(first)
	second := n.configMap("second", map[string]any{"maxPods": 104})
	n.assign(second)
	n.is(allChecksPassed(second))
	n.lastKnownGood(second)
	kubelet := n.steady()

	n.edit(second, func(cm *corev1.ConfigMap) {
		cm.Annotations = map[string]string{"note": "nothing that the kubelet reads"}
	})
	n.edit(second, func(cm *corev1.ConfigMap) { cm.Data["kubelet"] += "podPidsLimit: 1000\n" })
	const edited = "ConfigMap evenkeel-system/drift-second was edited after this node adopted it; the node keeps the checkpointed content: create a new ConfigMap to change it"
	n.is(notice(second, edited))
	n.status("Why: "+using(second)+": all checks passed", "Error: "+edited, fmt.Sprintf("Runs: evenkeel-system/drift-second (UID: %s)", second.UID))
	kubelet.end(t)
	n.keepsThrough(second, func() {}, edited)
	n.keepsThrough(second, func() { // while no agent watches
		n.edit(second, func(cm *corev1.ConfigMap) { cm.Data["kubelet"] += "podPidsLimit: 1001\n" })
	}, edited)
	kubelet = n.steady()
	n.edit(second, func(cm *corev1.ConfigMap) { cm.Data = second.Data })
	n.is(allChecksPassed(second))
	n.deleteConfigMap(second)
	n.is(notice(second, "ConfigMap evenkeel-system/drift-second was deleted after this node adopted it; the node keeps the checkpointed content"))
	kubelet.end(t)
	n.keepsThrough(second, func() {}, "ConfigMap evenkeel-system/drift-second was deleted after this node adopted it; the node keeps the checkpointed content")
	kubelet = n.steady()
	again := n.create("second", map[string]string{"kubelet": second.Data["kubelet"] + "podPidsLimit: 2000\n"})
	replaced := fmt.Sprintf("ConfigMap evenkeel-system/drift-second was replaced by an object with uid %s; the node keeps the checkpointed content: assign the new uid to use it", again.UID)
	n.is(notice(second, replaced))
	kubelet.end(t)
	n.keepsThrough(second, func() {}, replaced)
	kubelet = n.steady()

	// The first one is on record as promoted, but nothing names its checkpoint any
	// more: what is downloaded under its UID must be what it was.
	n.edit(first, func(cm *corev1.ConfigMap) { cm.Data["kubelet"] += "podPidsLimit: 3000\n" })
	n.assign(first)
	cause := fmt.Sprintf("failed to sync, desired config unclear, cause: ConfigMap evenkeel-system/drift-first (UID: %s) was changed: this node recorded payload %s for that UID, but now it is %s; create a new ConfigMap to change it",
		first.UID, payload.Digest("kubelet", []byte(first.Data["kubelet"])), payload.Digest("kubelet", []byte(first.Data["kubelet"]+"podPidsLimit: 3000\n")))
	n.is(want{"Unknown", "ObjectChanged", using(second), cause, cause})
	kubelet.check(t)
	n.edit(first, func(cm *corev1.ConfigMap) { cm.Data = first.Data })
	kubelet.end(t)
	n.is(allChecksPassed(first))

	n.assign(again)
	n.is(allChecksPassed(again))
	n.lastKnownGood(again)
	n.nodeConfigDeleted(again)
}

// keepsThrough restarts the agent; what happens while it is away, and what
// became of the object before, changes neither the records nor what runs.
func (n *node) keepsThrough(cm *corev1.ConfigMap, away func(), says string) {
	n.t.Helper()
	n.stop()
	before := n.records()
	away()
	n.up()
	n.resumes(cm, notice(cm, says))
	after := n.records()
	for _, records := range []map[string]string{before, after} { // checkpoints that nothing names are collected
		maps.DeleteFunc(records, func(name, _ string) bool {
			return strings.HasPrefix(name, "checkpoints/") && name != "checkpoints/"+string(cm.UID)
		})
	}
	if !maps.Equal(before, after) {
		n.t.Errorf("the records are %q, were %q", after, before)
	}
}

// assignsNothing is what a node says that keeps cm beside a NodeConfig that assigns nothing.
func (n *node) assignsNothing(cm *corev1.ConfigMap) want {
	return unclear(using(cm), "NodeConfig "+n.Node.Name()+" assigns nothing, so the node keeps its configuration; assign a configuration, or `local: {}`")
}

// nodeConfigDeleted deletes the NodeConfig that assigns cm, in several ways.
func (n *node) nodeConfigDeleted(cm *corev1.ConfigMap) {
	n.t.Helper()
	kubelet := n.steady()
	before, err := n.Get(n.t.Context())
	if err != nil {
		n.t.Fatal(err)
	}
	if err := n.Delete(n.t.Context()); err != nil {
		n.t.Fatal(err)
	}
	nc := n.is(n.assignsNothing(cm))
	if nc.UID == before.UID || nc.Generation != 1 || nc.Spec.ConfigSource != nil {
		n.t.Errorf("the NodeConfig is not one that the agent made: %s (was %s), generation %d, %+v", nc.UID, before.UID, nc.Generation, nc.Spec)
	}
	if nc.Status.Active == nil || nc.Status.Active.UID != cm.UID || nc.Status.LastKnownGood == nil || nc.Status.LastKnownGood.UID != cm.UID {
		n.t.Errorf("active is %+v, last-known-good %+v", nc.Status.Active, nc.Status.LastKnownGood)
	}
	n.recorded(string(cm.UID), string(cm.UID))

	// To write something else into the new object removes nothing that it had assigned.
	if err := n.SetSpec(n.t.Context(), v1alpha1.NodeConfigSpec{Revoked: []types.UID{"another"}}); err != nil {
		n.t.Fatal(err)
	}
	n.answered(2)
	n.is(n.assignsNothing(cm))
	n.recorded(string(cm.UID), string(cm.UID))

	// A rollout gives it the same, and takes that back although the node has adopted it.
	ref := &v1alpha1.RolloutReference{Name: "workers", Revision: 1, Attempt: 1, AssignedAt: metav1.Now()}
	source := bed.Ref(cm)
	source.RolloutRef = ref
	if err := n.SetSpec(n.t.Context(), v1alpha1.NodeConfigSpec{ConfigSource: source}); err != nil {
		n.t.Fatal(err)
	}
	n.is(allChecksPassed(cm))
	taken := &v1alpha1.TakenBackAssignment{Rollout: ref.Name, Revision: 1, Attempt: 1, AssignedAt: ref.AssignedAt}
	if err := n.SetSpec(n.t.Context(), v1alpha1.NodeConfigSpec{TakenBack: taken}); err != nil {
		n.t.Fatal(err)
	}
	n.answered(4)
	n.is(n.assignsNothing(cm))
	n.recorded(string(cm.UID), string(cm.UID))

	n.assign(cm)
	n.is(allChecksPassed(cm))
	kubelet.check(n.t)

	// A user creates it again, before the agent does.
	if err := n.Delete(n.t.Context()); err != nil {
		n.t.Fatal(err)
	}
	err = n.CreateNodeConfig(n.t.Context(), v1alpha1.NodeConfigSpec{ConfigSource: bed.Ref(cm)})
	if err != nil {
		n.t.Fatal(err)
	}
	nc = n.is(allChecksPassed(cm))
	if nc.Generation != 1 || nc.Status.LastKnownGood == nil || nc.Status.LastKnownGood.UID != cm.UID {
		n.t.Errorf("generation %d, last-known-good %+v", nc.Generation, nc.Status.LastKnownGood)
	}
	n.recorded(string(cm.UID), string(cm.UID))
	kubelet.end(n.t)

	// A user who removes the assignment of this object returns the node to local.
	if err := n.SetSpec(n.t.Context(), v1alpha1.NodeConfigSpec{}); err != nil {
		n.t.Fatal(err)
	}
	n.is(localInit)
	n.recorded("", "")
}

// answered waits until the status has observed a generation of the spec.
func (n *node) answered(generation int64) {
	n.t.Helper()
	n.eventually(fmt.Sprintf("the status answers generation %d", generation), func(ctx context.Context) error {
		nc, err := n.Get(ctx)
		if err == nil && nc.Status.ObservedGeneration != generation {
			err = fmt.Errorf("it answers %d", nc.Status.ObservedGeneration)
		}
		return err
	})
}

func TestACRDThatIsRemovedAndPutBackChangesNothing(t *testing.T) {
	n := newCluster(t, "crd", "--config-trial-duration=1s")
	n.up()
	cm := n.configMap("a", map[string]any{"maxPods": 105})
	n.assign(cm)
	n.is(allChecksPassed(cm))
	n.lastKnownGood(cm)
	kubelet := n.steady()

	client, err := dynamic.NewForConfig(n.Cluster.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	crds := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	if err := crds.Delete(t.Context(), "nodeconfigs.evenkeel.dev", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	n.eventually("the Node says that the CRD is gone", func(ctx context.Context) error {
		return n.nodeSays(ctx, unclear(using(cm), "NodeConfig crd cannot be read: the API server does not know this kind of object (404): apply evenkeel's CRDs"))
	})
	n.eventually("the CRD is gone", func(ctx context.Context) error {
		if _, err := crds.Get(ctx, "nodeconfigs.evenkeel.dev", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %v", err)
		}
		return nil
	})
	n.recorded(string(cm.UID), string(cm.UID))
	kubelet.check(t)

	if err := n.Cluster.Apply(t.Context(), filepath.Join("..", "..", "config", "api")); err != nil {
		t.Fatal(err)
	}
	nc := n.is(n.assignsNothing(cm))
	if nc.Generation != 1 || nc.Status.LastKnownGood == nil || nc.Status.LastKnownGood.UID != cm.UID {
		t.Errorf("generation %d, last-known-good %+v", nc.Generation, nc.Status.LastKnownGood)
	}
	n.assign(cm)
	n.is(allChecksPassed(cm))
	kubelet.end(t)
}
