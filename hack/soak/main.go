// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Command soak runs tests that have no end for a given time: simulated
// histories, fuzzing, the comparison of the pod guard with real kubelets, and
// power cuts. It continues where the last run stopped, and adds what it did to
// hack/soak/ledger.json after each slice. A failure is listed there with the
// command that reproduces it, and makes the program end with an error at last;
// the other parts go on.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
	"github.com/evenkeel/evenkeel/testkit/must"
)

func main() {
	s := &soak{tree: ".", file: "hack/soak/ledger.json"}
	total := flag.Duration("time", time.Hour, "how long all parts run together; a slice that has begun is completed")
	only := flag.String("only", "", "the parts to run, such as simulation,fuzz (default: all)")
	flag.IntVar(&s.nice, "nice", 0, "run the tests with this niceness, 0 to 19")
	flag.Parse()
	os.Exit(must.Run("soak", func(ctx context.Context) { must.OK(s.start(ctx, *total, *only)) }))
}

// soak is one run.
type soak struct {
	tree, file string // the root of the repository, and the ledger
	temp       string // for programs that are built
	nice       int
	run        run
	failed     map[string]bool // fuzz targets that failed in this run
}

// start prepares a run, runs it, and cleans up.
func (s *soak) start(ctx context.Context, total time.Duration, only string) (err error) {
	defer must.Catch(&err)

	must.That(total > 0 && s.nice >= 0 && s.nice <= 19, "-time must be positive, and -nice between 0 and 19")
	chosen := must.Get(choose(parts, only))
	s.tree = must.Get(filepath.Abs(s.tree))
	_, err = os.Stat(filepath.Join(s.tree, "go.mod"))
	must.That(err == nil, "run it in the root of the repository: %w", err)
	must.OK(os.MkdirAll(filepath.Join(s.tree, "bin"), 0o755))
	lock := must.Get(os.OpenFile(filepath.Join(s.tree, "bin", "soak.lock"), os.O_RDWR|os.O_CREATE, 0o644))
	defer lock.Close()
	err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	must.That(err == nil, "another soak runs in this tree, with the same seeds: %s: %w", lock.Name(), err)
	s.temp = must.Get(os.MkdirTemp("", "evk-soak-"))
	defer os.RemoveAll(s.temp)
	s.run = run(time.Now().UTC().Format(time.DateOnly) + " " + s.commit(ctx))
	s.failed = map[string]bool{}

	return s.all(ctx, chosen, total)
}

// choose returns the parts that a list names, or all.
func choose(all []part, only string) ([]part, error) {
	if only == "" {
		return all, nil
	}

	var chosen []part
	for name := range strings.SplitSeq(only, ",") {
		i := slices.IndexFunc(all, func(p part) bool { return p.name == name })
		if i < 0 {
			var names []string
			for _, p := range all {
				names = append(names, p.name)
			}

			return nil, fmt.Errorf("-only: there is no part %q; the parts are %s", name, strings.Join(names, ", "))
		}

		chosen = append(chosen, all[i])
	}

	return chosen, nil
}

// commit returns the tree's commit, with + if something other than the ledger
// differs from it.
func (s *soak) commit(ctx context.Context) string {
	git := func(args ...string) string {
		out, err := exec.CommandContext(ctx, "git", append([]string{"-C", s.tree}, args...)...).Output()
		must.That(err == nil, "which commit is tested? git %s: %w", strings.Join(args, " "), err)

		return strings.TrimSpace(string(out))
	}
	commit := git("rev-parse", "HEAD")[:12]
	if git("status", "--porcelain", "--", ".", ":!hack/soak/ledger.json") != "" {
		commit += "+"
	}

	return commit
}

// all runs slices of the parts until the time is over. The next one is always
// that which had least of its share.
func (s *soak) all(ctx context.Context, chosen []part, total time.Duration) error {
	began := time.Now()
	used := map[string]time.Duration{}
	broken, found := map[string]bool{}, map[string]bool{}
	var errs []error
	for ctx.Err() == nil {
		left := total - time.Since(began)
		candidates := slices.DeleteFunc(slices.Clone(chosen), func(p part) bool { return broken[p.name] })
		if left <= 0 || len(candidates) == 0 {
			break
		}

		p := slices.MinFunc(candidates, func(a, b part) int {
			return cmp.Compare(used[a.name]/time.Duration(a.weight), used[b.name]/time.Duration(b.weight))
		})
		one := time.Now()
		o, err := s.slice(ctx, p, max(time.Second, min(left, p.slice).Round(time.Second)))
		used[p.name] += max(time.Since(one), time.Second)
		if errors.Is(err, errLedger) {
			return errors.Join(append(errs, err)...)
		}
		if err != nil && ctx.Err() != nil {
			break // interrupted: the slice counts for nothing, and is repeated by the next run
		}

		if err != nil {
			broken[p.name] = true // the same error would follow at once
			errs = append(errs, fmt.Errorf("%s: %w", p.name, err))
			fmt.Fprintln(os.Stderr, "soak:", p.name+":", err)
		}

		for _, f := range o.findings {
			if !found[f.Command] {
				errs = append(errs, fmt.Errorf("%s: %s; reproduce it: %s", f.Part, f.What, f.Command))
			}

			found[f.Command] = true
		}
	}

	return errors.Join(errs...)
}

// slice runs one slice and records it at once.
func (s *soak) slice(ctx context.Context, p part, budget time.Duration) (o outcome, err error) {
	defer must.Catch(&err)

	seed, ok := must.Get(readLedger(s.file)).Next[p.name]
	if !ok {
		seed = p.seed
	}

	one := time.Now()
	o = p.run(ctx, s, seed, budget)
	fmt.Printf("%s %s, %s: %s\n", time.Now().Format(time.TimeOnly), p.name, time.Since(one).Round(time.Second), o)
	s.record(p.name, o)

	return o, nil
}

// record adds a slice to the ledger, as it is now.
func (s *soak) record(name string, o outcome) {
	l := must.Get(readLedger(s.file))
	for _, f := range o.figures {
		l.add(f.name, f.n, s.run)
	}
	if t := o.target; t != nil {
		l.addFuzzing(t, s.run)
	}
	if o.seed != 0 {
		l.Next[name] = o.seed
	}

	for _, f := range o.findings {
		f.First, f.Latest = s.run, s.run
		l.addFinding(f)
	}

	must.OK(l.write(atomicfile.OS{}, s.file))
}

// String describes a slice in one line.
func (o outcome) String() string {
	var words []string
	for _, f := range o.figures {
		words = append(words, fmt.Sprintf("%s %g", f.name, f.n))
	}
	if t := o.target; t != nil {
		words = append(words, fmt.Sprintf("%s: %d executions", t.name, t.executions))
	}

	for _, f := range o.findings {
		words = append(words, "FOUND: "+oneLine(f.What)+"; reproduce it: "+f.Command)
	}

	return strings.Join(words, ", ")
}
