package agent

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evenkeel/evenkeel/internal/node/supervisor"
)

// gaveUp is after how long the agent has ended, 0 if it has not.
func gaveUp(t *testing.T, w *world, within time.Duration) time.Duration {
	t.Helper()
	for begin := time.Now(); time.Since(begin) < within; w.pass(time.Second) {
		select {
		case <-w.ended:
			if !errors.Is(w.err, ErrGivesBack) || w.kubelet.running() != nil {
				t.Errorf("it ended with %v, and the kubelet %v", w.err, w.kubelet.running())
			}
			return time.Since(begin)
		default:
		}
	}
	return 0
}

func TestANodeThatIsWaitedForIsGivenUpWhenNoKubeletIsHealthyForLong(t *testing.T) {
	for _, c := range []struct {
		name     string
		local    conf
		waited   bool
		after    time.Duration
		from, to time.Duration // when it ends; 0: it does not
	}{
		{"never healthy", conf{sick: true}, true, 5 * time.Minute, 5 * time.Minute, 5*time.Minute + 20*time.Second},
		{"crash-looping", conf{crashes: 3 * time.Second}, true, 5 * time.Minute, 5 * time.Minute, 7 * time.Minute},
		{"healthy", conf{}, true, 5 * time.Minute, 0, 0},
		{"nobody waits", conf{sick: true}, false, 5 * time.Minute, 0, 0},
		{"not asked to", conf{sick: true}, true, 0, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.kubelet.set(func(s *kubeletState) { s.confs[""] = c.local })
				w.options = func(o *Options) { o.GiveBack = GiveBack{After: c.after, Waited: func() bool { return c.waited }} }
				w.start()
				if got := gaveUp(t, w, 30*time.Minute); got < c.from || got > c.to {
					t.Errorf("it gave up after %s, want %s to %s\n%s", got, c.from, c.to, w.tail())
				}
				told := w.log.count("event=KubeletGivenUp")
				if (told == 1) != (c.to > 0) {
					t.Errorf("it said so %d times\n%s", told, w.tail())
				}
			})
		})
	}
}

func TestWhoComesToWaitLaterGetsTheNodeAfterAnotherWhile(t *testing.T) {
	inWorld(t, func(w *world) {
		var waited atomic.Bool
		w.kubelet.set(func(s *kubeletState) { s.confs[""] = conf{sick: true} })
		w.options = func(o *Options) { o.GiveBack = GiveBack{After: time.Minute, Waited: waited.Load} }
		w.start()
		w.pass(90 * time.Second)
		synctest.Wait()
		waited.Store(true)
		if got := gaveUp(t, w, 5*time.Minute); got == 0 || got > 80*time.Second {
			t.Errorf("it gave up after %s\n%s", got, w.tail())
		}
	})
}

func TestABadConfigurationIsRolledBackAndTheNodeKept(t *testing.T) {
	inWorld(t, func(w *world) {
		w.options = func(o *Options) {
			o.GiveBack = GiveBack{After: 2 * limits.HealthTimeout, Waited: func() bool { return true }}
		}
		w.start()
		w.runs("")
		w.assign("uid-sick", conf{name: "sick", sick: true})
		w.until("it is rolled back", func() bool { return w.log.count("event=ConfigRolledBack") == 1 })
		w.runs("")
		if got := gaveUp(t, w, 10*time.Minute); got != 0 {
			t.Errorf("it gave up after %s\n%s", got, w.tail())
		}
		w.dies(supervisor.Exit{Code: 1}) // and once: that is no reason
		if got := gaveUp(t, w, 10*time.Minute); got != 0 {
			t.Errorf("it gave up after %s\n%s", got, w.tail())
		}
	})
}
