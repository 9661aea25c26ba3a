package localcluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestPodsOfADaemonSetAndADeploymentRunWithTokens(t *testing.T) {
	c := startCluster(t, Options{})
	client := admin(t, c)
	n := startNode(t, c, "node-a")
	for range 2 { // the second does nothing
		begin := time.Now()
		assert.NoError(t, c.StartControllers(t.Context()))
		t.Log("the controllers are healthy after", time.Since(begin))
	}
	kubelet, err := runKubelet(t.Context(), n, client)
	assert.NoError(t, err)
	t.Cleanup(func() { kubelet.stop(time.Second) })

	// A namespace that nobody has prepared.
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "fresh"}}
	assert.NoError(t, assert.Err(client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{})))
	begin := time.Now()
	meta := metav1.ObjectMeta{Name: "sleepers", Namespace: "fresh"}
	template := func(kind string) (*metav1.LabelSelector, corev1.PodTemplateSpec) {
		labels := map[string]string{"of": kind}
		return &metav1.LabelSelector{MatchLabels: labels}, corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "sleep", Image: SleepImage}}},
		}
	}
	daemons, deployment := &appsv1.DaemonSet{ObjectMeta: meta}, &appsv1.Deployment{ObjectMeta: meta}
	daemons.Spec.Selector, daemons.Spec.Template = template("daemonset")
	deployment.Spec.Selector, deployment.Spec.Template = template("deployment")
	_, err = client.AppsV1().DaemonSets("fresh").Create(t.Context(), daemons, metav1.CreateOptions{})
	_, deployErr := client.AppsV1().Deployments("fresh").Create(t.Context(), deployment, metav1.CreateOptions{})
	assert.NoError(t, errors.Join(err, deployErr))
	eventually(t, time.Minute, running(client, "of=daemonset", 1))
	eventually(t, time.Minute, running(client, "of=deployment", 1))
	t.Log("their pods run after", time.Since(begin))

	pods := assert.Value(client.CoreV1().Pods("fresh").List(t.Context(), metav1.ListOptions{}))(t)
	for _, pod := range pods.Items {
		tokens := slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
			return v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool { return s.ServiceAccountToken != nil })
		})
		assert.That(t, pod.Spec.NodeName == "node-a" && pod.Spec.ServiceAccountName == "default" && tokens,
			"%s is on %q, as %q, with a token: %v", pod.Name, pod.Spec.NodeName, pod.Spec.ServiceAccountName, tokens)
		files, err := filepath.Glob(filepath.Join(n.Dir(), "kubelet/pods", string(pod.UID), "volumes/kubernetes.io~projected/*/ca.crt"))
		assert.Must(t, err == nil && len(files) == 1, "%s has certificates %v, %v", pod.Name, files, err)
		if ca, err := os.ReadFile(files[0]); err != nil || !bytes.Equal(ca, c.ca.pem) {
			t.Errorf("%s has another authority than the cluster: %s, %v", pod.Name, ca, err)
		}
	}

	assert.NoError(t, c.StopAPIServer())
	assert.NoError(t, c.StartAPIServer(t.Context()))
	three := []byte(`{"spec":{"replicas":3}}`)
	if _, err := client.AppsV1().Deployments("fresh").Patch(t.Context(), "sleepers", types.MergePatchType, three, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, running(client, "of=deployment", 3))

	assert.NoError(t, c.Stop())
	assert.OK(t, traces(c.Dir(), n.bridge, n.cgroup))
	assert.Error(t, c.StartControllers(t.Context()), "the cluster is stopped", "after Stop")
}

// running tells if so many pods of the namespace with the label run, and no other.
func running(client kubernetes.Interface, selector string, want int) func(context.Context) error {
	return func(ctx context.Context) error {
		pods, err := client.CoreV1().Pods("fresh").List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return err
		}
		var others []string
		for _, pod := range pods.Items {
			if pod.Status.Phase != corev1.PodRunning {
				others = append(others, pod.Status.String())
			}
		}
		if len(others) > 0 || len(pods.Items) != want {
			return fmt.Errorf("%s, want %d; that do not run: %s", printable.Count(len(pods.Items), "pod"), want, strings.Join(others, "; "))
		}
		return nil
	}
}

func TestControllersThatDoNotStartAreReported(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "ran")
	c := startCluster(t, Options{Tools: tools(t, map[string]string{
		// The first try finds its port taken.
		"kube-controller-manager": fmt.Sprintf(`[ -e %[1]s ] && exec "$real" "$@"; touch %[1]s; echo 'bind: address already in use'; exit 1`, mark),
		"kube-scheduler":          "echo 'I am broken'; exit 7",
	})})
	err := c.StartControllers(t.Context())
	assert.Must(t, err != nil, "a broken scheduler: started")
	for _, want := range []string{"kube-scheduler stopped", "exit status 7", "I am broken"} {
		assert.That(t, strings.Contains(err.Error(), want), "a broken scheduler: %v, want %q in it", err, want)
	}
	assert.That(t, c.controllers["kube-controller-manager"].running() && !c.controllers["kube-scheduler"].running(),
		"the controller manager does not run after its second try, or a broken scheduler does")
	c.StopControllers()
	c.StopControllers() // does nothing
	assert.That(t, len(c.controllers) == 0, "after StopControllers: %v", c.controllers)
	assert.NoError(t, os.Remove(c.tool("kube-controller-manager")))
	if err := c.StartControllers(t.Context()); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "make tools") {
		t.Errorf("without the program: %v", err)
	}
}
