// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package hollow

import (
	"errors"
	"fmt"
	"net/http"
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

func TestHollowNodesOfSeveralSizesResolveOneConfiguration(t *testing.T) {
	o := options(3)
	o.Zones, o.Labels = 2, map[string]string{"pool": "workers"}
	o.Sizes = []payload.Capacity{{CPU: 4000, Memory: 16 << 30}, {CPU: 16000, Memory: 64 << 30, EphemeralStorage: 100 << 30}}
	f := start(t, o)
	names := f.Names()
	ref := ruled(t)
	for _, name := range names {
		configOK(t, name, v1alpha1.ReasonLocalDefault, "")
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
		l := node.Labels
		assert.That(t, l[corev1.LabelTopologyZone] == fmt.Sprint("zone-", i%2) && l["pool"] == "workers" && l[Label] == "true" && l[corev1.LabelHostname] == name,
			"the labels of %s are %v", name, l)
	}

	assert.Equal(t, f.States()[v1alpha1.ReasonAllChecksPassed], 3, "nodes that run it")
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
			awaitNode(t, name, corev1.ConditionFalse, announced)
		}

		assert.NoError(t, <-done)
		for _, name := range names {
			awaitNode(t, name, corev1.ConditionTrue, false)
		}

		states := f.States()
		assert.That(t, states["silent"] == 1, "the states are %v", states)
	}
}

func TestEachFaultHasItsReason(t *testing.T) {
	f := start(t, options(1))
	name := f.Names()[0]
	good := configMap(t, "maxPods: 8")
	assign(t, name, good)
	lastKnownGood(t, name, good)
	for i, tt := range []struct {
		kind          Kind
		reason, words string
	}{
		{Reject, v1alpha1.ReasonValidationFailed, "set to reject it"},
		{CrashLoop, v1alpha1.ReasonCrashLooped, ""},
		{Unhealthy, v1alpha1.ReasonNotHealthy, ""},
		{NotReady, v1alpha1.ReasonNotReady, ""},
	} {
		assert.NoError(t, f.SetFault(name, Fault{Kind: tt.kind, Payload: "maxPods: 7"}))
		assign(t, name, configMap(t, fmt.Sprint("maxPods: 7", i)))
		st := configOK(t, name, tt.reason, tt.words)
		assert.That(t, st.Active != nil && st.Active.UID == good.UID && st.LastKnownGood != nil && st.LastKnownGood.UID == good.UID,
			"%s: it runs %+v, not last-known-good", tt.reason, st.Active)
	}

	awaitNode(t, name, corev1.ConditionTrue, false)
	assert.ErrorHas(t, f.SetFault(name, Fault{Kind: "lazy"}), `unknown kind "lazy"`, "an unknown fault")
	nobody := "nobody"
	for what, err := range map[string]error{
		"SetFault": f.SetFault(nobody, Fault{Kind: Reject}), "Silence": f.Silence(nobody),
		"Remove": f.Remove(t.Context(), nobody), "Reboot": f.Reboot(t.Context(), true, time.Second, nobody),
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
	assert.NoError(t, kube.Get(t.Context(), client.ObjectKey{Name: real.Name}, got))
	assert.Equal(t, got.ResourceVersion, real.ResourceVersion, "the Node was touched")
	err = kube.Get(t.Context(), client.ObjectKey{Name: o.Prefix + "0"}, got)
	assert.That(t, apierrors.IsNotFound(err), "another one was left behind: %v", err)
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

// tripper makes a function a transport.
type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestASuccessfulChangeCostsAtMostThreeWritesAndTwoEvents(t *testing.T) {
	var mu sync.Mutex
	var writes []string // of agents
	take := func() []string {
		mu.Lock()
		defer mu.Unlock()
		taken := writes
		writes = nil

		return taken
	}
	o := options(1)
	o.Config.WrapTransport = func(next http.RoundTripper) http.RoundTripper {
		return tripper(func(r *http.Request) (*http.Response, error) {
			if r.Method != http.MethodGet && strings.HasPrefix(r.UserAgent(), "evenkeel-agent/") {
				mu.Lock()
				writes = append(writes, r.Method+" "+r.URL.Path)
				mu.Unlock()
			}

			return next.RoundTrip(r)
		})
	}
	f := start(t, o)
	name := f.Names()[0]
	// From local, from a last-known-good, and with values that depend on the
	// machine.
	for _, ref := range []v1alpha1.ConfigMapReference{configMap(t, "maxPods: 70"), configMap(t, "maxPods: 71"), ruled(t)} {
		take()
		assign(t, name, ref)
		lastKnownGood(t, name, ref)
		assert.Eventually(t, "all is written", func() bool { return f.States()[v1alpha1.ReasonAllChecksPassed] == 1 })
		all := take()
		events := strings.Count(strings.Join(all, "\n"), "/events")
		assert.That(t, events <= 2 && len(all)-events <= 3, "%s: %d writes and %d Events: %q", ref.Name, len(all)-events, events, all)
	}
}

func TestLeasesAreRenewedPeriodicallyAlsoForASilentAgent(t *testing.T) {
	o := options(1)
	o.LeasePeriod = 100 * time.Millisecond
	f := start(t, o)
	name := f.Names()[0]
	watch := func() {
		renewed := map[string]bool{}
		until(t, "its Lease is renewed again and again", func() error {
			lease, err := f.api.leases.Leases("kube-node-lease").Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err
			}

			renewed[lease.Spec.RenewTime.String()] = true

			return assert.Unless(len(renewed) > 3, "%v", renewed)
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
	awaitNode(t, name, corev1.ConditionTrue, false)
}

// What the user may not do is said, with the object.
func TestErrorsNameTheRejectedRequest(t *testing.T) {
	var method, path atomic.Value // of the requests that fail
	method.Store("")
	o := options(1)
	o.Config.WrapTransport = func(next http.RoundTripper) http.RoundTripper {
		return tripper(func(r *http.Request) (*http.Response, error) {
			if r.UserAgent() == "evenkeel-hollow" && r.Method == method.Load() && strings.Contains(r.URL.Path, path.Load().(string)) {
				return nil, errors.New("refused by the test")
			}

			return next.RoundTrip(r)
		})
	}
	f := start(t, o)
	add := func() error { return assert.Err(f.Add(t.Context(), 1)) }
	remove := func() error { return f.Remove(t.Context(), f.Names()[0]) }
	for _, tt := range []struct {
		method, path, want string
		do                 func() error
	}{
		{http.MethodGet, "/api/v1/nodes", "list Nodes", add},
		{http.MethodPost, "/api/v1/nodes", "register Node", add},
		{http.MethodPost, "/leases", "create the Lease of Node", add},
		{http.MethodDelete, "/api/v1/nodes/", "delete Node", remove},
		{http.MethodDelete, "/leases/", "delete the Lease of Node", remove},
		{http.MethodDelete, "/nodeconfigs/", "delete NodeConfig", func() error { return f.Cleanup(t.Context()) }},
	} {
		path.Store(tt.path)
		method.Store(tt.method)
		err := tt.do()
		method.Store("")
		assert.That(t, err != nil && strings.Contains(err.Error(), tt.want) && strings.Contains(err.Error(), "refused by the test"),
			"%s: got %v", tt.want, err)
	}
}
