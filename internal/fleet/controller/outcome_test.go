package controller

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet/rollout"
)

// reasonless refuses what a CRD without the reasons of outcomes does not know.
type reasonless struct {
	client.Client
	refused int
}

func (c *reasonless) Status() client.SubResourceWriter { return reasonlessStatus{c.Client.Status(), c} }

type reasonlessStatus struct {
	client.SubResourceWriter
	of *reasonless
}

func (s reasonlessStatus) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
	data, err := p.Data(o)
	if err != nil {
		return err
	}
	var operations []struct {
		Path  string
		Value json.RawMessage
	}
	if err := json.Unmarshal(data, &operations); err != nil {
		return err
	}
	for _, op := range operations {
		var st v1alpha1.NodeConfigRolloutStatus
		if op.Path != "/status" {
			continue
		}
		if err := json.Unmarshal(op.Value, &st); err != nil {
			return err
		}
		if slices.ContainsFunc(st.History, func(h v1alpha1.RolloutOutcome) bool { return h.Reason != "" }) {
			s.of.refused++
			return apierrors.NewBadRequest(`strict decoding error: unknown field "status.history[0].reason"`)
		}
	}
	return s.SubResourceWriter.Patch(ctx, o, p, opts...)
}

func TestWithAnOlderCRDAnOutcomeIsRecordedWithoutItsReason(t *testing.T) {
	world(t)
	roll(t, "older")
	o := rolloutNamed(t, "older")
	c, err := New(own(), Options{MetricsAddress: "0", ProbeAddress: "0", Registry: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	api := &reasonless{Client: c.client}
	c.client = api
	c.fleet.setRollout(o)
	r := c.fleet.rollouts[o.Name]
	policy := rollout.Policy{
		Claim: rollout.Claim{Name: o.Name}, Now: time.Now().Truncate(time.Second),
		Target: rollout.Revision{Number: 1, Namespace: "n", Name: "older-1", UID: "u", SHA256: digest("older")},
	}
	result := rollout.Result{
		Phase: rollout.PhaseHalted,
		Next: rollout.Progress{Revision: 1, Attempt: 1, Halt: &rollout.Halt{
			Revision: 1, Attempt: 1, Reason: rollout.HaltInconclusive, Message: "2 nodes went NotReady", Time: policy.Now,
		}},
	}
	for range 2 { // what is recorded is not written again
		if _, err := c.recordStatus(t.Context(), r, &planInput{object: r.object, policy: policy}, &result); err != nil {
			t.Fatal(err)
		}
	}
	st := rolloutNamed(t, "older").Status
	if h := st.History; len(h) != 1 || h[0].Outcome != v1alpha1.OutcomeHalted || h[0].Reason != "" || h[0].Message != "Inconclusive: 2 nodes went NotReady" || api.refused != 1 {
		t.Errorf("refused %d times, and the history is %+v", api.refused, h)
	}
}
