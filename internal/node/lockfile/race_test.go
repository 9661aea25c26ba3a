// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package lockfile

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// runVar has a standIn, in JSON, for this test binary, started again.
const runVar = "LOCKFILE_TEST_RUN"

// standIn is an agent with its kubelet: it runs while it has the lock.
type standIn struct {
	Kind        string
	Path        string
	Yield       bool
	ReopenEvery time.Duration
	// Strict is the file of a second lock: a process that cannot take it has
	// found a second holder. It is a POSIX lock, which the kernel releases
	// before flock(2) locks when a process is killed.
	Strict string
	Log    string        // events: process, kind, event, time
	Stop   time.Duration // the time to stop
}

// write appends an event of a process to the log, or panics.
func (s standIn) write(pid int, what string) {
	var now unix.Timespec // of a clock that all processes share
	must.OK(unix.ClockGettime(unix.CLOCK_MONOTONIC, &now))
	file := must.Get(os.OpenFile(s.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600))
	must.Get(fmt.Fprintln(file, pid, s.Kind, what, now.Nano()))
	must.OK(file.Close())
}

// runStandIn panics if something fails.
func runStandIn(text string) {
	var s standIn
	must.OK(json.Unmarshal([]byte(text), &s))
	ctx, cancel := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer cancel()
	strict := must.Get(os.OpenFile(s.Strict, os.O_CREATE|os.O_RDWR, 0o600))
	_, _ = os.Stdout.WriteString("u") // up
	c := Contender{Path: s.Path, Yield: s.Yield, ReopenEvery: s.ReopenEvery}
	claim, err := c.Acquire(ctx, func(error) { s.write(os.Getpid(), "waits") })
	if errors.Is(err, context.Canceled) {
		os.Exit(0)
	}

	must.OK(err)
	select {
	case <-claim.Contended(): // before it ran
	default:
		if err := unix.FcntlFlock(strict.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}); err != nil {
			s.write(os.Getpid(), "TWO")
			os.Exit(3)
		}

		s.write(os.Getpid(), "on")
		select {
		case <-claim.Contended():
		case <-ctx.Done():
		}

		<-time.After(s.Stop)
		s.write(os.Getpid(), "off")
		_ = strict.Close()
	}

	_ = claim.Release()
	os.Exit(0)
}

// A hand-over takes at most a restart, with the delay of the init system or of
// the pod, and one interval of ReopenEvery. The limit is ten times that, for a
// busy machine.
const (
	initDelay = 20 * time.Millisecond // from a bootstrap's end to its restart
	podDelay  = 30 * time.Millisecond // the longest restart in a pod
	raceOpen  = 50 * time.Millisecond
)

// raceBound is the longest time without a holder, or before a bootstrap
// releases; start is the time to start a process.
func raceBound(start time.Duration) time.Duration {
	return 10 * (initDelay + podDelay + raceOpen + start)
}

// actor restarts a contender whenever it ends.
type actor struct {
	standIn standIn
	delay   func() time.Duration
	cmds    chan *exec.Cmd // the running process; taken out while it gets a signal
}

// up starts a stand-in, and returns when it has started: kills before that
// would only make a crash loop.
func (s standIn) up() (_ *exec.Cmd, err error) {
	defer must.Catch(&err)

	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), runVar+"="+string(must.Get(json.Marshal(s))))
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	stdout := must.Get(cmd.StdoutPipe())
	must.OK(cmd.Start())
	_, err = stdout.Read(make([]byte, 1))

	return cmd, errors.Join(err, stdout.Close())
}

func (a *actor) run(ctx context.Context, t *testing.T) {
	for ctx.Err() == nil {
		cmd, err := a.standIn.up()
		if err != nil {
			t.Error(err)
			return
		}

		a.cmds <- cmd
		state, _ := cmd.Process.Wait()
		<-a.cmds
		a.standIn.write(cmd.Process.Pid, "gone")
		assert.That(t, state.ExitCode() <= 0, "%s, process %d: %s", a.standIn.Kind, cmd.Process.Pid, state)
		<-time.After(a.delay())
	}
}

// signal logs a signal, and sends it.
func (a *actor) signal(s unix.Signal) {
	select {
	case cmd := <-a.cmds:
		a.standIn.write(cmd.Process.Pid, unix.SignalName(s))
		_ = cmd.Process.Signal(s) // fails if it has ended
		a.cmds <- cmd
	default: // does not run
	}
}

// life is the part of the log of one process.
type life struct {
	kind string
	at   map[string]time.Duration // the first time of each event
}

// first returns the earliest of these events.
func (l life) first(words ...string) time.Duration {
	earliest := time.Duration(math.MaxInt64)
	for _, w := range words {
		if at, ok := l.at[w]; ok {
			earliest = min(earliest, at)
		}
	}

	return earliest
}

func (l life) has(word string) bool { _, ok := l.at[word]; return ok }

// lives parses the log.
func lives(record string) []life {
	var all []life
	current := map[string]int{} // by process ID, which may be reused
	for line := range strings.Lines(record) {
		var pid, kind, what string
		var at time.Duration
		if n, _ := fmt.Sscan(line, &pid, &kind, &what, &at); n < 4 {
			continue // not completely written
		}

		if _, ok := current[pid]; !ok {
			current[pid] = len(all)
			all = append(all, life{kind, map[string]time.Duration{}})
		}

		if l := all[current[pid]]; !l.has(what) {
			l.at[what] = at
		}
		if what == "gone" {
			delete(current, pid)
		}
	}

	return all
}

// verdict returns the faults in a log, and how often each kind ran.
func verdict(record string, bound time.Duration) (wrong []string, runs map[string]int) {
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	all := lives(record)
	runs = map[string]int{}
	var ran []life
	for _, l := range all {
		if l.has("TWO") {
			say("%s could not have the second lock at %s: two at once", l.kind, l.at["TWO"])
		}

		if l.has("on") {
			ran = append(ran, l)
			runs[l.kind]++
		}
	}

	slices.SortFunc(ran, func(a, b life) int { return cmp.Compare(a.at["on"], b.at["on"]) })
	for i, l := range ran {
		end := max(l.at["on"], l.first("off", "SIGKILL", "gone"))
		if i+1 < len(ran) {
			if gap := ran[i+1].at["on"] - end; gap > bound {
				say("no holder from %s for %s", end, gap)
			}
		}

		if l.kind != "bootstrap" {
			continue
		}

		for _, other := range all {
			if other.kind == "bootstrap" || !other.has("waits") {
				continue
			}

			late := min(end, other.first("on", "SIGKILL", "SIGTERM", "gone")) - max(l.at["on"], other.at["waits"])
			if late > bound {
				say("%s waited %s for a bootstrap to give way, from %s", other.kind, late, other.at["waits"])
			}
		}
	}

	return wrong, runs
}

// race starts contenders, and kills, stops and ends them at random, until
// handOvers of them have run.
func race(t *testing.T, random *rand.Rand, kinds []string, handOvers int) {
	dir := t.TempDir()
	record := filepath.Join(dir, "record")
	begin := time.Now()
	first := assert.Value(standIn{Kind: "first", Path: record + ".no", Strict: record + ".none", Log: record + ".first"}.up())(t)
	bound := raceBound(time.Since(begin)) //nolint:forbidigo // measures the machine, to choose a deadline
	_ = first.Process.Kill()
	_ = first.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var actors []*actor
	var ended sync.WaitGroup
	for _, kind := range kinds {
		a := &actor{cmds: make(chan *exec.Cmd, 1), delay: func() time.Duration { return initDelay }}
		a.standIn = standIn{Kind: kind, Path: filepath.Join(dir, "lock"), Yield: true, Strict: filepath.Join(dir, "strict"),
			Log: record, Stop: 2 * time.Millisecond}
		if kind != "bootstrap" {
			a.standIn.Yield, a.standIn.ReopenEvery = false, raceOpen
			delays := rand.New(rand.NewPCG(random.Uint64(), 0))
			a.delay = func() time.Duration { return time.Duration(delays.Int64N(int64(podDelay))) }
		}

		actors = append(actors, a)
		ended.Go(func() { a.run(ctx, t) })
	}

	deadline := time.Now().Add(2 * time.Minute)
	done := 0
	for n := 1; done < handOvers && !t.Failed(); n++ {
		a := actors[random.IntN(len(actors))]
		switch random.IntN(10) {
		case 0, 1, 2, 3:
			a.signal(unix.SIGKILL)
		case 4, 5, 6:
			a.signal(unix.SIGTERM)
		case 7:
			a.signal(unix.SIGSTOP)
			<-time.After(time.Duration(random.Int64N(int64(10 * time.Millisecond))))
			a.signal(unix.SIGCONT)
		}

		<-time.After(time.Duration(random.Int64N(int64(8 * time.Millisecond)))) // between signals
		if n%20 == 0 {
			text, _ := os.ReadFile(record)
			done = strings.Count(string(text), " on ")
		}

		assert.That(t, !time.Now().After(deadline), "only %d hand-overs", done)
	}

	cancel()
	all := make(chan struct{})
	go func() { ended.Wait(); close(all) }()
	for over := false; !over; {
		for _, a := range actors {
			a.signal(unix.SIGKILL)
		}

		select {
		case <-all:
			over = true
		case <-time.After(5 * time.Millisecond): // a process may just have started
		}
	}

	text := assert.Value(os.ReadFile(record))(t)
	wrong, runs := verdict(string(text), bound)
	t.Logf("%d hand-overs, by kind %v; limit %s", done, runs, bound)
	for _, w := range wrong {
		t.Error(w)
	}

	for _, kind := range kinds {
		assert.That(t, runs[kind] >= handOvers/20, "%s ran only %d times: the race is not one", kind, runs[kind])
	}
}

func TestExactlyOneHolderInARace(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("LOCKFILE_TEST_SEED"); text != "" {
		seed = assert.Value(strconv.ParseUint(text, 10, 64))(t)
	}

	handOvers := 260 // more than 500 in total
	if testing.Short() {
		handOvers = 60
	}

	for _, kinds := range [][]string{{"bootstrap", "v1"}, {"bootstrap", "v1", "v2"}} {
		t.Run(strings.Join(kinds, ", "), func(t *testing.T) {
			t.Parallel()
			t.Logf("LOCKFILE_TEST_SEED=%d", seed)
			race(t, rand.New(rand.NewPCG(seed, uint64(len(kinds)))), kinds, handOvers)
		})
	}
}

func TestRaceVerdictFindsFaults(t *testing.T) {
	for _, tt := range []struct{ name, record, want string }{
		{"all is well", "1 v1 on 1\n1 v1 off 5\n2 v2 on 6\n2 v2 SIGKILL 9\n3 v1 on 10\n", "[]"},
		{"the second lock", "1 v1 TWO 7\n", "[v1 could not have the second lock at 7ns: two at once]"},
		{"none", "1 v1 on 1\n1 v1 off 5\n2 v2 on 2000000005\n", "[no holder from 5ns for 2s]"},
		{"a missed open", "1 bootstrap on 1\n2 v1 waits 5\n1 bootstrap off 2000000005\n2 v1 on 2000000006\n",
			"[v1 waited 2s for a bootstrap to give way, from 5ns]"},
		{"a number that is used again", "1 bootstrap on 1\n1 bootstrap gone 2\n1 v1 on 3\n1 v1 gone 4\n", "[]"},
	} {
		wrong, _ := verdict(tt.record, time.Second)
		assert.Equal(t, fmt.Sprint(wrong), tt.want, tt.name)
	}
}
