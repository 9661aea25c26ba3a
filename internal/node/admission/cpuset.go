package admission

import (
	"fmt"
	"strconv"
	"strings"
)

// CPUSet is a set of CPU numbers.
type CPUSet map[int]struct{}

// maxCPU limits the CPUs of a list, also those that it repeats; Linux supports 8192.
const maxCPU = 1 << 16

// ParseCPUSet parses a list of CPUs and ranges, such as "0-3,7".
func ParseCPUSet(text string) (CPUSet, error) {
	set, numbers := CPUSet{}, 0
	if text = strings.TrimSpace(text); text == "" {
		return set, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		low, high, isRange := strings.Cut(strings.TrimSpace(part), "-")
		if !isRange {
			high = low
		}
		first, err := strconv.ParseUint(low, 10, 16)
		if err != nil {
			return nil, fmt.Errorf("list of CPUs: %w", err)
		}
		last, err := strconv.ParseUint(high, 10, 16)
		if err != nil {
			return nil, fmt.Errorf("list of CPUs: %w", err)
		}
		if last < first {
			return nil, fmt.Errorf("list of CPUs: range %q", part)
		}
		if numbers += int(last-first) + 1; numbers > maxCPU {
			return nil, fmt.Errorf("list of CPUs: more than %d", maxCPU)
		}
		for cpu := int(first); cpu <= int(last); cpu++ {
			set[cpu] = struct{}{}
		}
	}
	return set, nil
}

// contains reports whether every CPU of other is in the set.
func (s CPUSet) contains(other CPUSet) bool {
	for cpu := range other {
		if _, ok := s[cpu]; !ok {
			return false
		}
	}
	return true
}

// overlaps reports whether the sets have a CPU in common.
func (s CPUSet) overlaps(other CPUSet) bool {
	for cpu := range other {
		if _, ok := s[cpu]; ok {
			return true
		}
	}
	return false
}

func (s CPUSet) equal(other CPUSet) bool { return len(s) == len(other) && s.contains(other) }

// plus returns the CPUs that are in either set.
func (s CPUSet) plus(other CPUSet) CPUSet {
	sum := make(CPUSet, len(s)+len(other))
	for cpu := range s {
		sum[cpu] = struct{}{}
	}
	for cpu := range other {
		sum[cpu] = struct{}{}
	}
	return sum
}

// minus returns the CPUs of the set that are not in other.
func (s CPUSet) minus(other CPUSet) CPUSet {
	rest := CPUSet{}
	for cpu := range s {
		if _, ok := other[cpu]; !ok {
			rest[cpu] = struct{}{}
		}
	}
	return rest
}
