// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// metric is what is said of one, in the documentation or by a program.
type metric struct {
	Type   string
	Labels map[string][]string // and their values; nil: any
}

var quoted = regexp.MustCompile("`([^`]+)`")

// documented returns the metrics that docs/metrics.md says a program has.
func documented(t *testing.T, program string) map[string]metric {
	t.Helper()
	out := map[string]metric{}
	for line := range strings.Lines(read(t, "docs/metrics.md")) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 6 || !strings.HasPrefix(line, "| `evenkeel_") {
			continue
		}

		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}

		name := strings.Trim(cells[0], "`")
		if of := cells[1]; of != program && of != "both" {
			continue
		}

		_, twice := out[name]
		assert.That(t, !twice, "%s is in the table twice", name)
		m := metric{Type: cells[2], Labels: map[string][]string{}}
		for label := range strings.SplitSeq(cells[4], ";") {
			var words []string
			for _, match := range quoted.FindAllStringSubmatch(label, -1) {
				words = append(words, match[1])
			}
			if len(words) > 0 {
				m.Labels[words[0]] = words[1:]
			}
		}

		unit := cells[3]
		switch {
		case strings.HasSuffix(name, "_time_seconds") && unit != "Unix time",
			strings.HasSuffix(name, "_seconds") && !strings.HasSuffix(name, "_time_seconds") && unit != "seconds",
			m.Type == "counter" && unit == "":
			t.Errorf("%s has the unit %q", name, unit)
		case cells[5] == "":
			t.Errorf("nothing says what %s means", name)
		}

		out[name] = m
	}

	return out
}

// told returns the metrics of which a program says something.
func told(t *testing.T, text string) map[string]metric {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	out := map[string]metric{}
	for name, family := range assert.Value(parser.TextToMetricFamilies(strings.NewReader(text)))(t) {
		m := metric{Type: strings.ToLower(family.GetType().String()), Labels: map[string][]string{}}
		for _, sample := range family.GetMetric() {
			for _, l := range sample.GetLabel() {
				if !slices.Contains(m.Labels[l.GetName()], l.GetValue()) {
					m.Labels[l.GetName()] = append(m.Labels[l.GetName()], l.GetValue())
				}
			}
		}

		if strings.HasPrefix(name, "evenkeel_") {
			out[name] = m
		}
	}

	return out
}

func TestTheTableOfMetricsEqualsThoseOfThePrograms(t *testing.T) {
	for program, of := range map[string]string{"agent": nodes[0], "controller": "controller"} {
		t.Run(program, func(t *testing.T) {
			text := assert.Value(scrape(of))(t)
			want, got := documented(t, program), told(t, text)
			diff := cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got)))
			assert.Must(t, diff == "", "docs/metrics.md has other metrics than evenkeel-%s (- the table, + the program):\n%s", program, diff)
			for name, m := range want {
				said := got[name]
				assert.That(t, m.Type == said.Type, "%s is a %s, and a %s in the table", name, said.Type, m.Type)
				assert.NoDiff(t, cmp.Diff(slices.Sorted(maps.Keys(m.Labels)), slices.Sorted(maps.Keys(said.Labels))),
					"the labels of", name, "(- the table, + the program)")
				for label, values := range m.Labels {
					for _, value := range said.Labels[label] {
						assert.That(t, len(values) == 0 || slices.Contains(values, value),
							"%s has %s=%q, which the table does not", name, label, value)
					}

					// What is there from the beginning is there in full.
					if all := slices.Sorted(slices.Values(said.Labels[label])); len(values) > 0 && full[name] && !slices.Equal(all, slices.Sorted(slices.Values(values))) {
						t.Errorf("%s has %s=%q, the table %q", name, label, all, values)
					}
				}
			}

			promtool(t, ours(text), "check", "metrics")
		})
	}
}

// full are the metrics that have all their values from the beginning.
var full = map[string]bool{
	"evenkeel_kubelet_starts_total": true, "evenkeel_rollbacks_total": true, "evenkeel_validations_total": true,
	"evenkeel_rollout_nodes": true, "evenkeel_rollout_phase": true, "evenkeel_controller_writes_total": true, "evenkeel_controller_problems": true,
}

// ours are the lines about metrics of evenkeel's.
func ours(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimPrefix(strings.TrimPrefix(line, "# HELP "), "# TYPE "), "evenkeel_") {
			out.WriteString(line)
		}
	}

	return out.String()
}

// known returns all metrics of the table, and what others than evenkeel export
// and its alerts and dashboard need.
func known(t *testing.T) map[string]metric {
	t.Helper()
	out := map[string]metric{
		"up": {Type: "gauge"}, "leader_election_master_status": {Type: "gauge", Labels: map[string][]string{"name": {controllerLease}}},
		"process_resident_memory_bytes": {Type: "gauge"},
	}
	for _, program := range []string{"agent", "controller"} {
		maps.Copy(out, documented(t, program))
	}

	return out
}

const controllerLease = "evenkeel-controller"

var (
	selector = regexp.MustCompile(`\b(evenkeel_\w+|up|leader_election_\w+|process_\w+|go_\w+)\b(?:\{([^}]*)\})?`)
	matcher  = regexp.MustCompile(`(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"`)
)

// complaints says what in an expression is not in the table: a metric, a label,
// or the value of a label.
func complaints(expr string, known map[string]metric) []string {
	var out []string
	for _, match := range selector.FindAllStringSubmatch(expr, -1) {
		name := match[1]
		m, ok := known[name]
		if !ok {
			base := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
			if m, ok = known[base]; !ok || m.Type != "histogram" {
				out = append(out, "there is no metric "+name)
				continue
			}
		}

		for _, match := range matcher.FindAllStringSubmatch(match[2], -1) {
			label, is, value := match[1], match[2], match[3]
			values, ok := m.Labels[label]
			if !ok {
				if label != "job" {
					out = append(out, fmt.Sprintf("%s has no label %s", name, label))
				}

				continue
			}

			parts := []string{value}
			if strings.HasSuffix(is, "~") {
				parts = strings.Split(value, "|")
			}

			for _, part := range parts {
				if len(values) > 0 && !slices.Contains(values, part) {
					out = append(out, fmt.Sprintf("%s never has %s=%q", name, label, part))
				}
			}
		}
	}

	return out
}
