package report

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet/terms"
	"github.com/evenkeel/evenkeel/internal/payload"
)

// Past is one revision of a rollout as far as anything remembers it: its ConfigMap, its outcome in the status, or both.
type Past struct {
	Revision  int64        `json:"revision"`
	ConfigMap string       `json:"configMap,omitempty"`
	Gone      bool         `json:"gone,omitempty"` // the ConfigMap is no more
	Outcome   string       `json:"outcome,omitempty"`
	Updated   int32        `json:"updated,omitempty"`
	Failed    int32        `json:"failed,omitempty"`
	StartTime *metav1.Time `json:"startTime,omitempty"`
	EndTime   *metav1.Time `json:"endTime,omitempty"`
	Message   string       `json:"message,omitempty"`

	Object *corev1.ConfigMap
}

// Pasts returns a rollout's revisions, the oldest first.
func Pasts(ctx context.Context, c client.Reader, r *v1alpha1.NodeConfigRollout) ([]Past, error) {
	objects, numbers, err := RevisionObjects(ctx, c, r.Name)
	if err != nil {
		return nil, err
	}
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
	for name, number := range numbers {
		at(number, name)
	}
	for _, o := range r.Status.History {
		p := at(o.Revision, o.ConfigMap)
		p.Outcome, p.Updated, p.Failed, p.Message = o.Outcome, o.Updated, o.Failed, o.Message
		p.StartTime, p.EndTime = o.StartTime, o.EndTime
	}
	if v := r.Status.CurrentRevision; v != nil {
		p := at(v.Number, v.ConfigMapRef.Name)
		p.Outcome = cmp.Or(p.Outcome, "Succeeded")
	}
	if v := r.Status.UpdateRevision; v != nil {
		p, st := at(v.Number, v.ConfigMapRef.Name), &r.Status
		// What became of it in an attempt before this one is no news while it goes on.
		again := st.Halt == nil && st.Phase != v1alpha1.RolloutComplete && (st.CurrentRevision == nil || st.CurrentRevision.Number != v.Number)
		if p.Outcome == "" || p.EndTime == nil || again {
			p.EndTime = nil
			p.Outcome, p.StartTime, p.Message = OrUnknown(st.Phase), st.StartTime, st.Message
			p.Updated, p.Failed = st.Nodes.Updated, st.Nodes.Failed
		}
	}
	var out []Past
	for _, number := range slices.Sorted(maps.Keys(all)) {
		p := all[number]
		// A content that has become the target again keeps its ConfigMap, which then bears the newer number.
		p.Object = objects[p.ConfigMap]
		p.Gone = p.Object == nil
		out = append(out, *p)
	}
	return out, nil
}

// RevisionObjects returns the ConfigMaps of a rollout's revisions and their numbers, by name.
func RevisionObjects(ctx context.Context, c client.Reader, name string) (map[string]*corev1.ConfigMap, map[string]int64, error) {
	objects, numbers := map[string]*corev1.ConfigMap{}, map[string]int64{}
	for cm, err := range Pages(ctx, c, func() *corev1.ConfigMapList { return &corev1.ConfigMapList{} }, func(l *corev1.ConfigMapList) []corev1.ConfigMap { return l.Items },
		client.InNamespace(v1alpha1.SystemNamespace), client.MatchingLabels{v1alpha1.LabelRollout: name}) {
		if err != nil {
			return nil, nil, fmt.Errorf("list the ConfigMaps of the revisions of rollout %q in %s: %w", name, v1alpha1.SystemNamespace, err)
		}
		if number, err := strconv.ParseInt(cm.Labels[v1alpha1.LabelRevision], 10, 64); err == nil {
			objects[cm.Name], numbers[cm.Name] = cm, number
		}
	}
	return objects, numbers, nil
}

// ContentAt returns a revision's content. The error says which revisions there are.
func ContentAt(r *v1alpha1.NodeConfigRollout, all []Past, number int64) (terms.Content, error) {
	at := slices.IndexFunc(all, func(p Past) bool { return p.Revision == number })
	if at < 0 {
		return terms.Content{}, fmt.Errorf("rollout %q has no revision %d; it has %s", r.Name, number, Kept(all))
	}
	p := all[at]
	if p.Gone {
		return terms.Content{}, fmt.Errorf("ConfigMap %s/%s of revision %d of rollout %q is gone, and with it what the revision was; there are still %s",
			v1alpha1.SystemNamespace, cmp.Or(p.ConfigMap, "(unknown)"), number, r.Name, Kept(all))
	}
	content, err := payload.FromConfigMap(p.Object)
	if err != nil {
		return terms.Content{}, fmt.Errorf("revision %d of rollout %q: %w", number, r.Name, err)
	}
	if want := terms.RevisionName(r.Name, content.SHA256); p.Object.Name != want {
		return terms.Content{}, fmt.Errorf("ConfigMap %s/%s does not hold what revision %d of rollout %q was: that content would be in %s; there are %s",
			p.Object.Namespace, p.Object.Name, number, r.Name, want, Kept(all))
	}
	return terms.Content{Key: content.Key, Data: string(content.Data), SHA256: content.SHA256}, nil
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
	return Few(numbers)
}
