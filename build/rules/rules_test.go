// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// alert is one of the rule file.
type alert struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

type ruleFile struct {
	Groups []struct {
		Name  string  `json:"name"`
		Rules []alert `json:"rules"`
	} `json:"groups"`
}

func decode[T any](t *testing.T, text string) T {
	t.Helper()
	var out T
	assert.NoError(t, yaml.UnmarshalStrict([]byte(text), &out))
	return out
}

func alerts(t *testing.T) []alert {
	t.Helper()
	var out []alert
	for _, g := range decode[ruleFile](t, read(t, Rules)).Groups {
		out = append(out, g.Rules...)
	}

	return out
}

func TestPrometheusAcceptsTheRulesAndAlertsFireAsTested(t *testing.T) {
	promtool(t, "", "check", "rules", filepath.Join(root, Rules))
	promtool(t, "", "test", "rules", "testdata/rules.test.yaml")
}

func TestEachAlertHasAFiringAndASilentTestCase(t *testing.T) {
	text := assert.Value(os.ReadFile("testdata/rules.test.yaml"))(t)
	var cases struct {
		Tests []struct {
			Name  string
			Exprs []struct {
				Expr    string
				Samples []any `json:"exp_samples"`
			} `json:"promql_expr_test"`
		}
	}
	assert.NoError(t, yaml.Unmarshal(text, &cases))
	fires, harmless := map[string]int{}, map[string]int{}
	for _, c := range cases.Tests {
		name, _, _ := strings.Cut(c.Name, ": ")
		for _, e := range c.Exprs {
			want := fmt.Sprintf(`ALERTS{alertname=%q, alertstate="firing"}`, name)
			assert.That(t, e.Expr == want, "%q asks for %s, want %s", c.Name, e.Expr, want)
			if len(e.Samples) > 0 {
				fires[name]++
			} else {
				harmless[name]++
			}
		}
	}

	for _, a := range alerts(t) {
		assert.That(t, fires[a.Alert] != 0 && harmless[a.Alert] != 0,
			"%s fires in %d cases and does not in %d: want both", a.Alert, fires[a.Alert], harmless[a.Alert])
	}
}

func TestEachAlertHasASeverityADescriptionAndARunbook(t *testing.T) {
	anchors := map[string]bool{}
	for line := range strings.Lines(read(t, "docs/troubleshooting.md")) {
		if title := strings.TrimLeft(line, "#"); title != line {
			title = regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), "")
			anchors[strings.ReplaceAll(title, " ", "-")] = true
		}
	}

	const runbooks = "https://github.com/evenkeel/evenkeel/blob/main/docs/troubleshooting.md#"
	table, rows := known(t), ""
	for _, a := range alerts(t) {
		s := a.Labels["severity"]
		assert.That(t, (s == "critical" || s == "warning") && len(a.Labels) == 1, "%s has the labels %v, want a severity", a.Alert, a.Labels)
		summary, description := a.Annotations["summary"], a.Annotations["description"]
		assert.That(t, summary != "" && len(summary) <= 100 && strings.HasSuffix(summary, ".") && len(description) > len(summary),
			"%s says %q and %q", a.Alert, summary, description)
		anchor, ok := strings.CutPrefix(a.Annotations["runbook_url"], runbooks)
		assert.That(t, ok && anchors[anchor], "%s has the runbook %q, which is none", a.Alert, a.Annotations["runbook_url"])
		for _, wrong := range complaints(a.Expr, table) {
			t.Errorf("%s: %s", a.Alert, wrong)
		}

		rows += fmt.Sprintf("%s %s\n", a.Alert, a.Labels["severity"])
	}

	documented := ""
	for _, match := range regexp.MustCompile("(?m)^\\| `(Evenkeel\\w+)` \\| (\\w+) \\| .+ \\|$").FindAllStringSubmatch(read(t, "docs/metrics.md"), -1) {
		documented += match[1] + " " + match[2] + "\n"
	}

	assert.NoDiff(t, cmp.Diff(documented, rows), "docs/metrics.md has other alerts than the rules (- the table, + the rules)")
}

// Every reason of ConfigOK that says that something is wrong is some alert's.
func TestEveryReasonOfConfigOKFalseHasAnAlert(t *testing.T) {
	noticed := regexp.MustCompile(`reason=~?"([^"]*)"`)
	var reasons []string
	for _, a := range alerts(t) {
		if strings.Contains(a.Expr, "evenkeel_attention") { // has other reasons
			continue
		}

		for _, match := range noticed.FindAllStringSubmatch(a.Expr, -1) {
			reasons = append(reasons, strings.Split(match[1], "|")...)
		}
	}

	fine := []string{v1alpha1.ReasonAllChecksPassed, v1alpha1.ReasonLocalInit, v1alpha1.ReasonLocalDefault}
	// These are always Unknown, and EvenkeelUnclear is for all that is.
	unclear := []string{v1alpha1.ReasonSyncFailed, v1alpha1.ReasonObjectChanged, v1alpha1.ReasonStaleAssignment, v1alpha1.ReasonCouldNotValidate, v1alpha1.ReasonInconclusive,
		v1alpha1.ReasonWaitingForLock}
	want := slices.Sorted(slices.Values(slices.DeleteFunc(slices.Clone(v1alpha1.ConfigOKReasons), func(r string) bool {
		return slices.Contains(fine, r) || slices.Contains(unclear, r)
	})))
	assert.NoDiff(t, cmp.Diff(want, slices.Sorted(slices.Values(reasons))),
		"reasons of ConfigOK False and those of the alerts (- the API, + the alerts)")
}

func TestThePrometheusRuleEqualsTheRuleFile(t *testing.T) {
	text := read(t, PrometheusRuleFile)
	assert.That(t, text == string(PrometheusRule([]byte(read(t, Rules)))), "%v", PrometheusRuleFile+" is not what rules.yaml makes: make generate")
	object := decode[struct {
		APIVersion string         `json:"apiVersion"`
		Kind       string         `json:"kind"`
		Metadata   map[string]any `json:"metadata"`
		Spec       ruleFile       `json:"spec"`
	}](t, text)
	diff := cmp.Diff(decode[ruleFile](t, read(t, Rules)), object.Spec)
	assert.That(t, diff == "" && object.Kind == "PrometheusRule" && len(object.Spec.Groups) != 0, "%s %v\n%s", object.Kind, object.Metadata, diff)
}

// Debian's Prometheus knows no service discovery of Kubernetes: all else in the
// example is for promtool to judge.
func TestPrometheusAcceptsTheScrapeConfiguration(t *testing.T) {
	var config map[string]any
	assert.NoError(t, yaml.Unmarshal([]byte(read(t, "config/monitoring/scrape.yaml")), &config))
	var jobs []string
	for _, job := range config["scrape_configs"].([]any) {
		job := job.(map[string]any)
		jobs = append(jobs, job["job_name"].(string))
		assert.That(t, job["kubernetes_sd_configs"] != nil, "%s finds nothing", job["job_name"])
		delete(job, "kubernetes_sd_configs")
		job["static_configs"] = []any{map[string]any{"targets": []string{"127.0.0.1:1"}}}
	}

	want := []string{"evenkeel-controller", "evenkeel-agent"}
	assert.That(t, slices.Equal(jobs, want), "the jobs are %q, the rules know %q", jobs, want)
	config["rule_files"] = []string{}
	text := assert.Value(yaml.Marshal(config))(t)
	file := filepath.Join(t.TempDir(), "prometheus.yaml")
	assert.NoError(t, os.WriteFile(file, text, 0o600))
	promtool(t, "", "check", "config", "--syntax-only", file)
}

func TestTheMonitorsSelectExistingPodsAndPorts(t *testing.T) {
	type monitor struct {
		Spec struct {
			Selector            struct{ MatchLabels map[string]string }
			PodMetricsEndpoints []struct {
				Port        string
				Relabelings []map[string]any
			}
		}
	}
	type workload struct {
		Spec struct{ Template corev1.PodTemplateSpec }
	}
	for monitored, of := range map[string][2]string{
		"evenkeel-controller": {"config/monitoring/podmonitor.yaml", "config/controller/deployment.yaml"},
		"evenkeel-agent":      {"config/monitoring/agents/podmonitor.yaml", "config/monitoring/agents/proxy.yaml"},
	} {
		var m monitor
		var w workload
		first, _, _ := strings.Cut(read(t, of[1]), "\n---\n")
		assert.NoError(t, yaml.Unmarshal([]byte(read(t, of[0])), &m))
		assert.NoError(t, yaml.Unmarshal([]byte(first), &w))
		for label, value := range m.Spec.Selector.MatchLabels {
			assert.Equal(t, w.Spec.Template.Labels[label], value, of[0], "looks for", label)
		}

		ports := w.Spec.Template.Spec.Containers[0].Ports
		endpoint := m.Spec.PodMetricsEndpoints[0]
		assert.That(t, len(ports) != 0 && ports[0].Name == endpoint.Port && endpoint.Relabelings[0]["replacement"] == monitored,
			"%s: %+v, the container's ports are %v", of[0], endpoint, ports)
	}
}

// What is not the Prometheus Operator's, the API server judges.
func TestTheAPIServerAcceptsTheProxy(t *testing.T) {
	kubectl := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), filepath.Join(root, "bin/tools/kubectl"), append(args, "--kubeconfig", kubeconfig)...)
		out, err := cmd.CombinedOutput()
		assert.Must(t, err == nil, "kubectl %q: %v\n%s", args, err, out)

		return string(out)
	}
	said := kubectl("apply", "--dry-run=server", "-f", filepath.Join(root, "config/monitoring/agents/proxy.yaml"))
	n := strings.Count(said, "created (server dry run)")
	assert.That(t, n == 4, "%d objects are taken: %s", n, said)
	for dir, kinds := range map[string][]string{
		"config/monitoring": {"PrometheusRule", "PodMonitor"}, "config/monitoring/agents": {"DaemonSet", "PodMonitor", "ClusterRole"},
	} {
		built := kubectl("kustomize", filepath.Join(root, dir))
		for _, kind := range kinds {
			assert.That(t, strings.Contains(built, "\nkind: "+kind+"\n"), "%s has no %s:\n%s", dir, kind, built)
		}
	}
}

func TestTheDashboardUsesOnlyExistingMetrics(t *testing.T) {
	var dashboard struct {
		Panels []struct {
			ID      int    `json:"id"`
			Type    string `json:"type"`
			Title   string `json:"title"`
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr string }
		}
		Templating struct{ List []struct{ Name string } }
	}
	assert.NoError(t, json.Unmarshal([]byte(read(t, "config/monitoring/dashboard.json")), &dashboard))
	table, ids, rules := known(t), map[int]string{}, "groups:\n- name: dashboard\n  rules:\n"
	taken := map[[2]int]string{}
	used := map[string]bool{}
	for _, p := range dashboard.Panels {
		if other, twice := ids[p.ID]; twice {
			t.Errorf("%q and %q have one id", p.Title, other)
		}

		ids[p.ID] = p.Title
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				other, is := taken[[2]int{x, y}]
				assert.Must(t, !is && x < 24, "%q is where %q is, or beyond the edge", p.Title, other)
				taken[[2]int{x, y}] = p.Title
			}
		}

		assert.That(t, len(p.Targets) != 0 || p.Type == "row", "%q shows nothing", p.Title)
		for _, target := range p.Targets {
			expr := strings.NewReplacer("$__rate_interval", "5m", `rollout=~"$rollout"`, `rollout=~"workers"`).Replace(target.Expr)
			assert.That(t, !strings.Contains(expr, "$"), "%q asks with a variable that is not known: %s", p.Title, expr)
			for _, wrong := range complaints(expr, table) {
				t.Errorf("%q: %s", p.Title, wrong)
			}

			for _, match := range selector.FindAllStringSubmatch(expr, -1) {
				used[match[1]] = true
			}

			text := assert.Value(json.Marshal(expr))(t)
			rules += fmt.Sprintf("  - record: panel%d\n    expr: %s\n    labels: {n: \"%d\"}\n", p.ID, text, len(rules))
		}
	}

	assert.That(t, len(used) >= 15, "it shows only %q", slices.Sorted(maps.Keys(used)))
	file := filepath.Join(t.TempDir(), "dashboard.yaml")
	assert.NoError(t, os.WriteFile(file, []byte(rules), 0o600))
	promtool(t, "", "check", "rules", file)
}
