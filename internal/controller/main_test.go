// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/bed"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
)

// What the tests share: one cluster, agents that are played by hand, and a
// controller that has no right but its own.

const (
	within = 30 * time.Second
	often  = 20 * time.Millisecond
)

var (
	cluster *localcluster.Cluster
	admin   client.Client
)

func TestMain(m *testing.M) {
	os.Exit(localcluster.RunTests(localcluster.Options{}, func(ctx context.Context, c *localcluster.Cluster) (_ int, err error) {
		cluster = c
		ctrllog.SetLogger(logr.Discard())
		klog.SetLogger(logr.Discard())
		if err := cluster.Apply(ctx, "../../config/controller"); err != nil {
			return 0, err
		}
		if admin, err = cluster.Client(v1alpha1.AddToScheme, corev1.AddToScheme, coordinationv1.AddToScheme); err != nil {
			return 0, err
		}

		return m.Run(), nil
	}))
}

// cacheAt is an empty cache with this clock.
func cacheAt(now *time.Time) *cache {
	f := newCache("", time.Second)
	f.now = func() time.Time { return *now }
	return f
}

// everywhere is the rollout r, which selects all nodes.
func everywhere() *v1alpha1.NodeConfigRollout {
	r := &v1alpha1.NodeConfigRollout{ObjectMeta: metav1.ObjectMeta{Name: "r", UID: "r"}}
	r.Spec.AllNodes = true
	return r
}

// own is the configuration of the controller's own ServiceAccount.
func own() *rest.Config {
	config := cluster.AdminConfig()
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:evenkeel-system:evenkeel-controller",
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:evenkeel-system", "system:authenticated"},
	}

	return config
}

// running is a controller that runs.
type running struct {
	*Controller
	registry *prometheus.Registry
	stop     func()
}

// newController makes a controller.
func newController(t *testing.T, config *rest.Config, change ...func(*Options)) *Controller {
	t.Helper()
	o := Options{
		MetricsAddress: "0", ProbeAddress: "0", Tick: 20 * time.Millisecond, Registry: prometheus.NewRegistry(),
		Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})), // shown if the test fails
	}
	for _, f := range change {
		f(&o)
	}

	return assert.Value(New(config, o))(t)
}

// start runs a controller until the test ends, or it is stopped.
func start(t *testing.T, config *rest.Config, change ...func(*Options)) *running {
	t.Helper()
	registry := prometheus.NewRegistry()
	c := newController(t, config, append([]func(*Options){func(o *Options) { o.Registry = registry }}, change...)...)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		assert.OK(t, <-ended, "the controller ended with")
	})
	t.Cleanup(stop)

	return &running{c, registry, stop}
}

// eventually polls until check is happy.
func eventually(t *testing.T, check func() error) {
	t.Helper()
	assert.NoError(t, bed.Eventually(t.Context(), within, func(context.Context) error { return check() }))
}

// world is a clean cluster: what a test makes in it goes with the test.
func world(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		ctx := context.Background()
		for _, o := range []client.Object{&v1alpha1.NodeConfigRollout{}, &v1alpha1.NodeConfig{}, &corev1.Node{}} {
			assert.OK(t, admin.DeleteAllOf(ctx, o))
		}

		assert.OK(t, admin.DeleteAllOf(ctx, &corev1.ConfigMap{}, client.InNamespace(v1alpha1.SystemNamespace)))
	})
}

// addNodes makes nodes that are Ready, with labels such as a=b.
func addNodes(t *testing.T, labeled string, names ...string) {
	t.Helper()
	set := assert.Value(labels.ConvertSelectorToLabelsMap(labeled))(t)
	for _, name := range names {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: set}}
		assert.NoError(t, admin.Create(t.Context(), n))
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Hour))}}
		n.Status.NodeInfo.Architecture = "amd64"
		assert.NoError(t, admin.Status().Update(t.Context(), n))
	}
}

// pool is a clean cluster with nodes of a rollout, and their agents.
func pool(t *testing.T, rollout string, nodes ...string) {
	t.Helper()
	world(t)
	addNodes(t, "pool="+rollout, nodes...)
	agents(t, nil, nodes...)
}

// grant gives the controller the permissions of a part of config until the test
// ends.
func grant(t *testing.T, part string) {
	t.Helper()
	assert.NoError(t, cluster.Apply(t.Context(), "../../config/"+part))
	t.Cleanup(func() {
		binding := object("rbac.authorization.k8s.io", "ClusterRoleBinding", "evenkeel-controller-"+part)
		assert.OK(t, admin.Delete(context.Background(), binding))
	})
}

// template is a configuration.
func template(maxPods int) v1alpha1.RolloutTemplate {
	return v1alpha1.RolloutTemplate{KubeletDropIn: &runtime.RawExtension{Raw: fmt.Appendf(nil,
		`{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration","maxPods":%d}`, maxPods)}}
}

// roll makes a rollout for nodes with pool=NAME, all at once unless it is
// changed.
func roll(t *testing.T, name string, change ...func(*v1alpha1.NodeConfigRolloutSpec)) *v1alpha1.NodeConfigRollout {
	t.Helper()
	all := intOrString("100%")
	r := &v1alpha1.NodeConfigRollout{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.NodeConfigRolloutSpec{
		NodeSelection: v1alpha1.NodeSelection{NodeSelector: v1alpha1.Selector{MatchLabels: map[string]string{"pool": name}}},
		Template:      template(100),
		Strategy:      v1alpha1.RolloutStrategy{MaxUnavailable: &all, Steps: []v1alpha1.RolloutStep{{Nodes: &all}}},
	}}
	for _, f := range change {
		f(&r.Spec)
	}

	assert.NoError(t, admin.Create(t.Context(), r))

	return r
}

// oneAtATime has a rollout change one node after another.
func oneAtATime(s *v1alpha1.NodeConfigRolloutSpec) { s.Strategy.MaxUnavailable = new(intOrString("1")) }

// edit changes a rollout's spec.
func edit(t *testing.T, name string, f func(*v1alpha1.NodeConfigRolloutSpec)) {
	t.Helper()
	change(t, &v1alpha1.NodeConfigRollout{ObjectMeta: metav1.ObjectMeta{Name: name}}, func(r *v1alpha1.NodeConfigRollout) { f(&r.Spec) })
}

// change changes an object.
func change[T client.Object](t *testing.T, o T, f func(T)) {
	t.Helper()
	eventually(t, func() error {
		if err := admin.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}

		f(o)

		return admin.Update(t.Context(), o)
	})
}

// read reads an object of the API.
func read[T client.Object](t *testing.T, o T, name string) T {
	t.Helper()
	o.SetName(name)
	assert.NoError(t, admin.Get(t.Context(), client.ObjectKeyFromObject(o), o))
	return o
}

func rolloutNamed(t *testing.T, name string) *v1alpha1.NodeConfigRollout {
	t.Helper()
	return read(t, &v1alpha1.NodeConfigRollout{}, name)
}

func nodeConfig(t *testing.T, name string) *v1alpha1.NodeConfig {
	t.Helper()
	return read(t, &v1alpha1.NodeConfig{}, name)
}

func nodeNamed(t *testing.T, name string) *corev1.Node {
	t.Helper()
	return read(t, &corev1.Node{}, name)
}

type status = *v1alpha1.NodeConfigRolloutStatus

// awaitRollout waits until a rollout's status answers its spec and is as the
// checks want it.
func awaitRollout(t *testing.T, name string, checks ...func(status) error) *v1alpha1.NodeConfigRollout {
	t.Helper()
	var r *v1alpha1.NodeConfigRollout
	eventually(t, func() error {
		r = rolloutNamed(t, name)
		st := &r.Status
		if st.ObservedGeneration != r.Generation {
			return fmt.Errorf("status of generation %d, not %d", st.ObservedGeneration, r.Generation)
		}

		var err error
		for i := 0; err == nil && i < len(checks); i++ {
			err = checks[i](st)
		}
		if err == nil && st.Phase == v1alpha1.RolloutComplete {
			err = allSelected(t, r)
		}

		return assert.Unless(err == nil, "%w: %s: %s; %+v", err, st.Phase, st.Message, st.Nodes)
	})

	return r
}

// allSelected returns an error if a rollout does not count all nodes that its
// selector matches: it is complete, too, while the controller has not seen the
// last ones.
func allSelected(t *testing.T, r *v1alpha1.NodeConfigRollout) error {
	nodes := &corev1.NodeList{}
	if err := admin.List(t.Context(), nodes, client.MatchingLabels(r.Spec.NodeSelector.MatchLabels)); err != nil {
		return err
	}

	want := len(nodes.Items)

	return assert.Unless(int(r.Status.Nodes.Selected) == want, "%d nodes are selected, want %d", r.Status.Nodes.Selected, want)
}

func phase(want v1alpha1.RolloutPhase) func(status) error {
	return func(st status) error {
		return assert.Unless(st.Phase == want, "phase %s, want %s", st.Phase, want)
	}
}

func completeAt(revision int64) func(status) error {
	return func(st status) error {
		if st.UpdateRevision == nil || st.UpdateRevision.Number != revision {
			return fmt.Errorf("revision %+v, want %d", st.UpdateRevision, revision)
		}

		return phase(v1alpha1.RolloutComplete)(st)
	}
}

// generations are the generations of these nodes' NodeConfigs: another one
// means that a spec was written.
func generations(t *testing.T, names ...string) map[string]int64 {
	t.Helper()
	out := map[string]int64{}
	for _, name := range names {
		out[name] = nodeConfig(t, name).Generation
	}

	return out
}

// revisions are the ConfigMaps of a rollout, by number.
func revisions(t *testing.T, rollout string) map[string]corev1.ConfigMap {
	t.Helper()
	list := &corev1.ConfigMapList{}
	assert.NoError(t,
		admin.List(t.Context(), list, client.InNamespace(v1alpha1.SystemNamespace), client.MatchingLabels{v1alpha1.LabelRollout: rollout}))
	out := map[string]corev1.ConfigMap{}
	for _, cm := range list.Items {
		out[cm.Labels[v1alpha1.LabelRevision]] = cm
	}

	return out
}

// answer writes what an agent would that has taken its assignment up, and tried
// it.
func answer(ctx context.Context, nc *v1alpha1.NodeConfig, bad bool) error {
	now := metav1.Now()
	st := v1alpha1.NodeConfigStatus{ObservedGeneration: nc.Generation, AgentVersion: "v0", Conditions: []metav1.Condition{{
		Type: v1alpha1.ConditionConfigOK, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAllChecksPassed, LastTransitionTime: now,
	}}}
	if s := nc.Spec.ConfigSource; s != nil && s.ConfigMapRef != nil {
		runs := v1alpha1.ConfigRevision{Namespace: s.ConfigMapRef.Namespace, Name: s.ConfigMapRef.Name, UID: s.ConfigMapRef.UID, SHA256: s.ConfigMapRef.SHA256}
		st.Assigned = &runs
		if bad {
			st.Conditions[0].Status, st.Conditions[0].Reason = metav1.ConditionFalse, v1alpha1.ReasonCrashLooped
			st.Error = "it crashed"
		} else {
			st.Active, st.LastKnownGood = &runs, &v1alpha1.LastKnownGoodConfig{ConfigRevision: runs, Since: &now}
		}
	}

	data, err := json.Marshal([]operation{{"add", "/status", st}})
	if err != nil {
		return err
	}

	return admin.Status().Patch(ctx, nc, client.RawPatch(types.JSONPatchType, data))
}

// agents play nodes' agents until the test ends. What they find bad is named by
// its ConfigMap.
func agents(t *testing.T, bad func(configMap string) bool, names ...string) {
	t.Helper()
	forConfigs(t, names, func(ctx context.Context, nc *v1alpha1.NodeConfig) error {
		if nc.Status.ObservedGeneration == nc.Generation {
			return nil
		}

		s := nc.Spec.ConfigSource
		return answer(ctx, nc, bad != nil && s != nil && s.ConfigMapRef != nil && bad(s.ConfigMapRef.Name))
	})
}

// forConfigs calls a function with these nodes' NodeConfigs, again and again
// until the test ends. A NodeConfig may be gone.
func forConfigs(t *testing.T, names []string, do func(context.Context, *v1alpha1.NodeConfig) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var player sync.WaitGroup
	player.Go(func() {
		for ctx.Err() == nil {
			list := &v1alpha1.NodeConfigList{}
			err := admin.List(ctx, list)
			for i := range list.Items {
				if nc := &list.Items[i]; err == nil && slices.Contains(names, nc.Name) {
					err = client.IgnoreNotFound(do(ctx, nc))
				}
			}

			if err != nil && ctx.Err() == nil {
				t.Error(err)
				return
			}

			time.Sleep(often)
		}
	})
	t.Cleanup(func() { cancel(); player.Wait() })
}

func contentOf(t *testing.T, of v1alpha1.RolloutTemplate) payload.Payload {
	t.Helper()
	return assert.Value(fleet.ContentOf(of, nil))(t)
}

type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// idle reports whether a controller has looked at all that was due.
func idle(c *running) error {
	c.fleet.mu.Lock()
	defer c.fleet.mu.Unlock()
	for name, r := range c.fleet.rollouts {
		if !r.dueAt.IsZero() && r.dueAt.Before(time.Now().Add(time.Second)) {
			return fmt.Errorf("%s is due", name)
		}
	}

	return nil
}

// later advances a controller's clock.
func later(c *running, by time.Duration) {
	c.clock.set(c.clock.now().Add(by))
	c.fleet.scheduleAll()
}

// told looks for an Event of a rollout.
func told(t *testing.T, rollout, want string) error {
	t.Helper()
	list := &corev1.EventList{}
	assert.NoError(t, admin.List(t.Context(), list, client.InNamespace("default")))
	var all []string
	for _, e := range list.Items {
		said := e.Reason + ": " + e.Message
		if e.InvolvedObject.Name == rollout && strings.Contains(said, want) {
			return nil
		}

		all = append(all, e.InvolvedObject.Name+" "+said)
	}

	return fmt.Errorf("no Event says %q of %s, but:\n%s", want, rollout, strings.Join(all, "\n"))
}

// holds reports whether somebody has the lease who says to be of this version.
func holds(t *testing.T, version string) error {
	t.Helper()
	lease := &coordinationv1.Lease{}
	if err := admin.Get(t.Context(), types.NamespacedName{Namespace: v1alpha1.SystemNamespace, Name: v1alpha1.ControllerLease}, lease); err != nil {
		return err
	}
	if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
		return errors.New("nobody has the lease")
	}

	said, ok := lease.Labels[v1alpha1.LabelVersion]

	return assert.Unless(ok && said == version, "the lease has the labels %q, want version %q", lease.Labels, version)
}
