package checkpoint_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
	"github.com/evenkeel/evenkeel/internal/node/checkpoint"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/testkit/crashfs"
)

const (
	dir     = "/var/lib/evenkeel"
	version = "v1.36.3"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 123456789, time.UTC)

func hex64(c string) string { return strings.Repeat(c, 64) }

// configMap returns the content of a checkpoint.
func configMap(uid, payload string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"evenkeel-system","name":"workers","uid":%q},"data":{"kubelet":%q}}`, uid, payload)
}

func config(uid, payload string) trial.Config {
	return trial.Config{
		Revision: uid, UID: uid, Namespace: "evenkeel-system", Name: "workers",
		Payload: hex64(payload), Checkpoint: hex64(payload), SHA256: hex64("5"), Dropin: true,
		Rollout:        trial.RolloutRef{Name: "workers", Revision: 4, Attempt: 1, AssignedAt: noon},
		RequestedTerms: trial.RequestedTerms{Duration: 30 * time.Minute, Starts: 1, AllowPodLoss: true},

		AssignedBy: "uid-nodeconfig",
	}
}

// full returns a state with content in every record.
func full() trial.State {
	return trial.State{
		Current:       trial.AdoptedConfig{Config: config("uid-b", "b"), Since: noon},
		LastKnownGood: trial.AdoptedConfig{Config: config("uid-a", "a"), Since: noon.Add(-time.Hour)},
		Revoked:       []string{"uid-z"},
		Bad: []trial.BadConfig{{Revision: "uid-c", UID: "uid-c", Namespace: "evenkeel-system", Name: "workers", Payload: hex64("c"), Time: noon,
			Reason: "current (UID: uid-c) crash-looped", Detail: "exit status 1 <&>", Failure: trial.CrashLooped, Attempt: 2, Provisional: true}},
		Startups: []time.Time{noon, noon.Add(time.Second)},
		Promoted: []trial.Promotion{{Revision: "uid-a", Payload: hex64("a"), Time: noon.Add(-time.Hour), Local: "as it was"}},
		Trial: &trial.Trial{Revision: "uid-b", Local: "as it is", Terms: trial.Terms{Duration: 30 * time.Minute, Threshold: 2, AllowPodLoss: true}, StartTime: noon, Healthy: 63 * time.Second, Unhealthy: 20 * time.Second, NotReady: 10 * time.Second, LongestUptime: 7 * time.Second, BootID: "boot-1", Clean: true, Fallback: trial.Inconclusive,
			APILostEarly: true, APIProbed: true, Baseline: trial.Baseline{API: true, Ready: true, Pending: true, Pressure: []string{"DiskPressure"}, Pods: []string{"pod-1"}}},
	}
}

func open(t *testing.T, fsys atomicfile.FS) *checkpoint.Store {
	t.Helper()
	s, err := checkpoint.Open(fsys, dir, version, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// saved returns a disk with a saved state, and the store on it.
func saved(t *testing.T, state trial.State) (*crashfs.FS, *checkpoint.Store) {
	t.Helper()
	fsys := crashfs.New()
	s := open(t, fsys)
	if got, problems := s.Load(); len(problems) > 0 {
		t.Fatalf("a fresh directory has %v in it: %v", got, problems)
	}
	if err := s.Save(state); err != nil {
		t.Fatal(err)
	}
	return fsys, s
}

func read(t *testing.T, fsys atomicfile.FS, name string) string {
	t.Helper()
	data, err := fsys.ReadFile(dir + "/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func exists(fsys atomicfile.FS, name string) bool {
	_, err := fsys.Lstat(dir + "/" + name)
	return err == nil
}

// without returns the state without the content of one record, as Load returns it if that record is corrupt.
func without(s trial.State, file string) trial.State {
	switch file {
	case "current":
		s.Current = s.LastKnownGood
	case "last-known-good":
		s.LastKnownGood = trial.AdoptedConfig{} // no checkpoint of what was promoted
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
	"revoked", "current", version + "/bad-configs", version + "/promoted", "last-known-good", version + "/startups", version + "/trial",
}
