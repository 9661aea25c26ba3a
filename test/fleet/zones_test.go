package fleet_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

func TestTheLimitsOfZonesHold(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, spec                    string
		zones, perZone, nodes, atMost int
	}{
		{"one-zone", `
strategy:
  maxUnavailable: 100%
  topologyKey: topology.kubernetes.io/zone
  maxDomainsInFlight: 1
  steps: [{nodes: 100%}]
`, 1, 3, 9, 3},
		{"one-of-each", `
strategy:
  maxUnavailable: 100%
  topologyKey: topology.kubernetes.io/zone
  maxUnavailablePerDomain: 1
  steps: [{nodes: 100%}]
`, 3, 1, 9, 3},
		{"both", `
strategy:
  maxUnavailable: 3
  topologyKey: topology.kubernetes.io/zone
  maxUnavailablePerDomain: 50%
  maxDomainsInFlight: 2
  steps: [{nodes: 100%}]
`, 2, 2, 12, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := play(t, "zones-"+c.name, c.nodes, zones(3))
			zoneOf := func(nc *v1alpha1.NodeConfig) string {
				n, err := strconv.Atoi(nc.Name[strings.LastIndex(nc.Name, "-")+1:])
				s.do(err)
				return "zone-" + strconv.Itoa(n%3)
			}
			r := s.roll("maxPods: 101", c.spec)
			ref := r.complete(1)
			s.same("run it", s.running(ref), s.nodes(0, c.nodes))
			if got := s.mostOf(unproven, zoneOf); got != c.zones {
				t.Errorf("nodes of %d zones were in flight at a time, want %d", got, c.zones)
			}
			most := 0 // of one zone; which zones reach it depends on how long trials take
			for _, zone := range []string{"zone-0", "zone-1", "zone-2"} {
				most = max(most, s.most(func(nc *v1alpha1.NodeConfig) bool { return zoneOf(nc) == zone && unproven(nc) }))
			}
			if most != c.perZone {
				t.Errorf("%d nodes of a zone were in flight at a time, want %d", most, c.perZone)
			}
			if got := s.most(unproven); got != c.atMost {
				t.Errorf("%d nodes were in flight at a time, want %d", got, c.atMost)
			}
		})
	}
}
