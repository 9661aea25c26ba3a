// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"
)

// underLoad prints when the page is shown while 30 nodes change per second.
func underLoad(t *testing.T, address string) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var changes atomic.Int64
	tick := time.NewTicker(time.Second / 30)
	for range 4 {
		go func() {
			for ctx.Err() == nil {
				select {
				case <-ctx.Done():
				case <-tick.C:
					if err := flip(ctx, fmt.Sprintf("node-%04d", (changes.Add(1)*37)%int64(*many))); err != nil && ctx.Err() == nil {
						t.Log(err)
					}
				}
			}
		}()
	}

	b := open(t, address)
	b.shows("#fleet-words", allShown())
	shown := value[float64](b, `performance.now()`)
	paint := value[float64](b, `performance.getEntriesByName("first-contentful-paint")[0].startTime`)
	row("first paint", fmt.Sprintf("%.0f ms", paint), "1000 ms", paint < 1000)
	row("all nodes shown, at most", fmt.Sprintf("%.0f ms", shown), "2000 ms", shown < 2000)
}
