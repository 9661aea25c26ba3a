// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package checkpoint_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/atomicfile"
	"github.com/evenkeel/evenkeel/internal/node/checkpoint"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/crashfs"
)

const (
	dir     = "/var/lib/evenkeel"
	version = "v1.36.3"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 123456789, time.UTC)

func lasting(d time.Duration) metav1.Duration { return metav1.Duration{Duration: d} }

func hex64(c string) string { return strings.Repeat(c, 64) }

// configMap returns the content of a checkpoint.
func configMap(uid, payload string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"evenkeel-system","name":"workers","uid":%q},"data":{"kubelet":%q}}`, uid, payload)
}

func config(uid, payload string) trial.Config {
	return trial.Config{
		Revision: uid, ConfigRevision: v1alpha1.ConfigRevision{UID: types.UID(uid), Namespace: "evenkeel-system", Name: "workers", SHA256: hex64(payload), ResolvedSHA256: hex64("d")}, Checkpoint: hex64(payload), Dropin: true,
		Rollout:        v1alpha1.RolloutReference{Name: "workers", Revision: 4, Attempt: 1, AssignedAt: metav1.NewTime(noon.Truncate(time.Second))},
		RequestedTerms: trial.RequestedTerms{Duration: metav1.Duration{Duration: 30 * time.Minute}, Starts: 1, AllowPodLoss: true},
		AssignedBy:     "uid-nodeconfig",
		End:            trial.End{After: lasting(15 * time.Minute), Requested: "2026-05-01T12:00:00Z"},
	}
}

// full returns a state with content in every record.
func full() trial.State {
	return trial.State{
		Current:       trial.AdoptedConfig{Config: config("uid-b", "b"), Since: noon},
		LastKnownGood: trial.AdoptedConfig{Config: config("uid-a", "a"), Since: noon.Add(-time.Hour)},
		Revoked:       []types.UID{"uid-z"},
		Bad: []trial.BadConfig{{Revision: "uid-c", ConfigRevision: v1alpha1.ConfigRevision{UID: "uid-c", Namespace: "evenkeel-system", Name: "workers", SHA256: hex64("c"), ResolvedSHA256: hex64("d")}, Time: noon,
			Reason: "current (UID: uid-c) crash-looped", Detail: "exit status 1 <&>", Failure: v1alpha1.ReasonCrashLooped, Attempt: 2, Provisional: true}},
		Temporary: &trial.Temporary{Revision: "uid-b", End: trial.End{After: lasting(15 * time.Minute), Requested: "2026-05-01T12:00:00Z"},
			Ran: lasting(20 * time.Second), Ended: noon},
		Startups: []time.Time{noon, noon.Add(time.Second)},
		Promoted: []trial.Promotion{{Revision: "uid-a", SHA256: hex64("a"), Time: noon.Add(-time.Hour), Local: "as it was", Resolved: hex64("d"), Starts: v1alpha1.PodsStartRefused, Refused: "pod a/b: no"}},
		Trial: &trial.Trial{Revision: "uid-b", Local: "as it is", Terms: trial.Terms{Duration: lasting(30 * time.Minute), Threshold: 2, AllowPodLoss: true},
			StartTime: noon, Healthy: lasting(63 * time.Second), Unhealthy: lasting(20 * time.Second), NotReady: lasting(10 * time.Second), LongestUptime: lasting(7 * time.Second), BootID: "boot-1", Clean: true, Fallback: trial.Inconclusive,
			APILostEarly: true, APIProbed: true, Baseline: trial.Baseline{API: true, Ready: true, Pending: true, Pressure: []string{"DiskPressure"}, Pods: []string{"pod-1"}, Failing: []string{"pod-2"}},
			Started: []trial.PodStart{{Namespace: "a", Name: "b", Trusted: true}}},
	}
}

func open(t assert.T, fsys atomicfile.FS) *checkpoint.Store {
	t.Helper()
	return assert.Value(checkpoint.Open(fsys, dir, version, nil))(t)
}

// saved returns a disk with a saved state, and the store on it.
func saved(t assert.T, state trial.State) (*crashfs.FS, *checkpoint.Store) {
	t.Helper()
	fsys := crashfs.New()
	s := open(t, fsys)
	got, problems := s.Load()
	assert.Must(t, len(problems) == 0, "a fresh directory has %v in it: %v", got, problems)
	assert.NoError(t, s.Save(state))

	return fsys, s
}

// loads requires that a store loads this state, and finds no problem.
func loads(t assert.T, s *checkpoint.Store, want trial.State, about ...any) {
	t.Helper()
	got, problems := s.Load()
	assert.That(t, len(problems) == 0, "%v: %v", about, problems)
	assert.NoDiff(t, cmp.Diff(want, got), about...)
}

func read(t assert.T, fsys atomicfile.FS, name string) string {
	t.Helper()
	return string(assert.Value(fsys.ReadFile(dir + "/" + name))(t))
}

func exists(fsys atomicfile.FS, name string) bool {
	_, err := fsys.Lstat(dir + "/" + name)
	return err == nil
}

// without returns the state without the content of one record, as Load returns
// it if that record is corrupt.
func without(s trial.State, file string) trial.State {
	switch file {
	case "current":
		s.Current = s.LastKnownGood
	case "last-known-good":
		s.LastKnownGood = trial.AdoptedConfig{} // no checkpoint of what was promoted
	case "temporary":
		s.Temporary = nil
	case "revoked":
		s.Revoked = nil
	case version + "/bad-configs":
		s.Bad = nil
	case version + "/promoted":
		s.Promoted = nil
	case version + "/startups":
		s.Startups = nil
	case version + "/trial":
		s.Trial = nil
	}

	return s
}

var files = []string{
	"revoked", "temporary", "current", version + "/bad-configs", version + "/promoted", "last-known-good", version + "/startups", version + "/trial",
}
