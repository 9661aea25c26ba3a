// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package podguard

import (
	"fmt"
	"strconv"
	"strings"

	"k8s.io/utils/cpuset"
)

// Limits of a list of CPUs. Linux supports 8192 CPUs.
const (
	maxCPUBits = 13
	maxCPUs    = 1 << maxCPUBits // also of CPUs that a list repeats
)

// ParseCPUSet parses a list of CPUs and ranges, such as "0-3,7". It limits the list before the library builds the set, of
// which "0-4000000000" would need hundreds of gigabytes.
func ParseCPUSet(text string) (cpuset.CPUSet, error) {
	if text = strings.TrimSpace(text); text == "" {
		return cpuset.New(), nil
	}
	total := 0
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		low, errLow := strconv.ParseUint(first, 10, maxCPUBits)
		high, errHigh := strconv.ParseUint(last, 10, maxCPUBits)
		if errLow != nil || errHigh != nil {
			return cpuset.New(), fmt.Errorf("list of CPUs: %.20q is not a CPU or range below %d", part, maxCPUs)
		}
		if total += 1 + int(high) - int(low); total > maxCPUs {
			return cpuset.New(), fmt.Errorf("list of CPUs: more than %d", maxCPUs)
		}
	}
	return cpuset.Parse(text)
}
