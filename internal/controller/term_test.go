// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/rollout"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// leads has a controller that waits for its lease, and does not wait long.
func leads(o *Options) { o.LeaderElection, o.LeaseDuration = true, 3*time.Second }

func lease(t *testing.T) *coordinationv1.Lease {
	t.Helper()
	return read(t, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace}}, v1alpha1.ControllerLease)
}

// run starts a controller that may end with an error.
func run(t *testing.T, c *Controller) (ended <-chan error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	out := make(chan error, 1)
	var running sync.WaitGroup
	running.Go(func() { out <- c.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })

	return out
}

// A lease in memory.
type memory struct {
	resourcelock.Interface
	record resourcelock.LeaderElectionRecord
}

func (m *memory) Identity() string { return "me" }
func (m *memory) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	r := m.record
	return &r, nil, nil
}
func (m *memory) Create(_ context.Context, r resourcelock.LeaderElectionRecord) error {
	m.record = r
	return nil
}
func (m *memory) Update(_ context.Context, r resourcelock.LeaderElectionRecord) error {
	m.record = r
	return nil
}

func TestATermBelongsToOneHolderOfTheLease(t *testing.T) {
	record := func(holder string, transitions int) resourcelock.LeaderElectionRecord {
		return resourcelock.LeaderElectionRecord{HolderIdentity: holder, LeaderTransitions: transitions}
	}
	begin := func() (*election, *memory) {
		m := &memory{}
		return &election{Interface: m, duration: time.Hour, now: time.Now, lost: make(chan struct{})}, m
	}
	ctx := t.Context()
	e, m := begin()
	assert.Is(t, assert.Err(e.leads()), errNotLeader, "without a lease")
	assert.NoError(t, e.Create(ctx, record("me", 0)))
	assert.Returns(t, int64(1), "the term")(e.leads())
	for range 2 {
		assert.NoError(t, e.Update(ctx, record("me", 0)))
	}

	_, _, err := e.Get(ctx)
	assert.NoError(t, err)
	assert.Returns(t, int64(1), "the term")(e.leads())
	m.record = record("other", 1)
	_, _, err = e.Get(ctx)
	assert.NoError(t, err)
	_, err = e.leads()
	assert.Is(t, err, errNotLeader, "the lease is another's")
	assert.ErrorHas(t, err, `the Lease names "other"`)
	err = e.Update(ctx, record("", 1))
	assert.That(t, err != nil && m.record.HolderIdentity == "other", "it gave another's lease up: %v", err)

	e, _ = begin()
	assert.NoError(t, errors.Join(e.Update(ctx, record("me", 4)), e.Update(ctx, record("me", 6))))
	assert.Is(t, assert.Err(e.leads()), errNotLeader, "somebody else led meanwhile")

	e, _ = begin()
	assert.NoError(t, e.Update(ctx, record("me", 4)))
	e.renewed = e.renewed.Add(-2 * time.Hour)
	assert.Is(t, assert.Err(e.leads()), errNotLeader, "it was frozen for two hours")
}

func TestTheFirstWriteOfAFormerLeadersBatchFails(t *testing.T) {
	world(t)
	addNodes(t, "pool=former", "f1", "f2")
	c := newController(t, own(), leads)
	ended := run(t, c)
	agents(t, nil, "f1", "f2")
	roll(t, "former")
	awaitRollout(t, "former", completeAt(1))
	cm := revisions(t, "former")["1"]
	term := v1alpha1.TermOf(cm.Annotations)
	by := nodeConfig(t, "f1").Spec.ConfigSource.RolloutRef
	assert.Must(t, term != 0 && by.Term == term, "term %d on the ConfigMap, %+v assigned", term, by)
	// Another one has taken over, and this one has not noticed: its lease looks
	// as it did.
	c.election.mu.Lock()
	c.election.duration = time.Hour
	c.election.mu.Unlock()
	edit(t, "former", func(s *v1alpha1.NodeConfigRolloutSpec) { s.Paused = true })
	edit(t, "former", use(7))
	eventually(t, func() error { return assert.Unless(len(revisions(t, "former")) == 2, "there is no second revision") })
	second := revisions(t, "former")["2"]
	second.Annotations[v1alpha1.AnnotationTerm] = fmt.Sprint(term + 1)
	assert.NoError(t, admin.Update(t.Context(), &second))
	edit(t, "former", func(s *v1alpha1.NodeConfigRolloutSpec) { s.Paused = false })
	select {
	case err := <-ended:
		assert.That(t, errors.Is(err, errNotLeader), "it ended with: %v", err)
	case <-time.After(within):
		t.Fatal("it goes on leading")
	}

	for _, name := range []string{"f1", "f2"} {
		assert.Equal(t, nodeConfig(t, name).Generation, 2, name, "was written to")
	}
}

func TestALeaderWritesItsTermBeforeItWatches(t *testing.T) {
	world(t)
	addNodes(t, "pool=terms", "t1")
	addNodes(t, "pool=gone", "g1")
	agents(t, nil, "t1", "g1")
	first := start(t, own(), leads)
	roll(t, "terms")
	awaitRollout(t, "terms", completeAt(1))
	roll(t, "gone")
	awaitRollout(t, "gone", completeAt(1))
	assert.NoError(t, admin.Delete(t.Context(), rolloutNamed(t, "gone")))
	left := v1alpha1.TermOf(revisions(t, "gone")["1"].Annotations)
	first.stop()
	had := v1alpha1.TermOf(revisions(t, "terms")["1"].Annotations)
	assert.NoError(t, admin.Delete(t.Context(), lease(t))) // whoever comes counts from 0
	var over atomic.Bool
	config := answering(func(r *http.Request, _ http.RoundTripper) (*http.Response, error) {
		if query := r.URL.Query(); over.Load() || !query.Has("watch") && !query.Has("limit") { // what is listed without a limit is answered
			return nil, nil
		}

		return answered(r, http.StatusTooManyRequests, io.NopCloser(strings.NewReader(
			`{"kind":"Status","apiVersion":"v1","status":"Failure","code":429,"reason":"TooManyRequests"}`))), nil
	})
	second := start(t, config, leads)
	eventually(t, func() error {
		now := v1alpha1.TermOf(revisions(t, "terms")["1"].Annotations)
		return assert.Unless(now > had, "term %d, was %d", now, had)
	})
	assert.That(t, !second.watches.complete(), "it has looked")
	// A node that lost its disk adopts again what a rollout that is gone had
	// assigned to it.
	now := v1alpha1.TermOf(revisions(t, "gone")["1"].Annotations)
	assert.That(t, now == left && left != 0, "the revision of a rollout that is gone has term %d, had %d", now, left)
	over.Store(true)
	edit(t, "terms", use(7))
	awaitRollout(t, "terms", completeAt(2))
	nc := nodeConfig(t, "t1")
	assert.That(t, nc.Spec.ConfigSource.RolloutRef.Term > had, "assigned by %+v, term %d was before", nc.Spec.ConfigSource.RolloutRef, had)
}

func TestAControllerWithoutElectionRenewsAFreeLease(t *testing.T) {
	world(t)
	c := start(t, own(), func(o *Options) { o.Version = "v9.9.9" })
	eventually(t, func() error { return holds(t, "v9.9.9") })
	assert.That(t, c.election == nil, "it has a term")
	c.stop()
	assert.Equal(t, *lease(t).Spec.HolderIdentity, "", "who keeps the lease")
	_ = client.IgnoreNotFound(admin.Delete(t.Context(), lease(t)))
}

// The next leader knows from the Lease how long nobody observed the fleet. Its
// clock is the API server's.
func TestANewLeaderKnowsWhenTheFormerOneWasThereLast(t *testing.T) {
	m := &memory{record: resourcelock.LeaderElectionRecord{HolderIdentity: "other", RenewTime: metav1.NewTime(then)}}
	now := then.Add(time.Hour)
	e := &election{Interface: m, duration: time.Hour, now: func() time.Time { return now }, lost: make(chan struct{})}
	read := func() {
		_, _, err := e.Get(t.Context())
		assert.NoError(t, err)
	}
	read()
	assert.NoError(t, e.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "me", RenewTime: metav1.NewTime(then.Add(-time.Hour))}))
	assert.That(t, m.record.RenewTime.Time.Equal(now), "it renewed the Lease at %s", m.record.RenewTime)
	read() // its own
	assert.That(t, e.formerRenewal().Equal(then), "the former leader renewed it at %s", e.formerRenewal())
	f := cacheAt(&now)
	f.endOutage(e.formerRenewal())
	p := rollout.Input{}
	f.setOutages(&rolloutEntry{}, &p)
	assert.That(t, len(p.Outages) == 1 && p.Outages[0] == (rollout.Outage{From: then, To: now}), "the outages are %v", p.Outages)
}
