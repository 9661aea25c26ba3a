// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestTheLogMasksHeadersAndPathsOfStaticPodURLs(t *testing.T) {
	quoted := func(text string) string {
		line := assert.Value(json.Marshal(text))(t)
		return string(line)
	}
	const (
		fields = `{"kubelet":{"maxPods":7,"staticPodURL":"https://example.com/swordfish?x=swordfish","staticPodURLHeader":{"X-Mine":["swordfish"],"Y":["swordfish"]},"podsPerCore":3}}`
		block  = "maxPods: 7\nstaticPodURL: https://example.com/swordfish\nstaticPodURLHeader:\n  X-Mine:\n  - \"swordfish\"\n  Y:\n  - swordfish\npodsPerCore: 3\n"
		flow   = "maxPods: 7\nstaticPodURLHeader: {X-Mine: [swordfish]}\npodsPerCore: 3\n"
	)
	for _, record := range []string{fields, block, flow, quoted(fields), quoted(block), quoted(quoted(block)), quoted(flow)} {
		got := maskLog(record)
		assert.That(t, !strings.Contains(got, "swordfish") && strings.Contains(got, "maxPods") && strings.Contains(got, "podsPerCore"),
			"the log shows %s\nfor %s", got, record)
	}
}
