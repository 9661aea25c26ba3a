// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/evenkeel/evenkeel/testkit/bed"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// kill kills the agent at random moments of the second half.
func (r *longRun) kill(ctx context.Context, random *rand.Rand) (err error) {
	defer must.Catch(&err)

	must.OK(bed.Pause(ctx, r.length/2))
	for {
		must.OK(bed.Pause(ctx, time.Duration(random.Int64N(int64(2*meanBetweenKills)))))
		r.kills.Add(1)
		if err := r.restart(ctx, time.Duration(random.Int64N(int64(time.Second)))); err != nil {
			return fmt.Errorf("kill %d: %w", r.kills.Load(), err)
		}
	}
}

// feelPulse asks for the kubelet's health all the time. A change or a kill interrupts it, but not for longer than patience.
func (r *longRun) feelPulse(ctx context.Context) error {
	var gone time.Time // zero: it is healthy
	for {
		err := r.Healthy(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil && !gone.IsZero():
			r.mu.Lock()
			r.gaps = append(r.gaps, time.Since(gone))
			r.mu.Unlock()
			gone = time.Time{}
		case err != nil && gone.IsZero():
			gone = time.Now()
		case err != nil && time.Since(gone) > patience:
			return fmt.Errorf("no kubelet was healthy for %s: %w", patience, err)
		}
		if err := bed.Pause(ctx, 250*time.Millisecond); err != nil {
			return err
		}
	}
}
