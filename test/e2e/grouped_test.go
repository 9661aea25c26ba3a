// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// groupedConfig is Config in the grouped form, with the trial that it asks for.
func (n *node) groupedConfig(trial, changes map[string]any) string {
	n.t.Helper()
	var fields map[string]any
	assert.NoError(n.t, yaml.Unmarshal([]byte(n.text(changes)), &fields))
	fields = payload.Group(fields)
	if trial != nil {
		fields["trial"] = trial
	}

	out := assert.Value(yaml.Marshal(fields))(n.t)

	return string(out)
}

// groupedConfigMap creates a ConfigMap with it.
func (n *node) groupedConfigMap(name string, trial, changes map[string]any) *corev1.ConfigMap {
	n.t.Helper()
	return n.CreateMap(name, map[string]string{payload.KeyKubelet: n.groupedConfig(trial, changes)})
}

// onTrial waits until the status shows the trial of a ConfigMap, and requires
// its terms.
func (n *node) onTrial(cm *corev1.ConfigMap, duration time.Duration, threshold int64) {
	n.t.Helper()
	var p *v1alpha1.Trial
	n.Eventually(cm.Name+" is on trial", func(ctx context.Context) error {
		nc, err := n.Get(ctx)
		if err != nil {
			return err
		}
		if p = nc.Status.Trial; p == nil || nc.Status.Active == nil || nc.Status.Active.UID != cm.UID {
			return errors.New("it is not")
		}

		return nil
	})
	if p.DurationSeconds != int64(duration/time.Second) || p.CrashLoopThreshold != threshold {
		n.t.Errorf("its trial is %+v, want %s and a threshold of %d", *p, duration, threshold)
	}
}
