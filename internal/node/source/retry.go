// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	requestTimeout = 15 * time.Second // of one request; a watch has it for its list
	// longestWatchDelay is the longest delay between two attempts to watch what is assigned, without jitter.
	longestWatchDelay = 20 * time.Second
	backoffJitter     = 2           // a delay is longer by up to this part of it
	reportPause       = time.Second // before a report after an outage; the most is twice as long
)

// LongestReturn is how long an agent may take, after an outage of the API server, to see its assignment and to report: one request that
// hangs, one delay, and the pause of the Reporter. The controller gives it this time before any timeout of its node runs.
const LongestReturn = requestTimeout + longestWatchDelay + longestWatchDelay/backoffJitter + 2*reportPause

// retry spaces the attempts of one goroutine at a request. When the API server answers again after an outage, the next
// attempt follows at once, or after pause, and the delays begin again: what the API server refuses just after its start it may accept a
// second later.
type retry struct {
	client    *Client
	limit     time.Duration // of a delay
	pause     time.Duration // the least delay after an outage; the most is twice as long
	backoff   wait.Backoff
	recovered <-chan struct{} // closed by the next recovery
}

func newRetry(client *Client, limit time.Duration) *retry {
	r := &retry{client: client, limit: limit}
	r.reset()
	return r
}

// reset makes the delays begin again.
func (r *retry) reset() { r.backoff, r.recovered = newBackoff(r.limit), r.client.recovered() }

// wait waits until the next attempt is due after err, or until wake is ready, and takes what wake has: the next attempt answers it.
// It returns false if ctx has ended.
func (r *retry) wait(ctx context.Context, err error, wake <-chan struct{}) bool {
	if !sleep(ctx, retryDelay(err, r.backoff.Step()), r.recovered, wake) {
		return false
	}
	select {
	case <-r.recovered:
		r.reset()
		if r.pause > 0 && !sleep(ctx, wait.Jitter(r.pause, 1), wake, nil) {
			return false
		}
	default:
	}
	select {
	case <-wake: // several reasons to go on may be there at the same time
	default:
	}
	return true
}

// newBackoff returns delays from half a second up to limit, with jitter.
func newBackoff(limit time.Duration) wait.Backoff {
	return wait.Backoff{Duration: 400 * time.Millisecond, Factor: 2, Jitter: 1. / backoffJitter, Steps: 30, Cap: limit}
}

// overloadedDelay is the least delay before a retry at an overloaded API server; with jitter up to three times as long.
const overloadedDelay = 5 * time.Second

// retryDelay returns the delay after err, which is d for most errors: thousands of agents that retry at once keep an API
// server overloaded. The first retries are not delayed: an API server that has just received a CRD also answers 429, and
// is ready a second later.
func retryDelay(err error, d time.Duration) time.Duration {
	if apierrors.IsTooManyRequests(err) && d > time.Second {
		return max(d, wait.Jitter(overloadedDelay, 2))
	}
	return d
}

// sleep waits for d, or until wake or again is ready. It returns false if ctx has ended.
func sleep(ctx context.Context, d time.Duration, wake, again <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-wake:
	case <-again:
	case <-ctx.Done():
		return false
	}
	return ctx.Err() == nil
}
