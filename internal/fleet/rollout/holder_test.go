package rollout

import (
	"testing"
	"time"
)

func TestTheRolloutWithPrecedenceHasTheNode(t *testing.T) {
	old, young := epoch, epoch.Add(time.Hour)
	flying := Node{Source: Source{Kind: SourceConfigMap, Rollout: "b"}, Generation: 2, Observed: 1}
	settled := flying
	settled.Observed = 2
	for _, tt := range []struct {
		name   string
		claims []Claim
		node   Node
		want   string
	}{
		{"nobody selects it", nil, Node{}, ""},
		{"the higher priority", []Claim{{"a", 0, old}, {"b", 1, young}}, Node{}, "b"},
		{"then the older", []Claim{{"a", 1, young}, {"b", 1, old}}, Node{}, "b"},
		{"then by name", []Claim{{"b", 1, old}, {"a", 1, old}}, Node{}, "a"},
		{"a node in flight is not taken away", []Claim{{"a", 9, old}, {"b", 0, young}}, flying, "b"},
		{"one that has landed is", []Claim{{"a", 9, old}, {"b", 0, young}}, settled, "a"},
		{"one in flight for who does not select it any more is", []Claim{{"a", 9, old}, {"c", 0, young}}, flying, "a"},
	} {
		if got := Holder(tt.claims, &tt.node); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}
