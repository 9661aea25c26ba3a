package component

// The oldest and the newest supported minor version of the kubelet. Older ones lack a working --config-dir and so
// drop-ins (see DryRunner.noDropinSupport). Newer ones are not refused: every binary is probed before it is used.
const (
	OldestKubelet = "1.30"
	NewestKubelet = "1.37"
)
