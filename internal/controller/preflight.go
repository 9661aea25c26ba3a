// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/internal/rollout"
)

// kindPreflights is watched, but not needed for rollouts: the controller works
// without it.
const kindPreflights = "nodeconfigpreflights.evenkeel.dev/v1alpha1"

// ask writes a preflight request into the annotation of the nodes' NodeConfigs.
// It changes only metadata, so that the generation stays and no agent takes the
// request for an assignment. The annotation is left after the answer: removing
// it would be another write for each node. It reports whether all were written
// before the batch's time was over.
func (c *Controller) ask(ctx context.Context, nodes []string, request string) (finished bool, err error) {
	if err := c.stillLeads(); err != nil {
		return false, err
	}

	batch, cancel := context.WithTimeout(ctx, batchTime)
	defer cancel()
	err = c.forEachParallel(batch, len(nodes), func(i int) error {
		return c.annotate(context.WithoutCancel(ctx), "preflight", nodes[i], v1alpha1.AnnotationPreflight, request)
	})

	return batch.Err() == nil, err
}

// askAbout asks the nodes that a plan names about the target.
func (c *Controller) askAbout(ctx context.Context, in *planInput, result *rollout.Result) (finished bool, err error) {
	attempt := result.Next.Attempt
	request, err := fleet.PreflightRequestText(rollout.PreflightUID(in.UID, in.Target.Number, attempt), in.Target.ConfigMapRef, attempt,
		in.object.Spec.Trial, in.Now)
	if err != nil {
		return false, err
	}

	return c.ask(ctx, namesOf(in.nodes, result.Ask), request)
}

func namesOf(nodes []rollout.Node, indexes []int) []string {
	var names []string
	for _, i := range indexes {
		names = append(names, nodes[i].Name)
	}

	return names
}

// watchPreflights watches NodeConfigPreflights until ctx ends. Rollouts
// continue without them.
func (c *Controller) watchPreflights(ctx context.Context) {
	failed := false
	feed := &fleet.Feed{
		API: c.watching, List: &v1alpha1.NodeConfigPreflightList{}, Set: fleet.Typed(c.fleet.setPreflight),
		Remove: fleet.Typed(c.fleet.deletePreflight),
		Known:  func() []client.Object { return c.fleet.known(kindPreflights) },
		Synced: func() { failed = false },
		Lost: func(err error) {
			if err != nil && ctx.Err() == nil && !failed {
				failed = true
				c.log.Warn("cannot watch NodeConfigPreflights; retrying. Rollouts are not affected", "err", advise(kindPreflights, err))
			}
		},
	}
	feed.Run(ctx)
}

// stepPreflights does the next work of the NodeConfigPreflights, if any is due.
// The oldest is asked first, and the others wait: a node keeps one request and
// one answer. Finished ones are deleted after their time.
func (c *Controller) stepPreflights(ctx context.Context) {
	now, _ := c.fleet.times()
	var active *v1alpha1.NodeConfigPreflight
	var next time.Time
	for _, o := range c.fleet.takePreflights() {
		var at time.Time
		var err error
		switch {
		case o.DeletionTimestamp != nil:
			continue
		case o.Status.Ended() != nil:
			at, err = c.expirePreflight(ctx, o, now)
		case active == nil:
			active = o
			at, err = c.stepPreflight(ctx, o)
		default:
			st := o.Status.DeepCopy()
			st.Phase, st.Message = v1alpha1.PreflightWaiting, fmt.Sprintf("NodeConfigPreflight %s is asked first", active.Name)
			err = c.writePreflight(ctx, o, st)
		}

		if err != nil && ctx.Err() == nil {
			c.log.Warn("preflight step failed; retrying", "preflight", o.Name, "err", err)
			at = now.Add(longestRetry)
		}

		next = earliest(next, at)
	}

	c.fleet.reschedulePreflights(next)
}

// expirePreflight deletes a finished NodeConfigPreflight after its time, and
// returns when that is.
func (c *Controller) expirePreflight(ctx context.Context, o *v1alpha1.NodeConfigPreflight, now time.Time) (time.Time, error) {
	ttl := defaultPreflightTTL
	if s := o.Spec.TTLSecondsAfterFinished; s != nil {
		ttl = time.Duration(*s) * time.Second
	}
	if end := o.Status.Ended().Add(ttl); now.Before(end) {
		return end, nil
	}

	// The garbage collector deletes the ConfigMap with it.
	err := c.client.Delete(ctx, &v1alpha1.NodeConfigPreflight{ObjectMeta: metav1.ObjectMeta{Name: o.Name}}, client.Preconditions{UID: &o.UID})
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		return time.Time{}, advise("delete "+kindPreflights, err)
	}

	return time.Time{}, nil
}

// defaultPreflightTTL is the default of spec.ttlSecondsAfterFinished.
const defaultPreflightTTL = time.Hour

// stepPreflight does the next work of one NodeConfigPreflight: store the
// configuration, count the answers, record, ask.
func (c *Controller) stepPreflight(ctx context.Context, o *v1alpha1.NodeConfigPreflight) (time.Time, error) {
	now, outages := c.fleet.times()
	now = recordedBy(&o.Status, now)
	st := o.Status.DeepCopy()
	t := fleet.PreflightTemplateOf(o)
	if t.Err != nil {
		st.Phase, st.Message = v1alpha1.PreflightInvalid, printable.Cut(t.Err.Error(), v1alpha1.MaxRolloutMessage)
		st.Result = &v1alpha1.PreflightResult{StartTime: metav1.NewTime(now), EndTime: new(metav1.NewTime(now))}
		return now, c.writePreflight(ctx, o, st)
	}

	if st.ConfigMapRef == nil {
		ref, err := c.storePreflight(ctx, o, t.Content)
		if err != nil {
			return time.Time{}, err
		}

		st.ConfigMapRef = ref
	}

	c.nodes = c.fleet.selected(t.Nodes, c.nodes[:0])
	nodes := c.nodes
	busy := c.fleet.askingRollouts()
	q := rollout.Inquiry{
		UID: string(o.UID), Now: now, Outages: outages, Timeout: c.settings.AgentTimeout.Duration,
		Room:      rollout.MaxUnanswered - c.fleet.unanswered(string(o.UID), c.settings.AgentTimeout.Duration),
		TakesPart: func(n *rollout.Node) bool { return n.OtherSource == "" },
		Runs: func(n *rollout.Node) bool {
			return n.OK == "True" && !n.InTrial && n.Active.Digest() == st.ConfigMapRef.SHA256 && n.LastKnownGood.Digest() == n.Active.Digest()
		},
		Busy: func(n *rollout.Node) bool { return busy[n.Preflight.Asked] },
	}
	started := now
	if st.Result != nil {
		started = st.Result.StartTime.Time
	}

	result, ask, again := q.Evaluate(started, nodes)
	st.Result = &result
	st.Phase, st.Message = v1alpha1.PreflightAsking, rollout.PreflightSummary(&result)
	if result.EndTime != nil {
		st.Phase = v1alpha1.PreflightComplete
	}

	st.Message = printable.Cut(st.Message, v1alpha1.MaxRolloutMessage)
	decided := o.Status.Result == nil || st.Phase != o.Status.Phase
	if due := c.preflightWritten.Add(countsInterval); !decided && c.fleet.now().Before(due) {
		again = min(cmp.Or(again, countsInterval), countsInterval) // counts are written later
	} else if err := c.writePreflight(ctx, o, st); err != nil {
		return time.Time{}, err
	} else {
		c.preflightWritten = c.fleet.now()
	}

	if len(ask) > 0 {
		request, err := fleet.PreflightRequestText(q.UID, *st.ConfigMapRef, 0, o.Spec.Trial, now)
		if err != nil {
			return time.Time{}, err
		}
		if finished, err := c.ask(ctx, namesOf(nodes, ask), request); err != nil || !finished {
			return now, err
		}
	}

	if again > 0 {
		return now.Add(again), nil
	}

	return now, nil // it has ended: the next one
}

// storePreflight creates the ConfigMap with the configuration of a
// NodeConfigPreflight, or finds the one that was created before a crash.
func (c *Controller) storePreflight(ctx context.Context, o *v1alpha1.NodeConfigPreflight,
	content payload.Payload) (*v1alpha1.ConfigMapReference, error) {
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: c.settings.Namespace, Name: "preflight-" + string(o.UID), Labels: map[string]string{v1alpha1.LabelPreflight: string(o.UID)},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeConfigPreflight", Name: o.Name,
				UID: o.UID}},
		},
		Immutable: new(true),
		Data:      map[string]string{content.Key: string(content.Data)},
	}
	err := c.client.Create(ctx, cm, fieldManager)
	if apierrors.IsAlreadyExists(err) {
		err = c.client.Get(ctx, client.ObjectKeyFromObject(cm), cm)
		if err == nil && (fleet.PayloadDigest(cm) != content.SHA256 || !fleet.Immutable(cm)) {
			return nil, fmt.Errorf("ConfigMap %s/%s exists with another content: delete it", cm.Namespace, cm.Name)
		}
	}

	if err != nil {
		return nil, advise("create configmaps/v1", err)
	}

	return &v1alpha1.ConfigMapReference{Namespace: cm.Namespace, Name: cm.Name, UID: cm.UID, SHA256: content.SHA256}, nil
}

// writePreflight writes the status of a NodeConfigPreflight if it has changed,
// and reports the end of the preflight.
func (c *Controller) writePreflight(ctx context.Context, o *v1alpha1.NodeConfigPreflight, st *v1alpha1.NodeConfigPreflightStatus) error {
	if equality.Semantic.DeepEqual(&o.Status, st) {
		return nil
	}

	got := &v1alpha1.NodeConfigPreflight{ObjectMeta: metav1.ObjectMeta{Name: o.Name}}
	if err := c.patchStatus(ctx, o, st, got); err != nil {
		return advise("patch "+kindPreflights+" status", err)
	}

	c.fleet.setPreflight(got)
	if o.Status.Ended() == nil && st.Ended() != nil {
		kind := corev1.EventTypeNormal
		if st.Phase == v1alpha1.PreflightInvalid || st.Result.Refused > 0 {
			kind = corev1.EventTypeWarning
		}

		c.recorder.Eventf(o, nil, kind, "Preflight"+string(st.Phase), "Preflight", "%s", printable.Cut(st.Message, maxNote))
		c.log.Info(st.Message, "preflight", o.Name, "phase", st.Phase)
	}

	return nil
}

// preflightQueue is the NodeConfigPreflights that the controller knows.
// fleet.mu guards it.
type preflightQueue struct {
	objects map[string]*v1alpha1.NodeConfigPreflight
	dueAt   time.Time // of the next step; zero: none is due
}

// schedulePreflights makes the next step of the preflights due at a time. The
// caller holds mu.
func (f *cache) schedulePreflights(at time.Time) {
	if q := &f.preflights; len(q.objects) > 0 && (q.dueAt.IsZero() || at.Before(q.dueAt)) {
		q.dueAt = at
		signal(f.changed)
	}
}

// setPreflight adds a NodeConfigPreflight unless a newer version is known.
func (f *cache) setPreflight(o *v1alpha1.NodeConfigPreflight) {
	o.ManagedFields = nil
	f.mu.Lock()
	defer f.mu.Unlock()
	was := f.preflights.objects[o.Name]
	if was != nil && was.UID == o.UID && fleet.Older(o.ResourceVersion, was.ResourceVersion) {
		return
	}

	f.preflights.objects[o.Name] = o
	f.schedulePreflights(f.now().Add(f.tick))
}

// deletePreflight removes the NodeConfigPreflight with the same UID.
func (f *cache) deletePreflight(o *v1alpha1.NodeConfigPreflight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if was := f.preflights.objects[o.Name]; was == nil || was.UID != o.UID {
		return
	}

	delete(f.preflights.objects, o.Name)
	f.schedulePreflights(f.now().Add(f.tick))
}

// reschedulePreflights makes the next step of the preflights due at a time, if
// that is not zero.
func (f *cache) reschedulePreflights(at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !at.IsZero() {
		f.schedulePreflights(at)
	}
}

// takePreflights returns the NodeConfigPreflights if their next step is due,
// oldest first.
func (f *cache) takePreflights() []*v1alpha1.NodeConfigPreflight {
	f.mu.Lock()
	defer f.mu.Unlock()
	if at := f.preflights.dueAt; at.IsZero() || f.now().Before(at) {
		return nil
	}

	f.preflights.dueAt = time.Time{}

	return slices.SortedFunc(maps.Values(f.preflights.objects), func(a, b *v1alpha1.NodeConfigPreflight) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
}

// selected appends the nodes that a selector matches, by name, without the
// fields that depend on a rollout.
func (f *cache) selected(selector labels.Selector, nodes []rollout.Node) []rollout.Node {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(f.nodes)) {
		if n := f.nodes[name]; n.node != nil && selector.Matches(labels.Set(n.node.Labels)) {
			nodes = append(nodes, n.observed)
		}
	}

	return nodes
}

// unanswered counts the preflight requests in the fleet that agents still have
// to answer, except those with this prefix.
func (f *cache) unanswered(except string, timeout time.Duration) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	count, now := 0, f.now()
	for _, n := range f.nodes {
		if n.observed.PreflightWaits(now, timeout) && !strings.HasPrefix(n.observed.Preflight.Asked, except) {
			count++
		}
	}

	return count
}

// askingRollouts returns the UIDs of the requests of rollouts whose preflight
// is not over: their answers must not be replaced. A paused rollout asks again
// later.
func (f *cache) askingRollouts() map[string]bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[string]bool{}
	for _, r := range f.rollouts {
		if st := &r.object.Status; st.Preflight != nil && st.Preflight.EndTime == nil && st.Phase == v1alpha1.RolloutWaiting {
			out[rollout.PreflightUID(r.object.UID, st.Target(), st.Attempt)] = true
		}
	}

	return out
}

// times returns the time on the fleet's clock in whole seconds, as the API
// keeps it, and the outages.
func (f *cache) times() (time.Time, rollout.Outages) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now().Truncate(time.Second), slices.Clone(f.outages)
}

// recordedBy returns a time that is not before any that was recorded in a
// preflight's status.
func recordedBy(st *v1alpha1.NodeConfigPreflightStatus, now time.Time) time.Time {
	if r := st.Result; r != nil {
		return rollout.Latest(now, r.StartTime.Time, rollout.TimeOf(r.EndTime))
	}

	return now
}
