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

func TestARolloutWithoutProgressIsStuckUnlessItIsPaused(t *testing.T) {
	t.Parallel()
	s := play(t, "deadline", 3)
	r := s.roll("maxPods: 101", `
paused: true
progressDeadlineSeconds: 10
strategy: {maxUnavailable: 0, steps: [{nodes: 100%}]}
`)
	began := r.await(at(1, v1alpha1.RolloutPaused)).StartTime.Time
	<-time.After(time.Until(began.Add(12 * time.Second))) // longer than the progress deadline
	if st := r.looked(); st.Phase != v1alpha1.RolloutPaused {
		t.Errorf("it is %s: %s", st.Phase, st.Message)
	}
	r.edit(func(spec *v1alpha1.NodeConfigRolloutSpec) { spec.Paused = false })
	st := r.await(at(1, v1alpha1.RolloutStuck))
	if x := condition(st, v1alpha1.ConditionDegraded); x.Status != "True" || x.Reason != "ProgressDeadlineExceeded" ||
		x.LastTransitionTime.Time.Before(st.ProgressTime.Add(10*time.Second)) {
		t.Errorf("Degraded is %+v, the last progress was at %s", x, st.ProgressTime)
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
