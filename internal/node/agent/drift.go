// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/trial"
)

// Times of the comparisons. The first one comes when the start is over, so that
// it does not load a node that starts.
const (
	firstDriftCheck = 15 * time.Second // after the start of a kubelet
	driftInterval   = 10 * time.Minute // at least, also across starts: a kubelet may crash again and again
	driftTimeout    = 30 * time.Second // of one comparison
)

// drift compares the running kubelet with what was started, beside the loop.
// Nothing is decided on the result, and nothing is corrected.
type drift struct {
	// Set at each start of a kubelet.
	process Process           // that was started
	files   map[string]string // digests of the local files just before the start, by path
	due     time.Time         // of the next comparison
	found   *v1alpha1.Drift   // the last result; nil: none yet
	missed  bool              // the last comparison could not reach /configz, and found still has the result before it

	last time.Time          // when a comparison began; zero: none has
	task *task[driftResult] // the comparison in progress; nil: none
}

// driftResult is the result of one comparison.
type driftResult struct {
	process  Process
	found    v1alpha1.Drift
	passing  bool // notCompared may end without a change of the node, such as an unreachable API server
	detailed error
}

// started forgets the result about the last kubelet.
func (d *drift) started(p Process, files map[string]string, now time.Time) {
	d.process, d.files, d.due, d.found, d.missed = p, files, now.Add(firstDriftCheck), nil, false
	if next := d.last.Add(driftInterval); next.After(d.due) {
		d.due = next
	}
}

// checkDrift takes the result of a comparison, and begins the next one when it
// is due and the kubelet is healthy.
func (a *Agent) checkDrift(ctx context.Context, o trial.Observed) {
	d := &a.drift
	if d.task != nil && d.task.ended() {
		a.takeDrift(d.task.result)
		d.task = nil
	}

	if d.task != nil || !o.Child.Healthy || o.Now.Before(d.due) {
		return
	}

	d.last, d.due = o.Now, o.Now.Add(driftInterval)
	process, files, effective, ask, kubelet := d.process, d.files, a.kubelet.verdict.Effective, a.p.Configz, a.p.Kubelet
	d.task = begin(ctx, a.tasks, func(ctx context.Context) driftResult {
		ctx, cancel := context.WithTimeout(ctx, driftTimeout)
		defer cancel()
		got := driftResult{process: process}
		got.found.Files = changedFiles(files, kubelet.LocalFiles())
		got.found.Fields, got.found.NotCompared, got.passing, got.detailed = compareConfigz(ctx, effective, ask)

		return got
	})
}

// takeDrift keeps and logs a result. A kubelet that once did not answer keeps
// its result: it answers the next time, and two writes are saved.
func (a *Agent) takeDrift(got driftResult) {
	d := &a.drift
	if got.process != d.process {
		return // of a kubelet that has ended
	}
	if got.detailed != nil {
		a.o.Log.Debug("cannot compare the /configz of the kubelet", "err", got.detailed)
	}

	if got.passing && d.found != nil && d.found.NotCompared == "" && !d.missed {
		d.missed = true
		got.found.Fields, got.found.NotCompared = d.found.Fields, ""
	} else {
		d.missed = false
	}

	before := d.found
	d.found = &got.found
	c := drifted(d.found, a.kubelet.config)
	switch {
	case before != nil && c.Message == drifted(before, a.kubelet.config).Message:
	case c.Status == metav1.ConditionTrue:
		a.o.Log.Warn("the kubelet or its local files differ from what was started", "reason", c.Reason, "message", c.Message)
	case before != nil && drifted(before, a.kubelet.config).Status == metav1.ConditionTrue:
		a.o.Log.Info("the kubelet and its local files are again as they were started", "reason", c.Reason, "message", c.Message)
	}
}

// changedFiles returns the paths of files that were edited, added or removed,
// sorted.
func changedFiles(before, now map[string]string) []string {
	paths := map[string]string{}
	maps.Copy(paths, before)
	maps.Copy(paths, now)
	maps.DeleteFunc(paths, func(path, _ string) bool { return before[path] == now[path] })

	return slices.Sorted(maps.Keys(paths))
}

// compareConfigz returns the fields in which a kubelet's /configz differs from
// the configuration that was started, or why it was not compared. That sentence
// has no numbers that change from one request to the next, because each change
// is written to the API. err is the same with all details.
func compareConfigz(ctx context.Context, effective component.Effective,
	ask func(context.Context, component.Effective) (component.Effective,
		error)) (fields []string, notCompared string, passing bool, err error) {
	switch {
	case ask == nil:
		return nil, "the kubelet has no kubeconfig, so the agent has no credentials for its /configz", false, nil
	case effective["enableServer"] == false:
		return nil, "the configuration switches the kubelet's server off (enableServer)", false, nil
	case effective == nil:
		return nil, "the dry run of this kubelet did not print the configuration that was started", false, nil
	}

	running, err := ask(ctx, effective)
	if err == nil {
		return component.ConfigzDifferences(effective, running), "", false, nil
	}

	var refused *component.StatusError
	var unreachable *url.Error
	switch {
	case errors.As(err, &refused) && refused.Code == http.StatusForbidden:
		notCompared = "the node may not read the /configz of its kubelet: apply config/drift (kubelets before 1.33 never allow it)"
	case errors.As(err, &refused) && refused.Code == http.StatusUnauthorized:
		notCompared = "the kubelet does not accept the client certificate of its node for /configz: check authentication.x509.clientCAFile"
	case errors.As(err, &refused):
		notCompared, passing = fmt.Sprintf("the kubelet answered a request for its /configz with status %d", refused.Code), true
	case errors.As(err, &unreachable):
		notCompared, passing = "the kubelet does not answer requests for its /configz", true
	default:
		notCompared, passing = "the answer of the kubelet's /configz could not be read", true
	}

	return nil, notCompared, passing, err
}

// drifted returns the condition Drifted, without its generation. config is the
// configuration that runs.
func drifted(d *v1alpha1.Drift, config trial.Config) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionDrifted, Status: metav1.ConditionFalse, Reason: v1alpha1.DriftNone}
	var words []string
	if n := len(d.Fields); n > 0 {
		c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.DriftConfigzDiffers
		words = append(words, fmt.Sprintf("the running kubelet differs in %s from the configuration that the agent validated and started",
			few(d.Fields, "field")))
	}

	if n := len(d.Files); n > 0 {
		if c.Status = metav1.ConditionTrue; c.Reason == v1alpha1.DriftNone {
			c.Reason = v1alpha1.DriftFilesEdited
		}

		effect := "takes effect at the next restart of the kubelet"
		if !config.IsLocal() && !config.Dropin {
			effect = "has no effect while the assigned configuration runs, because that replaces the local one"
		}

		words = append(words, fmt.Sprintf("%s changed since the kubelet was started; the change %s", few(d.Files, "local file"), effect))
	}

	switch {
	case len(words) > 0:
	case d.NotCompared != "":
		c.Reason = v1alpha1.DriftFilesUnchanged
		words = append(words, "the local files are as they were when the kubelet was started")
	default:
		words = append(words, "the running kubelet and the local files are as they were when the kubelet was started")
	}

	if d.NotCompared != "" {
		words = append(words, "/configz is not compared: "+d.NotCompared)
	}

	c.Message = strings.Join(words, "; ")

	return c
}

// few names one thing, or counts several.
func few(names []string, what string) string {
	if len(names) == 1 {
		return what + " " + names[0]
	}

	return fmt.Sprintf("%d %ss", len(names), what)
}
