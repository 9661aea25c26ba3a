package controller

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// clock is the time that a controller counts in: the API server's as it was when the controller began to lead, and its own
// monotonic clock from then on. So what one leader has recorded means the same to the next, whatever the clocks of their
// machines say, and nothing jumps when one of those is set. It may be read concurrently.
type clock struct {
	mu    sync.Mutex
	began time.Time // with a monotonic reading
	ahead time.Duration
}

func newClock() *clock { return &clock{began: time.Now()} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.began.Add(time.Since(c.began) + c.ahead).Round(0) // without the monotonic reading, which ahead is not in
}

// closeEnough is how far two clocks may be apart that are taken for the same: an answer says whole seconds, and takes some
// time.
const closeEnough = 2 * time.Second

// set sets the clock to a time; it stays as it is if that is about what it says. It returns how far it was off.
func (c *clock) set(to time.Time) time.Duration {
	off := to.Sub(c.now())
	if off.Abs() < closeEnough {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += off.Round(time.Second)
	return off.Round(time.Second)
}

// serverTime asks the API server what time it is.
func serverTime(ctx context.Context, client *http.Client, config *rest.Config) (time.Time, error) {
	url, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return time.Time{}, fmt.Errorf("find the API server: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url.JoinPath("version").String(), nil)
	if err != nil {
		return time.Time{}, fmt.Errorf("ask for the time: %w", err)
	}
	began := time.Now()
	answer, err := client.Do(request)
	if err != nil {
		return time.Time{}, fmt.Errorf("ask for the time: %w", err)
	}
	answer.Body.Close()
	// Any answer has it, a refusal too.
	date, err := http.ParseTime(answer.Header.Get("Date"))
	if err != nil {
		return time.Time{}, fmt.Errorf("the API server's answer has no time: %w", err)
	}
	return date.Add(time.Second/2 + time.Since(began)/2), nil
}

// setClock sets the clock to the API server's time, before anything is decided. It returns false if ctx ends before the
// API server answers.
func (c *Controller) setClock(ctx context.Context) bool {
	for said := false; ; said = true {
		at, err := serverTime(ctx, c.plain, c.config)
		if err == nil {
			if off := c.clock.set(at); off != 0 {
				c.log.Warn("this machine's clock is not the API server's; the API server's counts", "off", off)
			}
			return true
		}
		if !said && ctx.Err() == nil {
			c.log.Warn("cannot set the clock; it is tried again", "err", err)
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(time.Second):
		}
	}
}
