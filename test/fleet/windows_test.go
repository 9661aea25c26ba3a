package fleet_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
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
	if st = r.await(at(1, v1alpha1.RolloutComplete), updated(4)); st.NextWindowTime != nil {
		t.Errorf("the next window is %s", st.NextWindowTime)
	}
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

func TestNodesThatBecomeAbleOutsideOfTheWindowsAreNotRestarted(t *testing.T) {
	t.Parallel()
	s := play(t, "windows-able", 3)
	blocked, silent := s.node(0), s.node(1)
	remove := s.pods(blocked, 2)
	s.do(s.fleet.Silence(silent))
	r := s.roll("maxPods: 1", `
strategy:
  maxUnavailable: 3
  steps: [{nodes: 100%}]
  windows: [{schedule: "* * * * *", duration: 2m}]
`)
	ref := r.await(that("one is blocked, one is silent", func(st *status) bool {
		return st.Nodes.Updated == 1 && st.Nodes.Blocked == 1 && st.Nodes.Stale == 1
	})).UpdateRevision.ConfigMapRef
	closed, _ := opensLater()
	r.window(closed)
	s.until("the revision is taken back from the blocked node", func() (string, bool) {
		nc := s.nodeConfig(blocked)
		return fmt.Sprint(nc.Spec), nc.Spec.ConfigSource == nil && nc.Spec.TakenBack != nil
	})
	remove()
	s.do(s.fleet.Unsilence(t.Context(), silent))
	r.await(at(1, v1alpha1.RolloutWaiting), that("both could take it", func(st *status) bool { return st.Nodes.Stale == 0 && st.Nodes.Pending == 1 && st.Nodes.Blocked == 1 }))
	r.looked()
	s.same("have the revision", s.given(ref), s.nodes(2, 3))

	r.edit(func(spec *v1alpha1.NodeConfigRolloutSpec) {
		spec.Strategy.Windows[0] = isOpen
		spec.Retry = &v1alpha1.RolloutRetry{Revision: 1, Attempt: 2} // it would be offered again after a minute
	})
	r.await(at(1, v1alpha1.RolloutComplete), updated(3))
}

func TestAnUnusableWindowIsReported(t *testing.T) {
	t.Parallel()
	s := play(t, "windows-bad", 1)
	r := s.roll("maxPods: 101", `
strategy: {windows: [{schedule: "0 0 30 2 *", duration: 1h}]}
`)
	r.invalid(`spec.strategy.windows[0].schedule: "0 0 30 2 *" never opens`)
	r.window(v1alpha1.MaintenanceWindow{Schedule: "* * * * *", Duration: metav1.Duration{Duration: time.Hour}, TimeZone: "Europe/Atlantis"})
	r.invalid(`spec.strategy.windows[0].timeZone: "Europe/Atlantis" is no time zone`)
	r.window(isOpen)
	r.await(at(1, v1alpha1.RolloutComplete), updated(1))
}
