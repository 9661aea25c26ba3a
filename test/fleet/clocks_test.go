package fleet_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

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
	s.controller("--leader-elect=false")
	r.looked()
	assert.Equal(t, mark(), was, "the mark")
	// Set the recorded time back by one soak: only the recorded time counts.
	began := time.Now().Add(-601 * time.Second).UTC().Format(time.RFC3339)
	text := was[:strings.Index(was, `"fineSince":"`)+len(`"fineSince":"`)] + began + `"}`
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationObserved, text)
	s.do(kube.Patch(t.Context(), s.nodeConfig(s.node(0)), client.RawPatch("application/merge-patch+json", []byte(patch))))
	r.complete(1)
}
