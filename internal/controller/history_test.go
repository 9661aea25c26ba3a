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
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/rollout"
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
	foreign := held("foreign", "9", "f")
	foreign.Name = "precious"
	c := knowing(append(all, foreign)...)
	o := &v1alpha1.NodeConfigRollout{ObjectMeta: metav1.ObjectMeta{Name: "r", UID: "r"}, Spec: v1alpha1.NodeConfigRolloutSpec{AllNodes: true, RevisionHistoryLimit: &limit}}
	o.Spec.Pin = &v1alpha1.RolloutPin{SHA256: digest("pinned"), Instead: digest("edited since")}
	o.Status.UpdateRevision = revisionNamed(2, target)
	o.Status.History = []v1alpha1.RolloutOutcome{
		{Revision: 1, ConfigMap: first.Name, UID: "u1", SHA256: digest("first")},
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

// A revision that failed stays so in the history, whatever becomes of it: a retry that succeeds, one that fails again, or is replaced.
func TestTheHistoryKeepsTheFailuresOfEarlierAttempts(t *testing.T) {
	const first = "TooManyFailures: 1 node failed (limit 1): n1 CrashLooped"
	halt := func(attempt int64, message string, rollback bool) *rollout.Halt {
		return &rollout.Halt{Revision: 2, Attempt: attempt, Reason: rollout.HaltTooManyFailures, Message: message, Rollback: rollback}
	}
	play := func(next ...rollout.Result) v1alpha1.RolloutOutcome {
		o := &v1alpha1.NodeConfigRollout{ObjectMeta: metav1.ObjectMeta{Name: "r"}}
		for _, result := range next {
			target := rollout.Revision{Number: result.Next.Revision, Name: "r-1", SHA256: "a"}
			o.Status = statusOf(o, &rollout.Policy{Target: target, Now: then}, &result, []rollout.Node{{Name: "n1"}})
		}
		return o.Status.History[len(o.Status.History)-1]
	}
	failed := rollout.Result{Phase: rollout.PhaseHalted, Next: rollout.Progress{Revision: 2, Attempt: 1, Halt: halt(1, "1 node failed (limit 1): n1 CrashLooped", false)}}
	back := rollout.Result{Phase: rollout.PhaseRolledBack, Where: "now 26 on revision 1, 23 on the local configuration",
		Next: rollout.Progress{Revision: 2, Attempt: 1, Halt: halt(1, "1 node failed (limit 1): n1 CrashLooped", true)}}
	retried := rollout.Result{Phase: rollout.PhaseProgressing, Next: rollout.Progress{Revision: 2, Attempt: 2}}
	succeeded := rollout.Result{Phase: rollout.PhaseComplete, Next: rollout.Progress{Revision: 2, Attempt: 2, Succeeded: true}}
	again := rollout.Result{Phase: rollout.PhaseHalted, Next: rollout.Progress{Revision: 2, Attempt: 2, Halt: halt(2, "1 node failed (limit 1): n2 Timeout", false)}}
	replaced := rollout.Result{Phase: rollout.PhaseProgressing, Next: rollout.Progress{Revision: 3, Attempt: 1}}
	for name, tt := range map[string]struct {
		play          []rollout.Result
		outcome, want string
	}{
		"it failed":                      {[]rollout.Result{failed, failed}, v1alpha1.OutcomeHalted, first},
		"rolled back":                    {[]rollout.Result{failed, back, back}, v1alpha1.OutcomeRolledBack, first + "; now 26 on revision 1, 23 on the local configuration"},
		"a retry in progress":            {[]rollout.Result{failed, retried}, v1alpha1.OutcomeHalted, first},
		"a retry that succeeds":          {[]rollout.Result{failed, retried, succeeded, succeeded}, v1alpha1.OutcomeSucceeded, "earlier: " + first},
		"a retry that fails":             {[]rollout.Result{failed, retried, again, again}, v1alpha1.OutcomeHalted, "TooManyFailures: attempt 2: 1 node failed (limit 1): n2 Timeout; earlier: " + first},
		"a retry that is replaced":       {[]rollout.Result{failed, retried, replaced}, v1alpha1.OutcomeHalted, first},
		"replaced before it was decided": {[]rollout.Result{{Failed: []int{0}, Next: rollout.Progress{Revision: 2}}, replaced}, v1alpha1.OutcomeSuperseded, "replaced by revision 3; failed: n1 CrashLooped"},
	} {
		t.Run(name, func(t *testing.T) {
			for i := range tt.play {
				tt.play[i].NodeState = func(int) rollout.NodeState { return rollout.NodeState{State: rollout.Failed, Reason: "CrashLooped"} }
			}
			got := play(tt.play...)
			assert.Equal(t, got.Outcome, tt.outcome, "the outcome")
			assert.Equal(t, got.Message, tt.want, "the message")
		})
	}
}
