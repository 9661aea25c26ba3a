// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// expensive are characters that take more bytes in storage than in a string,
// and some that do not.
var expensive = map[string]string{
	"letters": "b", "letters of two bytes": "é", "of four": "😀", "quotes": `"`, "backslashes": `\`, "backslashes before letters": `\a`,
	"angle brackets": "<", "ampersands": "&", "bells": "\a", "escapes": "\x1b", "newlines": "\n", "deletes": "\x7f",
	"bidirectional overrides": "\u202e", "line separators": "\u2028", "tags": "\U000e0041", "what is no UTF-8": "\xff",
}

// largest is a status in which each list and text exceeds its limit.
func largest(of string) v1alpha1.NodeConfigStatus {
	at := metav1.NewTime(time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC))
	long := strings.Repeat(of, 40_000)
	name := strings.Repeat("n", v1alpha1.MaxIdentifierLength)
	revision := v1alpha1.ConfigRevision{Namespace: name, Name: name, UID: types.UID(name), SHA256: strings.Repeat("a", 64)}
	s := v1alpha1.NodeConfigStatus{
		ObservedGeneration: 1<<63 - 1,
		Assigned:           &revision, Active: &revision, LastKnownGood: &v1alpha1.LastKnownGoodConfig{ConfigRevision: revision, Since: &at},
		Error:        long,
		Trial:        &v1alpha1.Trial{StartTime: &at, HealthySeconds: 1 << 40, DurationSeconds: 1 << 40, Restarts: 10, CrashLoopThreshold: 10},
		RemoteConfig: v1alpha1.RemoteConfigNodeConfig, RunMode: v1alpha1.RunModeSelfHosted,
		ComponentVersion: strings.Repeat("v", 64), AgentVersion: name,
		Conditions: []metav1.Condition{{
			Type: v1alpha1.ConditionConfigOK, Status: metav1.ConditionUnknown, Reason: "CouldNotValidate", Message: long,
			ObservedGeneration: 1<<63 - 1, LastTransitionTime: at,
		}},
	}
	for _, kind := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionReconciling} {
		c := s.Conditions[0]
		c.Type = kind
		s.Conditions = append(s.Conditions, c)
	}

	s.Conditions = append(s.Conditions, *s.Conditions[2].DeepCopy())
	s.Conditions[3].Type = v1alpha1.ConditionDrifted
	s.Drift = &v1alpha1.Drift{NotCompared: long}
	for range 30 {
		s.Drift.Files, s.Drift.Fields = append(s.Drift.Files, long), append(s.Drift.Fields, long)
	}

	for range 12 {
		s.BadConfigs = append(s.BadConfigs, v1alpha1.BadConfig{
			UID: types.UID(name), Revision: name, Namespace: name, Name: name, Time: &at, Reason: long, Provisional: true,
		})
	}

	for range 120 {
		s.OverriddenFields = append(s.OverriddenFields, strings.Repeat(of, 600))
	}

	return s
}

// The API server, with the CRD and the admission policy, accepts the largest
// status that an agent can write.
func TestLargestStatusIsAccepted(t *testing.T) {
	for name, of := range expensive {
		t.Run(name, func(t *testing.T) {
			node, _, r := reporting(t)
			r.Report(Report{Status: largest(of)})
			got := await(t, "the status", func() v1alpha1.NodeConfigStatus { return getNodeConfig(t, node).Status }, func(s v1alpha1.NodeConfigStatus) bool { return s.Error != "" })
			assert.Must(t, !strings.Contains(got.Error, "refused"), "the status was refused: %s", got.Error)
			assert.That(t, len(got.BadConfigs) == v1alpha1.MaxBadConfigs && len(got.OverriddenFields) == v1alpha1.MaxOverriddenFields,
				"%d bad configs, %d overridden fields", len(got.BadConfigs), len(got.OverriddenFields))
			assert.Equal(t, got.Trial.DurationSeconds, v1alpha1.MaxTrialSeconds, "a trial of seconds")
			assert.Equal(t, got.OverriddenFields[99], "and 21 more", "the last overridden field is")
			d := got.Drift
			assert.That(t, d != nil && len(d.Files) == v1alpha1.MaxDriftFiles && d.Files[4] == "and 26 more" && len(d.Fields) == v1alpha1.MaxDriftFields && d.Fields[9] == "and 21 more", "drift is %+v", d)
			stored := assert.Value(json.Marshal(got))(t)
			assert.That(t, len(stored) <= v1alpha1.MaxStatusBytes, "%d bytes", len(stored))
			n := len(got.Error)
			assert.That(t, n <= maxMessage && (name != "letters" || n == maxMessage), "%d bytes of error, want %d", n, maxMessage)
		})
	}
}

func TestShortenKeepsBeginningAndEnd(t *testing.T) {
	text := "failed to validate: " + strings.Repeat("é", 5000) + ": no such file"
	got := shorten(text, 100)
	assert.That(t, strings.HasPrefix(got, "failed to validate: é") && strings.HasSuffix(got, "é: no such file") && strings.Count(got, " … ") == 1 && printable.Size(got, storedRune) <= 100, "shortened to %q", got)
	for _, fits := range []string{"", "abc", strings.Repeat("x", 100)} {
		assert.Equal(t, shorten(fits, 100), fits, "fits, and became")
	}
}

func TestShortenedTextFitsItsLimitWhenStored(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })).Draw(t, "text")
		most := rapid.IntRange(len(" … ")+1, 40).Draw(t, "most")
		got := shorten(text, most)
		stored := assert.Value(json.Marshal(got))(t)
		assert.Must(t, len(stored)-len(`""`) <= most && len(got) <= most && utf8.ValidString(got), "%q of at most %d bytes is stored as %s", got, most, stored)
	})
}

// A newer API may have rules that this agent does not know.
func TestRefusedStatusIsReplacedByMinimalStatus(t *testing.T) {
	node, p, r := reporting(t)
	s := someStatus("why")
	s.OverriddenFields = []string{"maxPods"}
	s.Conditions[0].Reason = "LocalInit"
	s.BadConfigs = []v1alpha1.BadConfig{{UID: "u", Reason: strings.Repeat("b", 3000)}}
	s.Trial = &v1alpha1.Trial{CrashLoopThreshold: 10}
	p.fail(func(r *http.Request) int {
		if r.Method != http.MethodPatch || !strings.HasSuffix(r.URL.Path, "/status") {
			return 0
		}

		body, err := io.ReadAll(r.Body)
		assert.OK(t, err)
		r.Body = io.NopCloser(bytes.NewReader(body))
		if bytes.Contains(body, []byte("overriddenFields")) {
			return http.StatusUnprocessableEntity
		}

		return 0
	})
	r.Report(Report{Status: s})
	got := await(t, "the status", func() v1alpha1.NodeConfigStatus { return getNodeConfig(t, node).Status }, func(s v1alpha1.NodeConfigStatus) bool { return s.Error != "" })
	assert.That(t, strings.HasPrefix(got.Error, "the API server refused the whole status: ") && strings.HasSuffix(got.Error, "; why"), "error is %q", got.Error)
	if len(got.BadConfigs) != 1 || got.BadConfigs[0].UID != "u" || len(got.BadConfigs[0].Reason) > 200 || len(got.OverriddenFields) > 0 ||
		len(got.Conditions) != 1 || got.Conditions[0].Reason != "LocalInit" || got.Trial == nil {
		t.Errorf("the status is %+v", got)
	}

	// The same status is not written again.
	before := p.count("/status")
	r.Report(Report{Status: s})
	r.Flush(t.Context())
	assert.Equal(t, p.count("/status")-before, 0, "the refused status was written again")
	s.OverriddenFields = nil
	r.Report(Report{Status: s})
	awaitStatus(t, node, "why")
}

func TestMinimalStatusIsSmall(t *testing.T) {
	stored := assert.Value(json.Marshal(minimalStatus(boundStatus(largest("<"), payload.MaskText), errors.New(strings.Repeat("x", 5000)))))(t)
	assert.That(t, len(stored) <= 24<<10, "%d bytes", len(stored))
}
