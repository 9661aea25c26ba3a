// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Command mutants shows that tests find defects again: each patch in
// testkit/mutants brings one back into a copy of the files that it changes, and
// its test must then fail. The tree stays as it is, because go test reads the
// copies by means of an overlay.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/testkit/must"
)

func main() {
	only := flag.String("only", "", "run only the patches whose name contains this")
	verbose := flag.Bool("v", false, "print what the tests print")
	flag.Parse()
	os.Exit(must.Run("mutants", func(ctx context.Context) { must.OK(run(ctx, ".", *only, *verbose)) }))
}

// run tries all patches and prints a line for each. The error counts those that
// were not found.
func run(ctx context.Context, tree, only string, verbose bool) (err error) {
	defer must.Catch(&err)

	patches := must.Get(readPatches(tree))
	tried, failed := 0, 0
	for _, p := range patches {
		if !strings.Contains(p.name, only) {
			continue
		}

		began := time.Now()
		found, out, err := p.try(ctx, tree)
		must.OK(ctx.Err())
		verdict := "found by " + strings.Join(found, ", ")
		switch {
		case err != nil:
			verdict = "ERROR: " + err.Error()
		case len(found) == 0:
			verdict = "NOT FOUND by: go test " + strings.Join(p.test, " ")
		}

		if tried++; err != nil || len(found) == 0 {
			failed++
		}

		fmt.Printf("%-40s %5s  %s\n", p.name, time.Since(began).Round(time.Second), verdict)
		if verbose {
			fmt.Printf("%s\n", out)
		}
	}

	switch {
	case tried == 0:
		return errors.New("no patch has such a name")
	case failed > 0:
		return fmt.Errorf("%d of %d were not found", failed, tried)
	}

	fmt.Printf("all %d were found\n", tried)

	return nil
}
