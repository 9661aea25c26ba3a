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

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// daily is a schedule at one time of each day in UTC.
type daily struct{ at time.Duration }

func (d daily) Next(t time.Time) time.Time {
	opens := t.UTC().Truncate(24 * time.Hour).Add(d.at)
	if !opens.After(t) {
		opens = opens.Add(24 * time.Hour)
	}

	return opens
}

// repeating is a schedule that opens at a time after epoch and every period
// from then on, and did so before.
type repeating struct{ first, period time.Duration }

func (r repeating) Next(t time.Time) time.Time {
	since := t.Sub(epoch.Add(r.first - 1000*r.period))
	return t.Add(r.period - since%r.period)
}

// mayAssign reports whether the windows of a random world allow an assignment,
// by looking at each second until the end of the trial.
func (w *world) mayAssign() bool {
	p := &w.in
	openFor := func(w Window, t time.Time) bool {
		s := w.Schedule.(repeating)
		return t.Sub(epoch.Add(s.first-1000*s.period))%s.period < w.Duration
	}
	anyOpen := func(t time.Time) bool {
		return slices.ContainsFunc(p.Windows, func(w Window) bool { return openFor(w, t) })
	}
	var within bool
	for _, window := range p.Windows {
		if open := openFor(window, w.now); open && !window.Within {
			return true
		} else if open {
			within = true
		}
	}

	for t := w.now; within && !t.After(w.now.Add(p.Controller.AgentTimeout.Duration+p.Trial)); t = t.Add(time.Second) {
		within = anyOpen(t)
	}

	return within || len(p.Windows) == 0
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

	for i := range w.nodes {
		n := &w.nodes[i]
		if n.Owner != "" || n.OtherSource != "" || !isConfigMap(n.Source) || n.Source.By().Name != p.Name || !n.Ready || w.joinInProgress[n.Name] == n.Generation {
			continue
		}
		if n.Drain.Rollout != "" && !slices.ContainsFunc(p.Windows, func(w Window) bool { return w.Within }) {
			continue // a drain that has begun is finished
		}
		if n.Source.By().Previous != nil && n.Source.By().Previous.ConfigMapRef.SHA256 == n.Source.Content().SHA256 {
			continue // there is nothing else to go back to
		}
		if n.Observed == n.Generation && n.OK == "False" && n.Reason == "WouldEvictPods" && n.Active.Digest() != n.Source.Content().SHA256 && n.Source.Content().SHA256 != p.LastSucceeded.ConfigMapRef.SHA256 {
			t.Fatalf("%s refuses %s for its pods, and may restart for it outside of the windows", n.Name, n.Source.Content().SHA256)
		}
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

// parseWindow reads a window such as 22:00+6h or 22:00+6h/within.
func parseWindow(s string) (Window, error) {
	s, within := strings.CutSuffix(s, "/within")
	opens, duration, _ := strings.Cut(s, "+")
	at, err := time.Parse("15:04", opens)
	if err != nil {
		return Window{}, err
	}

	d, err := time.ParseDuration(duration)
	if err != nil {
		return Window{}, err
	}

	return Window{daily{time.Duration(at.Hour())*time.Hour + time.Duration(at.Minute())*time.Minute}, d, within}, nil
}

// calendar is what windows allow in each minute from epoch on, counted minute
// by minute.
type calendar struct {
	opened [][]bool // by window and minute
	open   []bool   // any of them
	may    []bool   // an assignment is allowed
}

// calendarOf asks the schedules for each minute whether a window opens then.
func calendarOf(p *Input, minutes int) *calendar {
	c := &calendar{open: make([]bool, minutes), may: make([]bool, minutes)}
	for _, w := range p.Windows {
		opened := make([]bool, minutes)
		for m := range minutes {
			at := epoch.Add(time.Duration(m) * time.Minute)
			if !w.Schedule.Next(at.Add(-time.Second)).Equal(at) {
				continue
			}

			for k := m; k < minutes && epoch.Add(time.Duration(k)*time.Minute).Before(at.Add(w.Duration)); k++ {
				opened[k], c.open[k] = true, true
			}
		}

		c.opened = append(c.opened, opened)
	}

	for m := range minutes {
		end := m
		for end < minutes && c.open[end] {
			end++
		}

		for i, w := range p.Windows {
			lasts := time.Duration(end-m)*time.Minute > p.Controller.AgentTimeout.Duration+p.Trial
			c.may[m] = c.may[m] || c.opened[i][m] && (!w.Within || lasts)
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

// minutely is a schedule that opens each minute.
type minutely struct{}

func (minutely) Next(t time.Time) time.Time { return t.Truncate(time.Minute).Add(time.Minute) }

func TestWindowsThatOpenEachMinuteCostLittle(t *testing.T) {
	calls := 0
	p := Input{Controller: newWorld().in.Controller, Trial: 168 * time.Hour}
	for range 10 {
		p.Windows = append(p.Windows, Window{counted{minutely{}, &calls}, 168 * time.Hour, true})
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
		w.in.Windows = []Window{{daily{0}, tt.trial + time.Minute - time.Second, true}} // too short by a second
		w.in.Trial, w.in.AnyTrial = 10*time.Minute, !tt.set
		r := w.plan()
		want := fmt.Sprintf("a trial of %s that begins within 1m0s cannot end before the window closes", tt.trial)
		if len(r.Moves) > 0 || !strings.Contains(r.Next.Message, want) && !strings.Contains(r.Next.Message, fmt.Sprintf("long enough for a trial of %s ", tt.trial)) {
			t.Errorf("%s: %d moves, %q, want %q", tt.name, len(r.Moves), r.Next.Message, want)
		}

		w.in.Windows[0].Duration += 2 * time.Second
		if r := w.plan(); len(r.Moves) == 0 {
			t.Errorf("%s: the window is long enough, but nothing is assigned: %s", tt.name, r.Next.Message)
		}
	}
}

func TestWindowsWithoutAnEndOrAnOpeningSaySo(t *testing.T) {
	for _, tt := range []struct {
		windows []Window
		want    string
	}{
		{[]Window{{listed{}, time.Hour, false}}, "no window opens again: correct spec.strategy.windows"},
		{[]Window{{daily{time.Hour}, 10 * time.Minute, true}}, "no window until 2031-05-15T01:00:00Z is open long enough for a trial of 10m0s that begins within 1m0s: lengthen spec.strategy.windows, shorten spec.trial, or set finish: Anytime"},
		{[]Window{{daily{0}, 11 * time.Minute, true}, {daily{2 * time.Hour}, 12 * time.Minute, true}},
			"a trial of 10m0s that begins within 1m0s cannot end before the window closes: waiting until 2030-01-01T02:00:00Z"},
		{[]Window{{daily{time.Hour}, 12 * time.Minute, true}}, "no window is open: waiting until 2030-01-01T01:00:00Z"},
	} {
		w := newWorld()
		w.add(1, 1)
		w.target("r1")
		w.in.Windows, w.in.Trial = tt.windows, 10*time.Minute
		r := w.plan()
		if want := "revision 1: 0 of 1 node updated; " + tt.want; r.Next.Phase != v1alpha1.RolloutWaiting || !strings.HasPrefix(r.Next.Message, want) || len(r.Moves) > 0 {
			t.Errorf("%s: %s\nwant %s", r.Next.Phase, r.Next.Message, want)
		}
	}
}
