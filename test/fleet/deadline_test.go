package fleet_test

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// plugin runs `kubectl evenkeel`, which must exit with code, and returns what it prints.
func (s *scenario) plugin(code int, args ...string) string {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), root+"/bin/kubectl-evenkeel", args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+cluster.AdminKubeconfig())
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		s.t.Fatal(err)
	}
	if got := cmd.ProcessState.ExitCode(); got != code {
		s.t.Errorf("%q: exit code %d, want %d: %s", args, got, code, out)
	}
	return string(out)
}

func TestARolloutThatDoesNotMoveIsStuckButNotWhileItIsPaused(t *testing.T) {
	t.Parallel()
	s := play(t, "deadline", 3)
	r := s.roll("maxPods: 101", `
paused: true
progressDeadlineSeconds: 10
strategy: {maxUnavailable: 0, steps: [{nodes: 100%}]}
`)
	began := r.await(at(1, v1alpha1.RolloutPaused)).StartTime.Time
	s.until("more than the deadline has passed", func() (string, bool) {
		return time.Since(began).String(), time.Since(began) > 12*time.Second
	})
	if st := r.looked(); st.Phase != v1alpha1.RolloutPaused {
		t.Errorf("it is %s: %s", st.Phase, st.Message)
	}
	resumed := time.Now().Truncate(time.Second)
	r.edit(func(spec *v1alpha1.NodeConfigRolloutSpec) { spec.Paused = false })
	st := r.await(at(1, v1alpha1.RolloutStuck))
	if took := time.Since(resumed); took < 10*time.Second {
		t.Errorf("it was stuck after %s", took)
	}
	if x := condition(st, v1alpha1.ConditionDegraded); x.Status != "True" || x.Reason != "ProgressDeadlineExceeded" {
		t.Errorf("Degraded is %+v", x)
	}
	if out := s.plugin(2, "rollout", "status", r.as); !strings.Contains(out, "Stuck") || !strings.Contains(out, "maxUnavailable is 0: no node moves") {
		t.Errorf("rollout status says: %s", out)
	}
	r.edit(func(spec *v1alpha1.NodeConfigRolloutSpec) {
		one := intstr.FromInt32(1)
		spec.Strategy.MaxUnavailable = &one
	})
	r.await(at(1, v1alpha1.RolloutComplete), updated(3))
	s.plugin(0, "rollout", "status", r.as)
}
