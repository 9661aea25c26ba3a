// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// showsTime reports whether a clock that shows this time shows a time of a
// schedule. It knows the fields *, 5, 1-5, 1,3 and */15.
func showsTime(t *testing.T, schedule string, clock time.Time) bool {
	fields := strings.Fields(schedule)
	shows := [5]bool{}
	for i, value := range []int{clock.Minute(), clock.Hour(), clock.Day(), int(clock.Month()), int(clock.Weekday())} {
		for part := range strings.SplitSeq(fields[i], ",") {
			number := func(s string) int { return assert.Value(strconv.Atoi(s))(t) }
			step, stepped := strings.CutPrefix(part, "*/")
			first, last, ranged := strings.Cut(part, "-")
			switch {
			case part == "*":
				shows[i] = true
			case stepped:
				base := 0
				if i == 2 || i == 3 {
					base = 1
				}

				shows[i] = shows[i] || (value-base)%number(step) == 0
			case ranged:
				shows[i] = shows[i] || number(first) <= value && value <= number(last)
			default:
				shows[i] = shows[i] || number(part) == value
			}
		}
	}

	day := shows[2] && shows[4]
	if !strings.HasPrefix(fields[2], "*") && !strings.HasPrefix(fields[4], "*") { // cron: either of them
		day = shows[2] || shows[4]
	}

	return shows[0] && shows[1] && shows[3] && day
}

// TestSchedulesOpenWhenTheClockShowsThem compares schedules with the clock of
// their zone, minute by minute, around changes of the clock: by an hour, by
// half an hour, at midnight, by a whole day, and of zones with odd offsets.
func TestSchedulesOpenWhenTheClockShowsThem(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, tt := range []struct{ zone, from string }{
		{"Europe/Berlin", "2026-03-28"}, {"Europe/Berlin", "2026-10-24"}, {"America/New_York", "2026-03-07"}, {"America/New_York", "2026-10-31"},
		{"Australia/Lord_Howe", "2026-04-04"}, {"Australia/Lord_Howe", "2026-10-03"}, {"America/Sao_Paulo", "2018-11-03"}, {"America/Sao_Paulo", "2019-02-16"},
		{"Pacific/Apia", "2011-12-29"}, {"Africa/Cairo", "2026-04-23"}, {"Africa/Casablanca", "2026-02-14"}, {"Antarctica/Troll", "2026-03-28"},
		{"Asia/Kathmandu", "2026-03-28"}, {"UTC", "2026-03-28"},
	} {
		zone := assert.Value(time.LoadLocation(tt.zone))(t)
		from := assert.Value(time.Parse(time.DateOnly, tt.from))(t)
		from = from.Add(-14 * time.Hour)
		schedules := []string{"* * * * *", "0 * * * *", "*/20 1,2,3 * * *", "30 2 * * *", "0 0 * * *", "0 2 * * *", "0 3 * * *", "15 2 * * 0", "0 22 30 12 *", "10 1 1 * 6"}
		for range 5 {
			schedules = append(schedules, strconv.Itoa(random.IntN(60))+" "+strconv.Itoa(random.IntN(4))+" * * *")
		}

		for _, schedule := range schedules {
			times := assert.Value(parseSchedule(schedule))(t)
			s := zoned{times, zone}
			const minutes = 3 * 24 * 60
			want := from
			opens := map[int]bool{}
			for m := 1; m <= minutes; m++ {
				now, before := from.Add(time.Duration(m)*time.Minute).In(zone), from.Add(time.Duration(m-1)*time.Minute).In(zone)
				_, offset := now.Zone()
				_, was := before.Zone()
				opens[m] = showsTime(t, schedule, now)
				for skipped := time.Duration(1); skipped <= time.Duration(offset-was)/60; skipped++ { // what the clock was put forward past
					opens[m] = opens[m] || showsTime(t, schedule, before.UTC().Add(time.Duration(was)*time.Second+skipped*time.Minute))
				}
			}

			for m := 1; m <= minutes; m++ {
				if !opens[m] {
					continue
				}

				next := s.Next(want)
				if want = from.Add(time.Duration(m) * time.Minute); !next.Equal(want) {
					t.Fatalf("%q in %s opens at %s, want %s", schedule, tt.zone, next.In(zone), want.In(zone))
				}
			}

			if end := from.Add(minutes * time.Minute); !s.Next(want).After(end) {
				t.Fatalf("%q in %s opens at %s, too", schedule, tt.zone, s.Next(want).In(zone))
			}
		}
	}
}

func TestSchedulesBetweenMinutes(t *testing.T) {
	times := assert.Value(parseSchedule("30 2 29 2 *"))(t)
	berlin := assert.Value(zoneOf("Europe/Berlin"))(t)
	s := zoned{times, berlin}
	want := time.Date(2028, 2, 29, 1, 30, 0, 0, time.UTC)
	for _, from := range []time.Time{time.Date(2026, 5, 1, 1, 2, 3, 4, time.UTC), want.Add(-1)} {
		got := s.Next(from)
		assert.That(t, got.Equal(want), "after %s it opens at %s, want %s", from, got, want)
	}

	if got := s.Next(want); got.Year() != 2032 {
		t.Errorf("after %s it opens at %s", want, got)
	}
}

func TestInvalidWindowsNameTheFieldAndWhatToDo(t *testing.T) {
	for _, tt := range []struct {
		window v1alpha1.MaintenanceWindow
		want   string
	}{
		{v1alpha1.MaintenanceWindow{Schedule: "0 0 31 2 *"}, `spec.strategy.windows[1].schedule: "0 0 31 2 *" never opens: no month that it names has such a day; correct the day of the month or the month`},
		{v1alpha1.MaintenanceWindow{Schedule: "0 0 31 4,6,9,11 *"}, "never opens"},
		{v1alpha1.MaintenanceWindow{Schedule: "@every 1h"}, `schedule: "@every 1h" is a name; use the five fields`},
		{v1alpha1.MaintenanceWindow{Schedule: "@daily"}, "is a name"},
		{v1alpha1.MaintenanceWindow{Schedule: "CRON_TZ=Asia/Tokyo 0 0 * * *"}, "contains a time zone; set timeZone instead"},
		{v1alpha1.MaintenanceWindow{Schedule: "TZ=0"}, "contains a time zone"},
		{v1alpha1.MaintenanceWindow{Schedule: "0 22 * *"}, "is not in the cron format (minute, hour, day of the month, month and day of the week, such as 0 22 * * 1-5): expected exactly 5 fields, found 4"},
		{v1alpha1.MaintenanceWindow{Schedule: "0 0 22 * * 1"}, "expected exactly 5 fields, found 6"},
		{v1alpha1.MaintenanceWindow{Schedule: "60 22 * * *"}, "above maximum (59)"},
		{v1alpha1.MaintenanceWindow{Schedule: "0 22 * * 7"}, "above maximum (6)"},
		{v1alpha1.MaintenanceWindow{Schedule: "0 22 * * MON", TimeZone: "Europe/Atlantis"}, `spec.strategy.windows[1].timeZone: "Europe/Atlantis" is no time zone of the IANA database: use a name such as Europe/Berlin or UTC`},
		{v1alpha1.MaintenanceWindow{Schedule: "0 22 * * *", TimeZone: "Local"}, `"Local" is no time zone`},
		{v1alpha1.MaintenanceWindow{Schedule: "0 22 * * *", TimeZone: "../etc/passwd"}, "is no time zone"},
		{v1alpha1.MaintenanceWindow{Schedule: "0 22 * * *", TimeZone: "Europe"}, "is no time zone"},
		{v1alpha1.MaintenanceWindow{Schedule: "0 22 * * *", Duration: metav1.Duration{Duration: time.Second}}, "spec.strategy.windows[1].duration: 1s is not from 1m to 168h"},
		{v1alpha1.MaintenanceWindow{Schedule: "0 22 * * *", Duration: metav1.Duration{Duration: 200 * time.Hour}}, "not from 1m to 168h"},
		{v1alpha1.MaintenanceWindow{Schedule: "0 22 * * *", Finish: "Soon"}, `finish: "Soon" is neither Anytime nor Within`},
	} {
		good := v1alpha1.MaintenanceWindow{Schedule: "0 22 * * 1-5", Duration: metav1.Duration{Duration: 6 * time.Hour}, TimeZone: "Europe/Berlin", Finish: v1alpha1.FinishWithin}
		if tt.window.Duration.Duration == 0 {
			tt.window.Duration = good.Duration
		}

		_, err := windowsOf([]v1alpha1.MaintenanceWindow{good, tt.window})
		assert.That(t, err != nil && strings.Contains(err.Error(), tt.want), "%+v: %v\nwant %s", tt.window, err, tt.want)
	}
}

func FuzzSchedules(f *testing.F) {
	for _, s := range []string{"0 22 * * 1-5", "*/5 1-3 1,2 jan SUN", "? ? ? ? ?", "1-5/0 * * * *", "TZ= 0 * * * *", "@every 1s", "0 0 31 2 *", "9223372036854775807/9223372036854775807 * * * *"} {
		f.Add(s)
	}

	f.Fuzz(func(t *testing.T, s string) {
		if len(s) > 128 {
			return // the API refuses it
		}

		times, err := parseSchedule(s)
		if err != nil {
			return
		}

		berlin, err := zoneOf("Europe/Berlin")
		assert.NoError(t, err)
		for at := leapYear; at.Year() < 2029; {
			next := (zoned{times, berlin}).Next(at)
			assert.Must(t, !next.IsZero() && next.After(at) && next.Second() == 0, "%q: after %s it opens at %s", s, at, next)
			at = next.Add(200 * time.Hour)
		}
	})
}
