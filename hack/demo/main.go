// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Command demo demonstrates evenkeel on a real local node with two pods: a good
// change, three bad ones that are rejected before they reach the kubelet, one
// that crash-loops and is rolled back, and a node that keeps its configuration
// without the API. Then a simulated fleet applies a good change, and a rollout
// of a bad one stops at its first node. All changes are drop-ins over the
// node's own configuration, and are made with kubectl. The exit status is 0
// only if every step happened and no pod was lost.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/testkit/bed"
	"github.com/evenkeel/evenkeel/testkit/figures"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// probePeriod is how often the health of the kubelet is observed. It is the
// precision of the times that the demo prints.
const probePeriod = 50 * time.Millisecond

// patience limits every wait of the demo. A wait ends as soon as what it waits
// for is there, also on a busy machine.
const patience = 5 * time.Minute

var errInterrupted = errors.New("interrupted")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	keep := flag.Bool("keep", false, "keep everything running until ctrl-C, also after a failure")
	flag.Parse()
	klog.SetLogger(logr.Discard()) // what client-go says of connections that are closed
	err := demo(ctx, *keep)
	switch {
	case err == nil:
	case errors.Is(err, errInterrupted):
		fmt.Fprintln(os.Stderr, "\nInterrupted.")
		os.Exit(130)
	case errors.Is(err, localcluster.ErrNoNode):
		fmt.Println("\nSKIPPED, nothing was shown: a real node cannot run here:", err)
		os.Exit(3)
	default:
		os.Exit(1) // the demo has printed it
	}
}

// show is the demo while it runs.
type show struct {
	*bed.Bed
	agent *bed.Agent
	stops []func() error // end what the demo has started on the cluster, the latest first
	files string         // the directory of the configurations, in which commands run

	abort       context.CancelCauseFunc // ends the steps
	agentMayEnd func()                  // tells that the demo stops the agent

	step     int
	simple   bool // only the real node takes part so far
	pushed   bool // rollout demo exists
	pulse    figures.Pulse
	kubelet  int               // its process at the beginning of the step; 0 before its first start
	pods     map[string]string // the containers of the real node's pods
	outcomes []outcome
	saw      int // nodes that received the bad rollout
	members  int // nodes in the fleet
}

func demo(ctx context.Context, keep bool) (err error) {
	fmt.Println("Starting etcd, kube-apiserver and containerd on loopback, and preparing a node.")
	s := &show{simple: true}
	if s.Bed, err = bed.Up(ctx, "demo"); err != nil {
		switch {
		case ctx.Err() != nil:
			return errInterrupted
		case errors.Is(err, localcluster.ErrNoNode):
			return err
		}

		failed(err)
		if keep {
			fmt.Println("\nNothing keeps running, because the cluster did not start.")
		}

		return err
	}

	watching, stopWatching := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { s.pulse.Watch(watching, probePeriod, s.Healthy) })
	defer func() {
		fmt.Println("\nStopping everything that was started.")
		stopWatching()
		watch.Wait()
		if failure := errors.Join(s.stop(), s.Down()); failure != nil {
			failed(failure)
			err = errors.Join(err, failure)
		}
	}()
	err = s.play(ctx)
	if err != nil && ctx.Err() != nil {
		return errInterrupted
	}

	if err != nil {
		failed(err)
		s.explain(ctx)
	}

	if !keep {
		fmt.Println("\n`make demo KEEP=1` keeps everything running at the end, also after a failure, for you to try commands.")
		return err
	}

	if kept := s.keep(ctx, err != nil); kept != nil {
		failed(kept)
		err = errors.Join(err, kept)
	}

	return err
}

// play shows all steps, and the summary. A step and what it calls end at the
// first error, with package must.
func (s *show) play(ctx context.Context) (err error) {
	defer must.Catch(&err)

	s.files = filepath.Join(s.Cluster.Dir(), "files")
	must.OK(os.Mkdir(s.files, 0o700))
	ctx, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	s.abort = abort
	s.agent = must.Get(s.Agent("--config-trial-duration=5s", "--crash-loop-threshold=1"))
	s.stops = append(s.stops, func() error { return s.agent.Stop(patience) })
	// It hands the preflights of `kubectl evenkeel assign` to the agent, and
	// carries out rollouts later.
	controller, err := s.Controller(ctx)
	must.That(err == nil, "start evenkeel-controller: %w", err)
	s.stops = append(s.stops, func() error { return controller.Stop(patience) })
	s.mustRun("evenkeel-controller", controller.Done)
	for _, step := range []func(context.Context){
		s.start, s.good, s.typo, s.badValue, s.protected, s.crashLoop, s.noAPI,
		s.gather, s.goodRollout, s.badRollout,
	} {
		if err := must.Try(func() { step(ctx) }); err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}

			return fmt.Errorf("step %d: %w", s.step, err)
		}
	}

	lost := s.podsLost(ctx)
	fmt.Println("\nEvery step happened as described:")
	for _, line := range summary(s.outcomes, s.saw, s.members, len(lost), len(s.pods)) {
		say("%s", line)
	}

	return nil
}

// mustRun aborts the demo when a program ends, unless the returned function was
// called first.
func (s *show) mustRun(what string, ended <-chan struct{}) (mayEnd func()) {
	var expected atomic.Bool
	go func() {
		<-ended // at the latest when the demo stops it
		if !expected.Load() {
			s.abort(fmt.Errorf("%s has ended, and should not have", what))
		}
	}()

	return func() { expected.Store(true) }
}

// startAgent starts the agent.
func (s *show) startAgent() {
	must.OK(s.agent.Start())
	s.agentMayEnd = s.mustRun("evenkeel-agent", s.agent.Done())
}

// stop stops the programs that the demo has started on the cluster.
func (s *show) stop() error {
	var errs []error
	for _, stop := range slices.Backward(s.stops) {
		errs = append(errs, stop())
	}

	return errors.Join(errs...)
}

// title begins a step.
func (s *show) title(format string, args ...any) {
	s.step++
	fmt.Printf("\n%d. %s\n", s.step, fmt.Sprintf(format, args...))
	s.pulse.Begin(time.Now())
}

// say prints something that belongs to a step.
func say(format string, args ...any) { write(os.Stdout, "   "+fmt.Sprintf(format, args...)) }

// failed prints an error in full.
func failed(err error) { write(os.Stderr, "\nThe demo FAILED: "+err.Error()) }

// write prints a text of untrusted sources.
func write(to io.Writer, text string) { fmt.Fprintln(to, strings.TrimRight(printable.Text(text), " ")) }
