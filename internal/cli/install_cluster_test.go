package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet/installer"
	"github.com/evenkeel/evenkeel/internal/program"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
)

// installCluster is a cluster with all of evenkeel's manifests and with Kubernetes' controllers. The test simulates the nodes, the
// kubelets and the installer's pods.
type installCluster struct {
	client.Client
	cluster *localcluster.Cluster
	t       *testing.T

	mu   sync.Mutex
	play map[string]part // by node
	most int             // pods that were not ready at a time
	// together is how many pods there must be that are not ready before one becomes ready, or as many as are left.
	together int
	order    []string // nodes, as their pods became ready
	failed   error
}

// part is how a simulated kubelet and its pod behave.
type part struct {
	ready    bool
	version  string // that the agent reports; empty: none does
	exit     int32
	said     string
	waiting  string
	restarts int32
	awaits   bool // its turn, if the Node does not name the pod's revision
	falters  bool // it was ready for the kubelet before, and is not for this one
}

var (
	comesBack = part{ready: true, version: "v1.0.0"}
	takenBack = part{exit: 2, said: "level=INFO msg=restarting\nevenkeel-agent: the kubelet did not come back: /healthz: connection refused", restarts: 1}
)

var installClusters struct {
	once    sync.Once
	cluster *localcluster.Cluster
	client  client.Client
	err     error
}

// newInstallCluster returns the cluster without nodes. All tests share one cluster.
func newInstallCluster(t *testing.T) *installCluster {
	t.Helper()
	installClusters.once.Do(func() { installClusters.cluster, installClusters.client, installClusters.err = startInstallCluster() })
	if installClusters.err != nil {
		t.Fatal(installClusters.err)
	}
	c := &installCluster{Client: installClusters.client, cluster: installClusters.cluster, t: t, play: map[string]part{}}
	if err := c.cluster.Apply(t.Context(), "../../config/installer"); err != nil {
		t.Fatal(err)
	}
	c.image("evenkeel.dev/agent:v1.0.0")
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		for ctx.Err() == nil {
			if err := c.kubelets(ctx); err != nil && ctx.Err() == nil {
				c.mu.Lock()
				c.failed = errors.Join(c.failed, err)
				c.mu.Unlock()
			}
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	t.Cleanup(func() {
		background := context.Background()
		err := errors.Join(c.DeleteAllOf(background, &corev1.Node{}), c.DeleteAllOf(background, &v1alpha1.NodeConfig{}),
			c.DeleteAllOf(background, &v1alpha1.NodeConfigRollout{}), c.DeleteAllOf(background, &corev1.Event{}, client.InNamespace("default")))
		err = errors.Join(err, wait.PollUntilContextTimeout(background, 100*time.Millisecond, 20*time.Second, true, func(ctx context.Context) (bool, error) {
			pods := &corev1.PodList{}
			err := c.List(ctx, pods, client.InNamespace(v1alpha1.InstallNamespace))
			for _, pod := range pods.Items {
				err = errors.Join(err, client.IgnoreNotFound(c.Delete(ctx, &pod, client.GracePeriodSeconds(0))))
			}
			return len(pods.Items) == 0, err
		}))
		cancel()
		all.Wait()
		if err := errors.Join(err, c.failed); err != nil {
			t.Error(err)
		}
	})
	return c
}

func startInstallCluster() (*localcluster.Cluster, client.Client, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cluster, err := localcluster.Start(ctx, localcluster.Options{})
	if err != nil {
		return nil, nil, err
	}
	scheme := runtime.NewScheme()
	err = errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme), appsv1.AddToScheme(scheme), rbacv1.AddToScheme(scheme), cluster.StartControllers(ctx))
	config := *cluster.AdminConfig()
	config.QPS = -1
	c, newErr := client.New(&config, client.Options{Scheme: scheme})
	return cluster, c, errors.Join(err, newErr)
}

// node adds a Ready node whose installer pod behaves like play.
func (c *installCluster) node(name string, play part, change ...func(*corev1.Node)) {
	c.t.Helper()
	c.plays(name, play)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pool": "workers", corev1.LabelOSStable: "linux"}}}
	node.Status.Allocatable = corev1.ResourceList{"cpu": quantity("4"), "memory": quantity("8Gi"), "pods": quantity("110")}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now()}}
	for _, change := range change {
		change(node)
	}
	if err := c.Create(c.t.Context(), node); err != nil {
		c.t.Fatal(err)
	}
}

func (c *installCluster) plays(name string, play part) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.play[name] = play
}

// waitsFor reports whether fewer nodes are in progress than the test expects; then no pod becomes ready yet.
func (c *installCluster) waitsFor(pods []corev1.Pod) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	ready := 0
	for i := range pods {
		if installer.PodReady(&pods[i]) {
			ready++
		}
	}
	return len(pods)-ready < min(c.together, len(c.play)-ready)
}

// kubelets updates the status of all installer pods once, as their nodes' parts say.
func (c *installCluster) kubelets(ctx context.Context) error {
	pods := &corev1.PodList{}
	if err := c.List(ctx, pods, client.InNamespace(v1alpha1.InstallNamespace)); err != nil {
		return err
	}
	busy := 0
	if c.waitsFor(pods.Items) {
		return nil
	}
	for _, pod := range pods.Items {
		c.mu.Lock()
		play, ok := c.play[pod.Spec.NodeName]
		c.mu.Unlock()
		switch {
		case pod.DeletionTimestamp != nil:
			if err := client.IgnoreNotFound(c.Delete(ctx, &pod, client.GracePeriodSeconds(0))); err != nil {
				return err
			}
			continue
		case !ok, installer.PodReady(&pod) && !play.falters:
			continue
		}
		if play.awaits && c.turn(pod.Spec.NodeName) != pod.Labels[appsv1.ControllerRevisionHashLabelKey] {
			play = part{said: "waits"}
		} else {
			busy++
		}
		if err := client.IgnoreNotFound(c.report(ctx, &pod, play)); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.most = max(c.most, busy)
	return nil
}

// report writes a pod's status, and the report of the agent if it started.
func (c *installCluster) report(ctx context.Context, pod *corev1.Pod, play part) error {
	if play.version != "" && pod.Labels["app.kubernetes.io/name"] == installer.Install.DaemonSet {
		nc := &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: pod.Spec.NodeName}}
		if err := c.Get(ctx, client.ObjectKeyFromObject(nc), nc); client.IgnoreNotFound(err) != nil {
			return err
		} else if err != nil {
			if err := c.Create(ctx, nc); err != nil {
				return err
			}
		}
		nc.Status = v1alpha1.NodeConfigStatus{ObservedGeneration: nc.Generation, Local: v1alpha1.LocalConfigInit, AgentVersion: play.version}
		if err := c.Status().Update(ctx, nc); err != nil {
			return err
		}
	}
	container := corev1.ContainerStatus{Name: pod.Spec.Containers[0].Name, Image: pod.Spec.Containers[0].Image, RestartCount: play.restarts, Ready: play.ready}
	switch {
	case play.waiting != "":
		reason, message, _ := strings.Cut(play.waiting, ": ")
		container.State.Waiting = &corev1.ContainerStateWaiting{Reason: reason, Message: message}
	case play.exit != 0:
		container.ContainerID = "containerd://1"
		container.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}
		container.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: play.exit, Message: play.said, ContainerID: "containerd://1"}
	case play == part{}:
		return nil // its kubelet has not seen it
	default:
		container.ContainerID = "containerd://1"
		container.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.Now()}
	}
	before := pod.DeepCopy()
	if play.falters {
		pod.Status.Conditions = nil
	}
	pod.Status.Phase, pod.Status.ContainerStatuses = corev1.PodRunning, []corev1.ContainerStatus{container}
	if play.ready {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
		c.mu.Lock()
		c.order = append(c.order, pod.Spec.NodeName)
		c.mu.Unlock()
	}
	return c.Status().Patch(ctx, pod, client.MergeFrom(before))
}

// image sets the image of both DaemonSets, like new manifests, and waits until the controllers have seen it.
func (c *installCluster) image(image string) {
	c.t.Helper()
	patch := fmt.Sprintf(`[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":%q},
		{"op":"replace","path":"/spec/template/spec/containers/0/readinessProbe/periodSeconds","value":1}]`, image)
	for _, m := range []installer.Operation{installer.Install, installer.Uninstall} {
		d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.InstallNamespace, Name: m.DaemonSet}}
		if err := c.Patch(c.t.Context(), d, client.RawPatch(types.JSONPatchType, []byte(patch))); err != nil {
			c.t.Fatal(err)
		}
	}
	c.eventually("the controllers have seen the image", func(ctx context.Context) (bool, error) {
		w, err := installer.Newest(ctx, c, installer.Install)
		return w.Image == image && w.Revision != "", err
	})
}

func (c *installCluster) eventually(what string, check func(context.Context) (bool, error)) {
	c.t.Helper()
	if err := wait.PollUntilContextTimeout(c.t.Context(), 50*time.Millisecond, 20*time.Second, true, check); err != nil {
		c.t.Fatalf("waiting until %s: %v", what, err)
	}
}

// evenkeel runs a command line as administrator.
func (c *installCluster) evenkeel(args ...string) result {
	c.t.Helper()
	return evenkeelAs(c.t, c.cluster.AdminKubeconfig(), args...)
}

// running is a command that runs in the background.
type running struct {
	interrupt context.CancelFunc
	ended     chan result
	out       *output
}

func (c *installCluster) begin(args ...string) running {
	ctx, cancel := context.WithCancel(c.t.Context())
	r := running{cancel, make(chan result, 1), &output{}}
	go func() {
		var errOut bytes.Buffer
		streams := genericclioptions.IOStreams{In: strings.NewReader(""), Out: r.out, ErrOut: &errOut}
		code := Run(ctx, program.NewInfo("kubectl-evenkeel", "v0.0.0-test", "0123abcd"), append(args, "--kubeconfig", c.cluster.AdminKubeconfig()), streams)
		r.ended <- result{code, r.out.String(), errOut.String()}
	}()
	return r
}

// labels returns the values of LabelAgent by node.
func (c *installCluster) labels() map[string]string {
	c.t.Helper()
	list := &corev1.NodeList{}
	if err := c.List(c.t.Context(), list); err != nil {
		c.t.Fatal(err)
	}
	found := map[string]string{}
	for _, node := range list.Items {
		if value, ok := node.Labels[v1alpha1.LabelAgent]; ok {
			found[node.Name] = value
		}
	}
	return found
}

// turn returns the annotation of a Node about its turn.
func (c *installCluster) turn(name string) string {
	node := &corev1.Node{}
	if err := c.Get(context.Background(), client.ObjectKey{Name: name}, node); err != nil {
		return err.Error()
	}
	return node.Annotations[v1alpha1.AnnotationAgentTurn]
}

func (c *installCluster) wantLabels(want map[string]string) {
	c.t.Helper()
	if got := c.labels(); !maps.Equal(got, want) {
		c.t.Errorf("labels are %v, want %v", got, want)
	}
}

// pods returns the UIDs of the installer pods by node.
func (c *installCluster) pods() map[string]types.UID {
	c.t.Helper()
	list := &corev1.PodList{}
	if err := c.List(c.t.Context(), list, client.InNamespace(v1alpha1.InstallNamespace)); err != nil {
		c.t.Fatal(err)
	}
	found := map[string]types.UID{}
	for _, pod := range list.Items {
		found[pod.Spec.NodeName] = pod.UID
	}
	return found
}

// went demands that pods became ready in an order, and never more than so many were busy at a time.
func (c *installCluster) wantOrder(most int, order ...string) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Equal(c.order, order) || c.most != most {
		c.t.Errorf("pods became ready on %q, at most %d at a time; want %q and %d", c.order, c.most, order, most)
	}
	c.order, c.most = nil, 0
}

var rawMaxPods = runtime.RawExtension{Raw: []byte(pods(120))}

func restConfig(kubeconfig string) (*rest.Config, error) {
	return clientcmd.BuildConfigFromFlags("", kubeconfig)
}
