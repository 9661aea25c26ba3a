package main

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestPartsAreSelected(t *testing.T) {
	names := func(parts []part) string {
		var names []string
		for _, p := range parts {
			names = append(names, p.name)
		}
		return strings.Join(names, ",")
	}
	for only, want := range map[string]string{
		"":             "plan,at-once,rollout,halt,memory,outage",
		"crowd":        "crowd",
		"memory,plan":  "memory,plan",
		"restart,halt": "restart,halt",
	} {
		if got, err := selected(only); names(got) != want || err != nil {
			t.Errorf("-only=%s: %s (%v), want %s", only, names(got), err, want)
		}
	}
	assert.ErrorHas(t, assert.Err(selected("plan,all")), `no part "all"`, "an unknown part")
}

func TestTheControllerHasTheEnvironmentOfItsDeployment(t *testing.T) {
	manifest := assert.Value(os.ReadFile("../../config/controller/deployment.yaml"))(t)
	env := assert.Value(shippedEnv(manifest))(t)
	for _, want := range []string{"GOGC=", "GOMEMLIMIT="} {
		assert.That(t, slices.ContainsFunc(env, func(e string) bool { return strings.HasPrefix(e, want) && e != want }),
			"the environment is %q, without %s", env, want)
	}
	for _, broken := range []string{"kind: Deployment", "{"} {
		assert.That(t, assert.Err(shippedEnv([]byte(broken))) != nil, "the manifest %q is accepted", broken)
	}
}

func TestTheLimitOfMemoryDependsOnTheNumberOfNodes(t *testing.T) {
	for _, tt := range []struct {
		nodes int
		most  int64
		limit string
		over  bool
	}{
		{1000, 100 << 20, "150.0 MiB", false},
		{5000, 151 << 20, "150.0 MiB", true},
		{20_000, 151 << 20, "250.0 MiB", false},
		{20_000, 251 << 20, "250.0 MiB", true},
		{65_000, 999 << 20, "", false},
	} {
		b := &bench{}
		b.limitMemory("memory", tt.most, tt.nodes)
		if f := b.measured.Figures[0]; f.Limit != tt.limit || f.Over != tt.over {
			t.Errorf("%d nodes with %d bytes: limit %q, over %v; want %q, %v", tt.nodes, tt.most, f.Limit, f.Over, tt.limit, tt.over)
		}
	}
}

func TestTheTimePerNodeIsComparedWithTheSmallerFleet(t *testing.T) {
	fleetOf := func(nodes int, each float64) *fleet {
		return &fleet{nodes: nodes, paced: phase{settled: time.Duration(each * float64(nodes) * float64(time.Millisecond))}}
	}
	b := &bench{results: &results{}, measured: measured{Part: "rollout", Nodes: memoryNodes}}
	b.pace(fleetOf(memoryNodes, 20))
	b.results.replace(b.measured)
	for each, over := range map[float64]bool{25: false, 27: true} {
		b.measured = measured{Part: "rollout", Nodes: 20_000}
		b.pace(fleetOf(20_000, each))
		assert.That(t, b.measured.Figures[1].What == timePerNode && b.measured.Figures[1].Limit == "1.3 x" && b.measured.Figures[1].Over == over,
			"%v ms per node: %+v, want the limit 1.3 x, over %v", each, b.measured.Figures[1], over)
	}
}
