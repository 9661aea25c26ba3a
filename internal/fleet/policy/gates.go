package policy

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/rollout"
)

// Limits of a gate's interval, as in the CRD.
const (
	defaultGateInterval  = time.Minute
	shortestGateInterval = 10 * time.Second
	longestGateInterval  = 24 * time.Hour
)

// comparison is the same pattern as in the CRD.
var comparison = regexp.MustCompile(`^(<|<=|>|>=|==|!=) ?(-?[0-9]+([.][0-9]+)?(e[-+]?[0-9]{1,3})?)$`)

// gatesOf converts the gates of a rollout. The error names the invalid field; the CRD refuses the same values.
func gatesOf(s *v1alpha1.NodeConfigRolloutSpec) ([]rollout.Gate, error) {
	var out []rollout.Gate
	for i, g := range s.Strategy.Gates {
		passes, err := comparisonOf(g.Prometheus.Passes)
		if err != nil {
			return nil, fmt.Errorf("%s.prometheus.passes: %w", gateField(i), err)
		}
		interval := defaultGateInterval
		if g.Interval != nil {
			interval = g.Interval.Duration
		}
		if interval < shortestGateInterval || interval > longestGateInterval {
			return nil, fmt.Errorf("%s.interval must be from %s to %s, not %s", gateField(i), shortestGateInterval, longestGateInterval, interval)
		}
		out = append(out, rollout.Gate{
			Name: g.Name, Server: g.Prometheus.Server, Query: g.Prometheus.Query, Passes: passes, Interval: interval,
			Always: g.Every == v1alpha1.GateAlways, Failures: int(cmp.Or(g.Failures, 1)), NoDataFails: g.NoData == v1alpha1.GateNoDataFail,
		})
	}
	return out, nil
}

func gateField(i int) string { return fmt.Sprintf("spec.strategy.gates[%d]", i) }

// comparisonOf parses a condition such as "< 0.01".
func comparisonOf(text string) (rollout.Comparison, error) {
	parts := comparison.FindStringSubmatch(text)
	if parts == nil {
		return rollout.Comparison{}, fmt.Errorf("%q must be one of <, <=, >, >=, == and !=, and a number, such as \"< 0.01\"", text)
	}
	number, err := strconv.ParseFloat(parts[2], 64)
	if err != nil || math.IsInf(number, 0) {
		return rollout.Comparison{}, fmt.Errorf("%q has a number that is too large", text)
	}
	return rollout.Comparison{Operator: parts[1], Number: number}, nil
}

// checkServers returns an error if a gate names a Prometheus server that the controller does not have.
func (s Settings) checkServers(gates []rollout.Gate) error {
	if s.PrometheusServers == nil {
		return nil // not known here
	}
	for i, g := range gates {
		switch {
		case slices.Contains(s.PrometheusServers, g.Server):
		case len(s.PrometheusServers) == 0:
			return fmt.Errorf("%s.prometheus.server: the controller has no Prometheus server: start it with --prometheus-server=%s=URL", gateField(i), g.Server)
		default:
			return fmt.Errorf("%s.prometheus.server: the controller has no Prometheus server %q, only %s: name one of these, or start it with --prometheus-server=%s=URL",
				gateField(i), g.Server, strings.Join(s.PrometheusServers, ", "), g.Server)
		}
	}
	return nil
}

// gateProgressOf converts the gates in a status.
func gateProgressOf(st *v1alpha1.NodeConfigRolloutStatus) []rollout.GateProgress {
	var out []rollout.GateProgress
	for _, g := range st.Gates {
		out = append(out, rollout.GateProgress{
			Name: g.Name, State: rollout.GateState(g.State), Value: g.Value, Time: TimeOf(g.Time), Failures: int(g.Failures), Step: int(g.Step), Message: g.Message,
		})
	}
	return out
}
