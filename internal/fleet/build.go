// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/rollout"
)

// UIDNotCreated is the UID of a revision whose ConfigMap does not exist yet.
const UIDNotCreated = "not made yet"

// Objects are what Build makes the input of a plan of.
type Objects struct {
	Rollout  *v1alpha1.NodeConfigRollout
	Template Template
	// Revisions are the ConfigMaps in Settings.Namespace that are labelled with
	// the rollout, by name. They may be stripped (see StripRevision).
	Revisions map[string]*corev1.ConfigMap
	// StoppedElsewhere are the names of the ConfigMaps of other rollouts'
	// revisions that were stopped (see MarkedStopped).
	StoppedElsewhere []string
	// Assigned are the numbers of this rollout's revisions in NodeConfigs of
	// any node. They count only while the status names no revision.
	Assigned []int64
	Settings v1alpha1.RolloutController
	Now      time.Time
	// ReadPods reports whether the controller may list pods and
	// PodDisruptionBudgets; nil if that is not known, as to the CLI.
	ReadPods *bool
}

// Build returns the input of a rollout's plan. If the spec or the template is
// invalid, Invalid says why, and Target is the revision in the status.
// Target.UID is UIDNotCreated if the revision's ConfigMap does not exist. The
// controller sets Term and Outages.
func Build(o Objects) rollout.Input {
	r, st := o.Rollout, &o.Rollout.Status
	in := rollout.Input{
		Claim: claimOf(r), UID: r.UID, Generation: r.Generation, Status: *st, Controller: o.Settings, Now: o.Now,
		DrainID: DrainID(r.UID), PreflightRoom: rollout.MaxUnanswered, Contents: map[string]rollout.Content{}, Revisions: []types.UID{},
	}
	var invalid, unreadable error
	in.Spec, in.Windows, invalid = Complete(r)
	in.RespectBudgets, unreadable = respectsBudgets(&r.Spec.Strategy, o.ReadPods)
	_, unselectable := SelectionOf(r)
	err := cmp.Or(invalid, unselectable, checkDrain(&r.Spec, &o.Settings), checkServers(&r.Spec, &o.Settings), unreadable, o.Template.Err)
	if err == nil {
		in.Target, err = targetOf(o)
	}

	if err != nil {
		in.Invalid, in.PinGone, in.Target = err.Error(), errors.Is(err, errPinGone), v1alpha1.RolloutRevision{}
		if r := st.UpdateRevision; r != nil {
			in.Target = *r
		}
	}

	target := &in.Target.ConfigMapRef
	in.TargetFailed = FailureOf(st, o.Revisions[target.Name], in.Target.Number, target.SHA256)
	in.PassPauses = err == nil && o.Template.Pinned && in.TargetFailed == "" && Succeeded(st, target.SHA256)
	in.Trial, in.AnyTrial = DefaultTrial, true
	if d := o.Template.Trial.ConfigTrialDuration; d != nil {
		in.Trial, in.AnyTrial = min(d.Duration, MaxTrialLength), false
	}

	in.LastSucceeded, in.LastSucceededGone = lastSucceeded(st, o.Revisions, target)
	in.Stopped = append(stopped(st, o.Revisions, target.Name), o.StoppedElsewhere...)
	for _, x := range slices.Backward(RecordedIn(st)) { // the newest number of a content counts
		in.Contents[x.ConfigMapRef.SHA256] = rollout.Content{Number: x.Number, Stopped: slices.Contains(in.Stopped, x.ConfigMapRef.Name)}
	}

	if pin := r.Spec.Pin; err == nil && o.Template.Pinned && pin.SHA256 != pin.Instead {
		in.Replaced = "the template"
		failure := FailureOf(st, o.Revisions[RevisionName(r.Name, pin.Instead)], 0, pin.Instead)
		switch c, known := in.Contents[pin.Instead]; {
		case failure != "":
			in.Replaced += ": " + failure
		case known:
			in.Replaced += fmt.Sprintf(" (revision %d)", c.Number)
		}
	}

	for _, name := range slices.Sorted(maps.Keys(o.Revisions)) {
		in.Revisions = append(in.Revisions, o.Revisions[name].UID)
	}

	return in
}

// Template is the content that a rollout shall roll out: that of its template,
// or of the revision that spec.pin names. If Err is not nil, there is no valid
// content.
type Template struct {
	Content payload.Payload
	Trial   v1alpha1.TrialTerms // the trial terms of Content
	Pinned  bool                // Content is that of the pinned revision
	Err     error
}

// errPinGone means that the revision that spec.pin names is gone.
var errPinGone = errors.New("the pinned revision is gone")

// PinnedName returns the name of the ConfigMap of the revision that a rollout's
// spec.pin names; empty if there is no pin.
func PinnedName(r *v1alpha1.NodeConfigRollout) string {
	if r.Spec.Pin == nil {
		return ""
	}

	return RevisionName(r.Name, r.Spec.Pin.SHA256)
}

// TemplateOf returns the content that a rollout shall roll out. source is the
// ConfigMap that the template's configMapRef names; nil if there is no
// configMapRef, or no such ConfigMap. pinned is the ConfigMap with the name
// PinnedName; nil if there is none.
func TemplateOf(r *v1alpha1.NodeConfigRollout, source, pinned *corev1.ConfigMap) Template {
	t := templateOf(r, source)
	if pin := r.Spec.Pin; pin != nil && pin.Instead == t.Content.SHA256 {
		if pin.SHA256 != pin.Instead {
			return pinnedTemplate(r, pinned)
		}

		t.Pinned = true // an undo of an undo
	}

	return t
}

// pinnedTemplate returns the content of the pinned revision. Its own trial
// terms replace those of the spec.
func pinnedTemplate(r *v1alpha1.NodeConfigRollout, cm *corev1.ConfigMap) Template {
	gone := func(why string) Template {
		return Template{Err: fmt.Errorf("%w: spec.pin names the revision with sha256 %s, but %s; no node moves until then: push a "+
			"configuration, or pin another revision: "+
			"kubectl evenkeel rollout undo %s --to-revision N", errPinGone, r.Spec.Pin.SHA256, why, r.Name)}
	}
	if cm == nil {
		return gone("there is no ConfigMap " + PinnedName(r))
	}
	if err := CheckRevision(cm, r.Name, r.Spec.Pin.SHA256); err != nil {
		return gone(err.Error())
	}

	p, err := payload.FromConfigMap(cm)
	if err != nil {
		return gone(fmt.Sprintf("ConfigMap %s/%s: %v", cm.Namespace, cm.Name, err))
	}

	t := Template{Content: p, Pinned: true}
	if t.Trial, err = payload.ResolveTrial(p.Trial, r.Spec.Trial); err != nil {
		t.Trial, t.Err = payload.ResolveTrial(p.Trial, nil)
	}

	return t
}

func templateOf(r *v1alpha1.NodeConfigRollout, source *corev1.ConfigMap) Template {
	if ref := r.Spec.Template.ConfigMapRef; ref != nil && source == nil {
		return Template{Err: fmt.Errorf("spec.template.configMapRef: ConfigMap %s/%s does not exist: create it, or name another one; nothing "+
			"changes until then", ref.Namespace, ref.Name)}
	}

	var t Template
	var err error
	if t.Content, err = ContentOf(r.Spec.Template, source); err == nil {
		t.Trial, err = payload.ResolveTrial(t.Content.Trial, r.Spec.Trial)
	}
	if err != nil {
		t.Err = fmt.Errorf("%w; nothing changes until the template is corrected", err)
	}

	return t
}

// targetOf returns the revision for a template's content: the one in the status
// if the content is the same, else the next number. The error says why no
// ConfigMap can hold it.
func targetOf(o Objects) (v1alpha1.RolloutRevision, error) {
	r, sha256 := o.Rollout, o.Template.Content.SHA256
	target := v1alpha1.RolloutRevision{ConfigMapRef: v1alpha1.ConfigMapReference{
		Namespace: o.Settings.Namespace, Name: RevisionName(r.Name, sha256), UID: UIDNotCreated, SHA256: sha256,
	}}
	highest := highestNumber(r, o.Revisions, o.Assigned)
	if highest >= v1alpha1.MaxNumber {
		return target, fmt.Errorf("rollout %s has used the highest revision number, %d: create the rollout again under another name", r.Name,
			highest)
	}

	target.Number = highest + 1
	current := r.Status.UpdateRevision
	if current != nil && current.ConfigMapRef.SHA256 == sha256 {
		target.Number = current.Number
	}

	have := o.Revisions[target.ConfigMapRef.Name]
	if have == nil {
		return target, nil
	}

	if current == nil || !Holds(have, &current.ConfigMapRef) {
		if err := CheckRevision(have, r.Name, sha256); err != nil {
			return target, err
		}
	}

	target.ConfigMapRef.UID = have.UID

	return target, nil
}

// CheckRevision returns an error if a ConfigMap with the name of a rollout's
// revision cannot be used as the revision with this payload.
func CheckRevision(cm *corev1.ConfigMap, rollout, sha256 string) error {
	key := cm.Namespace + "/" + cm.Name
	switch owner := cm.Labels[v1alpha1.LabelRollout]; {
	case owner != rollout:
		return fmt.Errorf("ConfigMap %s exists, and its label %s is %q: it is not a revision of this rollout; delete it, or give the rollout "+
			"another name", key, v1alpha1.LabelRollout, owner)
	case PayloadDigest(cm) != sha256:
		return fmt.Errorf("ConfigMap %s has the name of a revision, but another content; delete it, and the controller creates it again", key)
	case !Immutable(cm):
		return fmt.Errorf("ConfigMap %s has the name of a revision, but is not immutable; delete it, and the controller creates it again", key)
	}

	return nil
}

// lastSucceeded returns the newest revision other than the target that
// succeeded, and whether its ConfigMap is gone: one of that name with another
// UID may have another content.
func lastSucceeded(st *v1alpha1.NodeConfigRolloutStatus, revisions map[string]*corev1.ConfigMap,
	target *v1alpha1.ConfigMapReference) (r v1alpha1.RolloutRevision, gone bool) {
	if r := st.CurrentRevision; r != nil && r.Number != 0 && r.ConfigMapRef.SHA256 != target.SHA256 {
		return *r, !Holds(revisions[r.ConfigMapRef.Name], &r.ConfigMapRef)
	}

	for _, h := range st.History {
		have := revisions[h.ConfigMap]
		ref := v1alpha1.ConfigMapReference{Name: h.ConfigMap, UID: h.UID, SHA256: h.SHA256}
		if h.Outcome == v1alpha1.OutcomeSucceeded && h.SHA256 != target.SHA256 && Holds(have, &ref) {
			ref.Namespace = have.Namespace
			return v1alpha1.RolloutRevision{Number: h.Revision, ConfigMapRef: ref}, false
		}
	}

	return v1alpha1.RolloutRevision{}, false
}

// MarkedStopped reports whether a ConfigMap is a revision of a rollout that
// failed or was aborted.
func MarkedStopped(cm *corev1.ConfigMap) bool {
	_, is := cm.Annotations[v1alpha1.AnnotationStopped]
	return is && IsRevision(cm)
}

// stopped returns the names of the ConfigMaps of revisions before the target
// that failed or were aborted.
func stopped(st *v1alpha1.NodeConfigRolloutStatus, revisions map[string]*corev1.ConfigMap, target string) []string {
	bad := map[string]bool{} // by the ConfigMap's name: whether the newest outcome is a failure or an abort
	for name, cm := range revisions {
		if MarkedStopped(cm) {
			bad[name] = true
		}
	}

	if h, r := st.Halt, st.UpdateRevision; h != nil && r != nil {
		bad[r.ConfigMapRef.Name] = h.Reason != v1alpha1.HaltInconclusive
	}

	for _, h := range st.History {
		if _, known := bad[h.ConfigMap]; !known {
			bad[h.ConfigMap] = stoppedAsBad(h)
		}
	}

	maps.DeleteFunc(bad, func(name string, is bool) bool { return !is || name == target })

	return slices.Sorted(maps.Keys(bad))
}

// FailureOf says how a content failed the last time that it was the target
// before; empty if it did not, or if nothing is known about that. have is the
// ConfigMap of the content; nil: none.
func FailureOf(st *v1alpha1.NodeConfigRolloutStatus, have *corev1.ConfigMap, number int64, sha256 string) string {
	current := st.UpdateRevision
	if current != nil && current.Number == number {
		have = nil // its annotation is about this time
	}

	for _, h := range st.History {
		switch {
		case h.SHA256 == "" || h.SHA256 != sha256 || h.Revision == number:
		case h.Outcome == v1alpha1.OutcomeSucceeded:
			return ""
		case stoppedAsBad(h):
			return fmt.Sprintf("revision %d was stopped (%s)", h.Revision, h.Message)
		case h.Outcome == v1alpha1.OutcomeSuperseded && h.Failed > 0:
			return fmt.Sprintf("revision %d failed on %d of its nodes (%s)", h.Revision, h.Failed, h.Message)
		}
	}

	if have != nil && MarkedStopped(have) {
		return fmt.Sprintf("revision %d was stopped (%s)", NumberOf(have), have.Annotations[v1alpha1.AnnotationStopped])
	}

	return ""
}

// Succeeded reports whether a content was rolled out completely, as far as the
// status knows. An undo to it passes the pauses of the steps.
func Succeeded(st *v1alpha1.NodeConfigRolloutStatus, sha256 string) bool {
	return st.CurrentRevision != nil && st.CurrentRevision.ConfigMapRef.SHA256 == sha256 ||
		slices.ContainsFunc(st.History, func(o v1alpha1.RolloutOutcome) bool {
			return o.SHA256 == sha256 && o.Outcome == v1alpha1.OutcomeSucceeded
		})
}

// stoppedAsBad reports whether a revision failed or was aborted. An
// inconclusive stop does not blame the revision.
func stoppedAsBad(o v1alpha1.RolloutOutcome) bool {
	stopped := o.Outcome == v1alpha1.OutcomeHalted || o.Outcome == v1alpha1.OutcomeRolledBack
	return stopped && o.Reason != v1alpha1.HaltInconclusive
}

// PreviousRevision returns the revision to which an undo returns by default; 0
// if there is none.
func PreviousRevision(st *v1alpha1.NodeConfigRolloutStatus) int64 {
	target, current := st.UpdateRevision, st.CurrentRevision
	failed := func(sha256 string) bool { return FailureOf(st, nil, 0, sha256) != "" }
	if target == nil {
		return 0
	}
	if current != nil && current.Number != target.Number && !failed(current.ConfigMapRef.SHA256) {
		return current.Number
	}

	var newest int64
	for _, o := range st.History {
		if o.Revision < target.Number && o.Outcome == v1alpha1.OutcomeSucceeded && o.ConfigMap != target.ConfigMapRef.Name && !failed(o.SHA256) {
			newest = max(newest, o.Revision)
		}
	}

	return newest
}
