package fleet_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// opensLater is a window that opens in five to six hours, and the time at which it does.
func opensLater() (v1alpha1.MaintenanceWindow, time.Time) {
	at := time.Now().Add(6 * time.Hour).Truncate(time.Hour)
	tokyo := at.UTC().Add(9 * time.Hour)
	return v1alpha1.MaintenanceWindow{Schedule: fmt.Sprintf("0 %d * * *", tokyo.Hour()), TimeZone: "Asia/Tokyo", Duration: metav1.Duration{Duration: time.Hour}}, at
}

// isOpen is a window that is always open.
var isOpen = v1alpha1.MaintenanceWindow{Schedule: "* * * * *", Duration: metav1.Duration{Duration: 2 * time.Minute}}

// window replaces the windows of the rollout.
func (r *rollout) window(w v1alpha1.MaintenanceWindow) {
	r.edit(func(s *v1alpha1.NodeConfigRolloutSpec) { s.Strategy.Windows = []v1alpha1.MaintenanceWindow{w} })
}

func TestOutsideOfTheWindowsNodesJoinAndRollBackOnly(t *testing.T) {
	t.Parallel()
	s := play(t, "windows", 3)
	closed, opens := opensLater()
	r := s.roll("maxPods: 101", fmt.Sprintf(`
newNodes: Target
strategy:
  maxUnavailable: 4
  steps: [{nodes: 1}, {pause: {}}, {nodes: 100%%}]
  windows: [{schedule: %q, timeZone: Asia/Tokyo, duration: 1h}]
approval: {revision: 1, step: 2}
`, closed.Schedule))
	st := r.await(at(1, v1alpha1.RolloutWaiting))
	if st.NextWindowTime == nil || !st.NextWindowTime.Time.Equal(opens) || !strings.Contains(st.Message, "no window is open: waiting until "+opens.UTC().Format(time.RFC3339)) {
		t.Errorf("the next window is %s, want %s; the message is %s", st.NextWindowTime, opens, st.Message)
	}
	first := st.UpdateRevision.ConfigMapRef
	s.until("the node joins in another second than the rollout was created", func() (string, bool) {
		created := r.object().CreationTimestamp.Time
		return created.String(), time.Now().After(created.Add(time.Second))
	})
	_, err := s.fleet.Add(t.Context(), 1)
	s.do(err)
	r.await(at(1, v1alpha1.RolloutWaiting), updated(1))
	s.same("were given the first revision", s.everGiven(first), s.nodes(3, 4))

	r.window(isOpen)
	st = r.await(at(1, v1alpha1.RolloutComplete), updated(4))
	assert.That(t, st.NextWindowTime == nil, "the next window is %s", st.NextWindowTime)
	r.push("maxPods: 102")
	second := r.await(at(2, v1alpha1.RolloutAwaitingApproval), updated(1)).UpdateRevision.ConfigMapRef
	given := s.everGiven(second)
	r.edit(func(spec *v1alpha1.NodeConfigRolloutSpec) {
		spec.Strategy.Windows = []v1alpha1.MaintenanceWindow{closed}
		spec.Approval = &v1alpha1.RolloutApproval{Revision: 2, Step: 2}
	})
	r.await(at(2, v1alpha1.RolloutWaiting), that("it waits for a window", func(st *status) bool { return st.NextWindowTime != nil }))
	r.looked()
	s.same("were given the second revision", s.everGiven(second), given)
	r.edit(func(spec *v1alpha1.NodeConfigRolloutSpec) {
		spec.Abort = &v1alpha1.RolloutAbort{Revision: 2, Rollback: true}
	})
	r.await(at(2, v1alpha1.RolloutRolledBack))
	s.same("run the first revision", s.running(first), s.nodes(0, 4))
}
