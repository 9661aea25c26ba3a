// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// repeating is a schedule that opens at a time after epoch and every period
// before and after that.
type repeating struct{ first, period time.Duration }

func (r repeating) Next(t time.Time) time.Time {
	since := t.Sub(epoch.Add(r.first)) % r.period
	if since < 0 {
		since += r.period
	}

	return t.Add(r.period - since)
}

// daily returns a schedule at one time of each day in UTC.
func daily(at time.Duration) repeating { return repeating{at, 24 * time.Hour} }

// isOpen reports whether a window is open at a time.
func isOpen(w Window, t time.Time) bool {
	opens := w.Schedule.Next(t.Add(-w.Duration))
	return !opens.IsZero() && !opens.After(t)
}

// mayAssign reports whether the windows of a random world allow an assignment,
// by looking at each second until the end of the trial.
func (w *world) mayAssign() bool {
	p := &w.in
	if len(p.Windows) == 0 || slices.ContainsFunc(p.Windows, func(window Window) bool { return !window.Within && isOpen(window, w.now) }) {
		return true
	}

	for t := w.now; !t.After(w.now.Add(p.Controller.AgentTimeout.Duration + p.Trial)); t = t.Add(time.Second) {
		if !slices.ContainsFunc(p.Windows, func(window Window) bool { return isOpen(window, t) }) {
			return false
		}
	}

	return true
}

// randomWindows gives some worlds windows that open every few minutes.
func (w *world) randomWindows(t *rapid.T) {
	for range max(0, rapid.IntRange(-3, 3).Draw(t, "windows")) {
		period := rapid.IntRange(1, 30).Draw(t, "period")
		w.in.Windows = append(w.in.Windows, Window{
			repeating{time.Duration(rapid.IntRange(0, 30).Draw(t, "opens")) * time.Minute, time.Duration(period) * time.Minute},
			time.Duration(rapid.IntRange(1, 8).Draw(t, "duration")) * time.Minute, rapid.Bool().Draw(t, "within"),
		})
	}
}

// keepsWindows holds what is left after a plan against the windows.
func (w *world) keepsWindows(t *rapid.T) {
	p := &w.in
	if w.mayAssign() || p.Spec.Frozen || w.in.Status.Halt != nil {
		return
	}

	for _, n := range each(w.nodes) {
		if n.Owner != "" || n.OtherSource != "" || !isConfigMap(n.Source) || n.Source.By().Name != p.Name || !n.Ready || w.joinInProgress[n.Name] == n.Generation {
			continue
		}
		if n.Drain.Rollout != "" && !slices.ContainsFunc(p.Windows, func(w Window) bool { return w.Within }) {
			continue // a drain that has begun is finished
		}
		if n.Source.By().Previous != nil && n.Source.By().Previous.ConfigMapRef.SHA256 == n.Source.Content().SHA256 {
			continue // there is nothing else to go back to
		}

		content := n.Source.Content().SHA256
		refuses := n.Observed == n.Generation && n.OK == "False" && n.Reason == "WouldEvictPods" && n.Active.Digest() != content
		assert.Must(t, !refuses || content == p.LastSucceeded.ConfigMapRef.SHA256,
			"%s refuses %s for its pods, and may restart for it outside of the windows", n.Name, content)
	}
}

// listed is a schedule of these times.
type listed []time.Time

func (l listed) Next(t time.Time) time.Time {
	i, found := slices.BinarySearchFunc(l, t, time.Time.Compare)
	if found {
		i++
	}
	if i == len(l) {
		return time.Time{}
	}

	return l[i]
}

// parseWindow reads a window such as 22:00+6h or 22:00+6h/within; never is one
// that does not open.
func parseWindow(s string) Window {
	if s == "never" {
		return Window{listed{}, time.Hour, false}
	}

	s, within := strings.CutSuffix(s, "/within")
	opens, duration, _ := strings.Cut(s, "+")
	at := must.Get(time.Parse("15:04", opens))

	return Window{daily(time.Duration(at.Hour())*time.Hour + time.Duration(at.Minute())*time.Minute), parseDuration(duration), within}
}

// calendar is what windows allow in each minute from epoch on.
type calendar struct {
	open []bool // any of them
	may  []bool // an assignment is allowed
}

// calendarOf looks at each minute, from the last one to the first.
func calendarOf(p *Input, minutes int) *calendar {
	c := &calendar{open: make([]bool, minutes), may: make([]bool, minutes)}
	end := minutes // the first minute in which all windows are closed again
	for m := minutes - 1; m >= 0; m-- {
		lasts := time.Duration(end-m)*time.Minute > p.Controller.AgentTimeout.Duration+p.Trial
		for _, w := range p.Windows {
			if isOpen(w, epoch.Add(time.Duration(m)*time.Minute)) {
				c.open[m], c.may[m] = true, c.may[m] || !w.Within || lasts
			}
		}

		if !c.open[m] {
			end = m
		}
	}

	return c
}

// next returns the first minute from one on in which assignments are allowed,
// or are not; the number of minutes if there is none.
func (c *calendar) next(from int, allowed bool) int {
	for from < len(c.may) && c.may[from] != allowed {
		from++
	}

	return from
}

// TestWindowsAreWhatTheMinutesSay compares windowsAt with a calendar that knows
// every minute. It asks again only when windowsAt says so.
func TestWindowsAreWhatTheMinutesSay(t *testing.T) {
	const minutes = 2000
	rapid.Check(t, func(t *rapid.T) {
		p := Input{Controller: newWorld().in.Controller, Trial: time.Duration(rapid.IntRange(1, 60).Draw(t, "trial")) * time.Minute}
		openings := 0
		for range rapid.IntRange(1, 4).Draw(t, "windows") {
			w := Window{Duration: time.Duration(rapid.IntRange(1, 300).Draw(t, "duration")) * time.Minute, Within: rapid.Bool().Draw(t, "within")}
			var opens listed
			most := rapid.SampledFrom([]int{1, 5, 300}).Draw(t, "most")
			for _, m := range rapid.SliceOfNDistinct(rapid.IntRange(0, 1000), 0, most, rapid.ID[int]).Draw(t, "opens") {
				opens = append(opens, epoch.Add(time.Duration(m)*time.Minute))
			}

			slices.SortFunc(opens, time.Time.Compare)
			openings += len(opens)
			w.Schedule = opens
			p.Windows = append(p.Windows, w)
		}

		c := calendarOf(&p, minutes)
		var state windowState
		asked := 0
		for m := rapid.IntRange(0, 1399).Draw(t, "first minute"); m < 1400; m++ {
			now := epoch.Add(time.Duration(m) * time.Minute)
			if due := Latest(state.ends, state.next, state.tried); asked == 0 || !due.IsZero() && !now.Before(due) {
				state = p.windowsAt(now)
				asked++
				c.check(t, state, m)
			}

			assert.Must(t, state.closed != c.may[m], "in minute %d closed is %v", m, state.closed)
		}

		assert.Must(t, asked <= 1+2*openings, "asked %d times about %d openings", asked, openings)
	})
}

// check holds what windowsAt says in a minute against the calendar.
func (c *calendar) check(t *rapid.T, s windowState, m int) {
	at := func(minute int) time.Time { return epoch.Add(time.Duration(minute) * time.Minute) }
	assert.Must(t, s.short == (c.open[m] && !c.may[m]), "short: %v", s.short)
	if !s.closed {
		end := c.next(m, false)
		assert.Must(t, s.ends.After(at(m)) && !s.ends.After(at(end)), "assignments until %s, the calendar has %d minutes", s.ends, end)
		return
	}

	var want time.Time
	if k := c.next(m, true); k < len(c.may) {
		want = at(k)
	}

	assert.Must(t, (!s.tried.IsZero() || s.next.Equal(want)) && (s.tried.IsZero() || want.IsZero() || !want.Before(s.tried)),
		"next %s (tried until %s), the calendar has %s", s.next, s.tried, want)
}

func TestWindowsThatOpenEachMinuteCostLittle(t *testing.T) {
	calls := 0
	p := Input{Controller: newWorld().in.Controller, Trial: 168 * time.Hour}
	for range 10 {
		p.Windows = append(p.Windows, Window{counted{repeating{0, time.Minute}, &calls}, 168 * time.Hour, true})
	}

	s := p.windowsAt(epoch)
	assert.That(t, !s.closed && s.ends.Sub(epoch) == 24*time.Hour, "%+v", s)
	assert.That(t, calls <= 20_000, "%d calls of Next", calls)
}

// counted counts calls.
type counted struct {
	Schedule
	calls *int
}

func (c counted) Next(t time.Time) time.Time { *c.calls++; return c.Schedule.Next(t) }

func TestAWindowMustFitTheTrialThatNodesUse(t *testing.T) {
	for _, tt := range []struct {
		name  string
		set   bool
		nodes []time.Duration
		trial time.Duration // that counts
	}{
		{"no node says it", false, []time.Duration{0, 0, 0}, 10 * time.Minute},
		{"nodes say it", false, []time.Duration{20 * time.Minute, 0, 20 * time.Minute}, 20 * time.Minute},
		{"shorter than the default", false, []time.Duration{time.Minute, time.Minute, 0}, time.Minute},
		{"one node says what closes all windows", false, []time.Duration{168 * time.Hour, 5 * time.Minute, 5 * time.Minute}, 5 * time.Minute},
		{"two lengths", false, []time.Duration{5 * time.Minute, 20 * time.Minute}, 20 * time.Minute},
		{"the rollout sets it", true, []time.Duration{20 * time.Minute, 20 * time.Minute, 20 * time.Minute}, 10 * time.Minute},
	} {
		w := newWorld()
		w.add(len(tt.nodes), 1)
		for i, d := range tt.nodes {
			w.nodes[i].DefaultTrial = d
		}

		w.target("r1")
		w.in.Windows = []Window{{daily(0), tt.trial + time.Minute - time.Second, true}} // too short by a second
		w.in.Trial, w.in.AnyTrial = 10*time.Minute, !tt.set
		r := w.plan()
		want := fmt.Sprintf("a trial of %s that begins within 1m0s cannot end before the window closes", tt.trial)
		orWant := fmt.Sprintf("long enough for a trial of %s ", tt.trial)
		assert.That(t, len(r.Moves) == 0 && (strings.Contains(r.Next.Message, want) || strings.Contains(r.Next.Message, orWant)),
			"%s: %d moves, %q, want %q", tt.name, len(r.Moves), r.Next.Message, want)
		w.in.Windows[0].Duration += 2 * time.Second
		r = w.plan()
		assert.That(t, len(r.Moves) > 0, "%s: the window is long enough, but nothing is assigned: %s", tt.name, r.Next.Message)
	}
}
