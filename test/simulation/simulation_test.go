package simulation

import (
	"flag"
	"os"
	"runtime"
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
	leaveOut   = flag.String("without", "", "with -seed: the numbers of the actions to leave out")
	noErrors   = flag.Bool("no-errors", false, "with -seed: no request fails, except in outages")
	noDelays   = flag.Bool("no-delays", false, "with -seed: all requests are quick")
	fewerNodes = flag.Int("fewer-nodes", 0, "with -seed: the number of machines")
)

func TestMain(m *testing.M) {
	flag.Parse()
	runtime.GOMAXPROCS(1) // the same seed is the same history
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

func TestHistories(t *testing.T) {
	if *oneSeed != 0 {
		t.Skip("-seed")
	}
	began := time.Now()
	n := 0
	var virtual time.Duration
	for seed := *firstSeed; time.Since(began) < *budgetFlag; seed++ {
		p := planOf(seed, without{})
		one := time.Now()
		o := play(t, p, false)
		n++
		virtual += o.lasted
		t.Logf("%s: %s %+v %x", p, time.Since(one).Round(time.Millisecond), o.stats, o.hash)
		for _, f := range o.failures {
			t.Errorf("seed %d: %s", seed, f)
		}
	}
	t.Logf("%d histories, %s of virtual time", n, virtual)
}
