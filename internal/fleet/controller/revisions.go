package controller

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet/policy"
	"github.com/evenkeel/evenkeel/internal/fleet/rollout"
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
	version    string // of the ConfigMap that it names; empty: there is none
	template   policy.Template
}

// template returns what a rollout's template holds. It is decoded once. An error may pass by itself.
func (c *Controller) template(r *rolling, o *v1alpha1.NodeConfigRollout) (policy.Template, error) {
	var source *corev1.ConfigMap
	version := ""
	if ref := o.Spec.Template.ConfigMapRef; ref != nil {
		var err error
		source, err = c.sources.get(ref.Namespace, ref.Name)
		if wrong := (*unusable)(nil); errors.As(err, &wrong) {
			return policy.Template{Err: err}, nil
		} else if err != nil {
			return policy.Template{}, err
		}
		if source != nil {
			version = source.ResourceVersion
		}
	}
	if t := r.template; t == nil || t.generation != o.Generation || t.version != version {
		r.template = &resolved{o.Generation, version, policy.TemplateOf(o, source)}
	}
	return r.template.template, nil
}

// input gathers what the policy of a rollout is made of. An error may pass by itself.
func (c *Controller) input(r *rolling, o *v1alpha1.NodeConfigRollout) (policy.Input, error) {
	in := policy.Input{Rollout: o, Settings: c.settings}
	var err error
	if in.Template, err = c.template(r, o); err != nil {
		return in, err
	}
	c.fleet.mu.Lock()
	defer c.fleet.mu.Unlock()
	// The API keeps whole seconds: what is remembered is then the same before and after a restart.
	in.Now = c.fleet.now().Add(r.ahead).Truncate(time.Second)
	in.Revisions = maps.Clone(c.fleet.revisions[o.Name])
	if o.Status.UpdateRevision == nil {
		for _, m := range c.fleet.nodes {
			if s := m.seen.Source; s.Rollout == o.Name {
				in.Assigned = append(in.Assigned, s.Revision)
			}
		}
	}
	return in, nil
}

// makeRevision makes the ConfigMap of a target if there is none, and returns its UID. An error that is not an unusable one may
// pass by itself.
//
// A ConfigMap of the right name is taken whoever made it if it holds this very content and nobody can change that: so a
// controller that was killed before it could record the one that it made finds it again. The number is the status's.
func (c *Controller) makeRevision(ctx context.Context, o *v1alpha1.NodeConfigRollout, content policy.Content, target rollout.Revision) (types.UID, error) {
	key := client.ObjectKey{Namespace: target.Namespace, Name: target.Name}
	c.fleet.mu.Lock()
	have := c.fleet.revisions[o.Name][key.Name]
	c.fleet.mu.Unlock()
	var err error
	if have == nil {
		have, err = c.createRevision(ctx, o, key, content, target.Number)
	} else if current := o.Status.UpdateRevision; current == nil || !policy.RecordedOf(current).Is(have) {
		have, err = c.adoptRevision(ctx, o, key, content) // who knows who made it
		if apierrors.IsNotFound(err) {
			have, err = c.createRevision(ctx, o, key, content, target.Number)
		}
	}
	// A content that comes back takes the next number.
	if err == nil && policy.NumberOf(have) != target.Number {
		have, err = c.number(ctx, have, target.Number)
	}
	if err != nil {
		return "", err
	}
	return have.UID, nil
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
	policy.StripRevision(cm)
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
	if err := policy.CheckRevision(cm, o.Name, content.SHA256); err != nil {
		return nil, &unusable{err}
	}
	owned := len(cm.OwnerReferences) > 0
	policy.StripRevision(cm)
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
	policy.StripRevision(got)
	c.fleet.setRevision(got)
	return got, nil
}

// prove returns which ConfigMaps the entries of a history mean that an earlier version wrote: it recorded names alone. A
// name is proven by a UID and sha256 that the controller recorded elsewhere, in the status or in a NodeConfig. Else by
// time: the ConfigMap is older than the end of the revision, when the controller last knew that it was the revision's, and
// so is still the same one; and it can never have been changed. What nothing proves is left as it is, and not used.
func (f *fleet) prove(o *v1alpha1.NodeConfigRollout) []policy.Recorded {
	var out []policy.Recorded
	for _, h := range o.Status.History {
		have := f.revisions[o.Name][h.ConfigMap]
		if h.UID != "" && h.SHA256 != "" || have == nil || !policy.IsRevision(have) {
			continue
		}
		r := policy.Recorded{Number: h.Revision, Name: h.ConfigMap, UID: have.UID, SHA256: policy.PayloadDigest(have)}
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
		if v != nil && policy.RecordedOf(v).Matches(r.UID, r.SHA256) {
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
	inUse := f.inUse()
	for _, owner := range slices.Sorted(maps.Keys(f.revisions)) {
		keep := 0
		used := maps.Clone(inUse)
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
				if !used[x.UID] && x.Is(f.revisions[owner][x.Name]) {
					used[x.UID] = true
					keep--
				}
			}
			for _, h := range r.object.Status.History {
				unproven[h.ConfigMap] = unproven[h.ConfigMap] || h.UID == "" || h.SHA256 == ""
			}
		}
		unused := slices.DeleteFunc(slices.Collect(maps.Values(f.revisions[owner])), func(cm *corev1.ConfigMap) bool {
			return used[cm.UID] || unproven[cm.Name] || !policy.IsRevision(cm)
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
