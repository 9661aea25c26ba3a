package componentconfig

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Write is a ConfigMap that changes.
type Write struct {
	Old *corev1.ConfigMap // as it was read; nil: there was none
	New *corev1.ConfigMap // nil: it is deleted
}

// Store writes ConfigMaps in their order, so that Undo can restore what was there before. Nothing is written if the API
// server would refuse one of them. A ConfigMap that was changed since it was read is an error that names it; what was
// written before it stays and is part of what Undo restores, also after the same or another Store has carried on. why
// stands in the record: what the writes are for, such as "v1.37.0".
func Store(ctx context.Context, c client.Client, why string, writes []Write) error {
	panic("TODO")
}
