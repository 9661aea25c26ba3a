// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// recorder keeps every version of every NodeConfig, in the order in which they
// were written.
type recorder struct {
	mu   sync.Mutex
	seen []version
}

type version struct {
	*v1alpha1.NodeConfig
	deleted bool
}

// record records versions until ctx ends. If its watch ended before, caughtUp
// would fail.
func record(ctx context.Context) (*recorder, error) {
	feed, err := kube.Watch(ctx, &v1alpha1.NodeConfigList{})
	if err != nil {
		return nil, err
	}

	r := &recorder{}
	go func() {
		for e := range feed.ResultChan() {
			if nc, ok := e.Object.(*v1alpha1.NodeConfig); ok {
				r.mu.Lock()
				r.seen = append(r.seen, version{nc, e.Type == watch.Deleted})
				r.mu.Unlock()
			}
		}
	}()

	return r, nil
}

// of returns the recorded versions of a scenario's nodes.
func (r *recorder) of(s *scenario) []version {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.seen), func(v version) bool { return !s.owns(v.Name) })
}

// owns reports whether a node is one of the scenario's.
func (s *scenario) owns(node string) bool { return slices.Contains(s.fleet.Names(), node) }

// replay shows all that the nodes of a scenario went through up to now, change
// by change.
func (s *scenario) replay(visit func(changed version, now map[string]*v1alpha1.NodeConfig)) {
	s.t.Helper()
	s.caughtUp()
	now := map[string]*v1alpha1.NodeConfig{}
	for _, v := range watched.of(s) {
		if now[v.Name] = v.NodeConfig; v.deleted {
			delete(now, v.Name)
		}

		visit(v, now)
	}
}

// caughtUp waits until the watch has delivered the present state of the API.
func (s *scenario) caughtUp() {
	s.t.Helper()
	want := s.nodeConfigs()
	s.until("the watch has told all", func() (string, bool) {
		missing := maps.Clone(want)
		for _, v := range watched.of(s) {
			if w := missing[v.Name]; w != nil && v.ResourceVersion == w.ResourceVersion {
				delete(missing, v.Name)
			}
		}

		return "it has not of " + strings.Join(slices.Sorted(maps.Keys(missing)), ", "), len(missing) == 0
	})
}

// everGiven are the nodes that were ever assigned a configuration, whatever
// became of that.
func (s *scenario) everGiven(ref v1alpha1.ConfigMapReference) []string {
	s.t.Helper()
	found := map[string]bool{}
	s.replay(func(v version, _ map[string]*v1alpha1.NodeConfig) {
		if gives(v.NodeConfig, ref.UID) {
			found[v.Name] = true
		}
	})

	return slices.Sorted(maps.Keys(found))
}

// most is how many nodes were ever something at the same time.
func (s *scenario) most(what func(*v1alpha1.NodeConfig) bool) int {
	s.t.Helper()
	most, when := 0, ""
	s.replay(func(v version, now map[string]*v1alpha1.NodeConfig) {
		var which []string
		for _, nc := range now {
			if what(nc) {
				which = append(which, fmt.Sprintf("%s (resourceVersion %s, generation %d, observed %d)", nc.Name, nc.ResourceVersion, nc.Generation, nc.Status.ObservedGeneration))
			}
		}

		if len(which) > most {
			slices.Sort(which)
			most, when = len(which), fmt.Sprintf("after a change of %s: %s", v.Name, strings.Join(which, ", "))
		}
	})
	s.t.Logf("the most at once: %d, %s", most, when) // printed if the test fails

	return most
}

// gives reports whether a NodeConfig assigns a ConfigMap.
func gives(nc *v1alpha1.NodeConfig, uid types.UID) bool {
	s := nc.Spec.ConfigSource
	return s != nil && s.ConfigMapRef != nil && s.ConfigMapRef.UID == uid
}

// runs reports whether a node's kubelet runs a ConfigMap.
func runs(nc *v1alpha1.NodeConfig, uid types.UID) bool {
	return nc.Status.Active != nil && nc.Status.Active.UID == uid
}

// unproven reports whether a rollout assigned a ConfigMap to a node that the
// node has not proven: the node has not adopted it, is in its trial, or has
// failed. The observed generation does not count: it is 0 while an agent that
// has proven the ConfigMap cannot read its NodeConfig, as after an outage of
// the API server.
func unproven(nc *v1alpha1.NodeConfig) bool {
	s, st := nc.Spec.ConfigSource, &nc.Status
	if s == nil || s.ConfigMapRef == nil || s.RolloutRef == nil {
		return false
	}

	good := st.LastKnownGood

	return !runs(nc, s.ConfigMapRef.UID) || good == nil || good.UID != s.ConfigMapRef.UID || st.Trial != nil
}
