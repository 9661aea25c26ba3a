// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/testkit/figures"
)

// printRestarts prints two tables in Markdown: what each restart costs, and its cost by class of pods. In brackets is the ratio to the
// floor, which is the median of that kubelet's plain restarts.
func printRestarts(all []measurement) {
	printTableRow("kubelet", "restart", "load", "pods that lost Ready", "for 1 s or more", "pod-seconds without Ready", "longest interval", "container restarts",
		"without healthz", "requests of the kubelet", "of the agent")
	printTableRow(strings.Split(strings.Repeat("---,", 10)+"---", ",")...)
	for _, m := range all {
		c := m.total()
		cell := func(text string, value func(measurement) float64) string {
			var floors []float64
			for _, f := range all {
				if f.variant == m.variant && f.what == plainRestart && m.what == goodChange {
					floors = append(floors, value(f))
				}
			}
			if len(floors) == 0 || figures.Median(floors) == 0 {
				return text
			}
			return fmt.Sprintf("%s (%.2f x)", text, value(m)/figures.Median(floors))
		}
		printTableRow(m.variant.String(), m.what, m.load,
			fmt.Sprintf("%d of %d", c.lost, c.pods),
			fmt.Sprint(c.long),
			cell(fmt.Sprintf("%.1f", c.unready.Seconds()), func(m measurement) float64 { return m.total().unready.Seconds() }),
			cell(seconds(c.longest), func(m measurement) float64 { return m.total().longest.Seconds() }),
			fmt.Sprint(c.restarts),
			cell(ms(m.down), func(m measurement) float64 { return m.down.Seconds() }),
			cell(fmt.Sprint(m.requests["kubelet"]), func(m measurement) float64 { return float64(m.requests["kubelet"]) }),
			fmt.Sprint(m.requests["evenkeel-agent"]))
	}
	fmt.Println()
	header := []string{"kubelet", "restart"}
	for _, class := range allClasses {
		header = append(header, class.name)
	}
	printTableRow(header...)
	printTableRow(strings.Split(strings.Repeat("---,", len(header)-1)+"---", ",")...)
	for _, m := range all {
		row := []string{m.variant.String(), m.what}
		for _, class := range allClasses {
			c := m.costs[class.name]
			cell := fmt.Sprintf("%d of %d", c.lost, c.pods)
			if c.lost > 0 {
				cell += fmt.Sprintf(", %.1f s, longest %s", c.unready.Seconds(), seconds(c.longest))
			}
			row = append(row, cell)
		}
		printTableRow(row...)
	}
}

// total returns the cost of all classes.
func (m measurement) total() (sum cost) {
	for _, c := range m.costs {
		sum.add(c)
	}
	return sum
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

func printTableRow(cells ...string) { fmt.Printf("| %s |\n", strings.Join(cells, " | ")) }
