// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Command rules generates the PrometheusRule from the alerting rules, and
// checks in its tests that the metrics, alerts, dashboard and their
// documentation agree. It is run in build/rules, by go generate.
//
// It must not know how anything is measured.
package main

import (
	"bytes"
	"os"
	"path/filepath"

	"github.com/evenkeel/evenkeel/testkit/must"
)

//go:generate go run .

const (
	root = "../.."

	// Rules is the file with the alerting rules, PrometheusRuleFile the object
	// generated from it for the Prometheus Operator.
	Rules              = "config/monitoring/rules.yaml"
	PrometheusRuleFile = "config/monitoring/prometheusrule.yaml"
)

func main() {
	os.Exit(must.ExitCode("rules", func() {
		alerts := must.Get(os.ReadFile(filepath.Join(root, Rules)))
		must.OK(os.WriteFile(filepath.Join(root, PrometheusRuleFile), PrometheusRule(alerts), 0o644))
	}))
}

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
