package source

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/internal/trial"
)

func TestWhatWasOnDiskAndIsNotAnyMoreIsDownloadedAgain(t *testing.T) {
	node, cm := newName("node"), newConfigMap(t)
	raw := asAdmin(t, request{verb: "GET", gv: coreV1, namespace: cm.Namespace, resource: "configmaps", name: cm.Name})
	assign(t, node, refTo(cm))
	records := &disk{checkpoints: map[string][]byte{string(cm.UID): raw}}
	s := startSource(t, newClient(t, nodeKubeconfig(t, node)), node, records)
	if a := awaitAnswer(t, s, "the assignment", kind(trial.Assigned)); a.ConfigMap != nil {
		t.Fatalf("answer %+v, want nothing to write", a)
	}
	records.mu.Lock()
	delete(records.checkpoints, string(cm.UID))
	records.mu.Unlock()
	s.Again()
	awaitAnswer(t, s, "the download", func(a Answer) bool { return a.Kind == trial.Assigned && a.ConfigMap != nil })
}

func TestFlushingWaitsUntilAReportIsWrittenAndNoLonger(t *testing.T) {
	node, p, r := reporting(t)
	createNode(t, node)
	r.Report(Report{Status: someStatus("last words"), Condition: NodeCondition{"False", "why", "what"}, KubeletStart: time.Unix(1, 0)})
	r.Flush(t.Context())
	if words := getNodeConfig(t, node).Status.Error; words != "last words" {
		t.Errorf("the status says %q", words)
	}
	if c := conditionOf(t, node); c.Reason != "why" {
		t.Errorf("the condition is %+v", c)
	}
	p.fail(all(http.StatusServiceUnavailable))
	r.Report(Report{Status: someStatus("unheard"), Condition: NodeCondition{"False", "why", "what"}, KubeletStart: time.Unix(2, 0)})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	r.Flush(ctx)
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		t.Errorf("it ended before its context, with %v", ctx.Err())
	}
}
