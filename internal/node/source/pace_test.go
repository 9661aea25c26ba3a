package source

import (
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func TestWhenTheAPIServerIsBackThePaceBeginsAnew(t *testing.T) {
	retry := retries(time.Minute)
	for range 10 {
		retry.Step()
	}
	away, back := make(chan struct{}), make(chan struct{})
	close(back)
	afresh(&retry, time.Minute, away)
	if d := retry.Step(); d < 20*time.Second {
		t.Errorf("while it is away, the next attempt is after %s", d)
	}
	afresh(&retry, time.Minute, back)
	if d := retry.Step(); d > time.Second {
		t.Errorf("now that it is back, the next attempt is after %s", d)
	}
}

func TestAnAPIServerThatHasTooMuchToDoIsGivenTime(t *testing.T) {
	busy := fmt.Errorf("report: %w", apierrors.NewTooManyRequests("please wait", 1))
	for range 20 {
		if d := polite(busy, 2*time.Second); d < busyPause || d > 3*busyPause {
			t.Errorf("the next attempt is after %s", d)
		}
	}
	if d := polite(busy, time.Second); d != time.Second {
		t.Errorf("at first the next attempt is after %s", d)
	}
	if d := polite(busy, time.Minute); d != time.Minute {
		t.Errorf("what would be later anyway is after %s", d)
	}
	if d := polite(errors.New("refused"), time.Second); d != time.Second {
		t.Errorf("after another failure the next attempt is after %s", d)
	}
}
