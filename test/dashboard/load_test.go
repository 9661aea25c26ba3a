// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/tracing"
	"github.com/chromedp/chromedp"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// task is an event of the browser's trace. Times are in microseconds.
type task struct {
	Name     string  `json:"name"`
	Category string  `json:"cat"`
	Phase    string  `json:"ph"`
	Process  int     `json:"pid"`
	Thread   int     `json:"tid"`
	Time     float64 `json:"ts"`
	Duration float64 `json:"dur"`
	CPU      float64 `json:"tdur"`
	Args     struct {
		Name string `json:"name"`
	} `json:"args"`
}

// underLoad prints what the page costs while nodes change: its first paint, and its longest tasks after it.
func underLoad(t *testing.T, address string) {
	t.Helper()
	const perSecond, duration = 30, 30 * time.Second
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	began := time.Now()
	changes := changeNodes(ctx, t, perSecond)

	b := open(t, "about:blank")
	var mu sync.Mutex
	var tasks []task
	done := make(chan struct{})
	assert.NoError(t, chromedp.Listen(b.ctx, func(event any) {
		switch e := event.(type) {
		case *tracing.EventDataCollected:
			mu.Lock()
			defer mu.Unlock()
			for _, v := range e.Value {
				var one task
				if json.Unmarshal([]byte(v), &one) == nil {
					tasks = append(tasks, one)
				}
			}
		case *tracing.EventTracingComplete:
			close(done)
		}
	}))
	call(b, tracing.Start, tracing.StartParams{TraceConfig: &tracing.TraceConfig{IncludedCategories: []string{"toplevel", "blink.user_timing", "disabled-by-default-devtools.timeline", "devtools.timeline", "loading", "__metadata"}}})
	b.load(chromedp.Navigate(address))
	b.shows("#fleet-words", allShown())
	shown := value[float64](b, `performance.now()`)
	paint := value[float64](b, `performance.getEntriesByName("first-contentful-paint")[0].startTime`)
	time.Sleep(duration) // the tasks of these seconds are measured
	call(b, tracing.End, cdp.Empty{})
	select {
	case <-done:
	case <-time.After(within):
		t.Fatal("the browser sends no trace")
	}
	mu.Lock()
	defer mu.Unlock()
	longest := mainTasks(tasks, func(e task) float64 { return e.Duration })
	busiest := mainTasks(tasks, func(e task) float64 { return e.CPU })
	assert.Must(t, len(longest) >= 100 && busiest[0] != 0, "only %d tasks were measured, of %d events", len(longest), len(tasks))
	fmt.Printf("\n%d nodes, %.1f changes per second\n\n", *many, float64(changes())/time.Since(began).Seconds())
	row("first paint", fmt.Sprintf("%.0f ms", paint), "1000 ms", paint < 1000)
	row("all nodes shown, at most", fmt.Sprintf("%.0f ms", shown), "2000 ms", shown < 2000)
	row("longest task of the main thread after the first paint", fmt.Sprintf("%.1f ms", longest[0]), "50 ms", longest[0] < 50)
	row("the same without the time in which others had the processor", fmt.Sprintf("%.1f ms", busiest[0]), "50 ms", busiest[0] < 50)
}

// mainTasks returns how long the tasks of the page's main thread took, in milliseconds, the longest first, after its first paint.
// The page's process is the one that has painted something with content.
func mainTasks(events []task, of func(task) float64) []float64 {
	var process int
	var paint float64
	for _, e := range events {
		if e.Name == "firstContentfulPaint" {
			process, paint = e.Process, e.Time
		}
	}
	threads := map[int]bool{}
	for _, e := range events {
		if e.Name == "thread_name" && e.Process == process && e.Args.Name == "CrRendererMain" {
			threads[e.Thread] = true
		}
	}
	var out []float64
	for _, e := range events {
		if e.Process == process && threads[e.Thread] && e.Phase == "X" && e.Time > paint && (e.Name == "RunTask" || e.Name == "ThreadControllerImpl::RunTask") {
			out = append(out, of(e)/1000)
		}
	}
	slices.SortFunc(out, func(a, b float64) int { return int(1000 * (b - a)) })
	return out
}

// changeNodes changes nodes until ctx ends. It returns a function that returns how many.
func changeNodes(ctx context.Context, t *testing.T, perSecond int) func() int64 {
	t.Helper()
	var n int64
	var mu sync.Mutex
	tick := time.NewTicker(time.Second / time.Duration(perSecond))
	for range 4 {
		go func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				mu.Lock()
				i := n
				n++
				mu.Unlock()
				if err := flip(ctx, fmt.Sprintf("node-%04d", (i*37)%int64(*many))); err != nil && ctx.Err() == nil {
					t.Log(err)
				}
			}
		}()
	}
	return func() int64 { mu.Lock(); defer mu.Unlock(); return n }
}
