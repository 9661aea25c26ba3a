// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Command generate makes the PrometheusRule of the rule file. It is run in
// build/rules, by go generate.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/evenkeel/evenkeel/build/rules"
)

func main() {
	if err := generate(filepath.Join("..", "..")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func generate(root string) error {
	alerts, err := os.ReadFile(filepath.Join(root, rules.Rules))
	if err != nil {
		return err
	}

	return os.WriteFile(filepath.Join(root, rules.PrometheusRuleFile), rules.PrometheusRule(alerts), 0o644)
}
