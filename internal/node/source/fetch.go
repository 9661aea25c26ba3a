// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/internal/payload"
)

// Checkpoints is the part of the node's state on disk that a source depends on.
type Checkpoints interface {
	// Checkpoint returns the verified checkpoint of a revision, a whole
	// ConfigMap as JSON, and whether there is one.
	Checkpoint(revision string) (configMap []byte, ok bool)
	// Payload returns the recorded sha256 of the payload of a revision, empty
	// if there is none.
	Payload(revision string) string
	// Adopted reports whether this node has adopted this attempt at a revision,
	// or a later attempt, and no other revision since.
	Adopted(revision string, attempt int64) bool
}

// assignment is what a NodeConfig assigns, with what decides whether the node
// may adopt it.
type assignment struct {
	ref     v1alpha1.ConfigMapReference
	rollout string // empty: assigned by a person
	attempt int64
	term    int64 // of the controller that assigned it; 0: not known
}

// fetch resolves one reference, and then only watches the object. It downloads
// an object only if the node has no checkpoint of it. Its Answers are
// Unanswered, Invalid or Assigned, and have only the fields that depend on the
// object.
type fetch struct {
	client      *Client
	checkpoints Checkpoints
	assignment
	report func(Answer)
}

func (f *fetch) object() string {
	return "ConfigMap " + f.ref.Namespace + "/" + f.ref.Name
}

// run calls report with each new result, until ctx ends or no further result is
// possible.
func (f *fetch) run(ctx context.Context) {
	retry := newRetry(f.client, time.Minute)
	for {
		var result Answer
		var cm *corev1.ConfigMap
		if f.rollout == "" || f.checkpoints.Adopted(string(f.ref.UID), f.attempt) {
			result, cm = f.fromDisk()
		} // otherwise only the object shows whether the assignment still applies

		checkpointed := cm != nil
		if !checkpointed {
			result, cm = f.download(ctx)
		}
		if ctx.Err() != nil {
			return
		}

		f.report(result)
		if result.Kind == trial.Invalid && checkpointed {
			return // a checkpoint does not change
		}
		if result.Kind == trial.Assigned && cm.Immutable != nil && *cm.Immutable {
			return
		}
		if !f.watch(ctx, result, cm) || !retry.wait(ctx, nil, nil) {
			return
		}
	}
}

// fromDisk resolves the reference from a checkpoint; without one the ConfigMap
// is nil.
func (f *fetch) fromDisk() (Answer, *corev1.ConfigMap) {
	raw, ok := f.checkpoints.Checkpoint(string(f.ref.UID))
	if !ok {
		return Answer{}, nil
	}

	cm := &corev1.ConfigMap{}
	if err := json.Unmarshal(raw, cm); err != nil || cm.UID != f.ref.UID {
		return Answer{}, nil
	}

	if cm.Namespace != f.ref.Namespace || cm.Name != f.ref.Name {
		return invalid("invalid NodeConfigSource, uid %s names another object: ConfigMap %s/%s, not %s/%s",
			f.ref.UID, cm.Namespace, cm.Name, f.ref.Namespace, f.ref.Name), cm
	}

	return f.check(cm), cm
}

// download retries until the answer is definite, and reports why there is none
// yet. If the object does not exist, the ConfigMap is nil.
func (f *fetch) download(ctx context.Context) (Answer, *corev1.ConfigMap) {
	retry := newRetry(f.client, time.Minute)
	for {
		cm := &corev1.ConfigMap{}
		raw, err := f.client.do(ctx, request{verb: "GET", gv: coreV1, namespace: f.ref.Namespace, resource: "configmaps", name: f.ref.Name}, cm)
		if ctx.Err() != nil {
			return Answer{}, nil
		}

		switch {
		case err == nil && cm.UID != f.ref.UID:
			return invalid("invalid NodeConfigSource, uid %s names another object than %s, whose uid is %s", f.ref.UID, f.object(), cm.UID), cm
		case err == nil:
			result := f.check(cm)
			if checkpointed, old := f.fromDisk(); old == nil || checkpointed.Kind != trial.Assigned {
				result.ConfigMap = raw
			}

			if cause := f.stale(cm); result.Kind == trial.Assigned && cause != "" {
				result = invalid("%s", cause)
				result.Reason = v1alpha1.ReasonStaleAssignment
			}

			return result, cm
		case apierrors.IsNotFound(err):
			// The checkpoint is what was assigned, and without the object no
			// stop of the revision can be found.
			if checkpointed, old := f.fromDisk(); old != nil && checkpointed.Kind == trial.Assigned {
				checkpointed.Notice = f.object() + " was deleted; the copy on this node's disk is used"
				return checkpointed, old
			}

			return invalid("referenced %s not found", f.object()), nil
		}

		cause := describeError(err, f.object(), "grant the group system:nodes get, list and watch on configmaps in namespace "+f.ref.Namespace)
		f.report(Answer{
			Intent: trial.Intent{Kind: intentAfter(err), Cause: cause}, mayPass: true, noneSoon: unavailable(err), Silent: silent(err),
		})
		if !retry.wait(ctx, err, nil) {
			return Answer{}, nil
		}
	}
}

// stale says why the node must not adopt an assignment whose object is valid;
// empty: it may. A controller that was frozen writes its old decisions when it
// wakes up; the annotations of the object show what changed meanwhile.
func (f *fetch) stale(cm *corev1.ConfigMap) string {
	if f.rollout == "" {
		return ""
	}

	if newest := v1alpha1.TermOf(cm.Annotations); f.term != 0 && f.term < newest {
		return fmt.Sprintf("%s was assigned by a controller that is no longer the leader (term %d, now %d); the leader assigns it again if it "+
			"still applies", f.object(), f.term, newest)
	}

	why, stopped := cm.Annotations[v1alpha1.AnnotationStopped]
	if attempt, err := strconv.ParseInt(cm.Annotations[v1alpha1.AnnotationStoppedAttempt], 10, 64); !stopped ||
		err == nil && f.attempt > attempt {
		return ""
	}

	return fmt.Sprintf("%s is a stopped revision of rollout %s (%s)", f.object(), f.rollout, oneLine(why))
}

// check compares the object with the reference and with the recorded payload.
func (f *fetch) check(cm *corev1.ConfigMap) Answer {
	p, err := payload.FromConfigMap(cm)
	digest := p.SHA256
	if err != nil && len(cm.Data) == 1 {
		for key, value := range cm.Data {
			digest = payload.Digest(key, []byte(value))
		}
	}

	if f.ref.SHA256 != "" && f.ref.SHA256 != digest {
		return invalid("%s (UID: %s) does not have the assigned payload: its sha256 is %s, not %s", f.object(), f.ref.UID, cmp.Or(digest, "none"),
			f.ref.SHA256)
	}

	if recorded := f.checkpoints.Payload(string(f.ref.UID)); recorded != "" && recorded != digest {
		result := invalid("%s (UID: %s) was changed: this node recorded payload %s for that UID, but now it is %s; create a new ConfigMap to "+
			"change it",
			f.object(), f.ref.UID, recorded, cmp.Or(digest, "none"))
		result.Reason = v1alpha1.ReasonObjectChanged

		return result
	}

	return Answer{Intent: trial.Intent{Kind: trial.Assigned}, Payload: p, PayloadErr: err}
}

// watch reports changes of the object. A valid object stays valid whatever
// happens to it. watch returns true when an invalid object has changed, and
// false when ctx has ended.
func (f *fetch) watch(ctx context.Context, result Answer, checked *corev1.ConfigMap) (again bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	see := func(cm *corev1.ConfigMap) {
		if again {
			return
		}

		if result.Kind == trial.Invalid {
			if version(cm) != version(checked) {
				again = true
				cancel()
			}

			return
		}

		if notice := f.notice(cm, checked); notice != result.Notice {
			result.Notice = notice
			f.report(result)
		}
	}
	w := watchObject(watcher{
		client: f.client, gv: coreV1, namespace: f.ref.Namespace, resource: "configmaps",
		maxDelay: 5 * time.Minute,
		fail:     func(error) {}, // without a watch there are only no notices
	}, f.ref.Name, see)
	w.run(ctx)

	return again
}

// notice describes what happened to an object whose content the node keeps,
// empty if nothing did.
func (f *fetch) notice(now, checkpointed *corev1.ConfigMap) string {
	switch {
	case now == nil:
		return f.object() + " was deleted after this node adopted it; the node keeps the checkpointed content"
	case now.UID != checkpointed.UID:
		return fmt.Sprintf("%s was replaced by an object with uid %s; the node keeps the checkpointed content: assign the new uid to use it",
			f.object(), now.UID)
	case content(now) != content(checkpointed):
		return f.object() + " was edited after this node adopted it; the node keeps the checkpointed content: create a new ConfigMap to change it"
	}

	return ""
}

// content is a digest of the data of a ConfigMap.
func content(cm *corev1.ConfigMap) string {
	raw, err := json.Marshal([]any{cm.Data, cm.BinaryData})
	if err != nil {
		return "" // strings and bytes can always be encoded
	}

	return fmt.Sprintf("%x", sha256.Sum256(raw))
}

func version(cm *corev1.ConfigMap) string {
	if cm == nil {
		return ""
	}

	return string(cm.UID) + "/" + cm.ResourceVersion
}

func invalid(format string, args ...any) Answer {
	return Answer{Intent: trial.Intent{Kind: trial.Invalid, Cause: fmt.Sprintf(format, args...)}}
}
