// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// That no field is lost on the way to an API server and back is tested in
// test/api.

func TestLocalSaidExplicitlyIsToldFromNothingSaid(t *testing.T) {
	for _, text := range []string{`{}`, `{"configSource":{"local":{}}}`} {
		var spec v1alpha1.NodeConfigSpec
		assert.NoError(t, json.Unmarshal([]byte(text), &spec))
		said := spec.ConfigSource != nil && spec.ConfigSource.Local != nil
		assert.Equal(t, said, text != `{}`, text)
		assert.Equal(t, string(assert.Value(json.Marshal(spec))(t)), text)
	}
}

func TestWhatIsZeroAndMeansSomethingIsWritten(t *testing.T) {
	data := assert.Value(json.Marshal(v1alpha1.NodeConfigRolloutSpec{
		RevisionHistoryLimit: new(int32),
		Approval:             &v1alpha1.RolloutApproval{Revision: 4},
		Strategy:             v1alpha1.RolloutStrategy{Steps: []v1alpha1.RolloutStep{{Pause: &v1alpha1.RolloutPause{}}}},
	}))(t)
	for _, want := range []string{`"revisionHistoryLimit":0`, `"approval":{"revision":4,"step":0}`, `"steps":[{"pause":{}}]`} {
		assert.That(t, strings.Contains(string(data), want), "got %s, want in it %s", data, want)
	}
}
