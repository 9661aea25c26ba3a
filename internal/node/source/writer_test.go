package source

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

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
		if n := attempts.Load(); n != 1 {
			t.Errorf("%d attempts for a repeated report, want 1", n)
		}
		w.set(report("b", 0))
		synctest.Wait()
		if n := attempts.Load(); n != 2 {
			t.Errorf("%d attempts, want a second one without a delay for a different report", n)
		}
		open.Store(true)
		time.Sleep(time.Second) // on the bubble's clock
		if n := attempts.Load(); n != 3 {
			t.Errorf("%d attempts within a second, want one more", n)
		}
	})
}
