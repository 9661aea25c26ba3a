package controller

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet/gate"
	"github.com/evenkeel/evenkeel/internal/fleet/policy"
	"github.com/evenkeel/evenkeel/internal/fleet/rollout"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// wantSchema waits until the API server accepts a status with all fields except these, which it must refuse.
func wantSchema(t *testing.T, rollout string, unknown ...string) {
	t.Helper()
	settings := policy.DefaultSettings
	settings.PrometheusServers, settings.Maintenance = []string{"main"}, []string{"example.com/repair"}
	status := assert.Value(json.Marshal([]operation{{"add", "/status", v1alpha1.NodeConfigRolloutStatus{
		Controller: settings.Publish(), History: []v1alpha1.RolloutOutcome{{Revision: 1, Reason: v1alpha1.HaltInconclusive, Requests: []v1alpha1.RolloutRequest{{Kind: v1alpha1.RequestAbort, Time: metav1.Now()}}}},
		Requests: []v1alpha1.RolloutRequest{{Kind: v1alpha1.RequestAbort, Time: metav1.Now()}},
	}}}))(t)
	strict := client.WithFieldValidation(admin, metav1.FieldValidationStrict)
	eventually(t, func() error {
		o := &v1alpha1.NodeConfigRollout{ObjectMeta: metav1.ObjectMeta{Name: rollout}}
		err := strict.Status().Patch(context.Background(), o, client.RawPatch(types.JSONPatchType, status), client.DryRunAll)
		if len(unknown) == 0 {
			return err
		}
		for _, field := range unknown {
			if err == nil || !strings.Contains(err.Error(), `unknown field "`+field+`"`) {
				return fmt.Errorf("the API server still knows %s: %v", field, err)
			}
		}
		return nil
	})
}

// The CRD of an older release lacks requests, the reason of an outcome, or the controller's settings.
func TestWithAnOlderCRDTheStatusIsWrittenWithoutUnknownFields(t *testing.T) {
	settings := []string{"status", "properties", "controller"}
	servers := []string{"status", "properties", "controller", "properties", "prometheusServers"}
	maintenance := []string{"status", "properties", "controller", "properties", "maintenance"}
	reason := []string{"status", "properties", "history", "items", "properties", "reason"}
	requests := []string{"status", "properties", "requests"}
	requestsOf := []string{"status", "properties", "history", "items", "properties", "requests"}
	for name, tt := range map[string]struct {
		missing  [][]string
		unknown  []string
		warnings int
	}{
		"reason":              {[][]string{reason}, []string{"status.history[0].reason"}, 0},
		"settings":            {[][]string{settings}, []string{"status.controller"}, 1},
		"reason and settings": {[][]string{reason, settings}, []string{"status.history[0].reason", "status.controller"}, 1},
		"requests":            {[][]string{requests, requestsOf}, []string{"status.requests", "status.history[0].requests"}, 1},
		"all of them": {[][]string{reason, settings, requests, requestsOf},
			[]string{"status.history[0].reason", "status.controller", "status.requests", "status.history[0].requests"}, 2},
		"servers":     {[][]string{servers}, []string{"status.controller.prometheusServers"}, 0},
		"maintenance": {[][]string{servers, maintenance}, []string{"status.controller.prometheusServers", "status.controller.maintenance"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			world(t)
			roll(t, "older")
			defer wantSchema(t, "older")
			for _, path := range tt.missing {
				defer without(t, "nodeconfigrollouts.evenkeel.dev", path...)()
			}
			wantSchema(t, "older", tt.unknown...)
			c := newController(t, own(), func(o *Options) {
				o.PrometheusServers, o.Maintenance = []gate.Server{{Name: "main", URL: "http://localhost"}}, []string{"example.com/repair"}
			})
			var log bytes.Buffer
			c.log = slog.New(slog.NewTextHandler(&log, nil))
			c.fleet.setRollout(rolloutNamed(t, "older"))
			r := c.fleet.rollouts["older"]
			halted := rollout.Policy{
				Claim: rollout.Claim{Name: "older"}, Now: time.Now().Truncate(time.Second),
				Abort:  rollout.Abort{Revision: 1, Request: rollout.Request{User: "ann"}},
				Target: rollout.Revision{Number: 1, Namespace: "n", Name: "older-1", UID: "u", SHA256: digest("older")},
			}
			result := rollout.Result{
				Phase: rollout.PhaseHalted,
				Next: rollout.Progress{Revision: 1, Attempt: 1, Halt: &rollout.Halt{
					Revision: 1, Attempt: 1, Reason: rollout.HaltInconclusive, Message: "2 nodes went NotReady", Time: halted.Now,
				}},
			}
			var written []string
			for range 2 {
				assert.NoError(t, assert.Err(c.recordStatus(t.Context(), r, &planInput{object: r.object, policy: halted}, &result)))
				written = append(written, rolloutNamed(t, "older").ResourceVersion)
			}
			assert.That(t, written[0] == written[1], "a recorded status was written again")
			st := rolloutNamed(t, "older").Status
			if h := st.History; len(h) != 1 || h[0].Outcome != v1alpha1.OutcomeHalted || h[0].Message != "Inconclusive: 2 nodes went NotReady" {
				t.Errorf("the history is %+v", h)
			}
			lacks := func(field string) bool { return slices.Contains(tt.unknown, field) }
			has := st.History[0].Reason == v1alpha1.HaltInconclusive
			assert.That(t, has != lacks("status.history[0].reason"), "the history has the reason: %t", has)
			has = len(st.Requests) == 1
			assert.That(t, has != lacks("status.requests"), "the status has the requests: %t", has)
			has = len(st.History[0].Requests) == 1
			assert.That(t, has != lacks("status.history[0].requests"), "the history has the requests: %t", has)
			if n := strings.Count(log.String(), "the CRD of NodeConfigRollouts is older than this controller"); n != tt.warnings {
				t.Errorf("%d warnings, want %d:\n%s", n, tt.warnings, log.String())
			}
			has = st.Controller != nil
			assert.That(t, has != lacks("status.controller"), "the status has the controller's settings: %t", has)
			if has := st.Controller != nil && len(st.Controller.PrometheusServers) == 1; has == (lacks("status.controller") || lacks("status.controller.prometheusServers")) {
				t.Errorf("the status has the names of Prometheus servers: %t", has)
			}
			if has := st.Controller != nil && len(st.Controller.Maintenance) == 1; has == (lacks("status.controller") || lacks("status.controller.prometheusServers")) {
				t.Error("the status has the announcements of maintenance")
			}
		})
	}
}
