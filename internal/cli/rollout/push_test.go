// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestParseSteps(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"1", `[{"nodes":1}]`},
		{"1,pause:10m,10%,pause,100%", `[{"nodes":1},{"pause":{"duration":"10m0s"}},{"nodes":"10%"},{"pause":{}},{"nodes":"100%"}]`},
		{" 5 , pause:1h30m , 100% ", `[{"nodes":5},{"pause":{"duration":"1h30m0s"}},{"nodes":"100%"}]`},
	} {
		steps, err := parseSteps(tt.in)
		assert.That(t, err == nil, "%q: %v", tt.in, err)
		got := assert.Value(json.Marshal(steps))(t)
		assert.That(t, string(got) == tt.want, "%q is %s, want %s", tt.in, got, tt.want)
	}
}

func TestStepsFlagIsTheInverseOfParseSteps(t *testing.T) {
	for _, steps := range []string{"1", "1,pause:10m0s,10%,pause,100%", "pause,5"} {
		parsed := assert.Value(parseSteps(steps))(t)
		assert.Equal(t, stepsFlag(parsed), steps, "the steps of", steps, "are given again as")
	}

	none := &v1alpha1.NodeConfigRollout{}
	have, err := describe.StepsOf(none)
	assert.NoError(t, err)
	none.Spec.Strategy.Steps = assert.Value(parseSteps(stepsFlag(nil)))(t)
	if got, err := describe.StepsOf(none); err != nil || !reflect.DeepEqual(got, have) {
		t.Errorf("without any they are %v, and given again %v (%v)", have, got, err)
	}
}

func TestParseStepsNamesTheWrongStep(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"", `step 0: "" is neither`},
		{"1,,2", `step 1: "" is neither`},
		{"0", `step 0: "0" is neither`},
		{"1,0%", `step 1: "0%" is neither`},
		{"101%", `step 0: "101%" is neither`},
		{"-1", `step 0: "-1" is neither`},
		{"1.5", `step 0: "1.5" is neither`},
		{"+1", `step 0: "+1" is neither`},
		{"01%", `step 0: "01%" is neither`},
		{"99999999999", `is neither`},
		{"1,pause:", `step 1 ("pause:"): "" is not a duration`},
		{"1,pause:10", `step 1 ("pause:10"): "10" is not a duration`},
		{"1,pause:0s", `"0s" is not a duration`},
		{"1,pause:-5m", `"-5m" is not a duration`},
		{"pauses", `step 0: "pauses" is neither`},
		{strings.Repeat("1,", v1alpha1.MaxSteps) + "1", fmt.Sprintf("%s are more than the limit of %d", printable.Count(v1alpha1.MaxSteps+1, "step"), v1alpha1.MaxSteps)},
	} {
		steps, err := parseSteps(tt.in)
		assert.That(t, err != nil && strings.Contains(err.Error(), tt.want), "%q is %v with error %v, want %q", tt.in, steps, err, tt.want)
	}
}

func TestALaterStepWithFewerNodesIsRefused(t *testing.T) {
	for _, tt := range []struct {
		steps   string
		members int32
		want    string // empty: no error
	}{
		{"1,50,10%", 0, ""}, // a rollout without nodes
		{"1,50,10%", 1000, ""},
		{"1,50,10%", 100, "the step of 10% (10 of 100 nodes) follows the step of 50 nodes, but has fewer nodes: "},
		{"1,50,10%", 20, "the step of 10% (2 of 20 nodes) follows the step of 50 nodes"},
		{"1,50,100%", 20, ""}, // both are all nodes
		{"1,10%,100%", 3, ""},
		{"50%,pause:10m,3,100%", 4, ""},
		{"50%,pause:10m,1,100%", 4, "the step of 1 node follows the step of 50% (2 of 4 nodes)"},
		{"5,5,50%,50%", 10, ""},
		{"pause,1,pause:1s", 0, ""},
	} {
		r := &v1alpha1.NodeConfigRollout{}
		var err error
		r.Spec.Strategy.Steps = assert.Value(parseSteps(tt.steps))(t)
		steps := assert.Value(describe.StepsOf(r))(t)
		err = checkGrowth(steps, tt.members)
		assert.That(t, (err == nil) == (tt.want == "") && (err == nil || strings.Contains(err.Error(), tt.want)),
			"%s of %d nodes: %v, want %q", tt.steps, tt.members, err, tt.want)
	}
}
