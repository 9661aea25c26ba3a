package query

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet/policy"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// Past is one revision of a rollout as its status remembers it, with its ConfigMap if that is still there.
type Past struct {
	Revision  int64        `json:"revision"`
	ConfigMap string       `json:"configMap,omitempty"`
	UID       types.UID    `json:"uid,omitempty"`    // of that ConfigMap
	SHA256    string       `json:"sha256,omitempty"` // of the payload
	Gone      bool         `json:"gone,omitempty"`   // there is no ConfigMap that is surely the revision's
	Outcome   string       `json:"outcome,omitempty"`
	Reason    string       `json:"reason,omitempty"` // of the stop, if there was one
	Updated   int32        `json:"updated,omitempty"`
	Failed    int32        `json:"failed,omitempty"`
	StartTime *metav1.Time `json:"startTime,omitempty"`
	EndTime   *metav1.Time `json:"endTime,omitempty"`
	Message   string       `json:"message,omitempty"`

	Object *corev1.ConfigMap `json:"-"` // nil: gone
	named  *corev1.ConfigMap // what has the name of the revision's ConfigMap now
	claims []string          // other ConfigMaps that are labelled with the number
}

// Pasts returns the revisions that a rollout's status names, the oldest first. What a ConfigMap says of itself counts for
// nothing: anybody who may create one can label it.
func Pasts(ctx context.Context, c client.Reader, r *v1alpha1.NodeConfigRollout) ([]Past, error) {
	objects, err := Labelled(ctx, c, policy.SettingsOf(r, nil).Namespace, r.Name)
	if err != nil {
		return nil, err
	}
	return pastsOf(r, objects), nil
}

// pastsOf returns the revisions that a status names, given the ConfigMaps that are labelled with the rollout, by name.
func pastsOf(r *v1alpha1.NodeConfigRollout, objects map[string]*corev1.ConfigMap) []Past {
	all := map[int64]*Past{}
	at := func(number int64, name string) *Past {
		p := all[number]
		if p == nil {
			p = &Past{Revision: number}
			all[number] = p
		}
		p.ConfigMap = cmp.Or(p.ConfigMap, name)
		return p
	}
	for _, o := range r.Status.History {
		p := at(o.Revision, o.ConfigMap)
		p.Outcome, p.Reason, p.Updated, p.Failed, p.Message = o.Outcome, policy.StopReason(o), o.Updated, o.Failed, o.Message
		p.StartTime, p.EndTime = o.StartTime, o.EndTime
	}
	if v := r.Status.CurrentRevision; v != nil {
		p := at(v.Number, v.ConfigMapRef.Name)
		p.Outcome = cmp.Or(p.Outcome, v1alpha1.OutcomeSucceeded)
	}
	if v := r.Status.UpdateRevision; v != nil {
		p, st := at(v.Number, v.ConfigMapRef.Name), &r.Status
		// What became of it in an attempt before this one is no news while it goes on.
		again := st.Halt == nil && st.Phase != v1alpha1.RolloutComplete && (st.CurrentRevision == nil || st.CurrentRevision.Number != v.Number)
		if p.Outcome == "" || p.EndTime == nil || again {
			p.EndTime, p.Reason = nil, ""
			if st.Halt != nil {
				p.Reason = st.Halt.Reason
			}
			p.Outcome, p.StartTime, p.Message = cmp.Or(string(st.Phase), "Unknown"), st.StartTime, st.Message
			p.Updated, p.Failed = st.Nodes.Updated, st.Nodes.Failed
		}
	}
	var out []Past
	for _, number := range slices.Sorted(maps.Keys(all)) {
		p := all[number]
		// A content that has become the target again keeps its ConfigMap, which then bears the newer number.
		is, recorded := policy.Numbered(&r.Status, number)
		p.named, p.UID, p.SHA256 = objects[p.ConfigMap], is.UID, is.SHA256
		if recorded && is.Is(p.named) {
			p.Object = p.named
		}
		p.Gone = p.Object == nil
		for _, name := range slices.Sorted(maps.Keys(objects)) {
			if cm := objects[name]; cm != p.Object && policy.NumberOf(cm) == number {
				p.claims = append(p.claims, fmt.Sprintf("%s/%s (UID %s)", cm.Namespace, cm.Name, cm.UID))
			}
		}
		out = append(out, *p)
	}
	return out
}

// Labelled returns the ConfigMaps in the controller's namespace that are labelled with a rollout, by name. That does not make
// them its revisions.
func Labelled(ctx context.Context, c client.Reader, namespace, name string) (map[string]*corev1.ConfigMap, error) {
	objects := map[string]*corev1.ConfigMap{}
	for cm, err := range Pages(ctx, c, func() *corev1.ConfigMapList { return &corev1.ConfigMapList{} }, func(l *corev1.ConfigMapList) []corev1.ConfigMap { return l.Items },
		client.InNamespace(namespace), client.MatchingLabels{v1alpha1.LabelRollout: name}) {
		if err != nil {
			return nil, fmt.Errorf("list the ConfigMaps of the revisions of rollout %q in %s: %w", name, namespace, err)
		}
		objects[cm.Name] = cm
	}
	return objects, nil
}

// ContentAt returns a revision's content. The error says why nothing can be taken for it, and which revisions there are.
func ContentAt(r *v1alpha1.NodeConfigRollout, all []Past, number int64) (policy.Content, error) {
	at := slices.IndexFunc(all, func(p Past) bool { return p.Revision == number })
	if at < 0 {
		return policy.Content{}, fmt.Errorf("rollout %q has no revision %d in its status; it has %s", r.Name, number, Kept(all))
	}
	p := all[at]
	what := fmt.Sprintf("ConfigMap %s/%s", policy.SettingsOf(r, nil).Namespace, cmp.Or(p.ConfigMap, "(unknown)"))
	refuse := func(format string, args ...any) (policy.Content, error) {
		return policy.Content{}, fmt.Errorf(format+"; there are still %s", append(args, Kept(all))...)
	}
	switch {
	case len(p.claims) > 0 && p.Object != nil:
		return policy.Content{}, fmt.Errorf("revision %d of rollout %q is claimed twice: by %s (UID %s), which the rollout's status names, and by %s, which it does not: "+
			"find out who created the latter, and delete it", number, r.Name, what, p.UID, printable.Few(p.claims))
	case p.named == nil:
		return refuse("%s of revision %d of rollout %q is gone, and with it what the revision was", what, number, r.Name)
	case p.UID == "" || p.SHA256 == "":
		return refuse("revision %d of rollout %q was recorded by an earlier version of evenkeel-controller, and nothing proves that %s is still what it was: "+
			"look at it, and push its content if that is right", number, r.Name, what)
	case p.named.UID != p.UID:
		return refuse("%s is not what revision %d of rollout %q was: its UID is %s, and the rollout's status has %s: somebody created it anew",
			what, number, r.Name, p.named.UID, p.UID)
	case p.Object == nil:
		return refuse("%s does not hold what revision %d of rollout %q was: the sha256 of its payload is not the one in the rollout's status, %s",
			what, number, r.Name, p.SHA256)
	}
	content, err := payload.FromConfigMap(p.Object)
	if err != nil {
		return policy.Content{}, fmt.Errorf("revision %d of rollout %q: %w", number, r.Name, err)
	}
	return policy.Content{Key: content.Key, Data: string(content.Data), SHA256: content.SHA256}, nil
}

// Kept lists the revisions whose content is still there.
func Kept(all []Past) string {
	var numbers []string
	for _, p := range slices.Backward(all) {
		if !p.Gone {
			numbers = append(numbers, fmt.Sprint(p.Revision))
		}
	}
	if len(numbers) == 0 {
		return "none"
	}
	return printable.Few(numbers)
}
