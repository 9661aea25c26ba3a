package agent

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/payload"
)

// inSilentWorld runs a test with a kubelet that prints no recognizable dump, so that texts are compared.
func inSilentWorld(t *testing.T, test func(w *world)) {
	t.Helper()
	inWorld(t, func(w *world) {
		w.options = func(o *Options) { o.Protected = payload.DefaultProtection() }
		w.kubelet.set(func(s *kubeletState) { s.confs[""] = conf{silent: true} })
		w.start()
		w.runs("")
		test(w)
	})
}

func TestTextAndAllocatablePodsCountForAKubeletWithoutADump(t *testing.T) {
	for _, tt := range []struct {
		name        string
		allocatable int64
		c           conf
		want        string // "" if it is adopted
	}{
		{"the text allows it, and as many pods as are allocatable run", 3, conf{}, ""},
		{"the text forbids it", 110, conf{differs: "readOnlyPort"}, "False | using last-known-good (init): refused current (UID: uid-quiet): protected field readOnlyPort would be 1, but is 2 locally (compared by text) (ProtectedFields)"},
		{"fewer than run", 2, conf{}, "False | using last-known-good (init): refused current (UID: uid-quiet): any restart of the kubelet would end 3 of the node's 3 pods, and the configuration is not the cause: default/a, default/b, default/c: OutOfpods (pods: 3 needed by all pods together, 2 allocatable); correct the cause, move the pods to other nodes, or set trial.allowPodLoss (RestartWouldEvictPods)"},
		{"it does not say", 0, conf{}, "Unknown | using last-known-good (init): could not validate current (UID: uid-quiet): the kubelet did not print its maxPods (CouldNotValidate)"},
		{"the configuration changes it", 110, conf{maxPods: 110}, "False | using last-known-good (init): refused current (UID: uid-quiet): this kubelet does not print its configuration, so the loss of pods cannot be predicted, and the configuration changes maxPods: omit that, or set trial.allowPodLoss in the configuration (WouldEvictPods)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inSilentWorld(t, func(w *world) {
				w.pods("a", "b", "c")
				w.api.set(func(api *simAPI) { api.allocatable = tt.allocatable })
				tt.c.name, tt.c.silent = "quiet", true
				w.assign("uid-quiet", tt.c)
				if tt.want == "" {
					w.runs("quiet")
					w.promoted("uid-quiet")
					if c := meta.FindStatusCondition(w.status().Conditions, v1alpha1.ConditionKubeletLimited); c == nil || c.Status != "True" || c.Reason != "ComparedByText" || c.Message != "compared by text" {
						t.Errorf("the condition is %+v", c)
					}
					return
				}
				w.pass(30 * time.Second)
				w.wantConfigOK(tt.want)
				w.wantStarts("")
				if tt.c.differs == "" {
					w.api.set(func(api *simAPI) { api.asked.AllowPodLoss = true })
					tt.c.name = "allowed"
					w.assign("uid-allowed", tt.c)
					w.runs("allowed")
				}
			})
		})
	}
}

func TestConfigThatAloneEndsItsDryRunsIsRejected(t *testing.T) {
	inStartedWorld(t, func(w *world) {
		w.assign("uid-alone", conf{name: "alone", alone: true})
		w.pass(10 * time.Second)
		w.wantConfigOK("Unknown | using last-known-good (init): could not validate current (UID: uid-alone): it was killed (CouldNotValidate)")
		w.pass(5 * time.Minute)
		w.wantDryRuns("alone", maxUndecidedAlone)
		s := w.status()
		if len(s.BadConfigs) != 1 || !strings.Contains(s.Error, "3 dry runs ended without a verdict, while the local configuration passed each time: it was killed") {
			t.Errorf("bad: %+v, error %q", s.BadConfigs, s.Error)
		}
		w.pass(time.Hour)
		w.wantDryRuns("alone", maxUndecidedAlone)
		w.wantStarts("")
	})
}

func TestUndecidedDryRunIsRepeatedIfLocalFailsToo(t *testing.T) {
	inStartedWorld(t, func(w *world) {
		w.assign("uid-doubtful", conf{name: "doubtful", doubtful: true})
		w.pass(3 * time.Hour)
		w.wantNoBad()
		if n := w.kubelet.checked("doubtful"); n <= maxUndecidedAlone {
			t.Errorf("%d dry runs", n)
		}
	})
}
