// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/operator/query"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// logView is a log, the newest entry first.
type logView struct {
	Entries []logEntry `json:"entries"`
	Note    string     `json:"note,omitempty"` // what is missing, and why
}

const (
	// logTimeout is how long the API server may take to list Events.
	logTimeout = 5 * time.Second
	// maxLogMessage is how many characters of a message are shown.
	maxLogMessage = 500
)

// log answers with the Events and outcomes of a rollout, with ?node= those of one of its nodes.
func (c *cluster) log(ctx context.Context, r *http.Request) (any, error) {
	name := r.PathValue("name")
	if _, err := query.Rollout(ctx, c.api, name); err != nil {
		return nil, err
	}
	return c.logOf(ctx, name, r.URL.Query().Get("node"), time.Now()), nil
}

// logOf returns the log of a rollout, or of a node, or of a node in a rollout; the other name is empty.
func (c *cluster) logOf(ctx context.Context, rollout, node string, now time.Time) logView {
	ctx, cancel := context.WithTimeout(ctx, logTimeout)
	defer cancel()
	v := logView{}
	var outcomes []logEntry
	nodes := c.feed.nodesOf(rollout)
	var configs v1alpha1.NodeConfigList
	if err := c.cache.List(ctx, &configs); err != nil {
		v.note("outcomes are not shown", err)
	}
	for i := range configs.Items {
		nc := &configs.Items[i]
		if node != "" && nc.Name != node {
			continue
		}
		if s := nc.Spec.ConfigSource; s != nil && s.RolloutRef != nil && s.RolloutRef.Name == rollout {
			nodes[nc.Name] = true
		}
		outcomes = append(outcomes, outcomesOf(nc, rollout, node != "", now)...)
	}
	events, err := c.events(ctx, rollout, node, nodes, now)
	switch {
	case apierrors.IsForbidden(err):
		v.Note = "Events are not shown: you are not allowed to list them in the namespace default. The Role evenkeel-view there allows it."
	case err != nil:
		v.note("Events are not shown", err)
	}
	var left int
	if v.Entries, left = mergeLog(events, outcomes); left > 0 {
		v.add(fmt.Sprintf("%d older entries are not shown: choose a node", left))
	}
	for i := range v.Entries {
		v.Entries[i].Message = printable.Brief(printable.Line(v.Entries[i].Message), maxLogMessage)
	}
	return v
}

// events reads the Events of a rollout and of the agents of its nodes, or of one node.
func (c *cluster) events(ctx context.Context, rollout, node string, nodes map[string]bool, now time.Time) ([]logEntry, error) {
	all, err := query.NodeEvents(ctx, c.api, node)
	if err == nil && node == "" {
		var more []corev1.Event
		more, err = query.RolloutEvents(ctx, c.api, rollout)
		all = append(all, more...)
	}
	var out []logEntry
	for i := range all {
		if e := eventEntry(&all[i], now); e.Node == "" || e.Node == node || nodes[e.Node] {
			out = append(out, e)
		}
	}
	return out, err
}

// note adds a note about an error.
func (v *logView) note(what string, err error) { v.add(what + ": " + printable.Line(err.Error())) }

func (v *logView) add(words string) { v.Note = strings.TrimPrefix(v.Note+"; "+words, "; ") }

// nodesOf returns the names of the nodes that a rollout owns, as far as they are known.
func (f *feed) nodesOf(rollout string) map[string]bool {
	nodes := map[string]bool{}
	for name, c := range f.now().Cells {
		if rollout != "" && c.Rollout == rollout {
			nodes[name] = true
		}
	}
	return nodes
}
