package component

// The kubelets that evenkeel is for, oldest and newest. An older one has no --config-dir that works (see tooOld), and with
// it neither drop-ins nor what is promised of them; a newer one is not refused: it is proven like any other before it is
// asked (see Harness).
const (
	OldestKubelet = "1.30"
	NewestKubelet = "1.37"
)
