package fleet_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestNodesRefuseAStoppedRevisionThatIsPushedAgainAndExplainIt(t *testing.T) {
	t.Parallel()
	s := play(t, "repush", 2, faulty("crashloop,field=maxPods:7"))
	r := s.roll("maxPods: 101", "strategy: {steps: [{nodes: 1}, {nodes: 100%}]}")
	r.complete(1)
	r.push("maxPods: 7")
	r.await(at(2, v1alpha1.RolloutHalted))
	bad := s.file("bad", "maxPods: 7")
	r.push("maxPods: 102")
	r.await(at(3, v1alpha1.RolloutComplete), updated(2))
	s.plugin(0, "push", r.as, "-f", bad, "--yes", "--force")
	r.await(at(4, v1alpha1.RolloutHalted))
	uid := regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-`)
	for _, out := range []string{s.plugin(2, "rollout", "status", r.as), s.plugin(0, "node", s.node(0))} {
		assert.That(t, !uid.MatchString(out) && strings.Count(out, "2 starts in its trial") == 1,
			"the crash is not explained once and without UIDs:\n%s", out)
	}
	// The UID in the command is needed.
	out := s.assign(2, []string{s.node(1), "-f", s.file("worse", "maxPods: 7\npodsPerCore: 3"), "--drop-in", "--yes"}, "error: node repush-1 rolled back to ", "evenkeel-agent forget ")
	assert.That(t, strings.Count(out, "2 starts in its trial") == 1 && len(uid.FindAllString(out, -1)) == 1,
		"the crash is not explained once:\n%s", out)
}
