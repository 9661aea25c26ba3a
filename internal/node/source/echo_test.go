package source

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// The status is another one if a request arrives late, a backup of etcd is restored, or a person edits it.
func TestAReplacedStatusIsWrittenAgain(t *testing.T) {
	node := newName("node")
	createNode(t, node)
	setSpec(t, node, map[string]any{})
	p := newProxy(t, node)
	c := newClient(t, p.Kubeconfig)
	r := NewReporter(c, node, "evenkeel-agent", quiet())
	r.status.echo.delay = 10 * time.Millisecond
	background(t, r.Run)
	source := NewNodeConfigSource(c, node, &disk{}, quiet())
	source.ShowTo(r)
	background(t, source.Run)

	r.Report(Report{Status: someStatus("a"), Condition: NodeCondition{"True", "r", "m"}, Configured: NodeCondition{"True", "r", "m"}})
	first := awaitStatus(t, node, "a")
	is := func(message string) func(nodeCondition) bool {
		return func(c nodeCondition) bool { return c.Message == message }
	}
	await(t, "the condition", func() nodeCondition { return conditionOf(t, node) }, is("m"))

	asAdmin(t, request{verb: "PATCH", gv: coreV1, resource: "nodes", name: node, subresource: "status", contentType: string(types.StrategicMergePatchType),
		body: map[string]any{"status": map[string]any{"conditions": []nodeCondition{{Type: v1alpha1.ConditionConfigOK, Status: "False", Message: "old"}}}}})
	asAdmin(t, request{verb: "PATCH", gv: v1alpha1.GroupVersion, resource: "nodeconfigs", name: node, subresource: "status",
		contentType: string(types.MergePatchType), body: map[string]any{"status": map[string]any{"error": "old"}}})
	again := awaitStatus(t, node, "a")
	await(t, "the condition again", func() nodeCondition { return conditionOf(t, node) }, is("m"))
	if before, now := first.Conditions[0].LastTransitionTime, again.Conditions[0].LastTransitionTime; !before.Equal(&now) {
		t.Errorf("the transition moved from %v to %v", before, now)
	}
	for object, want := range map[string]int{"/nodeconfigs/": 2, "/nodes/": 2} {
		if n := p.count("PATCH", object); n != want {
			t.Errorf("%d writes of %s, want %d", n, object, want)
		}
	}
}

func TestOnlyALastingDifferenceIsRepaired(t *testing.T) {
	for name, test := range map[string]struct {
		happens func(e *echo)
		want    int
	}{
		"the same": {func(e *echo) { e.see("a", v1alpha1.NodeConfigStatus{Error: "new"}) }, 0},
		"the watch is behind": {func(e *echo) {
			e.see("a", v1alpha1.NodeConfigStatus{Error: "old"})
			time.Sleep(echoDelay / 2)
			e.see("a", v1alpha1.NodeConfigStatus{Error: "new"})
		}, 0},
		"the watch is ahead of the answer": {func(e *echo) {
			e.see("a", v1alpha1.NodeConfigStatus{Error: "newer"})
			e.wrote("a", v1alpha1.NodeConfigStatus{Error: "newer"})
		}, 0},
		"another object": {func(e *echo) { e.see("b", v1alpha1.NodeConfigStatus{Error: "old"}) }, 0},
		"set back":       {func(e *echo) { e.see("a", v1alpha1.NodeConfigStatus{Error: "old"}) }, 1},
		"two writers": {func(e *echo) {
			for range 60 {
				e.see("a", v1alpha1.NodeConfigStatus{Error: "other"})
				time.Sleep(10 * time.Second)
			}
		}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				repairs := 0
				e := echo{delay: echoDelay, repair: func() { repairs++ }}
				e.see("a", v1alpha1.NodeConfigStatus{Error: "any"}) // before the first write
				e.wrote("a", v1alpha1.NodeConfigStatus{Error: "new"})
				test.happens(&e)
				time.Sleep(2 * echoDelay)
				synctest.Wait()
				if repairs != test.want {
					t.Errorf("%d repairs, want %d", repairs, test.want)
				}
			})
		})
	}
}
