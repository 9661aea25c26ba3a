package simulation

import (
	"flag"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

var (
	oneSeed    = flag.Uint64("seed", 0, "play the history of one seed, with its trace")
	firstSeed  = flag.Uint64("first", 1000, "the first of the new seeds")
	budgetFlag = flag.Duration("budget", 20*time.Second, "how long new histories are played")
	shrinkFlag = flag.Duration("shrink", 30*time.Second, "how long a history that fails is made shorter")
	maxFailed  = flag.Int("max-failed", 3, "after how many histories that fail the test ends")
	leaveOut   = flag.String("without", "", "with -seed: the numbers of the actions to leave out")
	noErrors   = flag.Bool("no-errors", false, "with -seed: no request fails, except in outages")
	noDelays   = flag.Bool("no-delays", false, "with -seed: all requests are quick")
	fewerNodes = flag.Int("fewer-nodes", 0, "with -seed: the number of machines")
)

func TestMain(m *testing.M) {
	flag.Parse()
	runtime.GOMAXPROCS(1) // the same seed is the same history
	debug.SetGCPercent(400)
	klog.SetLogger(logr.Discard())
	ctrllog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// given returns what the flags leave out.
func given(t *testing.T) without {
	x := without{errors: *noErrors, delays: *noDelays, nodes: *fewerNodes}
	for part := range strings.SplitSeq(*leaveOut, ",") {
		if part == "" {
			continue
		}
		n, err := strconv.Atoi(part)
		if err != nil {
			t.Fatalf("-without: %v", err)
		}
		x.actions = append(x.actions, n)
	}
	return x
}

func TestOneHistory(t *testing.T) {
	if *oneSeed == 0 {
		t.Skip("no -seed")
	}
	p := planOf(*oneSeed, given(t))
	began := time.Now()
	o := play(t, p, true)
	t.Logf("%s\n%s%d lines, hash %x, %s of virtual time in %s, %+v", p, o.trace, o.lines, o.hash, o.lasted, time.Since(began), o.stats)
	for _, f := range o.failures {
		t.Error(f)
	}
}

// report reports a history that failed, after it has been made shorter.
func report(t *testing.T, seed uint64, o outcome, limit time.Duration) {
	t.Helper()
	x := shrink(t, seed, o.failures[0], limit)
	short := play(t, planOf(seed, x), false)
	if len(short.failures) == 0 {
		short = o
	}
	t.Errorf("seed %d: %s\nthe end of a shorter history:\n%sreproduce it: go test ./test/simulation -count=1 -v -seed=%d %s", seed, o.failures[0], short.trace, seed, x)
}

func TestHistories(t *testing.T) {
	if *oneSeed != 0 {
		t.Skip("-seed")
	}
	began := time.Now()
	n, failed := 0, 0
	var virtual time.Duration
	for seed := *firstSeed; time.Since(began) < *budgetFlag && failed < *maxFailed; seed++ {
		p := planOf(seed, without{})
		one := time.Now()
		o := play(t, p, false)
		n++
		virtual += o.lasted
		if testing.Verbose() {
			t.Logf("%s: %s %+v %x", p, time.Since(one).Round(time.Millisecond), o.stats, o.hash)
		}
		if len(o.failures) > 0 {
			failed++
			report(t, seed, o, *shrinkFlag)
		}
	}
	t.Logf("%d histories, %s of virtual time in %s", n, virtual, time.Since(began).Round(time.Second))
}
