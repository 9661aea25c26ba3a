package fleet_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestTheLimitsOfZonesHold(t *testing.T) {
	t.Parallel()
	s := play(t, "zones", 12, zones(3))
	zoneOf := func(nc *v1alpha1.NodeConfig) string {
		n, err := strconv.Atoi(nc.Name[strings.LastIndex(nc.Name, "-")+1:])
		s.do(err)
		return "zone-" + strconv.Itoa(n%3)
	}
	r := s.roll("maxPods: 101", `
strategy:
  maxUnavailable: 3
  topologyKey: topology.kubernetes.io/zone
  maxUnavailablePerDomain: 50%
  maxDomainsInFlight: 2
  steps: [{nodes: 100%}]
`)
	ref := r.complete(1)
	s.same("run it", s.running(ref), s.nodes(0, 12))
	got := s.mostOf(unproven, zoneOf)
	assert.That(t, got == 2, "nodes of %d zones were in flight at a time, want %d", got, 2)
	most := 0 // of one zone; which zones reach it depends on how long trials take
	for _, zone := range []string{"zone-0", "zone-1", "zone-2"} {
		most = max(most, s.most(func(nc *v1alpha1.NodeConfig) bool { return zoneOf(nc) == zone && unproven(nc) }))
	}
	assert.That(t, most == 2, "%d nodes of a zone were in flight at a time, want %d", most, 2)
	got = s.most(unproven)
	assert.That(t, got == 3, "%d nodes were in flight at a time, want %d", got, 3)
}
