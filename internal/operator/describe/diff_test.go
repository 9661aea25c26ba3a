package describe

import (
	"testing"

	"github.com/evenkeel/evenkeel/internal/fleet/policy"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestContentDiff(t *testing.T) {
	const header = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	whole := func(text string) policy.Content {
		return policy.Content{Key: payload.KeyKubelet, Data: header + text}
	}
	dropin := policy.Content{Key: payload.KeyKubeletDropin, Data: header + "maxPods: 110\n"}
	for _, tt := range []struct {
		name          string
		before, after policy.Content
		want          string
	}{
		{"from local", policy.Content{}, whole("maxPods: 110\n"), "the local configuration of each node -> a whole configuration\nmaxPods: unset -> 110\n"},
		{"nothing", whole("maxPods: 110\n"), whole("maxPods: 110 # the same\n"), ""},
		{"a field", whole("maxPods: 110\n"), whole("maxPods: 120\n"), "maxPods: 110 -> 120\n"},
		{"a kind", whole("maxPods: 110\n"), dropin, "a whole configuration -> a drop-in, merged over the local configuration of each node\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got, err := ContentDiff(tt.before, tt.after); got != tt.want || err != nil {
				t.Errorf("got %q, %v, want %q", got, err, tt.want)
			}
		})
	}
	bad := policy.Content{Key: payload.KeyKubelet, Data: "a: ["}
	assert.ErrorHas(t, assert.Err(ContentDiff(bad, dropin)), "neither JSON nor YAML", "before")
	assert.ErrorHas(t, assert.Err(ContentDiff(dropin, bad)), "neither JSON nor YAML", "after")
}
