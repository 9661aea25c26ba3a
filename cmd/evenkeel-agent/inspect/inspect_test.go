// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/atomicfile"
	"github.com/evenkeel/evenkeel/internal/node/checkpoint"
	"github.com/evenkeel/evenkeel/internal/node/lockfile"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// directory returns the directory of an agent that holds one configuration to
// be bad.
func directory(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	store := assert.Value(checkpoint.Open(atomicfile.OS{}, dir, "v1.36.3", nil))(t)
	bad := trial.BadConfig{Revision: "uid-bad", ConfigRevision: v1alpha1.ConfigRevision{Namespace: "evenkeel-system", Name: "bad", UID: "uid-bad"}, Time: time.Unix(1700000000, 0).UTC(), Failure: v1alpha1.ReasonValidationFailed}
	assert.NoError(t, store.Save(trial.State{Bad: []trial.BadConfig{bad}}))

	return dir
}

// runs holds the lock of a directory's agent.
func runs(t *testing.T, dir string) {
	t.Helper()
	lock := assert.Value(lockfile.TryAcquire(checkpoint.AgentLock(dir)))(t)
	t.Cleanup(func() { _ = lock.Release() })
}

func TestForgetChangesTheRecordsOrAsksTheAgentThatRuns(t *testing.T) {
	bad := func(dir string) int {
		t.Helper()
		s := assert.Value(Summarize(dir))(t)
		return len(s.Bad)
	}
	var out strings.Builder
	dir := directory(t)
	if err := Forget(&out, dir, "uid-bad"); err != nil || bad(dir) != 0 || !strings.HasPrefix(out.String(), "forgot that uid-bad is bad") {
		t.Errorf("without an agent: %v, %d are bad, and it printed %q", err, bad(dir), out.String())
	}
	if err := Forget(&out, dir, "uid-bad"); err == nil || !strings.HasPrefix(err.Error(), "no record of revision uid-bad being bad in "+dir+" (kubelet v1.36.3)") {
		t.Errorf("without a record: %v", err)
	}

	dir = directory(t)
	runs(t, dir)
	out.Reset()
	if err := Forget(&out, dir, "uid-bad"); err != nil || bad(dir) != 1 || out.String() != "the running agent was asked to forget that uid-bad is bad\n" {
		t.Errorf("beside an agent: %v, %d are bad, and it printed %q", err, bad(dir), out.String())
	}

	store := assert.Value(checkpoint.Open(atomicfile.OS{}, dir, "v1.36.3", nil))(t)
	requests, err := store.ForgetRequests()
	assert.That(t, err == nil && slices.Equal(requests, []string{"uid-bad"}), "the requests are %q, %v", requests, err)
}

func TestWhatARunningAgentReportsOverridesTheRecords(t *testing.T) {
	dir := directory(t)
	s, err := Summarize(dir)
	assert.That(t, err == nil && !s.AgentRuns && s.Running == nil && len(s.Problems) == 0, "without an agent: %+v, %v", s, err)

	runs(t, dir)
	if s, err := Summarize(dir); err != nil || !s.AgentRuns || s.Running != nil || len(s.Problems) != 1 || !strings.HasPrefix(s.Problems[0], "the agent has not said yet") {
		t.Errorf("before it has reported: %+v, %v", s, err)
	}

	text := `{"source":{"kind":"remote","namespace":"a","name":"b","uid":"u"},"configOK":{"message":"using current","cause":"it works"}}`
	assert.NoError(t, checkpoint.SetRunning(atomicfile.OS{}, dir, []byte(text)))
	if s, err := Summarize(dir); err != nil || s.Running == nil || s.Runs.Name != "b" || s.Why != "using current: it works" || len(s.Problems) != 0 {
		t.Errorf("when it has reported: %+v, %v", s, err)
	}

	assert.NoError(t, checkpoint.SetRunning(atomicfile.OS{}, dir, []byte("{")))
	if s, err := Summarize(dir); err != nil || s.Running != nil || len(s.Problems) != 1 || !strings.HasPrefix(s.Problems[0], "what the agent says cannot be read") {
		t.Errorf("a report that is not understood: %+v, %v", s, err)
	}
}

func TestADirectoryInWhichNoAgentEverWorkedIsAnError(t *testing.T) {
	dir := t.TempDir()
	_, err := Summarize(dir)
	assert.That(t, err != nil && strings.HasPrefix(err.Error(), "no agent ever worked in "+dir), "an empty directory: %v", err)
	assert.Is(t, assert.Err(Summarize(filepath.Join(dir, "none"))), os.ErrNotExist, "no directory")
}
