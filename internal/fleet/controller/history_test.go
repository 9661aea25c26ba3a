package controller

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet/policy"
	"github.com/evenkeel/evenkeel/internal/fleet/rollout"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// What the controller takes for a revision, and what not.

var then = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// held is a ConfigMap of rollout "r" as the cache has it, with the name of what it holds.
func held(text string, number string, uid types.UID) *corev1.ConfigMap {
	yes := true
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: v1alpha1.SystemNamespace, Name: policy.RevisionName("r", digest(text)), UID: uid, CreationTimestamp: metav1.NewTime(then),
			Labels: map[string]string{v1alpha1.LabelRollout: "r", v1alpha1.LabelRevision: number},
		},
		Immutable: &yes, Data: map[string]string{"kubelet": text},
	}
	policy.StripRevision(cm)
	return cm
}

func digest(text string) string { return payload.Digest("kubelet", []byte(text)) }

func revisionNamed(number int64, cm *corev1.ConfigMap) *v1alpha1.RolloutRevision {
	return &v1alpha1.RolloutRevision{Number: number, ConfigMapRef: v1alpha1.ConfigMapReference{Namespace: cm.Namespace, Name: cm.Name, UID: cm.UID, SHA256: cm.Annotations[policy.AnnotationDigest]}}
}

// knowing is a controller whose cache has these ConfigMaps.
func knowing(all ...*corev1.ConfigMap) *Controller {
	c := &Controller{settings: policy.DefaultSettings, fleet: newFleet("", time.Second)}
	for _, cm := range all {
		c.fleet.setRevision(cm)
	}
	return c
}

func TestHistoryEntriesWithoutUIDAreIdentifiedOrKept(t *testing.T) {
	good := held("good", "1", "u1")
	late := held("good", "1", "u1")
	late.CreationTimestamp = metav1.NewTime(then.Add(time.Hour))
	mutable := held("good", "1", "u1")
	mutable.Immutable = nil
	misnamed := held("good", "1", "u1")
	misnamed.Annotations[policy.AnnotationDigest] = digest("other")
	node := func(ref v1alpha1.ConfigMapReference, of string) *v1alpha1.NodeConfig {
		nc := &v1alpha1.NodeConfig{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "n"}}
		nc.Spec.ConfigSource = &v1alpha1.NodeConfigSource{ConfigMapRef: &ref, RolloutRef: &v1alpha1.RolloutReference{Name: of, Revision: 1, Attempt: 1}}
		return nc
	}
	other := revisionNamed(1, held("good", "1", "another")).ConfigMapRef
	for name, test := range map[string]struct {
		cm     *corev1.ConfigMap
		ended  bool // the history has when
		status *v1alpha1.RolloutRevision
		node   *v1alpha1.NodeConfig
		want   bool
	}{
		"older than its end":                      {cm: good, ended: true, want: true},
		"younger than its end":                    {cm: late, ended: true},
		"of unknown end":                          {cm: good},
		"younger, and named in the status":        {cm: late, ended: true, status: revisionNamed(3, late), want: true},
		"younger, and another is in the status":   {cm: late, ended: true, status: revisionNamed(3, held("good", "3", "another"))},
		"younger, and a node was given it":        {cm: late, ended: true, node: node(revisionNamed(1, late).ConfigMapRef, "r"), want: true},
		"younger, and a node was given another":   {cm: late, ended: true, node: node(other, "r")},
		"younger, and another rollout gave it":    {cm: late, ended: true, node: node(revisionNamed(1, late).ConfigMapRef, "x")},
		"older, and can be changed":               {cm: mutable, ended: true},
		"older, and holds something else by name": {cm: misnamed, ended: true},
		"gone": {ended: true},
	} {
		t.Run(name, func(t *testing.T) {
			c := knowing()
			if test.cm != nil {
				c.fleet.setRevision(test.cm)
			}
			if test.node != nil {
				c.fleet.setNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
				c.fleet.setConfig(test.node)
			}
			o := &v1alpha1.NodeConfigRollout{ObjectMeta: metav1.ObjectMeta{Name: "r"}}
			o.Status.UpdateRevision = test.status
			h := v1alpha1.RolloutOutcome{Revision: 1, ConfigMap: good.Name, Outcome: v1alpha1.OutcomeSucceeded}
			if test.ended {
				h.EndTime = new(metav1.NewTime(then.Add(time.Minute)))
			}
			o.Status.History = []v1alpha1.RolloutOutcome{h}
			identified := c.fleet.identifyHistory(o)
			assert.Must(t, (len(identified) == 1) == test.want, "identified is %+v, want one: %v", identified, test.want)
			st := o.Status.DeepCopy()
			completeHistory(st, identified)
			if is := st.History[0]; test.want && (is.UID != "u1" || is.SHA256 != digest("good")) || !test.want && (is.UID != "" || is.SHA256 != "") {
				t.Errorf("the entry is %+v", is)
			}
			recorded := o.DeepCopy()
			recorded.Status.History[0].UID, recorded.Status.History[0].SHA256 = "was", "was"
			got := c.fleet.identifyHistory(recorded)
			assert.That(t, len(got) == 0, "what was recorded is %+v", got)
		})
	}
}

func TestForgedConfigMapsDoNotDisplaceRevisions(t *testing.T) {
	limit := int32(2)
	target, first := held("target", "2", "u2"), held("first", "1", "u1")
	pinned := held("pinned", "3", "u3") // by spec.pin, and nowhere else
	all := []*corev1.ConfigMap{target, first, pinned}
	for i := range 12 {
		cm := held("planted "+strconv.Itoa(i), strconv.Itoa(1000+i), types.UID("p"+strconv.Itoa(i)))
		cm.CreationTimestamp = metav1.NewTime(then.Add(time.Hour))
		all = append(all, cm)
	}
	named := held("named", "0", "u0")
	foreign := held("foreign", "9", "f")
	foreign.Name = "precious"
	c := knowing(append(all, named, foreign)...)
	o := &v1alpha1.NodeConfigRollout{ObjectMeta: metav1.ObjectMeta{Name: "r", UID: "r"}, Spec: v1alpha1.NodeConfigRolloutSpec{AllNodes: true, RevisionHistoryLimit: &limit}}
	o.Spec.Pin = &v1alpha1.RolloutPin{SHA256: digest("pinned"), Instead: digest("edited since")}
	o.Status.UpdateRevision = revisionNamed(2, target)
	o.Status.History = []v1alpha1.RolloutOutcome{
		{Revision: 1, ConfigMap: first.Name, UID: "u1", SHA256: digest("first")},
		{Revision: 0, ConfigMap: named.Name}, // an earlier version's: nobody knows what it means
	}
	c.fleet.setRollout(o)
	c.fleet.rollouts["r"].progress = &rollout.Progress{}
	var collected []string
	for _, cm := range c.fleet.unusedRevisions() {
		collected = append(collected, string(cm.UID))
	}
	assert.That(t, len(collected) == 11 && !slices.ContainsFunc(collected, func(uid string) bool { return !strings.HasPrefix(uid, "p") }),
		"collected are %v, want 11 of those that were planted", collected)
}

func TestARecreatedTargetUpdatesItsUIDInTheHistory(t *testing.T) {
	st := &v1alpha1.NodeConfigRolloutStatus{
		CurrentRevision: &v1alpha1.RolloutRevision{Number: 1, ConfigMapRef: v1alpha1.ConfigMapReference{Name: "r-a", UID: "was", SHA256: "sa"}},
		History: []v1alpha1.RolloutOutcome{
			{Revision: 1, ConfigMap: "r-a", UID: "was", SHA256: "sa"}, {Revision: 2, ConfigMap: "r-b", UID: "ub", SHA256: "sb"}, {Revision: 0, ConfigMap: "r-a"},
		},
	}
	updateTargetUID(st, rollout.Revision{Number: 3, Name: "r-a", UID: "is", SHA256: "sa"})
	assert.That(t, st.History[0].UID == "is" && st.History[1].UID == "ub" && st.History[2].UID == "" && st.CurrentRevision.ConfigMapRef.UID == "is",
		"the status says %+v and %+v", st.History, st.CurrentRevision)
}
