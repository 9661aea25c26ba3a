// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hollow tests hollow nodes on a busy machine: with an API server in
// memory, in virtual time.
package hollow

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/hollow"
	"github.com/evenkeel/evenkeel/testkit/simapi"
)

// limits are shorter than the lateness of the machines.
var limits = trial.Limits{TrialDuration: 2 * time.Second, CrashLoopThreshold: 1, HealthTimeout: 5 * time.Second, ReadyTimeout: 5 * time.Second}

// machine runs a fleet of hollow nodes.
type machine struct {
	t      *testing.T
	server *simapi.Server
	fleet  *hollow.Fleet
}

const nodes = 2

// onMachine runs a test with two nodes.
func onMachine(t *testing.T, busy busy, test func(m *machine)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := &machine{t: t, server: simapi.New(simapi.Kinds()...)}
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		config := &rest.Config{Host: "http://simulated", ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON}, Transport: &simapi.Transport{
			Server: m.server, Client: "hollow",
			Fate: func(r *http.Request) (f simapi.Fate) {
				if busy.requests != nil {
					f.Before = busy.requests(r)
				}

				return f
			},
			Lag:  func() time.Duration { return busy.events },
			Gate: func(context.Context) error { return nil },
		}}
		var err error
		m.fleet, err = hollow.Start(ctx, hollow.Options{Config: config, Nodes: nodes, Dir: t.TempDir(), Limits: limits})
		m.do(err)
		defer func() { m.do(m.fleet.Stop()) }()
		for _, node := range m.fleet.Names() { // unlike the real API server, the simulated one ignores the status of a new Node
			ready := []any{map[string]any{"type": "Ready", "status": "True"}}
			m.do(m.server.Patch("nodes", "", node, types.MergePatchType, map[string]any{"status": map[string]any{"conditions": ready}}))
		}

		test(m)
	})
}

func (m *machine) do(err error) {
	m.t.Helper()
	assert.NoError(m.t, err)
}

// assign assigns a new configuration to every node.
func (m *machine) assign(name, fields string) {
	m.t.Helper()
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: name}, Immutable: new(true),
		Data: map[string]string{"kubelet": "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n" + fields + "\n"},
	}
	m.do(m.server.Create("configmaps", cm.Namespace, cm))
	ref := map[string]any{"namespace": cm.Namespace, "name": name, "uid": string(cm.UID)}
	for _, node := range m.fleet.Names() {
		assign := func() error {
			return m.server.Patch("nodeconfigs", "", node, types.MergePatchType, map[string]any{"spec": map[string]any{"configSource": map[string]any{"configMapRef": ref}}})
		}
		err := assign()
		for ; apierrors.IsNotFound(err); err = assign() { // the agent creates it
			time.Sleep(time.Second)
		}

		m.do(err)
	}
}

// runs waits until a configuration is last-known-good on all nodes.
func (m *machine) runs(name string) {
	m.t.Helper()
	m.await(name+" is last-known-good", 5*time.Minute, func() (n int) {
		for _, node := range m.fleet.Names() {
			if st, ok := m.fleet.Status(node); ok && st.Trial == nil && st.LastKnownGood != nil && st.LastKnownGood.Name == name {
				n++
			}
		}

		return n
	})
}

// await waits until something is true of all nodes.
func (m *machine) await(what string, limit time.Duration, count func() int) {
	m.t.Helper()
	for end := time.Now().Add(limit); count() < nodes; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			m.t.Fatalf("not on all nodes: %s: %v", what, m.fleet.States())
		}
	}
}

// busy is a way in which a machine is busy.
type busy struct {
	requests func(*http.Request) time.Duration // how late a request reaches the API server
	events   time.Duration                     // how late the events of watches arrive
}

var machines = map[string]busy{
	"idle":              {},
	"all requests":      {requests: func(*http.Request) time.Duration { return 3 * time.Second }},
	"requests at times": {requests: func(*http.Request) time.Duration { return rand.N(4 * time.Second) }},
	"reads of Leases":   {requests: late(http.MethodGet, "/leases/", 7*time.Second)},
	"writes of Leases":  {requests: late(http.MethodPatch, "/leases/", 20*time.Second)},
	"writes of Nodes":   {requests: late(http.MethodPatch, "/api/v1/nodes/", 20*time.Second)},
	"reads of Nodes":    {requests: late(http.MethodGet, "/api/v1/nodes", 4*time.Second)},
	"events":            {events: 7 * time.Second},
}

// late delays the requests with this method and this text in their path.
func late(method, path string, by time.Duration) func(*http.Request) time.Duration {
	return func(r *http.Request) time.Duration {
		if r.Method == method && strings.Contains(r.URL.Path, path) {
			return by
		}

		return 0
	}
}

func TestEachTrialOfAHollowNodeStartsAPod(t *testing.T) {
	onMachine(t, busy{}, func(m *machine) {
		for i := range 12 {
			name := fmt.Sprint("good-", i)
			m.assign(name, fmt.Sprint("maxPods: ", 50+i))
			m.runs(name)
			for _, node := range m.fleet.Names() {
				st, _ := m.fleet.Status(node)
				assert.That(t, meta.IsStatusConditionTrue(st.Conditions, v1alpha1.ConditionPodsStarted), "%s, %s: %+v", name, node, st.Conditions)
			}
		}
	})
}

func TestAFaultFailsHollowNodesOfABusyMachine(t *testing.T) {
	reasons := map[hollow.Kind]string{
		hollow.Unhealthy: v1alpha1.ReasonNotHealthy, hollow.NotReady: v1alpha1.ReasonNotReady, hollow.CrashLoop: v1alpha1.ReasonCrashLooped,
	}
	for name, busy := range machines {
		for kind, reason := range reasons {
			t.Run(fmt.Sprint(name, "/", kind), func(t *testing.T) {
				onMachine(t, busy, func(m *machine) {
					m.assign("good", "maxPods: 50")
					m.runs("good")
					for _, node := range m.fleet.Names() {
						m.do(m.fleet.SetFault(node, hollow.Fault{Kind: kind, Payload: "maxPods: 7"}))
					}

					m.assign("bad", "maxPods: 7")
					m.await(reason, 10*time.Minute, func() int { return m.fleet.States()[reason] })
					m.runs("good")
				})
			})
		}
	}
}
