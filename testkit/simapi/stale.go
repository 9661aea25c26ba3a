// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package simapi

import (
	"slices"
	"time"
)

// MaxStale is how old the answer to a stale read can be.
const MaxStale = 30 * time.Second

// remember keeps a version of an object for stale reads. The caller holds mu.
func (s *Server) remember(k *Kind, o *object) {
	versions := append(s.past[k.id()][o.key], o)
	for len(versions) > 1 && time.Since(versions[1].at) > MaxStale {
		versions = versions[1:]
	}

	s.past[k.id()][o.key] = versions
}

// was returns an object as it was some time ago, nil if it did not exist. The
// caller holds mu.
func (s *Server) was(k *Kind, at key, ago time.Duration) *object {
	for _, o := range slices.Backward(s.past[k.id()][at]) {
		if time.Since(o.at) >= ago {
			if o.gone {
				return nil
			}

			return o
		}
	}

	return nil
}

// versionAt returns the newest version of all objects of a kind some time ago.
// The caller holds mu.
func (s *Server) versionAt(k *Kind, ago time.Duration) int64 {
	if ago == 0 {
		return s.version
	}

	newest := int64(1000)
	for _, versions := range s.past[k.id()] {
		for _, o := range versions {
			if time.Since(o.at) >= ago {
				newest = max(newest, o.version)
			}
		}
	}

	return newest
}

// catchUp sends a watch that began with a stale list what has changed since,
// when the cache that it reads has caught up. The caller holds mu.
func (s *Server) catchUp(w *stream, ago time.Duration) {
	var changed []*object
	for _, versions := range s.past[w.kind.id()] {
		if last := versions[len(versions)-1]; time.Since(last.at) < ago {
			changed = append(changed, last)
		}
	}

	slices.SortFunc(changed, func(a, b *object) int { return int(a.version - b.version) })
	for _, o := range changed {
		w.change(s.was(w.kind, o.key, ago), o, ago)
	}
}
