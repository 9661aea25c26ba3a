// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package steer

import (
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/fakeapi"
)

func TestAReasonIsTrimmedAndHasALimit(t *testing.T) {
	for name, tt := range map[string]struct{ text, want, wantErr string }{
		"none":               {" ", "", ""},
		"a reason":           {" a storm\n", "a storm", ""},
		"the longest reason": {strings.Repeat("é", 256), strings.Repeat("é", 256), ""},
		"a longer reason":    {strings.Repeat("é", 257), "", "the reason has 257 characters, more than the limit of 256; nothing was changed"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Reason(tt.text)
			assert.Equal(t, got, tt.want)
			assert.That(t, (tt.wantErr == "") == (err == nil) && (err == nil || err.Error() == tt.wantErr), "error %v", err)
		})
	}
}

func TestAPauseAndItsEndWriteAndRemoveTheReason(t *testing.T) {
	api := fakeapi.New(t)
	r := api.AddRollout("workers", "workers", nil, nil)
	for _, step := range []struct {
		change Change
		want   string
	}{
		{Pause("a storm"), "a storm, "},
		{Pause("calm"), "a storm, "}, // is paused already
		{Freeze("hands off"), "a storm, hands off"},
		{Unfreeze, "a storm, "},
		{Resume, ", "},
	} {
		assert.NoError(t, assert.Err(Edit(t.Context(), api, "workers", step.change)))
		api.Read(r)
		assert.Equal(t, r.Spec.PausedReason+", "+r.Spec.FrozenReason, step.want)
	}
}
