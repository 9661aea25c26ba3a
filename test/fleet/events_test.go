package fleet_test

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// told waits for an Event of the rollout.
func (r *rollout) told(reason, words string) {
	r.t.Helper()
	r.until(fmt.Sprintf("an Event %s says %q", reason, words), func() (string, bool) {
		list := &corev1.EventList{}
		r.do(kube.List(r.t.Context(), list, client.InNamespace("default")))
		var all []string
		for _, e := range list.Items {
			if e.InvolvedObject.Name != r.as {
				continue
			}
			if e.Reason == reason && strings.Contains(e.Message, words) {
				return "", true
			}
			all = append(all, e.Reason+": "+e.Message)
		}
		return strings.Join(all, "\n"), false
	})
}
