// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Command longrun runs one real node for hours: etcd, kube-apiserver, containerd, a stock kubelet under evenkeel-agent, and
// evenkeel-controller. Every minute it pushes a change, every tenth of which is bad. It restarts the API server after every ten
// changes, and kills the agent at random moments in the second half of the run. In the first half one agent lives, so that a leak
// has time to grow. After each change it checks what runs and what the status says, and every 30 s it measures the processes and
// the disk. The samples are appended to a file in docs, from which it draws a picture; several runs add up.
//
// With -only=trials it runs trials of the default length instead, and with -only=report it only judges the runs in the file again.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

func main() {
	o := options{}
	flag.DurationVar(&o.time, "time", 2*time.Hour, "how long the run takes")
	flag.StringVar(&o.only, "only", "", "changes, trials (two trials of ten minutes that fail late, and one that does not) or report; empty: changes")
	flag.StringVar(&o.data, "data", "hack/longrun/samples.csv", "file to which the samples are appended")
	flag.StringVar(&o.picture, "picture", "hack/longrun/samples.svg", "picture to draw")
	flag.StringVar(&o.commit, "commit", "unknown", "commit of the programs, for the file")
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()), "seed of all random choices; the machine's timing varies as well")
	flag.Parse()
	klog.SetLogger(logr.Discard()) // what client-go says of connections that are closed
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "longrun: %v (-seed=%d)\n", err, o.seed)
		os.Exit(1)
	}
}

type options struct {
	time          time.Duration
	only          string
	data, picture string
	commit        string
	seed          uint64
}

func run(ctx context.Context, o options) error {
	switch o.only {
	case "trials":
		return trials(ctx)
	case "report":
		return report(o.data, o.picture)
	case "", "changes":
	default:
		return fmt.Errorf("-only=%s: must be changes, trials or report", o.only)
	}
	if o.time < 20*time.Minute {
		return errors.New("-time must be at least 20m: a leak does not show in less")
	}
	fmt.Printf("one node for %s, -seed=%d\n", o.time, o.seed)
	return errors.Join(long(ctx, o), redraw(o.data, o.picture))
}

// long runs the changes, the kills and the samples side by side, until the time is over or one of them fails.
func long(ctx context.Context, o options) (err error) {
	w, err := up(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.down(err != nil && ctx.Err() == nil)) }()
	data, err := openData(o.data, o.commit, o.seed)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, data.Close()) }()
	r := &longRun{world: w, begin: time.Now(), length: o.time, data: data}
	random := func(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(o.seed, stream)) }
	err = together(ctx,
		func(ctx context.Context) error { return r.change(ctx, random(1)) },
		func(ctx context.Context) error { return r.kill(ctx, random(2)) },
		r.feelPulse,
		r.sampleAll,
	)
	r.print()
	if err != nil {
		return err
	}
	return flat(r.samples)
}

var errOver = errors.New("the time is over")

// together runs the parts until one of them ends. It returns that part's error, or nil for errOver.
func together(ctx context.Context, parts ...func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended := make(chan struct{})
	for _, part := range parts {
		go func() {
			cancel(part(ctx))
			ended <- struct{}{}
		}()
	}
	for range parts {
		<-ended
	}
	if err := context.Cause(ctx); !errors.Is(err, errOver) {
		return err
	}
	return nil
}
