// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestDelaysStartAgainAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := assert.Value(NewClient("kubeconfig", "test"))(t)
		outage := errors.New("refused")
		client.noteReachable(outage)
		retry := newRetry(client, time.Minute)
		next := func() time.Duration {
			begin := time.Now()
			assert.That(t, retry.wait(t.Context(), outage, nil), "the context has ended")
			return time.Since(begin)
		}
		for range 10 {
			next()
		}

		d := next()
		assert.That(t, d >= 20*time.Second, "during the outage the next delay is %s", d)
		client.noteReachable(nil)
		d = next()
		assert.That(t, d <= 0, "after the outage the next attempt is delayed by %s", d)
		d = next()
		assert.That(t, d <= time.Second, "after the outage the next delay is %s", d)
	})
}

func TestNoDelayIsLongerThanLongestReturnSays(t *testing.T) {
	for range 100 {
		b := newBackoff(longestWatchDelay)
		for range 40 {
			d := retryDelay(apierrors.NewTooManyRequests("later", 1), b.Step())
			assert.Must(t, d+requestTimeout+2*reportPause <= LongestReturn, "a delay of %s", d)
		}
	}
}

// What the sources read after an outage may change the report.
func TestTheReporterPausesAfterAnOutage(t *testing.T) {
	outage := errors.New("refused")
	for name, test := range map[string]struct {
		report      bool // a new report arrives half a second after the recovery
		least, most time.Duration
	}{
		"nothing new":  {false, time.Second, 2 * time.Second},
		"a new report": {true, 500 * time.Millisecond, 500 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			client := assert.Value(NewClient("kubeconfig", "test"))(t)
			client.noteReachable(outage)
			writes := make(chan time.Time, 2)
			w := newWriter(client, slog.New(slog.DiscardHandler), func(context.Context, Report) error {
				if writes <- time.Now(); len(writes) == 1 {
					return outage
				}

				return nil
			}, nil)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go w.run(ctx)
			w.set(Report{NodeConfigUID: "a"})
			synctest.Wait()
			client.noteReachable(nil)
			recovered := time.Now()
			time.Sleep(500 * time.Millisecond)
			if test.report {
				w.set(Report{NodeConfigUID: "b"})
			}

			time.Sleep(5 * time.Second)
			<-writes
			took := (<-writes).Sub(recovered)
			assert.That(t, took >= test.least && took <= test.most,
				"%s: written %s after the recovery, want between %s and %s", name, took, test.least, test.most)
		})
	}
}

func TestSeveralReasonsToRetryAtTheSameTimeCauseOneAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := assert.Value(NewClient("kubeconfig", "test"))(t)
		outage := errors.New("refused")
		for range 20 { // a select takes any of them
			client.noteReachable(outage)
			retry, wake := newRetry(client, time.Minute), make(chan struct{}, 1)
			wake <- struct{}{}
			client.noteReachable(nil)
			assert.Must(t, retry.wait(t.Context(), outage, wake), "the context has ended")
			begin := time.Now()
			assert.Must(t, retry.wait(t.Context(), outage, wake), "the context has ended")
			assert.Must(t, time.Since(begin) != 0, "the second attempt is not delayed")
		}
	})
}

func TestOverloadedAPIServerGetsLongerDelays(t *testing.T) {
	busy := fmt.Errorf("report: %w", apierrors.NewTooManyRequests("please wait", 1))
	for range 20 {
		d := retryDelay(busy, 2*time.Second)
		assert.That(t, d >= overloadedDelay && d <= 3*overloadedDelay, "the next delay is %s", d)
	}

	assert.Equal(t, retryDelay(busy, time.Second), time.Second, "the first delay is")
	assert.Equal(t, retryDelay(busy, time.Minute), time.Minute, "a longer delay became")
	assert.Equal(t, retryDelay(errors.New("refused"), time.Second), time.Second, "after another failure the next delay is")
}

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
