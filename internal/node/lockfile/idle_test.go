package lockfile

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// ran is the processor time that all threads of a process have had, and how often they were given a processor.
func ran(t *testing.T, pid int) (cpu time.Duration, times int) {
	t.Helper()
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	do(t, err)
	for _, thread := range threads {
		var had, waited time.Duration
		var n int
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/schedstat", pid, thread.Name()))
		do(t, err)
		_, err = fmt.Sscan(string(text), &had, &waited, &n)
		do(t, err)
		cpu, times = cpu+had, times+n
	}
	return cpu, times
}

func resident(t *testing.T, pid int) (kib int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	do(t, err)
	_, after, _ := strings.Cut(string(text), "VmRSS:")
	_, err = fmt.Sscan(after, &kib)
	do(t, err)
	return kib
}

func TestWaitingAndHoldingCostNextToNothing(t *testing.T) {
	path := lockPath(t)
	holder := startPeer(t, Contender{Path: path})
	holder.hears("held")
	waiter := startPeer(t, Contender{Path: path, Poke: 2 * time.Second})
	queued(t, waiter.pid())
	<-time.After(lookEvery / 2) // so that what it started with is over
	for name, pid := range map[string]int{"waiting": waiter.pid(), "holding": holder.pid()} {
		costsNextToNothing(t, name, pid)
	}
}

// costsNextToNothing demands a few seconds in which a process does next to nothing. A busy machine gives it processors more
// often, for less at a time, so more than one try is had: what it does of itself would be seen in all of them.
func costsNextToNothing(t *testing.T, name string, pid int) {
	t.Helper()
	const looks, tries = 4, 5
	for range tries {
		before, timesBefore := ran(t, pid)
		<-time.After(looks * lookEvery)
		cpu, times := ran(t, pid)
		cpu, times = cpu-before, times-timesBefore
		t.Logf("%s for %s: %s of CPU, woken %d times, %d KiB resident", name, looks*lookEvery, cpu, times, resident(t, pid))
		if cpu <= 10*time.Millisecond && times <= 50*looks { // a tick; some threads of Go's, a few times each
			return
		}
	}
	t.Errorf("%s always took more than a tick, or was woken more than %d times", name, 50*looks)
}
