// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rules generates the PrometheusRule from the alerting rules, and
// checks in its tests that the metrics, alerts, dashboard and their
// documentation agree.
//
// The package must not know how anything is measured.
package rules

import "bytes"

//go:generate go run ./generate

// Rules is the file with the alerting rules, PrometheusRuleFile the object
// generated from it for the Prometheus Operator.
const (
	Rules              = "config/monitoring/rules.yaml"
	PrometheusRuleFile = "config/monitoring/prometheusrule.yaml"
)

const head = `# Generated from rules.yaml by make generate: edit rules.yaml.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: evenkeel
  namespace: evenkeel-system
  labels:
    app.kubernetes.io/name: evenkeel
    app.kubernetes.io/part-of: evenkeel
spec:
`

// PrometheusRule returns the Prometheus Operator's object for a rule file,
// which is the object's spec.
func PrometheusRule(rules []byte) []byte {
	out := bytes.NewBufferString(head)
	for line := range bytes.Lines(rules) {
		if bytes.HasPrefix(line, []byte("#")) {
			continue
		}
		if len(bytes.TrimSpace(line)) > 0 {
			out.WriteString("  ")
		}

		out.Write(line)
	}

	return out.Bytes()
}
