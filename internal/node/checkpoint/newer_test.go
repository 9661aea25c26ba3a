// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package checkpoint_test

import (
	"testing"

	"github.com/evenkeel/evenkeel/internal/node/checkpoint"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestNewerThanReturnsTheNewestVersionWithRecords(t *testing.T) {
	for _, c := range []struct {
		ours     string
		versions []string
		want     string
	}{
		{"v1.36.3", nil, ""},
		{"v1.36.3", []string{"v1.36.3", "v1.35.9"}, ""},
		{"v1.35.9", []string{"v1.36.3", "v1.35.9"}, "v1.36.3"},
		{"v1.9.9", []string{"v1.35.9", "v1.36.3", "v1.10.0"}, "v1.36.3"},
		{"v1.36.0-rc.1", []string{"v1.36.0"}, "v1.36.0"},
		{"v1.36.3", []string{"lost+found"}, ""},
		{"weekly", []string{"v1.36.3"}, ""},
	} {
		got := (checkpoint.View{Versions: c.versions}).NewerThan(c.ours)
		assert.That(t, got == c.want, "newer than %s of %q: %q, want %q", c.ours, c.versions, got, c.want)
	}
}
