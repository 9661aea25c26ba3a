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
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

// recorder keeps every version of every NodeConfig, in the order in which they
// were written.
type recorder struct {
	mu   sync.Mutex
	seen []version
	now  map[string]bool // names that there are
	at   int             // moments
}

type version struct {
	name   string
	config *v1alpha1.NodeConfig // nil: it was deleted
	at     int                  // the moment; the order of versions from one list is unknown
}

// record records versions until ctx ends. After an outage, which can hide
// versions, it starts again with the objects of one list.
func record(ctx context.Context) (*recorder, error) {
	r := &recorder{now: map[string]bool{}}
	from, err := r.list(ctx)
	if err != nil {
		return nil, err
	}

	go func() {
		for ctx.Err() == nil {
			from = r.watch(ctx, from)
			select {
			case <-time.After(often):
			case <-ctx.Done():
			}

			if from == "" {
				from, _ = r.list(ctx)
			}
		}
	}()

	return r, nil
}

// list records all existing objects as one change, and returns the list's
// resource version.
func (r *recorder) list(ctx context.Context) (string, error) {
	list := &v1alpha1.NodeConfigList{}
	if err := kube.List(ctx, list); err != nil {
		return "", err
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.now
	r.now = map[string]bool{}
	r.at++
	for i := range list.Items {
		nc := &list.Items[i]
		r.now[nc.Name] = true
		r.seen = append(r.seen, version{nc.Name, nc, r.at})
	}

	for name := range before {
		if !r.now[name] {
			r.seen = append(r.seen, version{name, nil, r.at})
		}
	}

	return list.ResourceVersion, nil
}

// watch records all writes after a resource version. It returns the resource
// version to continue from; empty if the server no longer has it.
func (r *recorder) watch(ctx context.Context, from string) string {
	if from == "" {
		return ""
	}

	w, err := kube.Watch(ctx, &v1alpha1.NodeConfigList{}, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: from}})
	if err != nil {
		return from
	}

	defer w.Stop()
	for e := range w.ResultChan() {
		nc, ok := e.Object.(*v1alpha1.NodeConfig)
		if !ok {
			return "" // too old
		}

		from = nc.ResourceVersion
		r.mu.Lock()
		r.at++
		if e.Type == watch.Deleted {
			delete(r.now, nc.Name)
			r.seen = append(r.seen, version{nc.Name, nil, r.at})
		} else {
			r.now[nc.Name] = true
			r.seen = append(r.seen, version{nc.Name, nc, r.at})
		}

		r.mu.Unlock()
	}

	return from
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
