package rollout

// Plan decides what one rollout does next.
func Plan(p Policy, was Progress, nodes []Node) Result {
	return Result{}
}
