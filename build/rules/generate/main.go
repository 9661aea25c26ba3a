// Command generate makes the PrometheusRule of the rule file. It is run in test/monitoring, by go generate.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/evenkeel/evenkeel/test/monitoring"
)

func main() {
	if err := generate(filepath.Join("..", "..")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func generate(root string) error {
	rules, err := os.ReadFile(filepath.Join(root, monitoring.Rules))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, monitoring.PrometheusRuleFile), monitoring.PrometheusRule(rules), 0o644)
}
