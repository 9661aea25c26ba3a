package admission

// CPUSet is a set of CPU numbers.
type CPUSet map[int]struct{}
