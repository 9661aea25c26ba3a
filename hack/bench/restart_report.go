// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import "fmt"

// printRestarts prints what each restart costs, as a table in Markdown. The
// floor of a change is the kubelet's plain restart.
func printRestarts(all []measurement) {
	fmt.Println("| kubelet | restart | pods that lost Ready | for 1 s or more | longest | requests of the kubelet in the first minute |")
	fmt.Println("|---|---|---|---|---|---|")
	for _, m := range all {
		fmt.Printf("| %s | %s | %d of %d | %d | %.1f s | %d |\n", m.variant, m.what, m.cost.lost, m.cost.pods, m.cost.long, m.cost.longest.Seconds(), m.requests)
	}
}
