// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/api"
	prometheusv1 "github.com/prometheus/client_golang/api/prometheus/v1"

	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/bed"
	"github.com/evenkeel/evenkeel/testkit/promserver"
)

// A Prometheus scrapes a controller and the agents of three nodes, one of which
// went back from a configuration.
func TestARealPrometheusFiresForARolledBackNodeAndAHaltedRollout(t *testing.T) {
	server := assert.Value(api.NewClient(api.Config{Address: startPrometheus(t)}))(t)
	var got map[string]prometheusv1.Alert
	err := bed.Eventually(t.Context(), time.Minute, func(ctx context.Context) error {
		answer, err := prometheusv1.NewAPI(server).Alerts(ctx)
		if err != nil {
			return err
		}

		got = map[string]prometheusv1.Alert{}
		for _, a := range answer.Alerts {
			if a.State == prometheusv1.AlertStateFiring {
				got[string(a.Labels["alertname"])] = a
			}
		}

		for _, want := range []string{"EvenkeelFallenBack", "EvenkeelRolloutHalted", "EvenkeelAgentSilent"} {
			if _, ok := got[want]; !ok {
				return fmt.Errorf("%s does not fire, but %v", want, got)
			}
		}

		return nil
	})
	assert.NoError(t, err)
	back := got["EvenkeelFallenBack"]
	node := string(back.Labels["node"])
	assert.That(t, back.Labels["rollout"] == "workers" && back.Labels["reason"] == "CrashLooped" && strings.HasPrefix(node, "watched-"),
		"the node that went back: %v", back.Labels)
	for name, want := range map[string]string{
		"EvenkeelFallenBack":    "Node " + node + " rolled back to last-known-good (CrashLooped).",
		"EvenkeelRolloutHalted": "Rollout workers was stopped.",
		"EvenkeelAgentSilent":   "The agent of watched-gone does not answer.",
	} {
		assert.Equal(t, string(got[name].Annotations["summary"]), want, name)
	}

	want := "The trial of the configuration assigned to node " + node + " by rollout workers failed: CrashLooped."
	assert.That(t, strings.HasPrefix(string(back.Annotations["description"]), want), "it says %q", back.Annotations["description"])
	for _, name := range []string{
		"EvenkeelDeadEnd", "EvenkeelKubeletNotHealthy", "EvenkeelRefused", "EvenkeelUnclear", "EvenkeelTrialStuck", "EvenkeelNodesNotOK",
		"EvenkeelRolloutNodesFailed", "EvenkeelControllerAbsent", "EvenkeelControllerBlocked",
	} {
		a, is := got[name]
		assert.That(t, !is, "%s fires: %v", name, a.Labels)
	}
}

// startPrometheus runs a Prometheus until the test ends, with the rules as they
// are, but that nothing has to last for long, and returns its URL.
func startPrometheus(t *testing.T) string {
	t.Helper()
	binary, dir := prometheus(t, "prometheus"), t.TempDir()
	rules := regexp.MustCompile(`(?m)^(\s+for:) .*$`).ReplaceAllString(read(t, Rules), "$1 1s")
	host := strings.TrimPrefix(exporter.URL, "http://")
	config := fmt.Sprintf("global: {scrape_interval: 500ms, evaluation_interval: 500ms}\nrule_files: [rules.yaml]\nscrape_configs:\n"+
		"- {job_name: evenkeel-controller, metrics_path: /controller/metrics, static_configs: [{targets: [%q]}]}\n"+
		"- job_name: evenkeel-agent\n  static_configs:\n", host)
	for _, node := range append([]string{"watched-gone"}, nodes...) {
		config += fmt.Sprintf("  - {targets: [%q], labels: {node: %s, instance: %s, __metrics_path__: /%s/metrics}}\n", host, node, node, node)
	}

	server := assert.Value(promserver.Start(binary, dir, map[string]string{"rules.yaml": rules, "prometheus.yaml": config}))(t)
	t.Cleanup(func() { assert.OK(t, server.Stop()) })

	return server.URL
}
