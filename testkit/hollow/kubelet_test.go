// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package hollow

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestAKubeletIsHealthyWhenThatIsDueEvenIfItsTimerIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &kubelet{heartbeat: &heartbeat{ended: true}} // it writes nothing
		started := assert.Value(k.Start(t.Context(), component.RunConfig{}, nil))(t)
		started.(*process).timer.Stop()
		assert.That(t, !started.Healthy(), "it is healthy at its start")
		time.Sleep(startDelay)
		assert.That(t, started.Healthy(), "it is not healthy although that is due")
	})
}
