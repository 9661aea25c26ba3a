// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package describe

import (
	"testing"

	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestContentDiff(t *testing.T) {
	const header = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	whole := func(text string) payload.Payload {
		return assert.Value(payload.Decode(payload.KeyKubelet, []byte(header+text)))(t)
	}
	dropin := assert.Value(payload.Decode(payload.KeyKubeletDropin, []byte(header+"maxPods: 110\n")))(t)
	for _, tt := range []struct {
		name          string
		before, after payload.Payload
		want          string
	}{
		{"from local", payload.Payload{}, whole("maxPods: 110\n"), "the local configuration of each node -> a whole configuration\nmaxPods: unset -> 110\n"},
		{"nothing", whole("maxPods: 110\n"), whole("maxPods: 110 # the same\n"), ""},
		{"a field", whole("maxPods: 110\n"), whole("maxPods: 120\n"), "maxPods: 110 -> 120\n"},
		{"a printed configuration", payload.Payload{}, whole("maxPods: 110\nsyncFrequency: 0s\nclusterDomain: ''\n"), "the local configuration of each node -> " +
			"a whole configuration\nmaxPods: unset -> 110\n2 fields set to \"0s\" or \"\", which means the default: clusterDomain, syncFrequency\n"},
		{"a kind", whole("maxPods: 110\n"), dropin, "a whole configuration -> a drop-in, merged over the local configuration of each node\n"},
	} {
		assert.Equal(t, ContentDiff(tt.before, tt.after, LocalOfEach), tt.want, tt.name)
	}
}
