package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// leads has a controller that waits for its lease, and does not wait long.
func leads(o *Options) { o.LeaderElection, o.LeaseDuration = true, 3*time.Second }

func lease(t *testing.T) *coordinationv1.Lease {
	t.Helper()
	l := &coordinationv1.Lease{}
	if err := admin.Get(t.Context(), types.NamespacedName{Namespace: v1alpha1.SystemNamespace, Name: v1alpha1.ControllerLease}, l); err != nil {
		t.Fatal(err)
	}
	return l
}

// depose gives the lease to somebody else, as an election does.
func depose(t *testing.T) {
	t.Helper()
	eventually(t, func() error {
		l, now := lease(t), metav1.NowMicro()
		l.Spec.HolderIdentity, l.Spec.RenewTime, l.Spec.AcquireTime = new("somebody else"), &now, &now
		*l.Spec.LeaseTransitions++
		return admin.Update(t.Context(), l)
	})
}

// run starts a controller that may end with an error.
func run(t *testing.T, c *Controller) (ended <-chan error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	out, done := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(done)
		out <- c.Run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-done })
	return out
}

func TestALeaderStopsAndKeepsTheLeaseOfAnotherHolder(t *testing.T) {
	world(t)
	c := newController(t, own(), leads)
	ended := run(t, c)
	eventually(t, func() error { _, err := c.election.leads(); return err })
	depose(t)
	select {
	case err := <-ended:
		if !errors.Is(err, errNotLeader) || !strings.Contains(err.Error(), `the Lease names "somebody else"`) {
			t.Errorf("it ended with: %v", err)
		}
	case <-time.After(within):
		t.Fatal("it goes on leading")
	}
	if l := lease(t); *l.Spec.HolderIdentity != "somebody else" {
		t.Errorf("it gave up what another one has: %+v", l.Spec)
	}
	l := lease(t)
	if err := admin.Delete(t.Context(), l); err != nil {
		t.Fatal(err)
	}
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
		return &election{Interface: m, duration: time.Hour, lost: make(chan struct{})}, m
	}
	ctx := t.Context()
	e, m := begin()
	if _, err := e.leads(); !errors.Is(err, errNotLeader) {
		t.Errorf("it leads without a lease: %v", err)
	}
	if err := e.Create(ctx, record("me", 0)); err != nil {
		t.Fatal(err)
	}
	if term, err := e.leads(); term != 1 || err != nil {
		t.Errorf("term %d, %v", term, err)
	}
	for range 2 {
		if err := e.Update(ctx, record("me", 0)); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := e.Get(ctx); err != nil {
		t.Fatal(err)
	}
	if term, err := e.leads(); term != 1 || err != nil {
		t.Errorf("term %d, %v", term, err)
	}
	m.record = record("other", 1)
	if _, _, err := e.Get(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := e.leads(); !errors.Is(err, errNotLeader) {
		t.Errorf("the lease is another's: %v", err)
	}
	if err := e.Update(ctx, record("", 1)); err == nil || m.record.HolderIdentity != "other" {
		t.Errorf("it gave another's lease up: %v", err)
	}

	e, _ = begin()
	if err := errors.Join(e.Update(ctx, record("me", 4)), e.Update(ctx, record("me", 6))); err != nil {
		t.Fatal(err)
	}
	if _, err := e.leads(); !errors.Is(err, errNotLeader) {
		t.Errorf("somebody else led meanwhile: %v", err)
	}

	e, _ = begin()
	if err := e.Update(ctx, record("me", 4)); err != nil {
		t.Fatal(err)
	}
	e.renewed = e.renewed.Add(-2 * time.Hour)
	if _, err := e.leads(); !errors.Is(err, errNotLeader) {
		t.Errorf("it was frozen for two hours: %v", err)
	}
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
	if term == 0 || nodeConfig(t, "f1").Spec.ConfigSource.RolloutRef.Term != term {
		t.Fatalf("term %d on the ConfigMap, %+v assigned", term, nodeConfig(t, "f1").Spec.ConfigSource.RolloutRef)
	}

	// Another one has taken over, and this one has not noticed: its lease looks as it did.
	c.election.mu.Lock()
	c.election.duration = time.Hour
	c.election.mu.Unlock()
	edit(t, "former", func(s *v1alpha1.NodeConfigRolloutSpec) { s.Paused = true })
	edit(t, "former", use(7))
	eventually(t, func() error {
		if len(revisions(t, "former")) != 2 {
			return errors.New("there is no second revision")
		}
		return nil
	})
	second := revisions(t, "former")["2"]
	second.Annotations[v1alpha1.AnnotationTerm] = fmt.Sprint(term + 1)
	if err := admin.Update(t.Context(), &second); err != nil {
		t.Fatal(err)
	}
	edit(t, "former", func(s *v1alpha1.NodeConfigRolloutSpec) { s.Paused = false })
	select {
	case err := <-ended:
		if !errors.Is(err, errNotLeader) {
			t.Errorf("it ended with: %v", err)
		}
	case <-time.After(within):
		t.Fatal("it goes on leading")
	}
	for _, name := range []string{"f1", "f2"} {
		if nc := nodeConfig(t, name); nc.Generation != 2 {
			t.Errorf("%s was written to: %+v", name, nc.Spec)
		}
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
	if err := admin.Delete(t.Context(), rolloutNamed(t, "gone")); err != nil {
		t.Fatal(err)
	}
	left := v1alpha1.TermOf(revisions(t, "gone")["1"].Annotations)
	first.stop()
	had := v1alpha1.TermOf(revisions(t, "terms")["1"].Annotations)
	if err := admin.Delete(t.Context(), lease(t)); err != nil { // whoever comes counts from 0
		t.Fatal(err)
	}
	server := &restarted{}
	config := own()
	config.WrapTransport = server.wrap
	over := server.restart() // it cannot look, but for what is listed without a limit
	defer over()
	second := start(t, config, leads)
	eventually(t, func() error {
		if now := v1alpha1.TermOf(revisions(t, "terms")["1"].Annotations); now <= had {
			return fmt.Errorf("term %d, was %d", now, had)
		}
		return nil
	})
	if second.watches.complete() {
		t.Error("it has looked")
	}
	// A node that lost its disk adopts again what a rollout that is gone had assigned to it.
	if now := v1alpha1.TermOf(revisions(t, "gone")["1"].Annotations); now != left || left == 0 {
		t.Errorf("the revision of a rollout that is gone has term %d, had %d", now, left)
	}
	over()
	edit(t, "terms", use(7))
	awaitRollout(t, "terms", completeAt(2))
	if nc := nodeConfig(t, "t1"); nc.Spec.ConfigSource.RolloutRef.Term <= had {
		t.Errorf("assigned by %+v, term %d was before", nc.Spec.ConfigSource.RolloutRef, had)
	}
}

func TestAControllerWithoutElectionRenewsAFreeLease(t *testing.T) {
	world(t)
	c := start(t, own(), func(o *Options) { o.Version = "v9.9.9" })
	eventually(t, func() error { return holds(t, "v9.9.9") })
	if c.election != nil {
		t.Error("it has a term")
	}
	c.stop()
	if l := lease(t); *l.Spec.HolderIdentity != "" {
		t.Errorf("it keeps the lease: %+v", l.Spec)
	}
	_ = client.IgnoreNotFound(admin.Delete(t.Context(), lease(t)))
}
