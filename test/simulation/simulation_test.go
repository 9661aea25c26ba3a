package simulation

import (
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

func TestSlice(t *testing.T) {
	p := &plan{seed: 1, nodes: 1, first: 1, lasts: 30 * time.Minute}
	p.actions = append(p.actions, action{time.Minute, "push", func(w *world) {
		w.direct(w.server.Create("nodeconfigrollouts", "", map[string]any{
			"metadata": map[string]any{"name": "all"},
			"spec": map[string]any{
				"nodeSelector": map[string]any{"matchLabels": map[string]any{"pool": "all"}},
				"template":     map[string]any{"kubeletDropIn": map[string]any{"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", contentField: 10}},
			},
		}))
	}})
	began := time.Now()
	o := play(t, p, true)
	t.Log(time.Since(began), o.lines, o.hash, o.failures, o.lasted)
	t.Log(o.trace)
	_ = v1alpha1.GroupName
}
