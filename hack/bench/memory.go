// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/testkit/bed"
	"github.com/evenkeel/evenkeel/testkit/figures"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// memory measures how much memory the agent holds after many changes, beside
// what it held after the first one. It fails if the agent leaks descriptors,
// threads, goroutines or files.
func memory(ctx context.Context, b *bed.Bed, changes int) {
	a := must.Get(b.Agent("--config-trial-duration=1h"))
	start(ctx, b, a)
	defer func() { _ = a.Stop(time.Minute) }()
	var first int64
	var early map[string]int
	for i := range changes {
		data := must.Get(b.Config(map[string]any{"maxPods": 300 + i}))
		cm := must.Get(b.Create(ctx, fmt.Sprintf("memory-%d", i), map[string]string{"kubelet": data}))
		must.OK(b.Assign(ctx, bed.Ref(cm)))
		settle(ctx, b, string(cm.UID))
		if i == changes/10 {
			early = counts(ctx, a)
		}
		if i > 0 && i < changes-1 {
			continue
		}

		must.OK(bed.Pause(ctx, time.Minute)) // for the runtime to give back what it does not need
		if i == 0 {
			first = must.Get(figures.OwnMemory(a.Pid()))
		}
	}

	own := must.Get(figures.OwnMemory(a.Pid()))
	rss, _ := must.Get2(figures.Memory(a.Pid()))
	what := fmt.Sprintf("after %d changes: ", changes)
	ratio := float64(own) / float64(first)
	limit := fmt.Sprintf("1.25 x (is %.2f x)", ratio)
	figures.PrintRow(what+"the agent's own memory (RssAnon)", figures.MiB(own), figures.MiB(first), limit, ratio <= 1.25)
	figures.PrintRow(what+"resident memory (VmRSS)", figures.MiB(rss), "-", "25 MiB", rss <= 25<<20)
	late := counts(ctx, a)
	var err error
	for _, name := range slices.Sorted(maps.Keys(early)) {
		ok := late[name] <= early[name]+noise
		figures.PrintRow(what+name, strconv.Itoa(late[name]), strconv.Itoa(early[name]), fmt.Sprintf("floor+%d", noise), ok)
		if !ok {
			err = errors.Join(err, fmt.Errorf("after %d changes: %d %s, and %d before", changes, late[name], name, early[name]))
		}
	}

	must.OK(err)
}

// noise is by how much a count differs between two moments without a leak.
const noise = 8

// counts returns what must not grow with the number of changes.
func counts(ctx context.Context, a *bed.Agent) map[string]int {
	proc := fmt.Sprintf("/proc/%d/", a.Pid())
	out := map[string]int{"descriptors": len(must.Get(os.ReadDir(proc + "fd"))), "threads": len(must.Get(os.ReadDir(proc + "task")))}
	must.OK(filepath.WalkDir(a.Dir, func(path string, _ fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || strings.Contains(path, "/dryrun-") { // of a dry run that has ended or runs
			return nil
		}

		out["files in the state directory"]++

		return err
	}))
	request := must.Get(http.NewRequestWithContext(ctx, http.MethodGet, "http://"+a.Listen+"/metrics", nil))
	answer := must.Get(http.DefaultClient.Do(request))
	defer answer.Body.Close()
	_, rest, _ := strings.Cut(string(must.Get(io.ReadAll(answer.Body))), "\ngo_goroutines ")
	line, _, _ := strings.Cut(rest, "\n")
	out["goroutines"] = must.Get(strconv.Atoi(line))

	return out
}
