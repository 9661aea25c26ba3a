package source

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/internal/payload"
)

// Records is what this node has on disk.
type Records interface {
	// Checkpoint returns the verified checkpoint of a revision, a whole ConfigMap as JSON, and whether there is one.
	Checkpoint(revision string) (configMap []byte, ok bool)
	// Payload returns the sha256 of the payload that is on record for a revision, empty if none is.
	Payload(revision string) string
	// Adopted reports whether this node has taken up this attempt at a revision, or a later one, and nothing else since.
	Adopted(revision string, attempt int64) bool
}

// finding is what became of one reference to a ConfigMap.
type finding struct {
	kind       trial.IntentKind // Unanswered, Invalid or Assigned
	cause      string
	hopeless   bool
	changed    bool   // Invalid, because the content is not the one on record
	stale      bool   // Invalid, because whoever assigned it must not any more
	raw        []byte // nil: the node has it
	payload    payload.Payload
	payloadErr error
	notice     string
}

// assignment is what a NodeConfig assigns, and what its taking up depends on.
type assignment struct {
	ref     v1alpha1.ConfigMapReference
	rollout string // empty: a person assigned it
	attempt int64
	term    int64 // of the controller that assigned it; 0: not known
}

// fetch resolves one reference, downloading only what the node does not have, and then watches the object alone.
type fetch struct {
	client  *Client
	records Records
	assignment
	tell func(finding)
}

func (f *fetch) object() string {
	return "ConfigMap " + f.ref.Namespace + "/" + f.ref.Name
}

// run calls tell with everything newly found, until ctx ends or there is nothing left to be found.
func (f *fetch) run(ctx context.Context) {
	retry := retries(time.Minute)
	for {
		var found finding
		var cm *corev1.ConfigMap
		if f.rollout == "" || f.records.Adopted(string(f.ref.UID), f.attempt) {
			found, cm = f.fromDisk()
		} // else the object says whether the assignment is still wanted
		kept := cm != nil
		if !kept {
			found, cm = f.download(ctx)
		}
		if ctx.Err() != nil {
			return
		}
		f.tell(found)
		if found.kind == trial.Invalid && kept {
			return // what is on disk does not change any more
		}
		if found.kind == trial.Assigned && cm.Immutable != nil && *cm.Immutable {
			return
		}
		if !f.watch(ctx, found, cm) || !pause(ctx, retry.Step(), nil, nil) {
			return
		}
	}
}

// fromDisk returns what a checkpoint makes of the reference, or no ConfigMap.
func (f *fetch) fromDisk() (finding, *corev1.ConfigMap) {
	raw, ok := f.records.Checkpoint(string(f.ref.UID))
	if !ok {
		return finding{}, nil
	}
	cm := &corev1.ConfigMap{}
	if err := json.Unmarshal(raw, cm); err != nil || cm.UID != f.ref.UID {
		return finding{}, nil // it is downloaded anew
	}
	if cm.Namespace != f.ref.Namespace || cm.Name != f.ref.Name {
		return invalid("invalid NodeConfigSource, uid %s names another object: ConfigMap %s/%s, not %s/%s",
			f.ref.UID, cm.Namespace, cm.Name, f.ref.Namespace, f.ref.Name), cm
	}
	return f.judge(cm), cm
}

// download asks until there is a clear answer, telling why there is none yet. Without an object, the answer is that
// there is none.
func (f *fetch) download(ctx context.Context) (finding, *corev1.ConfigMap) {
	retry := retries(time.Minute)
	for {
		recovered := f.client.recovered()
		raw, err := f.client.do(ctx, request{verb: "GET", gv: coreV1, namespace: f.ref.Namespace, resource: "configmaps", name: f.ref.Name}, nil)
		if ctx.Err() != nil {
			return finding{}, nil
		}
		cm := &corev1.ConfigMap{}
		if err == nil {
			err = json.Unmarshal(raw, cm)
		}
		if err == nil && cm.Kind != "ConfigMap" {
			err = fmt.Errorf("the answer is of kind %q", cm.Kind)
		}
		switch {
		case err == nil && cm.UID != f.ref.UID:
			return invalid("invalid NodeConfigSource, uid %s names another object than %s, whose uid is %s", f.ref.UID, f.object(), cm.UID), cm
		case err == nil:
			found := f.judge(cm)
			if kept, has := f.fromDisk(); has == nil || kept.kind != trial.Assigned {
				found.raw = raw
			}
			if cause := f.stale(cm); found.kind == trial.Assigned && cause != "" {
				found = invalid("%s", cause)
				found.stale = true
			}
			return found, cm
		case apierrors.IsNotFound(err):
			// What is on disk is what was assigned, and with its object gone nothing says that it is not wanted any more.
			if kept, has := f.fromDisk(); has != nil && kept.kind == trial.Assigned {
				kept.notice = f.object() + " was deleted; the copy on this node's disk is used"
				return kept, has
			}
			return invalid("referenced %s not found", f.object()), nil
		}
		f.tell(finding{
			kind:     trial.Unanswered,
			hopeless: hopeless(err),
			cause: explain(err, f.object(), fmt.Sprintf(
				"grant the group system:nodes get, list and watch on configmaps in namespace %s", f.ref.Namespace)),
		})
		if !pause(ctx, polite(err, retry.Step()), recovered, nil) {
			return finding{}, nil
		}
		afresh(&retry, time.Minute, recovered)
	}
}

// stale says why an assignment must not be taken up although its object is as it should be; empty: it may. A controller
// that was frozen writes what it decided before, whatever happened meanwhile: the object says what did.
func (f *fetch) stale(cm *corev1.ConfigMap) string {
	if f.rollout == "" {
		return ""
	}
	if newest := v1alpha1.TermOf(cm.Annotations); f.term != 0 && f.term < newest {
		return fmt.Sprintf("a controller that does not lead any more assigned %s (term %d, now %d); the one that leads assigns it anew if it is still wanted", f.object(), f.term, newest)
	}
	why, stopped := cm.Annotations[v1alpha1.AnnotationStopped]
	if attempt, err := strconv.ParseInt(cm.Annotations[v1alpha1.AnnotationStoppedAttempt], 10, 64); !stopped || err == nil && f.attempt > attempt {
		return ""
	}
	return fmt.Sprintf("%s holds a revision of rollout %s that was stopped (%s)", f.object(), f.rollout, bound(why))
}

// judge says what the object that was referenced makes of the reference.
func (f *fetch) judge(cm *corev1.ConfigMap) finding {
	p, err := payload.FromConfigMap(cm)
	digest := p.SHA256
	if err != nil && len(cm.Data) == 1 {
		for key, value := range cm.Data {
			digest = payload.Digest(key, []byte(value))
		}
	}
	if f.ref.SHA256 != "" && f.ref.SHA256 != digest {
		return invalid("%s (UID: %s) does not have the payload that is assigned: its sha256 is %s, not %s", f.object(), f.ref.UID, orNone(digest), f.ref.SHA256)
	}
	if recorded := f.records.Payload(string(f.ref.UID)); recorded != "" && recorded != digest {
		found := invalid("%s (UID: %s) was changed: this node has the payload %s on record under that UID, but it now is %s; create a new ConfigMap to change it",
			f.object(), f.ref.UID, recorded, orNone(digest))
		found.changed = true
		return found
	}
	return finding{kind: trial.Assigned, payload: p, payloadErr: err}
}

// watch reports what becomes of the object. A correct source stays correct whatever happens to it. It returns true
// when the object is not any more as it was when the source was found to be invalid, and false when ctx has ended.
func (f *fetch) watch(ctx context.Context, found finding, judged *corev1.ConfigMap) (again bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex
	see := func(cm *corev1.ConfigMap) {
		mu.Lock()
		defer mu.Unlock()
		if again {
			return
		}
		if found.kind == trial.Invalid {
			if version(cm) != version(judged) {
				again = true
				cancel()
			}
			return
		}
		if notice := f.notice(cm, judged); notice != found.notice {
			found.notice = notice
			f.tell(found)
		}
	}
	w := single(feed{
		client: f.client, gv: coreV1, namespace: f.ref.Namespace, resource: "configmaps",
		slowest: 5 * time.Minute,
		fail:    func(error) {}, // without a watch there are no notices, which change nothing
	}, f.ref.Name, see)
	w.run(ctx)
	return again
}

// notice says what happened to an object whose content the node keeps, empty if nothing did.
func (f *fetch) notice(now, kept *corev1.ConfigMap) string {
	switch {
	case now == nil:
		return f.object() + " was deleted after it was taken up; the node keeps the checkpointed content"
	case now.UID != kept.UID:
		return fmt.Sprintf("%s was replaced by an object with uid %s; the node keeps the checkpointed content: assign the new uid to use it", f.object(), now.UID)
	case content(now) != content(kept):
		return f.object() + " was edited after it was taken up; the node keeps the checkpointed content: create a new ConfigMap to change it"
	}
	return ""
}

// content is a digest of what a ConfigMap carries.
func content(cm *corev1.ConfigMap) string {
	raw, err := json.Marshal([]any{cm.Data, cm.BinaryData})
	if err != nil {
		return "" // strings and bytes can always be encoded
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

func version(cm *corev1.ConfigMap) string {
	if cm == nil {
		return ""
	}
	return string(cm.UID) + "/" + cm.ResourceVersion
}

func invalid(format string, args ...any) finding {
	return finding{kind: trial.Invalid, cause: fmt.Sprintf(format, args...)}
}

func orNone(digest string) string {
	if digest == "" {
		return "none"
	}
	return digest
}
