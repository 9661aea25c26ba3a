// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package describe

import (
	"testing"

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
