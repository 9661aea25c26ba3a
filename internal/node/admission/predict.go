package admission

// Predict returns the pods that the starting kubelet may reject, sorted by namespace and name, each once with its first
// cause. The result does not depend on the order of the pods.
func Predict(in Input) []Loss { return nil }

// NeedsDrain returns why the kubelet must not be restarted with the new configuration while containers run; empty: it may be.
func NeedsDrain(in Input) []string { return nil }
