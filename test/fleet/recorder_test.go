// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/fleet"
)

// recorder keeps every version of every NodeConfig, in the order in which they
// were written.
type recorder struct {
	mu   sync.Mutex
	seen []version
	now  map[string]client.Object // that there are
	at   int                      // moments
	lost bool                     // versions that follow are of one moment
}

type version struct {
	name   string
	config *v1alpha1.NodeConfig // nil: it was deleted
	at     int                  // the moment; the order of versions from one list is unknown
}

// record records versions until ctx ends, and returns when it has begun. After
// an outage, which can hide versions, it goes on with all existing objects.
func record(ctx context.Context) *recorder {
	r := &recorder{now: map[string]client.Object{}, lost: true}
	begun := make(chan struct{})
	begin := sync.OnceFunc(func() { close(begun) })
	setLost := func(is bool) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.lost = is
		r.at++
	}
	feed := fleet.Feed{
		API: kube, List: &v1alpha1.NodeConfigList{},
		Set:    fleet.Typed(func(nc *v1alpha1.NodeConfig) { r.add(nc.Name, nc) }),
		Remove: func(o client.Object) { r.add(o.GetName(), nil) },
		Known:  func() []client.Object { return slices.Collect(maps.Values(r.now)) },
		Synced: func() { setLost(false); begin() },
		Lost:   func(error) { setLost(true) },
	}
	go feed.Run(ctx)
	<-begun

	return r
}

// add records a version of a NodeConfig; nil: it was deleted.
func (r *recorder) add(name string, nc *v1alpha1.NodeConfig) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.lost {
		r.at++
	}

	r.seen = append(r.seen, version{name, nc, r.at})
	if delete(r.now, name); nc != nil {
		r.now[name] = nc
	}
}

// of returns the recorded versions of a scenario's nodes.
func (r *recorder) of(s *scenario) []version {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []version
	for _, v := range r.seen {
		if s.owns(v.name) {
			out = append(out, v)
		}
	}

	return out
}

// owns reports whether a node is one of the scenario's.
func (s *scenario) owns(node string) bool {
	number, ok := strings.CutPrefix(node, s.name+"-")
	_, err := strconv.Atoi(number)
	return ok && err == nil
}

// replay shows all that the nodes of a scenario went through up to now, change
// by change.
func (s *scenario) replay(visit func(name string, now map[string]*v1alpha1.NodeConfig)) {
	s.t.Helper()
	s.caughtUp()
	now := map[string]*v1alpha1.NodeConfig{}
	for all := watched.of(s); len(all) > 0; {
		moment := all
		if i := slices.IndexFunc(all, func(v version) bool { return v.at != all[0].at }); i > 0 {
			moment = all[:i]
		}

		all = all[len(moment):]
		for _, v := range moment {
			if now[v.name] = v.config; v.config == nil {
				delete(now, v.name)
			}
		}

		for _, v := range moment {
			visit(v.name, now)
		}
	}
}

// caughtUp waits until the watch has delivered the present state of the API.
func (s *scenario) caughtUp() {
	s.t.Helper()
	want := s.nodeConfigs()
	s.until("the watch has told all", func() (string, bool) {
		missing := maps.Clone(want)
		for _, v := range watched.of(s) {
			if w := missing[v.name]; w != nil && v.config != nil && v.config.ResourceVersion == w.ResourceVersion {
				delete(missing, v.name)
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
	s.replay(func(name string, now map[string]*v1alpha1.NodeConfig) {
		if nc := now[name]; nc != nil && gives(nc, ref.UID) {
			found[name] = true
		}
	})

	return slices.Sorted(maps.Keys(found))
}

// most is how many nodes were ever something at the same time.
func (s *scenario) most(what func(*v1alpha1.NodeConfig) bool) int {
	s.t.Helper()
	most, when := 0, ""
	s.replay(func(name string, now map[string]*v1alpha1.NodeConfig) {
		var which []string
		for _, nc := range now {
			if what(nc) {
				which = append(which, fmt.Sprintf("%s (resourceVersion %s, generation %d, observed %d)", nc.Name, nc.ResourceVersion, nc.Generation, nc.Status.ObservedGeneration))
			}
		}

		if len(which) > most {
			slices.Sort(which)
			most, when = len(which), fmt.Sprintf("after a change of %s: %s", name, strings.Join(which, ", "))
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
