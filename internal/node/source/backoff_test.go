package source

import (
	"context"
	"errors"
	"fmt"
	"testing"
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

func TestBackoffStartsAgainAfterAnOutage(t *testing.T) {
	retry := newBackoff(time.Minute)
	for range 10 {
		retry.Step()
	}
	away, back := make(chan struct{}), make(chan struct{})
	close(back)
	resetIfRecovered(&retry, time.Minute, away)
	if d := retry.Step(); d < 20*time.Second {
		t.Errorf("during the outage the next delay is %s", d)
	}
	resetIfRecovered(&retry, time.Minute, back)
	if d := retry.Step(); d > time.Second {
		t.Errorf("after the outage the next delay is %s", d)
	}
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
