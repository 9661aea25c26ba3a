package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/internal/fleet/policy"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/program"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
)

// cluster has evenkeel's API, but no agents and no controller: the tests write what these would write.
var (
	cluster *localcluster.Cluster
	admin   client.Client
)

func TestMain(m *testing.M) {
	code, err := runTests(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func runTests(m *testing.M) (code int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if cluster, err = localcluster.Start(ctx, localcluster.Options{}); err != nil {
		return 0, err
	}
	defer func() {
		err = errors.Join(err, cluster.Stop())
		if installClusters.cluster != nil {
			err = errors.Join(err, installClusters.cluster.Stop())
		}
	}()
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme), rbacv1.AddToScheme(scheme),
		authorizationv1.AddToScheme(scheme), coordinationv1.AddToScheme(scheme)); err != nil {
		return 0, err
	}
	if admin, err = client.New(cluster.AdminConfig(), client.Options{Scheme: scheme}); err != nil {
		return 0, err
	}
	return m.Run(), nil
}

// result is the exit code and the output of a command.
type result struct {
	code     int
	out, err string
}

// evenkeel runs a command line as administrator.
func evenkeel(t *testing.T, args ...string) result {
	t.Helper()
	return evenkeelAs(t, cluster.AdminKubeconfig(), args...)
}

func evenkeelAs(t *testing.T, kubeconfig string, args ...string) result {
	t.Helper()
	var out, errOut bytes.Buffer
	streams := genericclioptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut}
	code := Run(t.Context(), program.NewInfo("kubectl-evenkeel", "v0.0.0-test", "0123abcd"), append(args, "--kubeconfig", kubeconfig), streams)
	return result{code, out.String(), errOut.String()}
}

// wantOutput fails unless the command succeeded and printed these lines in this order. Runs of spaces are equal.
func (a result) wantOutput(t *testing.T, lines ...string) {
	t.Helper()
	if a.code != 0 {
		t.Fatalf("exit %d: %s", a.code, a.err)
	}
	rest := squeezeSpaces(a.out)
	for _, line := range lines {
		_, after, found := strings.Cut(rest, squeezeSpaces(line))
		if !found {
			t.Fatalf("no %q (in this order) in:\n%s", line, a.out)
		}
		rest = after
	}
}

// wantError fails unless the command failed with exit code 1, an error with all of these texts, and no output.
func (a result) wantError(t *testing.T, words ...string) {
	t.Helper()
	if a.code != command.ExitError || a.out != "" {
		t.Errorf("exit %d, want %d, and nothing but errors: %s", a.code, command.ExitError, a.out)
	}
	for _, w := range words {
		if !strings.Contains(a.err, w) {
			t.Errorf("no %q in: %s", w, a.err)
		}
	}
}

// wantExit fails unless the command ended with this code, printed these lines in this order, and an error with all of these
// texts.
func (a result) wantExit(t *testing.T, code int, lines []string, words ...string) {
	t.Helper()
	if a.code != code {
		t.Errorf("exit %d, want %d: %s", a.code, code, a.err)
	}
	printed := a
	printed.code = 0
	printed.wantOutput(t, lines...)
	for _, w := range words {
		if !strings.Contains(a.err, w) {
			t.Errorf("no %q in: %s", w, a.err)
		}
	}
}

// squeezeSpaces replaces runs of spaces by one space.
func squeezeSpaces(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = strings.Join(strings.Fields(lines[i]), " ")
	}
	return strings.Join(lines, "\n")
}

// create creates an object and removes it when the test ends.
func create[T client.Object](t *testing.T, o T) T {
	t.Helper()
	if err := admin.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.IgnoreNotFound(admin.Delete(context.Background(), o)); err != nil {
			t.Error(err)
		}
	})
	return o
}

// createNode creates a Ready Node of a pool.
func createNode(t *testing.T, name, pool, zone string) *corev1.Node {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pool": pool, corev1.LabelTopologyZone: zone}}}
	node.Status.NodeInfo.KubeletVersion = "v1.36.3"
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Hour))}}
	return create(t, node)
}

// createNodeConfig creates a NodeConfig with an up-to-date status whose ConfigOK is True.
func createNodeConfig(t *testing.T, name string, source *v1alpha1.NodeConfigSource, report func(*v1alpha1.NodeConfigStatus)) *v1alpha1.NodeConfig {
	t.Helper()
	nc := create(t, &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.NodeConfigSpec{ConfigSource: source}})
	nc.Status = v1alpha1.NodeConfigStatus{
		ObservedGeneration: nc.Generation, Local: v1alpha1.LocalConfigInit, RemoteConfig: v1alpha1.RemoteConfigNodeConfig, RunMode: v1alpha1.RunModeHost,
		ComponentVersion: "v1.36.3", AgentVersion: "v0.1.0",
		Conditions: []metav1.Condition{{
			Type: v1alpha1.ConditionConfigOK, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAllChecksPassed,
			Message: "using current: all checks passed", LastTransitionTime: metav1.NewTime(time.Now().Add(-2 * time.Hour)),
		}},
	}
	if report != nil {
		report(&nc.Status)
	}
	if err := admin.Status().Update(t.Context(), nc); err != nil {
		t.Fatal(err)
	}
	return nc
}

// failing makes ConfigOK False.
func failing(st *v1alpha1.NodeConfigStatus, reason, words string) {
	st.Conditions[0].Status, st.Conditions[0].Reason, st.Error = metav1.ConditionFalse, reason, words
}

const header = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

// createRevision creates the ConfigMap of a rollout's revision.
func createRevision(t *testing.T, name string, number int64, config string) *corev1.ConfigMap {
	t.Helper()
	data := header + config
	return create(t, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: v1alpha1.SystemNamespace, Name: policy.RevisionName(name, payload.Digest(payload.KeyKubelet, []byte(data))),
			Labels: map[string]string{v1alpha1.LabelRollout: name, v1alpha1.LabelRevision: fmt.Sprint(number)},
		},
		Immutable: new(true), Data: map[string]string{payload.KeyKubelet: data},
	})
}

// succeededAs returns an entry of a rollout's history for a revision that succeeded.
func succeededAs(number int64, cm *corev1.ConfigMap) v1alpha1.RolloutOutcome {
	return v1alpha1.RolloutOutcome{Revision: number, ConfigMap: cm.Name, UID: cm.UID, SHA256: digestOf(cm), Outcome: "Succeeded"}
}

func digestOf(cm *corev1.ConfigMap) string {
	for key, data := range cm.Data {
		return payload.Digest(key, []byte(data))
	}
	return ""
}

func refTo(cm *corev1.ConfigMap) v1alpha1.ConfigMapReference {
	return v1alpha1.ConfigMapReference{Namespace: cm.Namespace, Name: cm.Name, UID: cm.UID, SHA256: digestOf(cm)}
}

// byRollout returns a source that a rollout assigned 12 minutes ago. previous is the source before it, or nil.
func byRollout(name string, number int64, cm, previous *corev1.ConfigMap) *v1alpha1.NodeConfigSource {
	ref := refTo(cm)
	s := &v1alpha1.NodeConfigSource{ConfigMapRef: &ref, RolloutRef: &v1alpha1.RolloutReference{
		Name: name, Revision: number, Attempt: 1, AssignedAt: metav1.NewTime(time.Now().Add(-12*time.Minute - 30*time.Second)),
	}}
	if previous != nil {
		s.RolloutRef.Previous = &v1alpha1.PreviousSource{ConfigMapRef: refTo(previous), Rollout: name, Revision: number - 1, Attempt: 1}
	}
	return s
}

func byPerson(cm *corev1.ConfigMap) *v1alpha1.NodeConfigSource {
	ref := refTo(cm)
	return &v1alpha1.NodeConfigSource{ConfigMapRef: &ref}
}

// runs returns a ConfigMap as a node reports it.
func runs(cm *corev1.ConfigMap) *v1alpha1.ConfigRevision {
	return &v1alpha1.ConfigRevision{Namespace: cm.Namespace, Name: cm.Name, UID: cm.UID, SHA256: digestOf(cm), Revision: string(cm.UID)}
}

func proven(cm *corev1.ConfigMap) *v1alpha1.LastKnownGoodConfig {
	since := metav1.NewTime(time.Now().Add(-time.Hour))
	return &v1alpha1.LastKnownGoodConfig{ConfigRevision: *runs(cm), Since: &since}
}

// createRollout creates a rollout for a pool whose template sets maxPods.
func createRollout(t *testing.T, name, pool, config string, change func(*v1alpha1.NodeConfigRollout)) *v1alpha1.NodeConfigRollout {
	t.Helper()
	r := &v1alpha1.NodeConfigRollout{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.NodeConfigRolloutSpec{
			NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{"pool": pool}},
			Template:     v1alpha1.RolloutTemplate{Kubelet: &runtime.RawExtension{Raw: []byte(config)}},
		},
	}
	if change != nil {
		change(r)
	}
	status := r.Status
	create(t, r)
	r.Status = status
	if err := admin.Status().Update(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	return r
}

func pods(n int) string {
	return fmt.Sprintf(`{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration","maxPods":%d}`, n)
}

// grant gives a user of this name the right to read some resource of a group.
func grant(t *testing.T, user, resource, group string) {
	t.Helper()
	create(t, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{"get", "list"}},
	}})
	bind(t, user, user, resource, group)
}

// bind binds a role of grant to a user, and waits until the API server knows.
func bind(t *testing.T, user, role, resource, group string) {
	t.Helper()
	create(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user + "-" + role},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	})
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Group: group, Resource: resource},
		}}
		err := admin.Create(ctx, review)
		return review.Status.Allowed, err
	})
	if err != nil {
		t.Fatalf("%s may not list %s: %v", user, resource, err)
	}
}

// userOf returns the path of a kubeconfig of a user.
func userOf(t *testing.T, name string) string {
	t.Helper()
	kubeconfig, err := cluster.ClientKubeconfig(name)
	if err != nil {
		t.Fatal(err)
	}
	return kubeconfig
}
