// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// TestReportsNameNothingOfAForeignConfigMap assigns a ConfigMap of kube-system
// in each way in which a report quotes a configuration: what the dry run and a
// guard say about it, how it cannot be decoded, and what the kubelet logs with
// it.
func TestReportsNameNothingOfAForeignConfigMap(t *testing.T) {
	const secret = "10.7.7.7"
	for name, tt := range map[string]struct {
		conf   conf
		data   map[string]string
		reason string
	}{
		"rejected":    {conf{name: "a", rejected: "clusterDNS: Invalid value: " + secret}, nil, "ValidationFailed"},
		"protected":   {conf{name: "a", readOnlyPort: 10777}, nil, "ProtectedFields"},
		"not decoded": {conf{name: "a"}, map[string]string{secret: "x"}, "ValidationFailed"},
		"crashing":    {conf{name: "a", crashes: time.Second}, nil, "CrashLooped"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.options = func(o *Options) { o.Protected = payload.DefaultProtection() }
				w.kubelet.set(func(s *kubeletState) { s.lastErrors = "no route to " + secret })
				w.start()
				w.runs("")
				cm := configMap("uid-a", tt.conf)
				cm.Namespace = "kube-system"
				if tt.data != nil {
					cm.Data = tt.data
				}

				w.kubelet.set(func(s *kubeletState) { s.confs["a"] = tt.conf })
				w.names["uid-a"] = "a"
				w.assignObject(cm)
				w.pass(10 * time.Minute)
				s := w.status()
				assert.That(t, s.Conditions[0].Reason == tt.reason && strings.Contains(s.Error, withheld), "the status is %+v", s)
				for _, told := range w.reporter.get().reports {
					text := fmt.Sprintf("%+v %+v %+v", told.Status, told.Condition, told.Configured)
					assert.That(t, !strings.Contains(text, secret) && !strings.Contains(text, "10777"), "%s", text)
				}

				for _, e := range w.reporter.get().events {
					assert.That(t, !strings.Contains(e, secret) && !strings.Contains(e, "10777"), "the Event %s", e)
				}
				n := w.log.count("10777") + w.log.count(secret)
				assert.That(t, n != 0, "the log does not say what is wrong")
			})
		})
	}
}
