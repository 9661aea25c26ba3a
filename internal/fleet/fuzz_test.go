// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"encoding/json"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/rollout"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// Whatever is in the spec and the status of a rollout, it is refused with a
// reason, or gives amounts within their limits; requests keep their times.
func FuzzRollout(f *testing.F) {
	for _, text := range []string{
		`{}`, `{"spec":{"strategy":{"maxUnavailable":"10%","steps":[{"nodes":1},{"pause":{}},{"nodes":"50%"}],"windows":[{"schedule":"0 22 * * *","duration":"6h"}]},"paused":true,"pausedReason":"b"}}`,
		`{"spec":{"strategy":{"maxUnavailable":"101%"}}}`, `{"spec":{"failurePolicy":{"maxFailures":-1}}}`, `{"spec":{"soakSeconds":-9223372036854775808,"nodeTimeoutSeconds":9223372036854775807}}`,
		`{"spec":{"approval":{"revision":1,"step":-1,"reason":"x"},"abort":{"revision":1,"rollback":true}},"status":{"requests":[{"kind":"Approval","revision":1,"step":-1,"reason":"x","time":"2026-05-01T11:00:00Z"}],"updateRevision":{"number":1}}}`,
		`{"spec":{"pin":{"sha256":"a","instead":"b"},"template":{"kubelet":"x"},"gates":[{"name":"a","server":"b","query":"c"}]}}`,
		`{"metadata":{"annotations":{"evenkeel.dev/requested-by":"\u001b"}},"spec":{"nodeSelector":{"matchExpressions":[{"key":"a","operator":"In"}]}}}`,
	} {
		f.Add([]byte(text))
	}

	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, data []byte) {
		var r v1alpha1.NodeConfigRollout
		if json.Unmarshal(data, &r) != nil {
			return
		}

		s, _, err := Complete(&r)
		assert.That(t, err == nil || err.Error() != "", "%s is refused without a reason", data)
		n := rollout.RoundUp(s.Strategy.MaxUnavailable, 100)
		assert.That(t, n >= 0 && (s.Strategy.MaxUnavailable.Type == intstr.Int || n <= 100), "%s has maxUnavailable %s", data, s.Strategy.MaxUnavailable)
		in := Build(Objects{Rollout: &r, Template: TemplateOf(&r, nil, nil), Settings: DefaultSettings, Now: now})
		in.Status, in.Now = rollout.Plan(in, nil).Next, now.Add(time.Hour)
		rollout.Plan(in, nil)
		SelfSelectionWarning(&r.Spec)
		if selection, err := SelectionOf(&r); err == nil {
			ClaimsOn([]Selection{selection}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{"a": "b"}}})
		}

		at := RecordedInStatus(&r.Status)
		assert.That(t, !at.After(time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)), "%s was recorded at %s", data, at)
	})
}
