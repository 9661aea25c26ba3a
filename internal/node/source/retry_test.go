package source

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func TestSleepEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if sleep(ctx, time.Hour, nil, nil) {
		t.Error("sleep did not notice the end of its context")
	}
}

func TestDelaysStartAgainAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, err := NewClient("kubeconfig", "test")
		if err != nil {
			t.Fatal(err)
		}
		outage := errors.New("refused")
		client.noteReachable(outage)
		retry := newRetry(client, time.Minute)
		next := func() time.Duration {
			begin := time.Now()
			if !retry.wait(t.Context(), outage, nil) {
				t.Error("the context has ended")
			}
			return time.Since(begin)
		}
		for range 10 {
			next()
		}
		if d := next(); d < 20*time.Second {
			t.Errorf("during the outage the next delay is %s", d)
		}
		client.noteReachable(nil)
		if d := next(); d > 0 {
			t.Errorf("after the outage the next attempt is delayed by %s", d)
		}
		if d := next(); d > time.Second {
			t.Errorf("after the outage the next delay is %s", d)
		}
	})
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
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, err := NewClient("kubeconfig", "test")
				if err != nil {
					t.Fatal(err)
				}
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
				if took := (<-writes).Sub(recovered); took < test.least || took > test.most {
					t.Errorf("written %s after the recovery, want between %s and %s", took, test.least, test.most)
				}
			})
		})
	}
}

func TestSeveralReasonsToRetryAtTheSameTimeCauseOneAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, err := NewClient("kubeconfig", "test")
		if err != nil {
			t.Fatal(err)
		}
		outage := errors.New("refused")
		for range 20 { // a select takes any of them
			client.noteReachable(outage)
			retry, wake := newRetry(client, time.Minute), make(chan struct{}, 1)
			wake <- struct{}{}
			client.noteReachable(nil)
			if !retry.wait(t.Context(), outage, wake) {
				t.Fatal("the context has ended")
			}
			begin := time.Now()
			if !retry.wait(t.Context(), outage, wake) {
				t.Fatal("the context has ended")
			}
			if time.Since(begin) == 0 {
				t.Fatal("the second attempt is not delayed")
			}
		}
	})
}

func TestOverloadedAPIServerGetsLongerDelays(t *testing.T) {
	busy := fmt.Errorf("report: %w", apierrors.NewTooManyRequests("please wait", 1))
	for range 20 {
		if d := retryDelay(busy, 2*time.Second); d < overloadedDelay || d > 3*overloadedDelay {
			t.Errorf("the next delay is %s", d)
		}
	}
	if d := retryDelay(busy, time.Second); d != time.Second {
		t.Errorf("the first delay is %s", d)
	}
	if d := retryDelay(busy, time.Minute); d != time.Minute {
		t.Errorf("a longer delay became %s", d)
	}
	if d := retryDelay(errors.New("refused"), time.Second); d != time.Second {
		t.Errorf("after another failure the next delay is %s", d)
	}
}
