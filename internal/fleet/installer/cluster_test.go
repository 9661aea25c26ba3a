package installer

import (
	"reflect"
	"slices"
	"testing"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

func TestTheSchemaIsComparedFieldByField(t *testing.T) {
	property := func(fields ...string) map[string]any {
		properties := map[string]any{}
		for _, f := range fields {
			properties[f] = map[string]any{}
		}
		return map[string]any{"properties": properties}
	}
	known := property("spec")
	known["properties"].(map[string]any)["spec"] = property("revoked")
	got := fieldsMissing("", reflect.TypeFor[v1alpha1.NodeConfig](), known)
	if want := []string{"spec.configSource", "spec.takenBack", "spec.trial", "status"}; !slices.Equal(got, want) {
		t.Errorf("missing are %q, want %q", got, want)
	}
}
