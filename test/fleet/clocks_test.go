package fleet_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/rehearsal"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// offBy has the nodes' clocks be off: some ahead, the others behind.
func offBy(d time.Duration) func(*rehearsal.Options) {
	return func(o *rehearsal.Options) { o.ClockSkew = d }
}

func TestClockSkewOfAnHourChangesNothing(t *testing.T) {
	t.Parallel()
	s := play(t, "clocks", 6, offBy(time.Hour), faulty("notready,field=maxPods:7"))
	r := s.roll("maxPods: 101", `
soakSeconds: 6
strategy: {maxUnavailable: 100%, steps: [{nodes: 2}, {nodes: 100%}]}
`)
	// Each node soaks, and is not late for it.
	soaked := map[string]bool{}
	r.await(that("a node soaks", func(st *status) bool { return st.Nodes.Soaking > 0 }))
	ref := r.complete(1)
	for name, nc := range s.nodeConfigs() {
		soaked[name] = strings.Contains(nc.Annotations[v1alpha1.AnnotationObserved], "fineSince")
		skew := time.Until(nc.Status.LastKnownGood.Since.Time).Abs()
		assert.That(t, skew >= 50*time.Minute, "the clock of %s is off by %s: this shows nothing", name, skew)
	}
	if len(soaked) != 6 || fmt.Sprint(soaked) != "map["+strings.Join([]string{"clocks-0:true", "clocks-1:true", "clocks-2:true", "clocks-3:true", "clocks-4:true", "clocks-5:true"}, " ")+"]" {
		t.Errorf("these have soaked: %v", soaked)
	}
	s.same("run the first revision", s.running(ref), s.nodes(0, 6))

	// A node that goes NotReady in its trial has failed, whatever it says when that was.
	r.push("maxPods: 7")
	st := r.await(at(2, v1alpha1.RolloutHalted))
	assert.That(t, st.Halt.Reason == "TooManyFailures" && len(st.FailedNodes) != 0, "the stop is %+v, by %+v", st.Halt, st.FailedNodes)
	for _, f := range st.FailedNodes {
		assert.That(t, f.Reason == "NodeNotReady" || f.Reason == "NotReady", "%+v", f)
	}
}

func TestASoakContinuesUnderAnotherLeader(t *testing.T) {
	s := play(t, "heir", 1)
	r := s.roll("maxPods: 101", `
soakSeconds: 600
strategy: {maxUnavailable: 100%, steps: [{nodes: 100%}]}
`)
	r.await(that("the node soaks", func(st *status) bool { return st.Nodes.Soaking == 1 }))
	mark := func() string { return s.nodeConfig(s.node(0)).Annotations[v1alpha1.AnnotationObserved] }
	var was string
	s.until("when it began is recorded", func() (string, bool) {
		was = mark()
		return was, was != ""
	})
	other, err := startController("--leader-elect=false")
	s.do(err)
	defer func() { s.do(other.stop()) }()
	r.looked()
	is := mark()
	assert.That(t, is == was, "the mark is %s, was %s", is, was)
	// Set the recorded time back by one soak: only the recorded time counts.
	began := time.Now().Add(-601 * time.Second).UTC().Format(time.RFC3339)
	text := was[:strings.Index(was, `"fineSince":"`)+len(`"fineSince":"`)] + began + `"}`
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationObserved, text)
	s.do(kube.Patch(t.Context(), s.nodeConfig(s.node(0)), client.RawPatch("application/merge-patch+json", []byte(patch))))
	r.complete(1)
}
