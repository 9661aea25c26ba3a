package controller

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet/policy"
	"github.com/evenkeel/evenkeel/internal/fleet/rollout"
	"github.com/evenkeel/evenkeel/internal/payload"
)

// annotationSHA256 of a revision's ConfigMap is the digest of its payload, for people: what counts is what it holds.
const annotationSHA256 = "evenkeel.dev/payload-sha256"

// defaultHistory is spec.revisionHistoryLimit where it is absent.
const defaultHistory = 10

// unusable is why a template cannot be rolled out, in words for its status.
type unusable struct{ err error }

func (u *unusable) Error() string { return u.err.Error() }
func (u *unusable) Unwrap() error { return u.err }

func unusablef(format string, args ...any) error { return &unusable{fmt.Errorf(format, args...)} }

// resolved is what a template was found to hold, and of what that is true.
type resolved struct {
	generation int64
	version    string // of the ConfigMap that it names
	content    policy.Content
	err        error
}

// content returns what a rollout's template holds. It is decoded once.
func (c *Controller) content(r *rolling, o *v1alpha1.NodeConfigRollout) (policy.Content, error) {
	var named *corev1.ConfigMap
	version := ""
	if ref := o.Spec.Template.ConfigMapRef; ref != nil {
		var err error
		if named, err = c.named.get(ref.Namespace, ref.Name); err != nil {
			return policy.Content{}, err
		}
		version = named.ResourceVersion
	}
	if t := r.template; t == nil || t.generation != o.Generation || t.version != version {
		content, err := policy.ContentOf(o.Spec.Template, named)
		if err == nil {
			_, err = content.Asked(o.Spec.Trial)
		}
		if err != nil {
			err = unusablef("%w; nothing changes until the template is mended", err)
		}
		r.template = &resolved{o.Generation, version, content, err}
	}
	return r.template.content, r.template.err
}

// target returns the revision that a content is, and makes its ConfigMap if there is none. An error that is not an
// unusable one may pass by itself.
//
// A ConfigMap of the right name is taken whoever made it if it holds this very content and nobody can change that: so a
// controller that was killed before it could record the one that it made finds it again. The number is the status's.
func (c *Controller) target(ctx context.Context, o *v1alpha1.NodeConfigRollout, content policy.Content) (rollout.Revision, error) {
	key := client.ObjectKey{Namespace: c.namespace, Name: policy.RevisionName(o.Name, content.SHA256)}
	c.fleet.mu.Lock()
	have := c.fleet.revisions[o.Name][key.Name]
	highest := c.fleet.highestNumber(o)
	c.fleet.mu.Unlock()

	if highest == math.MaxInt64 {
		return rollout.Revision{}, unusablef("rollout %s has used revision number %d, and there is no higher one: create the rollout again under another name", o.Name, highest)
	}
	number := highest + 1
	current := o.Status.UpdateRevision
	if current != nil && current.ConfigMapRef.SHA256 == content.SHA256 {
		number = current.Number
	} else {
		current = nil
	}
	var err error
	if have == nil {
		have, err = c.createRevision(ctx, o, key, content, number)
	} else if current == nil || !isRecorded(have, recordedOf(current)) {
		have, err = c.adoptRevision(ctx, o, key, content) // who knows who made it
		if apierrors.IsNotFound(err) {
			have, err = c.createRevision(ctx, o, key, content, number)
		}
	}
	if err != nil {
		return rollout.Revision{}, err
	}
	// A content that comes back takes the next number.
	if policy.NumberOf(have) != number {
		if have, err = c.number(ctx, have, number); err != nil {
			return rollout.Revision{}, err
		}
	}
	return rollout.Revision{
		Number: number, Namespace: key.Namespace, Name: key.Name, UID: string(have.UID), SHA256: content.SHA256,
	}, nil
}

// recordedOf is a revision as a status names it.
func recordedOf(r *v1alpha1.RolloutRevision) policy.Recorded {
	return policy.Recorded{Number: r.Number, Name: r.ConfigMapRef.Name, UID: r.ConfigMapRef.UID, SHA256: r.ConfigMapRef.SHA256}
}

// isRecorded reports whether a ConfigMap in the cache is a revision that a status names.
func isRecorded(cm *corev1.ConfigMap, r policy.Recorded) bool {
	return cm != nil && r.Matches(cm.UID, cm.Annotations[digestHeld])
}

// highestNumber is the highest number that a rollout has used. The caller holds mu.
func (f *fleet) highestNumber(o *v1alpha1.NodeConfigRollout) int64 {
	if o.Status.UpdateRevision != nil {
		return policy.HighestNumber(o, nil, nil)
	}
	var left []*corev1.ConfigMap
	for _, cm := range f.revisions[o.Name] {
		if isRevision(cm) {
			left = append(left, cm)
		}
	}
	var given []int64
	for _, m := range f.nodes {
		if s := m.seen.Source; s.Rollout == o.Name {
			given = append(given, s.Revision)
		}
	}
	return policy.HighestNumber(o, left, given)
}

func (c *Controller) createRevision(ctx context.Context, o *v1alpha1.NodeConfigRollout, key client.ObjectKey, content policy.Content, number int64) (*corev1.ConfigMap, error) {
	immutable := true
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: key.Name,
			Labels:      map[string]string{v1alpha1.LabelRollout: o.Name, v1alpha1.LabelRevision: strconv.FormatInt(number, 10)},
			Annotations: map[string]string{annotationSHA256: content.SHA256},
		},
		Immutable: &immutable,
		Data:      map[string]string{content.Key: content.Data},
	}
	if c.term != 0 {
		cm.Annotations[v1alpha1.AnnotationTerm] = strconv.FormatInt(c.term, 10)
	}
	err := c.client.Create(ctx, cm, fieldManager)
	if apierrors.IsAlreadyExists(err) {
		return c.adoptRevision(ctx, o, key, content)
	}
	if err != nil {
		c.metrics.wrote("revision", "error")
		if refused(err) && !apierrors.IsTooManyRequests(err) {
			return nil, unusablef("cannot create ConfigMap %s for the revision: %w; kubectl apply -k config/default grants the controller what it needs", key, err)
		}
		return nil, fmt.Errorf("create ConfigMap %s: %w", key, err)
	}
	c.metrics.wrote("revision", "ok")
	c.log.Info("revision created", "rollout", o.Name, "revision", number, "namespace", key.Namespace, "name", key.Name, "uid", cm.UID)
	stripRevision(cm)
	c.fleet.setRevision(cm)
	return cm, nil
}

// adoptRevision reads a ConfigMap that bears a revision's name, and takes it as that if it is.
func (c *Controller) adoptRevision(ctx context.Context, o *v1alpha1.NodeConfigRollout, key client.ObjectKey, content policy.Content) (*corev1.ConfigMap, error) {
	cm := &corev1.ConfigMap{}
	if err := c.client.Get(ctx, key, cm); err != nil {
		if apierrors.IsNotFound(err) {
			c.fleet.forgetRevision(o.Name, key.Name)
		}
		return nil, fmt.Errorf("read ConfigMap %s: %w", key, err)
	}
	data, whole := cm.Data[content.Key]
	switch {
	case cm.Labels[v1alpha1.LabelRollout] != o.Name:
		return nil, unusablef("ConfigMap %s exists, and its label %s is %q: it is none of this rollout's revisions; delete it, or give the rollout another name", key, v1alpha1.LabelRollout, cm.Labels[v1alpha1.LabelRollout])
	case !whole || len(cm.Data) != 1 || len(cm.BinaryData) != 0 || payload.Digest(content.Key, []byte(data)) != content.SHA256:
		return nil, unusablef("ConfigMap %s bears the name of a revision, but holds another configuration; delete it, and the controller makes it anew", key)
	case cm.Immutable == nil || !*cm.Immutable:
		return nil, unusablef("ConfigMap %s bears the name of a revision, but is not immutable; delete it, and the controller makes it anew", key)
	}
	owned := len(cm.OwnerReferences) > 0
	stripRevision(cm)
	c.fleet.setRevision(cm)
	if owned { // the garbage collector would delete it with its owner
		return c.patchRevision(ctx, cm, map[string]any{"ownerReferences": nil})
	}
	return cm, nil
}

func (f *fleet) forgetRevision(rollout, name string) {
	f.mu.Lock()
	cm := f.revisions[rollout][name]
	f.mu.Unlock()
	if cm != nil {
		f.deleteRevision(cm)
	}
}

// number gives a revision's ConfigMap another number.
func (c *Controller) number(ctx context.Context, cm *corev1.ConfigMap, number int64) (*corev1.ConfigMap, error) {
	got, err := c.patchRevision(ctx, cm, map[string]any{"labels": map[string]string{v1alpha1.LabelRevision: strconv.FormatInt(number, 10)}})
	if err == nil {
		c.log.Info("revision is the target again", "rollout", cm.Labels[v1alpha1.LabelRollout], "revision", number, "was", cm.Labels[v1alpha1.LabelRevision], "namespace", cm.Namespace, "name", cm.Name, "uid", cm.UID)
	}
	return got, err
}

// patchRevision changes the metadata of a revision's ConfigMap, if nobody else has.
func (c *Controller) patchRevision(ctx context.Context, cm *corev1.ConfigMap, metadata map[string]any) (*corev1.ConfigMap, error) {
	metadata["uid"], metadata["resourceVersion"] = cm.UID, cm.ResourceVersion
	data, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return nil, fmt.Errorf("encode metadata: %w", err)
	}
	got := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: cm.Namespace, Name: cm.Name}}
	if err := c.client.Patch(ctx, got, client.RawPatch(types.MergePatchType, data), fieldManager); err != nil {
		c.metrics.wrote("revision", "error")
		return nil, advise("patch configmaps/v1", err)
	}
	c.metrics.wrote("revision", "ok")
	stripRevision(got)
	c.fleet.setRevision(got)
	return got, nil
}

// lastSucceeded returns the newest revision other than the target that has succeeded, and whether it can still be returned
// to.
func (c *Controller) lastSucceeded(o *v1alpha1.NodeConfigRollout, target rollout.Revision) rollout.Revision {
	c.fleet.mu.Lock()
	defer c.fleet.mu.Unlock()
	revisions := c.fleet.revisions[o.Name]
	if r := revisionOf(o.Status.CurrentRevision); r.Number != 0 && r.SHA256 != target.SHA256 {
		// A ConfigMap of that name with another UID is not the one that was proven, and may hold anything.
		r.Gone = !isRecorded(revisions[r.Name], recordedOf(o.Status.CurrentRevision))
		return r
	}
	for _, h := range o.Status.History {
		r := policy.Recorded{Number: h.Revision, Name: h.ConfigMap, UID: h.UID, SHA256: h.SHA256}
		if have := revisions[h.ConfigMap]; h.Outcome == v1alpha1.OutcomeSucceeded && h.SHA256 != target.SHA256 && isRecorded(have, r) {
			return rollout.Revision{Number: h.Revision, Namespace: have.Namespace, Name: have.Name, UID: string(h.UID), SHA256: h.SHA256}
		}
	}
	return rollout.Revision{}
}

// isRevision reports whether a ConfigMap in the cache looks like one that the controller has made: it cannot be changed,
// and has the name of what it holds. Anybody could make such a one; only what a status names is a revision.
func isRevision(cm *corev1.ConfigMap) bool {
	sum := cm.Annotations[digestHeld]
	return sum != "" && cm.Name == policy.RevisionName(cm.Labels[v1alpha1.LabelRollout], sum) && policy.Immutable(cm)
}

// prove returns which ConfigMaps the entries of a history mean that an earlier version wrote: it recorded names alone. A
// name is proven by a UID and sha256 that the controller recorded elsewhere, in the status or in a NodeConfig. Else by
// time: the ConfigMap is older than the end of the revision, when the controller last knew that it was the revision's, and
// so is still the same one; and it can never have been changed. What nothing proves is left as it is, and not used.
func (f *fleet) prove(o *v1alpha1.NodeConfigRollout) []policy.Recorded {
	var out []policy.Recorded
	for _, h := range o.Status.History {
		have := f.revisions[o.Name][h.ConfigMap]
		if h.UID != "" && h.SHA256 != "" || have == nil || !isRevision(have) {
			continue
		}
		r := policy.Recorded{Number: h.Revision, Name: h.ConfigMap, UID: have.UID, SHA256: have.Annotations[digestHeld]}
		if h.EndTime != nil && !have.CreationTimestamp.After(h.EndTime.Time) || f.assigned(o, r) {
			out = append(out, r)
		}
	}
	return out
}

// assigned reports whether the controller has given a ConfigMap and its content to nodes as a revision of a rollout, or
// names it in the rollout's status.
func (f *fleet) assigned(o *v1alpha1.NodeConfigRollout, r policy.Recorded) bool {
	for _, v := range []*v1alpha1.RolloutRevision{o.Status.UpdateRevision, o.Status.CurrentRevision} {
		if v != nil && recordedOf(v).Matches(r.UID, r.SHA256) {
			return true
		}
	}
	is := func(s *rollout.Source) bool {
		return s != nil && s.Rollout == o.Name && s.UID == string(r.UID) && s.SHA256 == r.SHA256
	}
	for _, m := range f.nodes {
		if s := &m.seen.Source; is(s) || is(s.Previous) {
			return true
		}
	}
	return false
}

// brand marks the ConfigMap of a target that was stopped, and unmarks that of one that was retried: the history is short,
// and is deleted with the rollout.
func (c *Controller) brand(ctx context.Context, o *v1alpha1.NodeConfigRollout, target rollout.Revision, h *rollout.Halt) error {
	c.fleet.mu.Lock()
	cm := c.fleet.revisions[o.Name][target.Name]
	c.fleet.mu.Unlock()
	if cm == nil {
		return nil
	}
	var reason, attempt any // nil removes it
	_, is := cm.Annotations[v1alpha1.AnnotationStopped]
	stopped := h != nil && h.Reason != rollout.HaltInconclusive
	if stopped == is {
		return nil
	}
	if stopped {
		reason, attempt = h.Reason, strconv.FormatInt(h.Attempt, 10)
	}
	_, err := c.patchRevision(ctx, cm, map[string]any{"annotations": map[string]any{v1alpha1.AnnotationStopped: reason, v1alpha1.AnnotationStoppedAttempt: attempt}})
	return err
}

func revisionOf(r *v1alpha1.RolloutRevision) rollout.Revision {
	if r == nil {
		return rollout.Revision{}
	}
	ref := r.ConfigMapRef
	return rollout.Revision{Number: r.Number, Namespace: ref.Namespace, Name: ref.Name, UID: string(ref.UID), SHA256: ref.SHA256}
}

// stopped are the ConfigMaps of revisions before the target that were stopped because they were bad, or by a person.
func (c *Controller) stopped(o *v1alpha1.NodeConfigRollout, target rollout.Revision) []string {
	bad := map[string]bool{} // by the ConfigMap's name, as its content fared last
	c.fleet.mu.Lock()
	for name, cm := range c.fleet.revisions[o.Name] {
		if _, stopped := cm.Annotations[v1alpha1.AnnotationStopped]; stopped && isRevision(cm) {
			bad[name] = true
		}
	}
	c.fleet.mu.Unlock()
	if h, r := o.Status.Halt, o.Status.UpdateRevision; h != nil && r != nil {
		bad[r.ConfigMapRef.Name] = h.Reason != rollout.HaltInconclusive
	}
	for _, h := range o.Status.History {
		if _, known := bad[h.ConfigMap]; !known {
			bad[h.ConfigMap] = (h.Outcome == v1alpha1.OutcomeHalted || h.Outcome == v1alpha1.OutcomeRolledBack) && terms.StopReason(h) != v1alpha1.HaltInconclusive
		}
	}
	maps.DeleteFunc(bad, func(name string, is bool) bool { return !is || name == target.Name })
	return slices.Sorted(maps.Keys(bad))
}

// collect deletes revisions that nothing names any more, beyond the newest that a rollout keeps.
func (c *Controller) collect(ctx context.Context) error {
	c.fleet.mu.Lock()
	garbage := c.fleet.garbage()
	c.fleet.mu.Unlock()
	var errs []error
	for _, cm := range garbage {
		err := c.client.Delete(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: cm.Namespace, Name: cm.Name}},
			client.Preconditions{UID: &cm.UID, ResourceVersion: &cm.ResourceVersion})
		switch {
		case err == nil:
			c.metrics.wrote("revision", "ok")
			c.log.Info("revision collected: no node names it", "rollout", cm.Labels[v1alpha1.LabelRollout], "revision", policy.NumberOf(cm), "namespace", cm.Namespace, "name", cm.Name, "uid", cm.UID)
			c.fleet.deleteRevision(cm)
		case !apierrors.IsNotFound(err) && !apierrors.IsConflict(err):
			c.metrics.wrote("revision", "error")
			errs = append(errs, advise("delete configmaps/v1", err))
		}
	}
	return errors.Join(errs...)
}

// garbage returns the revisions that nothing names, neither a node nor a rollout's status, beyond the newest that a rollout
// keeps. Which are the newest, their ages say, which nobody can forge. The caller holds mu.
func (f *fleet) garbage() []*corev1.ConfigMap {
	var garbage []*corev1.ConfigMap
	named := f.named()
	for _, owner := range slices.Sorted(maps.Keys(f.revisions)) {
		keep := 0
		used := maps.Clone(named)
		unproven := map[string]bool{} // names of which nobody knows what they mean
		if r := f.rollouts[owner]; r != nil {
			if r.progress == nil || r.object.Status.UpdateRevision == nil {
				continue // it may be about to be given one of them
			}
			keep = historyLimit(r.object)
			for _, x := range []*v1alpha1.RolloutRevision{r.object.Status.UpdateRevision, r.object.Status.CurrentRevision} {
				if x != nil {
					used[x.ConfigMapRef.UID] = true
				}
			}
			for _, x := range policy.RecordedIn(&r.object.Status) {
				if !used[x.UID] && isRecorded(f.revisions[owner][x.Name], x) {
					used[x.UID] = true
					keep--
				}
			}
			for _, h := range r.object.Status.History {
				unproven[h.ConfigMap] = unproven[h.ConfigMap] || h.UID == "" || h.SHA256 == ""
			}
		}
		unused := slices.DeleteFunc(slices.Collect(maps.Values(f.revisions[owner])), func(cm *corev1.ConfigMap) bool {
			return used[cm.UID] || unproven[cm.Name] || !isRevision(cm)
		})
		slices.SortFunc(unused, func(a, b *corev1.ConfigMap) int {
			return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(policy.NumberOf(b), policy.NumberOf(a)))
		})
		garbage = append(garbage, unused[min(len(unused), max(0, keep)):]...)
	}
	return garbage
}

func historyLimit(o *v1alpha1.NodeConfigRollout) int {
	if l := o.Spec.RevisionHistoryLimit; l != nil {
		return int(*l)
	}
	return defaultHistory
}
