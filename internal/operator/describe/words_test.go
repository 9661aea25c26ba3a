// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package describe

import (
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/internal/operator/query"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestTheVersionIsInTheImagesTag(t *testing.T) {
	for image, want := range map[string]string{
		"evenkeel.dev/agent:v0.1.0":                             "v0.1.0",
		"registry.example.com:5000/agent:v0.1.0-3-g1234567":     "v0.1.0-3-g1234567",
		"registry.example.com:5000/agent":                       "",
		"evenkeel.dev/agent:latest":                             "",
		"evenkeel.dev/agent:1234567-dirty":                      "",
		"evenkeel.dev/agent:v0.1.0@sha256:0123456789abcdef0123": "v0.1.0",
		"evenkeel.dev/agent@sha256:0123456789abcdef0123":        "",
		"evenkeel.dev/agent:vendor":                             "",
	} {
		assert.Equal(t, ImageVersion(image), want, image)
	}
}

func TestThatNoControllerLeadsIsKnownAtOnceIfTheLeaseSaysSo(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, tt := range []struct {
		name           string
		lease          query.Renewal
		silent, leader string // what ControllerSilent and NoController say
	}{
		{"renewed just now", query.Renewal{Time: now}, "", ""},
		{"renewed 59 s ago", query.Renewal{Time: now.Add(-59 * time.Second)}, "", ""},
		{"renewed a minute ago", query.Renewal{Time: now.Add(-time.Minute)},
			"evenkeel-controller has not renewed its lease for 60s, by the clock of this machine: is it running? kubectl -n ns get pods", "the same"},
		{"released just now", query.Renewal{Time: now, Released: true},
			"no controller leads: the Lease evenkeel-controller has no holder; kubectl -n ns get pods", "the same"},
		{"there is none", query.Renewal{Missing: true}, "", "no controller leads: namespace ns has no Lease evenkeel-controller"},
		{"it cannot be read", query.Renewal{}, "", ""},
	} {
		silent, leader := ControllerSilent(tt.lease, "ns", now), NoController(tt.lease, "ns", now)
		if tt.leader == "the same" {
			tt.leader = tt.silent
		}

		assert.Equal(t, silent, tt.silent, tt.name)
		assert.Equal(t, leader, tt.leader, tt.name)
	}
}

func TestOnlyUIDsBesideANameAreRemoved(t *testing.T) {
	const uid = "a11ac80f-88cf-4a50-9afe-ad8aa93baf33"
	for message, want := range map[string]string{
		"using current (UID: " + uid + "): all checks passed":                               "using current: all checks passed",
		"using current (UID: " + uid + ", values: c7917ae2502a): all checks passed":         "using current: all checks passed",
		"refused current (UID: " + uid + "): it has the same content as (UID: " + uid + ")": "refused current: it has the same content as (UID: " + uid + ")",
	} {
		assert.Equal(t, WithoutUIDs(message), want)
	}
}
