// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// repairing starts a reporter that soon repairs its status, and the source that
// shows it.
func repairing(t *testing.T) (string, *proxy, *Reporter) {
	t.Helper()
	node := newName("node")
	setSpec(t, node, map[string]any{})
	p := newProxy(t, node)
	c := newClient(t, p.Kubeconfig)
	r := NewReporter(c, node, "evenkeel-agent", quiet())
	r.status.echo.delay, r.status.echo.interval = 10*time.Millisecond, 10*time.Millisecond
	background(t, r.Run)
	source := NewNodeConfigSource(c, node, &disk{}, quiet())
	source.ShowTo(r)
	background(t, source.Run)

	return node, p, r
}

// The status is another one if a request arrives late, a backup of etcd is
// restored, or a person edits it.
func TestAReplacedStatusIsWrittenAgain(t *testing.T) {
	node, p, r := repairing(t)
	createNode(t, node)
	r.Report(Report{Status: someStatus("a"), Condition: metav1.Condition{Status: "True", Reason: "r", Message: "m"}, Configured: metav1.Condition{Status: "True", Reason: "r", Message: "m"}})
	first := awaitStatus(t, node, "a")
	is := func(message string) func(nodeCondition) bool {
		return func(c nodeCondition) bool { return c.Message == message }
	}
	await(t, "the condition", func() nodeCondition { return conditionOf(t, node) }, is("m"))

	setNodeConditions(t, node, []nodeCondition{{Type: v1alpha1.ConditionConfigOK, Status: "False", Message: "old"}})
	setStatus(t, node, map[string]any{"error": "old"})
	again := awaitStatus(t, node, "a")
	await(t, "the condition again", func() nodeCondition { return conditionOf(t, node) }, is("m"))
	before, now := first.Conditions[0].LastTransitionTime, again.Conditions[0].LastTransitionTime
	assert.That(t, before.Equal(&now), "the transition moved from %v to %v", before, now)
	for _, object := range []string{"/nodeconfigs/", "/nodes/"} {
		assert.Equal(t, p.count("PATCH", object), 2, "writes of", object)
	}
}

func TestARepairIsTriedAgainIfItsReadFails(t *testing.T) {
	node, p, r := repairing(t)
	r.Report(Report{Status: someStatus("a")})
	awaitStatus(t, node, "a")
	var reads atomic.Int32
	p.fail(func(q *http.Request) int {
		if q.Method == http.MethodGet && strings.HasSuffix(q.URL.Path, "/nodeconfigs/"+node) && reads.Add(1) == 1 {
			return http.StatusServiceUnavailable
		}

		return 0
	})
	setStatus(t, node, map[string]any{"error": "old"})
	awaitStatus(t, node, "a")
	assert.That(t, reads.Load() >= 2, "%d reads", reads.Load())
}

func TestOnlyALastingDifferenceIsRepaired(t *testing.T) {
	const longest = 5 * echoDelay
	for name, test := range map[string]struct {
		happens func(see, wrote func(words string))
		want    int32
	}{
		"nothing": {func(_, _ func(string)) {}, 0},
		"the watch is behind": {func(see, _ func(string)) {
			see("old")
			time.Sleep(echoDelay / 2)
			see("new")
		}, 0},
		"the watch is behind, again and again": {func(see, wrote func(string)) {
			for range 20 {
				see("old")
				time.Sleep(echoDelay * 3 / 4)
				see("new")
				time.Sleep(time.Second)
			}
		}, 0},
		"the watch is ahead of the answer": {func(see, wrote func(string)) {
			see("newer")
			wrote("newer")
		}, 0},
		"set back": {func(see, _ func(string)) { see("old") }, 1},
		"set back before the answer": {func(see, wrote func(string)) {
			see("newer")
			see("new")
			wrote("newer")
		}, 1},
		"two writers": {func(see, _ func(string)) {
			for range 60 {
				see("other")
				time.Sleep(10 * time.Second)
			}
		}, 3},
	} {
		synctest.Test(t, func(t *testing.T) {
			var repairs atomic.Int32
			e := echo{delay: echoDelay, interval: repairInterval, repair: func() { repairs.Add(1) }}
			see := func(words string) { e.see("a", v1alpha1.NodeConfigStatus{Error: words}) }
			wrote := func(words string) { e.wrote("a", v1alpha1.NodeConfigStatus{Error: words}) }
			see("any") // before the first write
			e.see("b", v1alpha1.NodeConfigStatus{Error: "of another object"})
			wrote("new")
			test.happens(see, wrote)
			time.Sleep(longest + time.Second)
			assert.Equal(t, repairs.Load(), test.want, name, "repairs")
		})
	}
}
