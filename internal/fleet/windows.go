// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // the controller's image has no time zones, nor have all machines that kubectl runs on

	"github.com/robfig/cron/v3"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/rollout"
)

// DefaultTrial is how long a trial takes if neither the template nor spec.trial
// nor an agent says so: the default of the agent's flag.
const DefaultTrial = 10 * time.Minute

// The library is finished rather than maintained. It stays because Kubernetes'
// CronJobs use the same version of it, so a schedule means the same here; it
// has no dependencies; and only its parser and Next are used, with their limits
// handled in zoned.
//
// cronFields are the five fields of a schedule. Names such as @daily and a time
// zone in the schedule are not accepted.
var cronFields = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)

// windowsOf converts the windows of a strategy. The error names the invalid
// field.
func windowsOf(all []v1alpha1.MaintenanceWindow) ([]rollout.Window, error) {
	var out []rollout.Window
	for i, w := range all {
		field := fmt.Sprintf("spec.strategy.windows[%d].", i)
		times, err := parseSchedule(w.Schedule)
		if err != nil {
			return nil, fmt.Errorf("%sschedule: %q %w", field, w.Schedule, err)
		}

		zone, err := zoneOf(w.TimeZone)
		if err != nil {
			return nil, fmt.Errorf("%stimeZone: %w", field, err)
		}
		if d := w.Duration.Duration; d < minWindow || d > maxWindow {
			return nil, fmt.Errorf("%sduration: %s is not from 1m to 168h", field, d)
		}
		if !slices.Contains([]v1alpha1.WindowFinish{"", v1alpha1.FinishAnytime, v1alpha1.FinishWithin}, w.Finish) {
			return nil, fmt.Errorf("%sfinish: %q is neither Anytime nor Within", field, w.Finish)
		}

		out = append(out, rollout.Window{Schedule: zoned{times, zone}, Duration: w.Duration.Duration, Within: w.Finish == v1alpha1.FinishWithin})
	}

	return out, nil
}

// The limits of a window's duration. The CRD has the same.
const (
	minWindow = time.Minute
	maxWindow = 168 * time.Hour
)

// parseSchedule parses a schedule in the cron format. The error continues a
// sentence about the schedule.
func parseSchedule(s string) (cron.Schedule, error) {
	switch {
	case strings.HasPrefix(s, "@"):
		return nil, errors.New("is a name; use the five fields minute, hour, day of the month, month and day of the week, such as 0 22 * * 1-5")
	case strings.Contains(s, "TZ="): // the parser panics for some of these
		return nil, errors.New("contains a time zone; set timeZone instead")
	}

	times, err := cronFields.Parse(s)
	if err != nil {
		return nil, fmt.Errorf("is not in the cron format (minute, hour, day of the month, month and day of the week, such as 0 22 * * 1-5): %w",
			err)
	}

	if times.Next(leapYear).IsZero() {
		return nil, errors.New("never opens: no month that it names has such a day; correct the day of the month or the month")
	}

	return times, nil
}

// leapYear is before a 29 February, so that a schedule on that day is found to
// open.
var leapYear = time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)

// zoneOf returns a time zone of the IANA database; UTC for an empty name.
func zoneOf(name string) (*time.Location, error) {
	zone, err := time.LoadLocation(cmp.Or(name, "UTC"))
	if err != nil || name == "Local" { // the zone of the machine is another one for the controller than for kubectl
		return nil, fmt.Errorf("%q is no time zone of the IANA database: use a name such as Europe/Berlin or UTC", name)
	}

	return zone, nil
}

// zoned is a schedule on the clock of a time zone. It opens whenever that clock
// shows a time of the schedule: at the change if the clock is put forward past
// such a time, and twice if the clock is put back and shows it again. The
// library does not: it leaves out openings at changes of the clock.
type zoned struct {
	times cron.Schedule // of any clock
	zone  *time.Location
}

// Next implements rollout.Schedule.
func (s zoned) Next(t time.Time) time.Time {
	t = t.In(s.zone)
	from := clockOf(t) // after this
	for {
		shown := s.times.Next(from)
		if shown.IsZero() {
			return time.Time{}
		}

		_, offset := t.Zone()
		_, change := t.ZoneBounds()
		at := shown.Add(-time.Duration(offset) * time.Second)
		if change.IsZero() || at.Before(change) {
			return at
		}

		t = change.In(s.zone)
		after := clockOf(t)
		if shown.Before(after) {
			return change.UTC()
		}

		from = after.Add(-time.Second)
	}
}

// clockOf returns what the clock of a time's zone shows, as a time in UTC.
func clockOf(t time.Time) time.Time {
	_, offset := t.Zone()
	return t.UTC().Add(time.Duration(offset) * time.Second)
}
