package steer

import (
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet/policy"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestPinReplacesTheTemplateUntilItIsRemoved(t *testing.T) {
	r := &v1alpha1.NodeConfigRollout{}
	r.Name = "workers"
	template, older, oldest := policy.Content{SHA256: "c"}, policy.Content{SHA256: "b"}, policy.Content{SHA256: "a"}
	for i, step := range []struct {
		pin   func() (string, error)
		words string
		want  v1alpha1.RolloutPin
	}{
		{func() (string, error) { return Pin(r, template, older, 2) }, "until the template changes (spec.pin); follow it", v1alpha1.RolloutPin{SHA256: "b", Instead: "c"}},
		{func() (string, error) { return Pin(r, template, older, 2) }, "already has the configuration of revision 2", v1alpha1.RolloutPin{SHA256: "b", Instead: "c"}},
		{func() (string, error) { return Pin(r, template, oldest, 1) }, "the configuration of revision 1 is the target", v1alpha1.RolloutPin{SHA256: "a", Instead: "c"}},
		{func() (string, error) { return Pin(r, template, template, 3) }, "which is that of the template", v1alpha1.RolloutPin{}},
		{func() (string, error) { return Pin(r, template, template, 3) }, "already has the configuration of revision 3", v1alpha1.RolloutPin{}},
		{func() (string, error) { return Unpin(r) }, "is not pinned: nothing changes", v1alpha1.RolloutPin{}},
		{func() (string, error) { return Pin(r, template, older, 2) }, "undone", v1alpha1.RolloutPin{SHA256: "b", Instead: "c"}},
		{func() (string, error) { return Pin(r, oldest, older, 2) }, "undone", v1alpha1.RolloutPin{SHA256: "b", Instead: "a"}}, // the template has changed
		{func() (string, error) { return Unpin(r) }, "unpinned: the template is the target", v1alpha1.RolloutPin{}},
	} {
		said, err := step.pin()
		assert.That(t, err == nil && strings.Contains(said, step.words), "step %d: %q, %v, want %q", i, said, err, step.words)
		assert.That(t, (r.Spec.Pin != nil || step.want == (v1alpha1.RolloutPin{})) && (r.Spec.Pin == nil || *r.Spec.Pin == step.want),
			"step %d: the pin is %+v, want %+v", i, r.Spec.Pin, step.want)
	}
}
