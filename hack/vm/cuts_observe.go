// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/bed"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// config is a ConfigMap with a configuration.
type config struct{ name, uid string }

// fact is what is known at a point of the log: what was assigned, and what the
// agent has reported. It reports what is durable.
type fact struct {
	at       int64 // size of the log in bytes
	agent    kindOfAgent
	assigned config
	active   string // UID; empty: local
	good     string // UID of last-known-good
	bad      []string
}

// kindOfAgent says how the kubelet runs.
type kindOfAgent int

const (
	plain     kindOfAgent = iota // without an agent, or the install has not ended
	installed                    // by evenkeel-agent install
	locked                       // with agents that share a lock
)

// observer notes facts during a run.
type observer struct {
	mu   sync.Mutex
	run  *run
	now  fact
	stop func()
}

// pollInterval is the time between two reads of the agent's report.
const pollInterval = 200 * time.Millisecond

// observe reads the agent's reports until stop.
func (l *lab) observe(ctx context.Context, r *run) *observer {
	ctx, cancel := context.WithCancel(ctx)
	o := &observer{run: r}
	var reader sync.WaitGroup
	o.stop = func() {
		cancel()
		reader.Wait()
	}
	reader.Go(func() {
		for ; ctx.Err() == nil; _ = bed.Pause(ctx, pollInterval) {
			_ = must.Try(func() { // what cannot be read is read again
				nc := l.config(ctx)
				o.note(func(f *fact) { f.read(nc) })
			})
		}
	})

	return o
}

func (f *fact) read(nc *v1alpha1.NodeConfig) {
	f.active, f.good, f.bad = "", "", nil
	if s := nc.Status.Active; s != nil {
		f.active = string(s.UID)
	}
	if s := nc.Status.LastKnownGood; s != nil {
		f.good = string(s.UID)
	}

	for _, b := range nc.Status.BadConfigs {
		f.bad = append(f.bad, string(b.UID))
	}
}

// note records a change of what is known, with the end of the log.
func (o *observer) note(change func(*fact)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	next := o.now
	change(&next)
	if next.active == o.now.active && next.good == o.now.good && slices.Equal(next.bad, o.now.bad) && next.agent == o.now.agent && next.assigned == o.now.assigned {
		return
	}

	next.at = o.run.logSize()
	o.now = next
	o.run.facts = append(o.run.facts, next)
}

// until waits until what is known fulfils a condition.
func (o *observer) until(ctx context.Context, what string, fulfilled func(fact) bool) {
	bed.Await(ctx, patience, func(context.Context) {
		o.mu.Lock()
		defer o.mu.Unlock()
		must.That(fulfilled(o.now), "waiting until the node %s; known: %+v", what, o.now)
	})
}

// known returns what was known when the log had a size in bytes.
func (r *run) known(at int64) fact {
	latest := fact{}
	for _, f := range r.facts {
		if f.at <= at {
			latest = f
		}
	}

	return latest
}

// create stores a drop-in in a ConfigMap.
func (l *lab) create(ctx context.Context, name, dropin string) config {
	out := l.kubectl(ctx, "-n", v1alpha1.SystemNamespace, "create", "configmap", name, "--from-literal=kubelet-dropin="+kubeletConfiguration(dropin), "-o", "jsonpath={.metadata.uid}")
	return config{name, strings.TrimSpace(out)}
}

// forgetConfig deletes the NodeConfig, which earlier steps or cuts have left.
func (l *lab) forgetConfig(ctx context.Context) {
	l.kubectl(ctx, "delete", "nodeconfig", nodeName, "--ignore-not-found")
}

// writeSpec writes what the node's NodeConfig assigns; a config without a name
// means nothing.
func (l *lab) writeSpec(ctx context.Context, c config) {
	spec := v1alpha1.NodeConfigSpec{}
	if c.name != "" {
		spec.ConfigSource = &v1alpha1.NodeConfigSource{ConfigMapRef: &v1alpha1.ConfigMapReference{Namespace: v1alpha1.SystemNamespace, Name: c.name, UID: types.UID(c.uid)}}
	}

	patch := must.Get(json.Marshal([]map[string]any{{"op": "add", "path": "/spec", "value": spec}}))
	bed.Await(ctx, prompt, func(ctx context.Context) {
		l.kubectl(ctx, "patch", "nodeconfig", nodeName, "--type=json", "-p", string(patch))
	})
}
