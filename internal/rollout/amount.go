// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// RoundUp returns a number, or a percentage of all, rounded up. Nil and what is
// neither are 0.
func RoundUp(a *intstr.IntOrString, all int32) int32 { return scaled(a, all, true) }

// roundDown is RoundUp with a percentage rounded down, but at least 1 unless it
// is 0%.
func roundDown(a *intstr.IntOrString, all int32) int32 {
	if n := scaled(a, all, false); n > 0 || a == nil || a.Type == intstr.Int || scaled(a, 100, true) == 0 {
		return n
	}

	return 1
}

func scaled(a *intstr.IntOrString, all int32, up bool) int32 {
	n, _ := intstr.GetScaledValueFromIntOrPercent(a, int(all), up) // 0 with an error
	return int32(n)
}

// approves reports whether a step is a pause that waits for a person.
func approves(s *v1alpha1.RolloutStep) bool { return s.Pause != nil && s.Pause.Duration == nil }

func seconds(n int32) time.Duration { return time.Duration(n) * time.Second }

// TimeOf returns an optional time; nil becomes the zero value.
func TimeOf(t *metav1.Time) time.Time {
	if t == nil {
		return time.Time{}
	}

	return t.Time
}

// Latest returns the latest of times.
func Latest(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }

// apiTime is the reverse of TimeOf.
func apiTime(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}

	return new(metav1.NewTime(t))
}
