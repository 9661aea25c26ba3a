// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import "time"

// sighting is the state of a pod that was seen at a time. A pod that is gone
// was deleted: it has no endpoint.
type sighting struct {
	at    time.Time
	ready bool
	gone  bool
}

// readiness is what a watch of pods has shown, by the pods' names: the kubelet
// may delete the mirror pod of a static pod and create it again, which is the
// same pod for a Service.
type readiness map[string][]sighting

// ready reports whether a pod was Ready at its last event.
func (r readiness) ready(name string) bool {
	s := r[name]
	return len(s) > 0 && s[len(s)-1].ready
}

// cost is what a period cost some pods.
type cost struct {
	pods    int // that existed at its start
	lost    int // of them, that were not Ready for a time
	long    int // of the lost, for at least a second at once
	longest time.Duration
}

func (c *cost) add(other cost) {
	c.pods += other.pods
	c.lost += other.lost
	c.long += other.long
	c.longest = max(c.longest, other.longest)
}

// cost returns what a period cost the named pods.
func (r readiness) cost(names []string, from, to time.Time) cost {
	var sum cost
	for _, name := range names {
		sum.add(costOfPod(r[name], from, to))
	}

	return sum
}

// costOfPod returns what a period cost one pod. A pod that is deleted counts
// until its deletion, or if a pod of that name follows, until that is Ready.
func costOfPod(all []sighting, from, to time.Time) cost {
	last := sighting{gone: true} // before the period
	var during []sighting
	for _, s := range all {
		switch {
		case !s.at.After(from):
			last = s
		case !s.at.After(to):
			during = append(during, s)
		}
	}
	if last.gone {
		return cost{}
	}

	end := sighting{at: to, ready: true} // of the last state
	if n := len(during); n > 0 && during[n-1].gone {
		end.at = during[n-1].at
	}

	c := cost{pods: 1}
	since := from // since when the pod is not Ready, unless last.ready
	for _, s := range append(during, end) {
		switch d := s.at.Sub(since); {
		case last.ready && !s.ready:
			since = s.at
		case !last.ready && s.ready && d > 0:
			c.lost, c.longest = 1, max(c.longest, d)
			if d >= time.Second {
				c.long = 1
			}
		}

		last = s
	}

	return c
}
