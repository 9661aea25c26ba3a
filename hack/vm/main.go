// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Command vm tests evenkeel on a real machine: Debian in QEMU, with systemd as
// the first process, cgroup v2, the real kubelet and a real API server on the
// host. Each step prints what it checked; the program ends with an error if a
// step fails.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// step is one test. Steps share a machine until a step fails or asks for its
// own. A step and what it calls end at the first error, with package must.
type step struct {
	name string
	what string
	run  func(ctx context.Context, l *lab)
}

func main() {
	only := flag.String("only", "", "run only these steps, separated by commas")
	list := flag.Bool("list", false, "list the steps")
	l := &lab{}
	flag.StringVar(&l.cache, "cache", "bin/vm", "directory of the machine's disk, which is built once")
	flag.StringVar(&l.kubelet, "kubelet", "bin/tools/kubelet", "the node's kubelet")
	flag.StringVar(&l.previous, "previous", "", "directory of an older release, as make release writes it; for the steps that install or upgrade")
	flag.StringVar(&l.release, "release", "", "directory of the release to test")
	flag.StringVar(&l.from, "from", "", "directory with the programs of an older version of Kubernetes, its etcd and its CoreDNS; for the step kubeadm")
	flag.StringVar(&l.to, "to", "", "directory with those of the version to which the step kubeadm upgrades")
	flag.DurationVar(&l.pause, "pause", time.Minute, "how long the step pause stops the machine; the machine's clock always jumps by ten minutes at least")
	flag.IntVar(&l.cuts, "cuts", 10, "how many power cuts the step cuts makes")
	flag.Uint64Var(&l.seed, "seed", 0, "seed of the power cuts; 0: from the time")
	flag.Parse()
	if *list {
		for _, s := range steps {
			fmt.Printf("%-18s %s\n", s.name, s.what)
		}

		return
	}

	os.Exit(must.Run("vm", func(ctx context.Context) { must.OK(l.runSteps(ctx, *only)) }))
}

// runSteps runs the named steps, or all, and goes on after a failure.
func (l *lab) runSteps(ctx context.Context, only string) error {
	chosen := steps
	if only != "" {
		chosen = nil
		for name := range strings.SplitSeq(only, ",") {
			i := slices.IndexFunc(steps, func(s step) bool { return s.name == name })
			if i < 0 {
				return fmt.Errorf("unknown step %q: see -list", name)
			}

			chosen = append(chosen, steps[i])
		}
	}

	if err := must.Try(func() { l.open(ctx) }); err != nil {
		return errors.Join(err, l.close())
	}

	var failed []string
	for _, s := range chosen {
		if ctx.Err() != nil {
			break
		}

		fmt.Printf("\n%s: %s\n", s.name, s.what)
		begin := time.Now()
		if err := must.Try(func() { s.run(ctx, l) }); err != nil {
			fmt.Printf("  FAILED after %s: %v\n", time.Since(begin).Round(time.Second), err)
			l.evidence(ctx, s.name)
			l.discard() // nothing is known about its state
			failed = append(failed, s.name)
			continue
		}

		fmt.Printf("  passed after %s\n", time.Since(begin).Round(time.Second))
	}

	err := errors.Join(ctx.Err(), l.close())
	if len(failed) > 0 {
		err = errors.Join(fmt.Errorf("%d of %s failed: %s", len(failed), printable.Count(len(chosen), "step"), strings.Join(failed, ", ")), err)
	}

	return err
}

// checked prints what a step has checked.
func checked(format string, args ...any) { fmt.Printf("  ok: "+format+"\n", args...) }
