package source

import (
	"testing"
	"time"
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
