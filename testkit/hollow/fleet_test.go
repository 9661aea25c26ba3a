// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package hollow

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestAHollowNodeAppliesItsAssignment(t *testing.T) {
	o := options(2)
	o.Zones, o.Labels = 2, map[string]string{"pool": "workers"}
	f := start(t, o)
	name := f.Names()[1]
	node := &corev1.Node{}
	assert.NoError(t, kube.Get(t.Context(), client.ObjectKey{Name: name}, node))
	if l := node.Labels; l["topology.kubernetes.io/zone"] != "zone-1" || l["pool"] != "workers" || l[Label] != "true" || l["kubernetes.io/hostname"] != name {
		t.Errorf("its labels are %v", l)
	}

	configOK(t, name, v1alpha1.ReasonLocalDefault, "")
	ref := configMap(t, "maxPods: 50")
	assign(t, name, ref)
	lastKnownGood(t, name, ref)
	configOK(t, name, v1alpha1.ReasonAllChecksPassed, "")
	states := f.States()
	assert.That(t, states[v1alpha1.ReasonAllChecksPassed] == 1 && states[v1alpha1.ReasonLocalDefault] == 1, "the states are %v", states)
}

func TestHollowNodesOfSeveralSizesResolveOneConfiguration(t *testing.T) {
	o := options(3)
	o.Sizes = []payload.Capacity{{CPU: 4000, Memory: 16 << 30}, {CPU: 16000, Memory: 64 << 30, EphemeralStorage: 100 << 30}}
	f := start(t, o)
	names := f.Names()
	ref := ruled(t)
	for _, name := range names {
		assign(t, name, ref)
	}

	for i, name := range names {
		lastKnownGood(t, name, ref)
		st := configOK(t, name, v1alpha1.ReasonAllChecksPassed, "")
		want := []string{"40", "160"}[i%2]
		assert.That(t, len(st.ResolvedValues) == 1 && st.ResolvedValues[0].Value == want && st.Active.UID == ref.UID, "%s has %+v, want %s", name, st.ResolvedValues, want)
		node := &corev1.Node{}
		assert.NoError(t, kube.Get(t.Context(), client.ObjectKey{Name: name}, node))
		assert.That(t, payload.CapacityOf(node.Status.Capacity) == o.Sizes[i%2], "the capacity of %s is %v", name, node.Status.Capacity)
	}
}

func TestEachFaultHasItsReason(t *testing.T) {
	o := options(4)
	names := []string{o.Prefix + "0", o.Prefix + "1", o.Prefix + "2", o.Prefix + "3"}
	o.Faults = []Fault{
		{Kind: Reject, Nodes: names[:1], Field: "maxPods", Value: "7"},
		{Kind: CrashLoop, Nodes: names[1:2], Payload: "maxPods: 7"},
		{Kind: Unhealthy, Nodes: names[2:3], Payload: "maxPods: 7"},
		{Kind: NotReady, Nodes: names[3:], Payload: "maxPods: 7"},
	}
	start(t, o)
	good, bad := configMap(t, "maxPods: 8"), configMap(t, "maxPods: 7")
	for _, name := range names {
		assign(t, name, good)
	}

	for _, name := range names {
		lastKnownGood(t, name, good)
		assign(t, name, bad)
	}

	for i, want := range []struct{ reason, words string }{
		{v1alpha1.ReasonValidationFailed, "set to reject it"},
		{v1alpha1.ReasonCrashLooped, ""},
		{v1alpha1.ReasonNotHealthy, ""},
		{v1alpha1.ReasonNotReady, ""},
	} {
		st := configOK(t, names[i], want.reason, want.words)
		assert.That(t, st.Active != nil && st.Active.UID == good.UID && st.LastKnownGood != nil && st.LastKnownGood.UID == good.UID,
			"%s: it runs %+v, not last-known-good", want.reason, st.Active)
	}

	isReady(t, names[3], corev1.ConditionTrue)
}

func TestNodesJoinAndLeave(t *testing.T) {
	f := start(t, options(1))
	joined := assert.Value(f.Add(t.Context(), 2))(t)
	names := f.Names()
	assert.That(t, len(names) == 3 && slices.Contains(names, joined[1]), "%v joined, now there are %v", joined, names)
	configOK(t, joined[1], v1alpha1.ReasonLocalDefault, "")
	assert.NoError(t, f.Remove(t.Context(), joined[0]))
	if err := kube.Get(t.Context(), client.ObjectKey{Name: joined[0]}, &corev1.Node{}); !apierrors.IsNotFound(err) {
		t.Errorf("the Node that left is there: %v", err)
	}

	assert.OK(t, kube.Get(t.Context(), client.ObjectKey{Name: joined[0]}, &v1alpha1.NodeConfig{}), "the NodeConfig of the node that left")
	assert.ErrorHas(t, f.Remove(t.Context(), joined[0]), joined[0]+" not found", "leaving twice")
}

func TestNodesReboot(t *testing.T) {
	o := options(2)
	o.Faults = []Fault{{Kind: Silent, Nodes: []string{o.Prefix + "1"}}}
	f := start(t, o)
	names := f.Names()
	for _, announced := range []bool{true, false} {
		done := make(chan error, 1)
		go func() { done <- f.Reboot(t.Context(), announced, 2*time.Second, names...) }()
		for _, name := range names {
			isReady(t, name, corev1.ConditionFalse)
			node := &corev1.Node{}
			if err := kube.Get(t.Context(), client.ObjectKey{Name: name}, node); err != nil || node.Spec.Unschedulable != announced {
				t.Errorf("announced %t: %s is cordoned %t: %v", announced, name, node.Spec.Unschedulable, err)
			}
		}

		assert.NoError(t, <-done)
		for _, name := range names {
			isReady(t, name, corev1.ConditionTrue)
			node := &corev1.Node{}
			err := kube.Get(t.Context(), client.ObjectKey{Name: name}, node)
			assert.That(t, err == nil && !node.Spec.Unschedulable, "announced %t: %s is still cordoned, %v", announced, name, err)
		}

		states := f.States()
		assert.That(t, states["silent"] == 1, "the states are %v", states)
	}

	assert.ErrorHas(t, f.Reboot(t.Context(), true, time.Second, "other"), "other not found", "an unknown node")
}

func TestAFaultCanBeSetLater(t *testing.T) {
	f := start(t, options(1))
	name := f.Names()[0]
	assert.NoError(t, f.SetFault(name, Fault{Kind: Reject}))
	bad := configMap(t, "maxPods: 61")
	assign(t, name, bad)
	configOK(t, name, v1alpha1.ReasonValidationFailed, "")
	assert.ErrorHas(t, f.SetFault(name, Fault{Kind: "lazy"}), `unknown kind "lazy"`, "an unknown fault")
	nobody := "nobody"
	for what, err := range map[string]error{
		"SetFault": f.SetFault(nobody, Fault{Kind: Reject}),
		"Silence":  f.Silence(nobody), "Unsilence": f.Unsilence(t.Context(), nobody),
	} {
		assert.ErrorHas(t, err, "hollow node nobody not found", what, "of an unknown node")
	}
}

func TestNodesThatAreNotHollowAreNeverChanged(t *testing.T) {
	o := options(3)
	real := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: o.Prefix + "1"}}
	assert.NoError(t, kube.Create(t.Context(), real))
	t.Cleanup(func() { _ = kube.Delete(t.Context(), real) })
	_, err := Start(t.Context(), o)
	assert.ErrorHas(t, err, "node "+real.Name+" exists and is not hollow", "starting")
	got := &corev1.Node{}
	if err := kube.Get(t.Context(), client.ObjectKey{Name: real.Name}, got); err != nil || got.ResourceVersion != real.ResourceVersion {
		t.Errorf("the Node was touched: %v", err)
	}
	if err := kube.Get(t.Context(), client.ObjectKey{Name: o.Prefix + "0"}, got); !apierrors.IsNotFound(err) {
		t.Errorf("another one was left behind: %v", err)
	}
}

func TestNodesOfAnotherFleetAreNotAdopted(t *testing.T) {
	o := options(2)
	first := start(t, o)
	assert.ErrorHas(t, assert.Err(Start(t.Context(), o)), "possibly from another evenkeel-hollow", "starting")
	for _, name := range first.Names() {
		assert.OK(t, kube.Get(t.Context(), client.ObjectKey{Name: name}, &corev1.Node{}), "its node", name)
	}
}

func TestAUserWithoutImpersonationGetsAnError(t *testing.T) {
	path, err := cluster.ClientKubeconfig("rehearser", "rehearsers")
	assert.NoError(t, err)
	o := options(1)
	o.Config = assert.Value(clientcmd.BuildConfigFromFlags("", path))(t)
	assert.ErrorHas(t, assert.Err(Start(t.Context(), o)), "grant it the verb impersonate", "without any right")
}

func TestInvalidOptionsAreErrors(t *testing.T) {
	for want, change := range map[string]func(*Options){
		"unknown kind":              func(o *Options) { o.Faults = []Fault{{Kind: "odd"}} },
		"connection refused":        func(o *Options) { o.Config.Host = "https://127.0.0.1:1" },
		"make the directory of the": func(o *Options) { o.Dir = "/dev/null/x" },
		"connect to the API server": func(o *Options) { o.Config.CAFile, o.Config.CAData = "/dev/null/x", nil },
	} {
		o := options(1)
		change(&o)
		assert.ErrorHas(t, assert.Err(Start(t.Context(), o)), want)
	}
}

// counter counts the writes of agents.
type counter struct {
	mu     sync.Mutex
	writes []string
}

func (c *counter) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := c.writes
	c.writes = nil

	return taken
}

// counting is a transport that counts.
type counting struct {
	*counter
	next http.RoundTripper
}

func (c *counting) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet && strings.HasPrefix(r.UserAgent(), "evenkeel-agent/") {
		line := r.Method + " " + r.URL.Path
		if r.GetBody != nil {
			if body, err := r.GetBody(); err == nil {
				text, _ := io.ReadAll(body)
				line += " " + string(text)
			}
		}

		c.mu.Lock()
		c.writes = append(c.writes, line)
		c.mu.Unlock()
	}

	return c.next.RoundTrip(r)
}

func TestASuccessfulChangeCostsAtMostThreeWritesAndTwoEvents(t *testing.T) {
	o := options(1)
	count := &counter{}
	o.Config.WrapTransport = func(next http.RoundTripper) http.RoundTripper {
		return &counting{count, next}
	}
	f := start(t, o)
	name := f.Names()[0]
	// From local, from a last-known-good, and with values that depend on the
	// machine.
	for _, ref := range []v1alpha1.ConfigMapReference{configMap(t, "maxPods: 70"), configMap(t, "maxPods: 71"), ruled(t)} {
		count.take()
		assign(t, name, ref)
		lastKnownGood(t, name, ref)
		until(t, "all is written", func() (string, bool) {
			n, _ := f.node(name)
			return "not yet", n.state() == v1alpha1.ReasonAllChecksPassed
		})
		var events, others []string
		for _, write := range count.take() {
			if strings.Contains(write, "/events") {
				events = append(events, write)
			} else {
				others = append(others, write)
			}
		}

		t.Logf("%d writes, %d events:\n%s", len(others), len(events), strings.Join(append(others, events...), "\n"))
		if len(others) > 3 || len(events) > 2 {
			t.Errorf("%s: %d writes\n%s\nand %d events\n%s", ref.Name, len(others), strings.Join(others, "\n"), len(events), strings.Join(events, "\n"))
		}
	}
}

func TestLeasesAreRenewedPeriodicallyAlsoForASilentAgent(t *testing.T) {
	o := options(1)
	o.LeasePeriod = 100 * time.Millisecond
	f := start(t, o)
	name := f.Names()[0]
	renewed := map[string]bool{}
	watch := func() {
		clear(renewed)
		until(t, "its Lease is renewed again and again", func() (string, bool) {
			lease, err := f.api.leases.Leases("kube-node-lease").Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err.Error(), false
			}

			renewed[lease.Spec.RenewTime.String()] = true

			return lease.Spec.RenewTime.String(), len(renewed) > 3
		})
	}
	watch()
	assert.NoError(t, f.Silence(name))
	watch()
}

func TestAFleetContinuesWithTheStateOfAnEarlierOne(t *testing.T) {
	o := options(1)
	o.Dir = t.TempDir()
	before := assert.Value(Start(t.Context(), o))(t)
	name := before.Names()[0]
	ref := configMap(t, "maxPods: 63")
	assign(t, name, ref)
	lastKnownGood(t, name, ref)
	assert.NoError(t, before.Stop())
	after := start(t, o)
	st, told := after.Status(name)
	assert.That(t, told && st.LastKnownGood != nil && st.LastKnownGood.UID == ref.UID, "it reports %+v", st)
	isReady(t, name, corev1.ConditionTrue)
}

// What the user may not do is said, with the object.
func TestErrorsNameTheRejectedRequest(t *testing.T) {
	for _, tt := range []struct {
		method, path, want string
		do                 func(t *testing.T, f *Fleet) error
	}{
		{http.MethodGet, "/api/v1/nodes", "list Nodes", func(t *testing.T, f *Fleet) error { _, err := f.Add(t.Context(), 1); return err }},
		{http.MethodPost, "/api/v1/nodes", "register Node", func(t *testing.T, f *Fleet) error { _, err := f.Add(t.Context(), 1); return err }},
		{http.MethodPost, "/leases", "create the Lease of Node", func(t *testing.T, f *Fleet) error { _, err := f.Add(t.Context(), 1); return err }},
		{http.MethodDelete, "/api/v1/nodes/", "delete Node", func(t *testing.T, f *Fleet) error { return f.Remove(t.Context(), f.Names()[0]) }},
		{http.MethodDelete, "/leases/", "delete the Lease of Node", func(t *testing.T, f *Fleet) error { return f.Remove(t.Context(), f.Names()[0]) }},
		{http.MethodDelete, "/nodeconfigs/", "delete NodeConfig", func(t *testing.T, f *Fleet) error { return f.Cleanup(t.Context()) }},
	} {
		t.Run(tt.want, func(t *testing.T) {
			o := options(1)
			refuse := &refusing{method: tt.method, path: tt.path}
			o.Config.WrapTransport = func(next http.RoundTripper) http.RoundTripper { return &refuser{refuse, next} }
			f := start(t, o)
			refuse.on.Store(true)
			if err := tt.do(t, f); err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "refused by the test") {
				t.Errorf("got %v", err)
			}

			refuse.on.Store(false)
		})
	}
}

type refusing struct {
	method, path string
	on           atomic.Bool
}

// refuser is a transport that lets some of a fleet's own requests fail.
type refuser struct {
	*refusing
	next http.RoundTripper
}

func (r *refuser) RoundTrip(q *http.Request) (*http.Response, error) {
	if r.on.Load() && q.UserAgent() == "evenkeel-hollow" && q.Method == r.method && strings.Contains(q.URL.Path, r.path) {
		return nil, errors.New("refused by the test")
	}

	return r.next.RoundTrip(q)
}
