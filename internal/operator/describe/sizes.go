// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package describe

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// Sizes counts nodes by the values of a configuration that depend on the
// machine: by field, then by value.
type Sizes map[string]map[string]int

// Add counts the values of a node.
func (s Sizes) Add(values []v1alpha1.ResolvedValue) {
	for _, v := range values {
		if s[v.Path] == nil {
			s[v.Path] = map[string]int{}
		}

		s[v.Path][v.Value]++
	}
}

// SizesOf returns the values that the rules of a payload give on machines, as
// the API describes them: nobody but a node knows its number of PIDs. The error
// says on how many machines a rule has no possible result, and why. Without a
// known capacity a machine is not counted.
func SizesOf(p payload.Payload, machines []payload.Capacity) (Sizes, error) {
	if !p.HasRules() {
		return nil, nil
	}

	sizes, refused := Sizes{}, map[string]int{}
	for _, c := range machines {
		unknownPIDs := c.PIDs == 0
		if unknownPIDs {
			c.PIDs = math.MaxInt32
		}

		r, err := p.Resolve(c)
		if err != nil && !payload.NeedsCapacity(err) {
			refused[err.Error()]++
			continue
		}

		for i, v := range r.Values {
			if unknownPIDs && (strings.HasSuffix(v.Path, ".pid") || strings.HasSuffix(v.Path, "[pid.available]")) {
				r.Values[i].Value = "known on the node only"
			}
		}

		sizes.Add(r.Values)
	}

	if len(refused) == 0 {
		return sizes, nil
	}

	var words []string
	for _, why := range printable.MostFirst(refused) {
		words = append(words, fmt.Sprintf("%s: %s", printable.Count(refused[why], "node"), why))
	}

	return sizes, fmt.Errorf("its rules have no possible result on %s", printable.Few(words))
}

// Lines describes the values of each field, the most frequent first:
// "kubeReserved.memory: 412 nodes: 1843Mi; 9 nodes: 5611Mi".
func (s Sizes) Lines() []string {
	const most = 5
	var lines []string
	for path, counts := range s {
		values := printable.MostFirst(counts)
		var words []string
		for _, v := range values[:min(len(values), most)] {
			words = append(words, fmt.Sprintf("%s: %s", printable.Count(counts[v], "node"), v))
		}
		if more := len(values) - most; more > 0 {
			words = append(words, printable.Count(more, "other value"))
		}

		lines = append(lines, path+": "+strings.Join(words, "; "))
	}

	slices.Sort(lines)

	return lines
}
