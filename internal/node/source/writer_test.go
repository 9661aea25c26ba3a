// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestRepeatedReportKeepsItsBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var attempts atomic.Int32
		var open atomic.Bool
		w := newWriter(&Client{up: make(chan struct{})}, quiet(), func(context.Context, Report) error {
			attempts.Add(1)
			if !open.Load() {
				return errors.New("there is no Node yet")
			}

			return nil
		}, nil)
		background(t, w.run)
		report := func(words string, healthy int64) Report {
			s := someStatus(words)
			s.Trial = &v1alpha1.Trial{HealthySeconds: healthy}
			return Report{Status: s}
		}
		for i := range 20 {
			w.set(report("a", int64(i)))
			synctest.Wait()
		}

		assert.Equal(t, attempts.Load(), 1, "attempts for a repeated report")
		w.set(report("b", 0))
		synctest.Wait()
		assert.Equal(t, attempts.Load(), 2, "attempts")
		open.Store(true)
		time.Sleep(time.Second) // on the bubble's clock
		assert.Equal(t, attempts.Load(), 3, "attempts within a second")
	})
}
