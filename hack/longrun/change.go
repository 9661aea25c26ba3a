// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/testkit/bed"
	"github.com/evenkeel/evenkeel/testkit/must"
)

const (
	changeEvery      = time.Minute
	badEvery         = 10               // each tenth change is bad, and the API server is restarted during the next one
	apiPatience      = 10 * time.Minute // for the API server's start on a busy machine
	trialDuration    = 10 * time.Second
	crashThreshold   = 1
	rolloutName      = "soak"
	meanBetweenKills = 18 * time.Second // in the second half: 200 in two hours
)

// longRun is one run, and what it has counted.
type longRun struct {
	*world
	begin  time.Time
	length time.Duration
	data   *os.File

	lastGood string // revision that the node returns to
	seen     int    // starts of the kubelet that are checked
	revision int64  // number of the last one

	changes, bad, kills, apiRestarts atomic.Int64
	settled                          []time.Duration // from push to verdict, of good changes

	mu      sync.Mutex
	gaps    []time.Duration // without a healthy kubelet
	samples []sample
}

// verdict is what must become of a change: the reason of ConfigOK and the phase of the rollout. The reason is empty for a good one.
type verdict struct {
	reason string
	phase  v1alpha1.RolloutPhase
}

func (v verdict) good() bool { return v.reason == "" }

// badChanges are those that a node must not keep.
var badChanges = []struct {
	verdict
	fields map[string]any
}{
	{verdict{"CrashLooped", v1alpha1.RolloutHalted}, crashing},
	{verdict{"ValidationFailed", v1alpha1.RolloutHalted}, map[string]any{"evictionHard": map[string]any{"memory.available": "banana"}}},
	{verdict{"CrashLooped", v1alpha1.RolloutHalted}, crashing},
	{verdict{"ProtectedFields", v1alpha1.RolloutHalted}, map[string]any{"authentication": map[string]any{"anonymous": map[string]any{"enabled": true}}}},
	{verdict{"CrashLooped", v1alpha1.RolloutHalted}, crashing},
	{verdict{"WouldEvictPods", v1alpha1.RolloutProgressing}, map[string]any{"maxPods": 1}},
}

// change pushes one change after the other, and checks each.
func (r *longRun) change(ctx context.Context, random *rand.Rand) error {
	r.lastGood = "local"
	tick := time.NewTicker(changeEvery)
	defer tick.Stop()
	for i := 1; time.Since(r.begin) < r.length; i++ {
		fields := map[string]any{"maxPods": 111 + i%40, "registryBurst": 10 + i}
		expected := verdict{phase: v1alpha1.RolloutComplete}
		if i%badEvery == 0 {
			bad := badChanges[(i/badEvery-1)%len(badChanges)]
			expected = bad.verdict
			maps.Copy(fields, bad.fields)
		}
		restarted, within := make(chan error, 1), patience
		if i%badEvery == 1 && i > 1 {
			within += apiPatience
			go func() { restarted <- r.restartAPI(ctx, random) }()
		} else {
			restarted <- nil
		}
		if err := r.one(ctx, fields, i%3 == 0, expected, within); err != nil {
			return fmt.Errorf("change %d (%v): %w", i, fields, err)
		}
		if err := <-restarted; err != nil {
			return fmt.Errorf("change %d: restart of the API server: %w", i, err)
		}
		r.changes.Add(1)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return errOver
}

// restartAPI stops the API server at a random moment of a change, for up to ten seconds.
func (r *longRun) restartAPI(ctx context.Context, random *rand.Rand) (err error) {
	defer must.Catch(&err)

	must.OK(bed.Pause(ctx, time.Duration(random.Int64N(int64(20*time.Second)))))
	must.OK(r.Cluster.StopAPIServer())
	must.OK(bed.Pause(ctx, time.Duration(random.Int64N(int64(10*time.Second)))))
	r.apiRestarts.Add(1)
	return bed.Eventually(ctx, apiPatience, r.Cluster.StartAPIServer) // it gives up after a minute
}

// one pushes a change, as a whole configuration or as a drop-in, and waits until the node and the rollout are where they must be.
func (r *longRun) one(ctx context.Context, fields map[string]any, whole bool, expected verdict, within time.Duration) (err error) {
	defer must.Catch(&err)

	begin, kills := time.Now(), r.kills.Load()
	must.OK(r.push(ctx, fields, whole))
	var revision string
	must.OK(bed.Eventually(ctx, within, func(ctx context.Context) (err error) {
		revision, err = r.arrived(ctx, expected)
		return err
	}))
	if expected.good() {
		r.settled = append(r.settled, time.Since(begin))
	} else {
		r.bad.Add(1)
	}
	if err := bed.Eventually(ctx, patience, r.Healthy); err != nil {
		return fmt.Errorf("the kubelet after the change: %w", err)
	}
	must.OK(r.checkStarts(revision, expected.reason, r.kills.Load()-kills))
	if expected.good() {
		r.lastGood = revision
	}
	return bed.Eventually(ctx, within, func(ctx context.Context) error { // a kubelet that has just started may not have reported them
		now, err := r.listContainers(ctx)
		if err == nil && !maps.Equal(now, r.containers) {
			err = fmt.Errorf("pods were restarted: their containers are %v, and were %v", now, r.containers)
		}
		return err
	})
}

// push pushes fields with `kubectl evenkeel push`, as an operator does.
func (r *longRun) push(ctx context.Context, fields map[string]any, whole bool) error {
	data, err := r.Config(fields)
	if !whole {
		raw, failed := yaml.Marshal(fields)
		err = failed
		data = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n" + string(raw)
	}
	if err != nil {
		return err
	}
	file := filepath.Join(r.Cluster.Dir(), "change.yaml")
	if err := os.WriteFile(file, []byte(data), 0o600); err != nil {
		return err
	}
	args := []string{"push", rolloutName, "-f", file, fmt.Sprintf("--drop-in=%t", !whole), "--yes", "--selector=pool=soak", "--steps=100%",
		"--max-failures=1", "--trial-duration=" + trialDuration.String(), fmt.Sprintf("--crash-loop-threshold=%d", crashThreshold)}
	return bed.Eventually(ctx, patience+apiPatience, func(ctx context.Context) error { // the API server may be down
		var out bytes.Buffer
		code, err := r.Evenkeel(ctx, &out, args...)
		if err == nil && code != 0 {
			err = fmt.Errorf("kubectl evenkeel push: exit code %d: %s", code, &out)
		}
		return err
	})
}

// arrived returns the revision of the last push, and an error unless the node, its status and the rollout say what they must.
func (r *longRun) arrived(ctx context.Context, expected verdict) (_ string, err error) {
	defer must.Catch(&err)

	o := must.Get(r.GetRollout(ctx, rolloutName))
	target := o.Status.UpdateRevision
	switch {
	case o.Status.ObservedGeneration != o.Generation || target == nil || target.Number == r.revision:
		return "", errors.New("the controller has not made the revision")
	case o.Status.Phase != expected.phase:
		return "", fmt.Errorf("the rollout is %s, not %s: %s", o.Status.Phase, expected.phase, o.Status.Message)
	case o.Status.Attempt != 1:
		return "", fmt.Errorf("the rollout is at attempt %d: something was retried", o.Status.Attempt)
	}
	revision := string(target.ConfigMapRef.UID)
	runs := revision
	if !expected.good() {
		runs = r.lastGood
	}
	must.OK(r.says(ctx, revision, runs, expected.reason))
	switch now, err := r.running(); {
	case err != nil:
		return "", err
	case now != runs:
		return "", fmt.Errorf("the kubelet runs %s, not %s", now, runs)
	}
	r.revision = target.Number
	return revision, nil
}

// says checks the NodeConfig and the Node's condition.
func (r *longRun) says(ctx context.Context, revision, runs, reason string) (err error) {
	defer must.Catch(&err)

	nc := must.Get(r.Get(ctx))
	node := must.Get(r.Kube.CoreV1().Nodes().Get(ctx, r.Node.Name(), metav1.GetOptions{}))
	status, word, mentions := metav1.ConditionTrue, "AllChecksPassed", "using current (UID: "+revision+")"
	if reason != "" {
		status, word, mentions = metav1.ConditionFalse, reason, "using last-known-good (UID: "+runs+")"
	}
	c := bed.ConfigOK(nc)
	failed := func(what string, args ...any) error {
		return fmt.Errorf(what+"; ConfigOK is %s, %s, %q", append(args, c.Status, c.Reason, c.Message)...)
	}
	switch s := nc.Status; {
	case c.Status != status || c.Reason != word || c.ObservedGeneration != nc.Generation:
		return failed("ConfigOK must be %s, %s at generation %d", status, word, nc.Generation)
	case !strings.Contains(c.Message, mentions):
		return failed("ConfigOK must mention %q", mentions)
	case s.Assigned == nil || string(s.Assigned.UID) != revision:
		return failed("assigned is %+v, not %s", s.Assigned, revision)
	case s.Active == nil || string(s.Active.UID) != runs:
		return failed("active is %+v, not %s", s.Active, runs)
	case s.LastKnownGood == nil || string(s.LastKnownGood.UID) != runs:
		return failed("last-known-good is %+v, not %s", s.LastKnownGood, runs)
	case (s.Error == "") != (reason == ""):
		return failed("status.error is %q", s.Error)
	case reason == "CrashLooped" && !slices.ContainsFunc(s.BadConfigs, func(b v1alpha1.BadConfig) bool { return string(b.UID) == revision }):
		return failed("%s is not among the bad configurations, %+v", revision, s.BadConfigs)
	}
	i := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == v1alpha1.ConditionConfigOK })
	if i < 0 || string(node.Status.Conditions[i].Status) != string(status) || node.Status.Conditions[i].Message != mentions {
		return failed("the Node's condition must be %s, %q: its conditions are %+v", status, mentions, node.Status.Conditions)
	}
	return nil
}

// checkStarts checks which configurations the kubelet was started with during a change with some kills.
func (r *longRun) checkStarts(revision, reason string, kills int64) (err error) {
	defer must.Catch(&err)

	all := must.Get(r.recorded("starts"))
	tries := int64(0)
	for _, started := range all[r.seen:] {
		if started == revision {
			tries++
		} else if started != r.lastGood {
			return fmt.Errorf("the kubelet was started with %s, which is neither the assigned %s nor the last good %s", started, revision, r.lastGood)
		}
	}
	r.seen = len(all)
	switch {
	case tries > 0 && reason != "" && reason != "CrashLooped":
		return fmt.Errorf("the kubelet was started with %s, which was refused: %s", revision, reason)
	case reason == "CrashLooped" && tries > crashThreshold+1+kills:
		return fmt.Errorf("%s was started %d times, with a threshold of %d and %d kills", revision, tries, crashThreshold, kills)
	}
	forbidden, err := r.recorded("forbidden")
	if err == nil && len(forbidden) > 0 {
		err = fmt.Errorf("configurations were started although they were on record as bad: %v", forbidden)
	}
	return err
}
