package source

import (
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func TestBackoffStartsAgainAfterAnOutage(t *testing.T) {
	retry := newBackoff(time.Minute)
	for range 10 {
		retry.Step()
	}
	away, back := make(chan struct{}), make(chan struct{})
	close(back)
	resetIfRecovered(&retry, time.Minute, away)
	if d := retry.Step(); d < 20*time.Second {
		t.Errorf("while it is away, the next attempt is after %s", d)
	}
	resetIfRecovered(&retry, time.Minute, back)
	if d := retry.Step(); d > time.Second {
		t.Errorf("now that it is back, the next attempt is after %s", d)
	}
}

func TestOverloadedAPIServerGetsLongerDelays(t *testing.T) {
	busy := fmt.Errorf("report: %w", apierrors.NewTooManyRequests("please wait", 1))
	for range 20 {
		if d := retryDelay(busy, 2*time.Second); d < overloadedDelay || d > 3*overloadedDelay {
			t.Errorf("the next attempt is after %s", d)
		}
	}
	if d := retryDelay(busy, time.Second); d != time.Second {
		t.Errorf("at first the next attempt is after %s", d)
	}
	if d := retryDelay(busy, time.Minute); d != time.Minute {
		t.Errorf("what would be later anyway is after %s", d)
	}
	if d := retryDelay(errors.New("refused"), time.Second); d != time.Second {
		t.Errorf("after another failure the next attempt is after %s", d)
	}
}
