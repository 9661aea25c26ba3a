// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package checkpoint_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestLostLastKnownGoodIsRecoveredFromPromotions(t *testing.T) {
	for name, tt := range map[string]struct {
		state     func(*trial.State)
		content   []byte // of uid-a's checkpoint
		recovered bool
	}{
		"newest promoted":       {func(*trial.State) {}, configMap("uid-a", "x"), true},
		"no checkpoint":         {func(*trial.State) {}, nil, false},
		"damaged checkpoint":    {func(*trial.State) {}, configMap("uid-a", "x")[:20], false},
		"another's checkpoint":  {func(*trial.State) {}, configMap("uid-x", "x"), false},
		"an object without UID": {func(*trial.State) {}, configMap("", "x"), false},
		"it is revoked":         {func(s *trial.State) { s.Revoked = []types.UID{"uid-a"} }, configMap("uid-a", "x"), false},
		"its payload is bad":    {func(s *trial.State) { s.Bad[0].SHA256 = hex64("a") }, configMap("uid-a", "x"), false},
		"current is local":      {func(s *trial.State) { s.Current = trial.AdoptedConfig{Since: noon} }, configMap("uid-a", "x"), false},
		"an older one was promoted": {func(s *trial.State) {
			s.Promoted = append([]trial.Promotion{{Revision: "uid-gone", SHA256: hex64("d"), Time: noon}}, s.Promoted...)
		}, configMap("uid-a", "x"), true},
	} {
		t.Run(name, func(t *testing.T) {
			state := full()
			tt.state(&state)
			fsys, s := saved(t, state)
			if tt.content != nil {
				fsys.Plant(dir+"/checkpoints/uid-a", tt.content)
			}

			fsys.Plant(dir+"/last-known-good", []byte("garbage"))
			got, problems := s.Load()
			assert.Must(t, len(problems) == 1 && problems[0].File == "last-known-good", "%v", problems)

			if !tt.recovered {
				if got.LastKnownGood != (trial.AdoptedConfig{}) || !strings.HasSuffix(problems[0].What, "using the local configuration, which is always good") {
					t.Errorf("%+v, %v", got.LastKnownGood, problems)
				}

				return
			}

			lkg := got.LastKnownGood
			if lkg.Revision != "uid-a" || lkg.UID != "uid-a" || lkg.Name != "workers" || lkg.SHA256 != hex64("a") ||
				!strings.HasSuffix(problems[0].What, "using the newest promoted configuration, uid-a") {
				t.Errorf("%+v, %v", lkg, problems)
			}

			data, err := s.Get(lkg.Config)
			assert.That(t, err == nil && string(data) == string(tt.content), "its checkpoint: %s, %v", data, err)
		})
	}
}

func TestWithCurrentAndLastKnownGoodLostThePromotedConfigRuns(t *testing.T) {
	fsys, s := saved(t, full())
	fsys.Plant(dir+"/checkpoints/uid-a", configMap("uid-a", "x"))
	fsys.Plant(dir+"/last-known-good", []byte("{"))
	fsys.Plant(dir+"/current", []byte("{"))
	got, problems := s.Load()
	assert.That(t, got.Current.Revision == "uid-a" && got.LastKnownGood.Revision == "uid-a" && len(problems) == 2,
		"%+v, %+v, %v", got.Current, got.LastKnownGood, problems)
	if !strings.HasSuffix(problems[0].What, "using last-known-good") {
		t.Error(problems[0])
	}
}

func TestRevisionWithAPayloadInItsNameIsRecovered(t *testing.T) {
	state := full()
	state.Promoted[0].Revision = "uid-a-0123456789ab"
	fsys, s := saved(t, state)
	fsys.Plant(dir+"/checkpoints/uid-a-0123456789ab", configMap("uid-a", "x"))
	fsys.Plant(dir+"/last-known-good", []byte("garbage"))
	got, _ := s.Load()
	assert.NoDiff(t, cmp.Diff("uid-a-0123456789ab", got.LastKnownGood.Revision))
}

// An emptied file is the proposal's way to write "local"; a missing or damaged
// one is a loss.
func TestEmptiedLastKnownGoodMeansLocal(t *testing.T) {
	for content, want := range map[string]string{"": "", "\n": "", "{": "uid-a", "missing": "uid-a"} {
		fsys, _ := saved(t, full())
		fsys.Plant(dir+"/checkpoints/uid-a", configMap("uid-a", "x"))
		fsys.Plant(dir+"/last-known-good", []byte(content))
		if content == "missing" {
			assert.NoError(t, fsys.Remove(dir+"/last-known-good"))
		}

		s := open(t, fsys)
		got, problems := s.Load()
		assert.That(t, got.LastKnownGood.Revision == want && got.Current.Revision == "uid-b" && len(problems) == 1,
			"%q: last-known-good is %q, current %q, %v", content, got.LastKnownGood.Revision, got.Current.Revision, problems)
		if want == "" && problems[0].String() != "last-known-good: the file is empty; using the local configuration, which is always good" {
			t.Errorf("%q: %s", content, problems[0])
		}
		assert.NoError(t, s.Save(got))
		loads(t, open(t, fsys), got, content, "saved")
	}
}
