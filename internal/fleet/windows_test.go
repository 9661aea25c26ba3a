// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// showsTime reports whether a clock that shows this time shows a time of a
// schedule.
func showsTime(s *cron.SpecSchedule, clock time.Time) bool {
	has := func(field uint64, value int) bool { return field&(1<<value) != 0 }
	const star = 63 // the bit of a field that begins with *
	dom, dow := has(s.Dom, clock.Day()), has(s.Dow, int(clock.Weekday()))
	day := dom && dow
	if !has(s.Dom, star) && !has(s.Dow, star) { // cron: either of them
		day = dom || dow
	}

	return has(s.Minute, clock.Minute()) && has(s.Hour, clock.Hour()) && has(s.Month, int(clock.Month())) && day
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
			times := assert.Value(parseSchedule(schedule))(t).(*cron.SpecSchedule)
			s := zoned{times, zone}
			const minutes = 3 * 24 * 60
			want := from
			opens := map[int]bool{}
			for m := 1; m <= minutes; m++ {
				now, before := from.Add(time.Duration(m)*time.Minute).In(zone), from.Add(time.Duration(m-1)*time.Minute).In(zone)
				_, offset := now.Zone()
				_, was := before.Zone()
				opens[m] = showsTime(times, now)
				for skipped := time.Duration(1); skipped <= time.Duration(offset-was)/60; skipped++ { // what the clock was put forward past
					opens[m] = opens[m] || showsTime(times, before.UTC().Add(time.Duration(was)*time.Second+skipped*time.Minute))
				}
			}

			for m := 1; m <= minutes; m++ {
				if !opens[m] {
					continue
				}

				next := s.Next(want)
				want = from.Add(time.Duration(m) * time.Minute)
				assert.Must(t, next.Equal(want), "%q in %s opens at %s, want %s", schedule, tt.zone, next.In(zone), want.In(zone))
			}

			next := s.Next(want)
			assert.Must(t, next.After(from.Add(minutes*time.Minute)), "%q in %s opens at %s, too", schedule, tt.zone, next.In(zone))
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

	assert.Equal(t, s.Next(want).Year(), 2032, "the year after", want)
}

func TestInvalidWindowsNameTheFieldAndWhatToDo(t *testing.T) {
	for _, tt := range []struct {
		window v1alpha1.MaintenanceWindow
		want   string
	}{
		{v1alpha1.MaintenanceWindow{Schedule: "0 0 31 2 *"}, `spec.strategy.windows[1].schedule: "0 0 31 2 *" never opens: no month that it names has such a day; correct the day of the month or the month`},
		{v1alpha1.MaintenanceWindow{Schedule: "@every 1h"}, `schedule: "@every 1h" is a name; use the five fields`},
		{v1alpha1.MaintenanceWindow{Schedule: "CRON_TZ=Asia/Tokyo 0 0 * * *"}, "contains a time zone; set timeZone instead"},
		{v1alpha1.MaintenanceWindow{Schedule: "TZ=0"}, "contains a time zone"},
		{v1alpha1.MaintenanceWindow{Schedule: "0 22 * *"}, "is not in the cron format (minute, hour, day of the month, month and day of the week, such as 0 22 * * 1-5): expected exactly 5 fields, found 4"},
		{v1alpha1.MaintenanceWindow{Schedule: "0 0 22 * * 1"}, "expected exactly 5 fields, found 6"},
		{v1alpha1.MaintenanceWindow{Schedule: "0 22 * * 7"}, "above maximum (6)"},
		{v1alpha1.MaintenanceWindow{Schedule: "0 22 * * MON", TimeZone: "Europe/Atlantis"}, `spec.strategy.windows[1].timeZone: "Europe/Atlantis" is no time zone of the IANA database: use a name such as Europe/Berlin or UTC`},
		{v1alpha1.MaintenanceWindow{Schedule: "0 22 * * *", TimeZone: "Local"}, `"Local" is no time zone`},
		{v1alpha1.MaintenanceWindow{Schedule: "0 22 * * *", TimeZone: "../etc/passwd"}, "is no time zone"},
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
