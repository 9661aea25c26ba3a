// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// clock is the controller's clock: set to the API server's time when the
// controller begins to lead, and advanced by the monotonic clock from then on.
// Times that one leader records are therefore valid for the next, whatever the
// clocks of their machines say, and do not jump when one of those clocks is
// set. It may be used concurrently.
type clock struct {
	mu     sync.Mutex
	began  time.Time // with a monotonic reading
	offset time.Duration
}

func newClock() *clock { return &clock{began: time.Now()} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.began.Add(time.Since(c.began) + c.offset).Round(0) // without the monotonic reading, which lacks the offset
}

// clockTolerance is by how much the two clocks may differ: an answer has whole
// seconds, and takes some time.
const clockTolerance = 2 * time.Second

// set sets the clock, unless it is right within clockTolerance, and returns by
// how much it changed.
func (c *clock) set(to time.Time) time.Duration {
	off := to.Sub(c.now())
	if off.Abs() < clockTolerance {
		return 0
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset += off.Round(time.Second)

	return off.Round(time.Second)
}

// serverTime reads the time from the API server.
func serverTime(ctx context.Context, client *http.Client, config *rest.Config) (time.Time, error) {
	url, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return time.Time{}, fmt.Errorf("find the URL of the API server: %w", err)
	}

	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url.JoinPath("version").String(), nil)
	if err != nil {
		return time.Time{}, fmt.Errorf("read the API server's time: %w", err)
	}

	began := time.Now()
	answer, err := client.Do(request)
	if err != nil {
		return time.Time{}, fmt.Errorf("read the API server's time: %w", err)
	}

	_ = answer.Body.Close() // only the header is read
	// Every answer has a date, errors too.
	date, err := http.ParseTime(answer.Header.Get("Date"))
	if err != nil {
		return time.Time{}, fmt.Errorf("the API server's answer has no date: %w", err)
	}

	return date.Add(time.Second/2 + time.Since(began)/2), nil
}

// setClock sets the clock to the API server's time. It returns false if ctx
// ends before the API server answers.
func (c *Controller) setClock(ctx context.Context) bool {
	for logged := false; ; logged = true {
		at, err := serverTime(ctx, c.http, c.config)
		if err == nil {
			if off := c.clock.set(at); off != 0 {
				c.log.Warn("the clock of this machine differs from the API server's; using the API server's", "off", off)
			}

			return true
		}

		if !logged && ctx.Err() == nil {
			c.log.Warn("cannot read the API server's time; retrying", "err", err)
		}

		select {
		case <-ctx.Done():
			return false
		case <-time.After(time.Second):
		}
	}
}
