// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package lockfile

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
)

// ran returns the processor time of all threads of a process, and how often
// they were scheduled.
func ran(t *testing.T, pid int) (cpu time.Duration, times int) {
	t.Helper()
	threads := assert.Value(os.ReadDir(fmt.Sprintf("/proc/%d/task", pid)))(t)
	for _, thread := range threads {
		var had, waited time.Duration
		var n int
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/schedstat", pid, thread.Name()))
		assert.NoError(t, err)
		assert.NoError(t, assert.Err(fmt.Sscan(string(text), &had, &waited, &n)))
		cpu, times = cpu+had, times+n
	}

	return cpu, times
}

func TestWaitingAndHoldingAreCheap(t *testing.T) {
	localcluster.SkipShort(t)
	path := lockPath(t)
	holder := startHolding(t, Contender{Path: path})
	waiter := startWaiting(t, Contender{Path: path, ReopenEvery: 2 * time.Second})
	<-time.After(checkInterval / 2) // after the start of the process
	for name, pid := range map[string]int{"waiting": waiter.pid(), "holding": holder.pid()} {
		isCheap(t, name, pid)
	}
}

// isCheap requires one period in which a process does almost nothing. A busy
// machine schedules it more often for shorter times, so there are several
// tries: work of the process itself would show in all of them.
func isCheap(t *testing.T, name string, pid int) {
	t.Helper()
	const looks, tries = 4, 5
	for range tries {
		before, timesBefore := ran(t, pid)
		<-time.After(looks * checkInterval)
		cpu, times := ran(t, pid)
		cpu, times = cpu-before, times-timesBefore
		t.Logf("%s for %s: %s of CPU, woken %d times", name, looks*checkInterval, cpu, times)
		if cpu <= 10*time.Millisecond && times <= 50*looks { // a tick; some threads of Go's, a few times each
			return
		}
	}

	t.Errorf("%s: always more than a tick of CPU, or more than %d wakeups", name, 50*looks)
}
