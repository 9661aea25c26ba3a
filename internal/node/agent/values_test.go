// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// rules is a configuration whose maxPods depends on the machine.
func rules(uid string) *corev1.ConfigMap { return rulesFor(uid, "{maxPods: {perCPU: 10, max: 250}}") }

func rulesFor(uid, resources string) *corev1.ConfigMap {
	cm := configMap(uid, conf{name: "good"})
	cm.Data[payload.KeyKubelet] = "apiVersion: evenkeel.dev/v1alpha1\nkind: KubeletConfiguration\nnetworking: {hairpinMode: good}\n" +
		"resources: " + resources + "\n"
	return cm
}

func withCPUs(n int64) func(*kubeletState) {
	return func(s *kubeletState) { s.capacity.CPU = 1000 * n }
}

func withMemory(gib int64) func(*kubeletState) {
	return func(s *kubeletState) { s.capacity.Memory = gib << 30 }
}

// inWorldOfRules runs a test on a machine with 4 CPUs, on which a configuration
// with rules is last-known-good.
var inWorldOfRules = after(func(w *world) {
	w.kubelet.set(withCPUs(4))
	w.behaves(good)
	w.up()
	w.assignObject(rules("uid-good"))
	w.until("its trial passes", func() bool { return w.view().Trial == nil && !w.view().LastKnownGood.IsLocal() })
})

// restartWith starts another agent on the machine with another capacity.
func (w *world) restartWith(capacity func(*kubeletState)) {
	w.stop()
	w.kubelet.set(capacity)
	w.start()
}

func (w *world) wantValues(want string) {
	w.t.Helper()
	var got []string
	for _, v := range w.status().ResolvedValues {
		got = append(got, payload.ValueWords(v))
	}

	assert.That(w.t, strings.Join(got, "; ") == want, "the values are %q, want %q\n%s", got, want, w.tail())
}

func TestRulesAreResolvedRecordedAndReported(t *testing.T) {
	inWorldOfRules(t, func(w *world) {
		w.wantValues("maxPods: 40, from 10 per CPU, at most 250")
		s, current := w.status(), w.view().Current
		if a := s.Active; a == nil || a.UID != "uid-good" || a.SHA256 != current.SHA256 || a.ResolvedSHA256 == "" ||
			current.Revision != "uid-good-"+a.ResolvedSHA256[:12] || s.LastKnownGood.ConfigRevision != *a || *s.Assigned != *a {
			t.Errorf("active is %+v, assigned %+v", a, s.Assigned)
		}

		text := string(assert.Value(w.disk.ReadFile(dir + "/rendered/" + current.Revision + "/kubelet"))(t))
		assert.That(t, strings.Contains(text, `"maxPods": 40`), "the kubelet got %s", text)
		for form, path := range map[string]string{"flat": "maxPods", "grouped": "resources.maxPods"} {
			z, _ := w.page(form, nil)
			assert.That(t, len(z.Resolved) == 1 && z.Resolved[0].Path == path && z.Resolved[0].Value == "40", "%s: /configz has %v", form, z.Resolved)
		}

		w.restartWith(withCPUs(4))
		w.runs("good")
		w.pass(time.Minute)
		assert.That(t, w.view().Trial == nil && w.view().Current.Revision == current.Revision, "the same values are tried again: %+v", w.view())
	})
}

func TestNewValuesAreTriedWithTheAPIAndGoBackToTheRecordedOnesWithoutIt(t *testing.T) {
	inWorldOfRules(t, func(w *world) {
		before := w.view().Current.Revision
		w.options = withoutACrash
		w.apiUp(false)
		w.restartWith(withCPUs(8))
		w.runs("good")
		w.pass(time.Hour)
		assert.That(t, w.view().Current.Revision == before && w.view().Trial == nil, "the state is %+v", w.view())
		w.apiUp(true)
		w.until("a trial", func() bool { return w.view().Trial != nil && w.view().Current.Revision != before })
		w.untilStarts(4)
		w.runs("good")
		w.apiUp(false)
		w.crashes("good")
		w.pass(30 * time.Minute)
		v := w.view()
		assert.That(t, v.LastKnownGood.Revision == before && v.Current.Revision != before && v.Trial == nil && len(v.Bad) == 1, "the state is %+v", v)
		text := string(assert.Value(w.disk.ReadFile(dir + "/rendered/" + before + "/kubelet"))(t))
		assert.That(t, strings.Contains(text, `"maxPods": 40`), "the kubelet got %s", text)
		w.restartWith(withCPUs(8))
		w.runs("good")
		w.apiUp(true)
		w.pass(time.Minute)
		assert.That(t, w.view().Trial == nil, "what failed is tried again")
		w.wantValues("maxPods: 40, from 10 per CPU, at most 250")
	})
}

func TestAPreflightAnswersWithTheValuesOfTheMachine(t *testing.T) {
	inStartedWorld(t, func(w *world) {
		w.kubelet.set(withCPUs(4))
		w.behaves(good)
		w.askAbout("values", rules("asked-good"), 1)
		assert.Equal(t, *w.answered("values"), v1alpha1.PreflightAnswer{UID: "values", Verdict: v1alpha1.PreflightAccepted,
			Message: `changes hairpinMode: "" -> "good"; maxPods: 110 -> 40; maxPods: 40, from 10 per CPU, at most 250`})
		w.kubelet.set(withCPUs(0))
		w.askAbout("unknown", rules("asked-good"), 1)
		assert.Equal(t, *w.answered("unknown"), v1alpha1.PreflightAnswer{UID: "unknown", Verdict: v1alpha1.PreflightUnknown,
			Reason: v1alpha1.ReasonCouldNotValidate, Message: "resources.maxPods: depends on the machine, whose capacity of cpu is not known"})
		w.kubelet.set(withCPUs(4))
		w.askAbout("none", rulesFor("asked-good", "{maxPods: {perCPU: 0.1}}"), 1)
		assert.Equal(t, *w.answered("none"), v1alpha1.PreflightAnswer{UID: "none", Verdict: v1alpha1.PreflightRefused,
			Reason: v1alpha1.ReasonValidationFailed, Message: "resources.maxPods: is 0 on this machine: use min or plus"})
	})
}

func TestARuleWithoutAResultHereIsRejected(t *testing.T) {
	inStartedWorld(t, func(w *world) {
		w.assignObject(rulesFor("uid-bad", "{reservations: {kubeReserved: {memory: {plus: 9Gi}}}}"))
		w.pass(time.Minute)
		w.wantConfigOK("Unknown | using current (init): failed to sync, desired config unclear, cause: resources.reservations.kubeReserved.memory: " +
			"depends on the machine, whose capacity of memory is not known (SyncFailed)")
		w.kubelet.set(withMemory(8))
		w.pass(time.Minute)
		s := w.status()
		want := "resources.reservations.kubeReserved.memory: is above the machine's memory, which is 8Gi: use max or maxPercent"
		assert.That(t, len(s.BadConfigs) == 1 && strings.Contains(s.Error, want) && s.Active == nil, "the status is %+v", s)
	})
}

func TestTheSavedObjectIsEnoughForOtherValues(t *testing.T) {
	inWorldOfRules(t, func(w *world) {
		w.api.set(func(api *simAPI) {
			api.object = api.object.DeepCopy()
			api.object.ResourceVersion = "8" // a download would have it
		})
		w.restartWith(withCPUs(8))
		w.until("a trial", func() bool { return w.view().Trial != nil })
		w.wantValues("maxPods: 80, from 10 per CPU, at most 250")
		text := string(assert.Value(w.disk.ReadFile(dir + "/checkpoints/" + w.view().Current.Revision))(t))
		assert.That(t, strings.Contains(text, `"resourceVersion":"7"`) && strings.Contains(text, annotationValues), "the checkpoint is %s", text)
		saved := w.agent.p.SavedConfigs
		assert.That(t, saved.Adopted("uid-good", 0) && saved.Payload("uid-good") == w.view().Current.SHA256, "the source does not know its revision")
	})
}

func TestAMachineThatCannotBeMeasuredKeepsItsValuesAndObeysARevocation(t *testing.T) {
	inWorldOfRules(t, func(w *world) {
		before := w.view().Current.Revision
		w.restartWith(withCPUs(0))
		w.runs("good")
		w.pass(time.Minute)
		assert.That(t, w.view().Current.Revision == before && w.status().ObservedGeneration == w.api.generation,
			"the status is %+v", w.status())
		w.wantConfigOK("Unknown | using current (UID: uid-good, values: " + before[len("uid-good-"):] + "): failed to sync, desired config unclear, " +
			"cause: resources.maxPods: depends on the machine, whose capacity of cpu is not known (SyncFailed)")
		w.revoke("uid-good")
		w.runs("")
	})
}

func TestAMachineThatIsTooSmallKeepsItsValuesUntilItHasGrown(t *testing.T) {
	inWorld(t, func(w *world) {
		w.kubelet.set(withMemory(16))
		w.behaves(conf{name: "good"})
		w.up()
		w.assignObject(rulesFor("uid-good", "{reservations: {kubeReserved: {memory: {plus: 9Gi}}}}"))
		w.until("it passes", func() bool { return w.view().Trial == nil && !w.view().LastKnownGood.IsLocal() })
		before := w.view().Current.Revision
		w.restartWith(withMemory(8))
		w.until("it is refused", func() bool { return len(w.view().Bad) == 1 })
		w.runs("good")
		w.pass(time.Minute)
		assert.That(t, w.view().LastKnownGood.Revision == before && w.view().Trial == nil && strings.Contains(w.status().Error, "is above the machine's memory"),
			"the status is %+v", w.status())
		w.restartWith(withMemory(16))
		w.runs("good")
		w.pass(time.Minute)
		assert.That(t, w.view().Current.Revision == before && w.view().Trial == nil && w.status().Error == "", "the status is %+v", w.status())
		w.wantConfigOK("True | using current (UID: uid-good, values: " + before[len("uid-good-"):] + "): all checks passed (AllChecksPassed)")
	})
}

func TestAPreflightOfRulesComparesTheirValues(t *testing.T) {
	inWorldOfRules(t, func(w *world) {
		w.askAbout("same", rules("asked-good"), 1)
		assert.Equal(t, *w.answered("same"), v1alpha1.PreflightAnswer{UID: "same", Verdict: v1alpha1.PreflightAccepted})
		long := "{plus: 1, tiers: ["
		for i := range 6 {
			long += fmt.Sprintf("{upTo: %d, percent: 0.12345678901234},", i+1)
		}

		long += "]}"
		w.kubelet.set(func(s *kubeletState) { s.capacity.PIDs = 1000 })
		w.askAbout("long", rulesFor("asked-good", "{reservations: {kubeReserved: {cpu: "+long+", pid: "+long+"}, systemReserved: {cpu: "+long+
			", pid: "+long+"}}, eviction: {evictionHard: {pid.available: "+long+"}}}"), 1)
		a := w.answered("long")
		assert.That(t, a.Verdict == v1alpha1.PreflightAccepted && len(a.Message) <= v1alpha1.MaxPreflightMessage && strings.Contains(a.Message, "kubeReserved.pid: 1, from 0.1"),
			"the answer has %d bytes: %+v", len(a.Message), a)
	})
}

// oneCheckpoint is a store with one checkpoint.
type oneCheckpoint struct {
	Store
	data []byte
}

func (s oneCheckpoint) Get(trial.Config) ([]byte, error) { return s.data, nil }

func TestACheckpointWithOtherValuesIsNotUsed(t *testing.T) {
	p := assert.Value(payload.FromConfigMap(rules("uid-good")))(t)
	r := assert.Value(p.Resolve(payload.Capacity{CPU: 4000}))(t)
	c := trial.Config{Revision: "uid-good", ConfigRevision: v1alpha1.ConfigRevision{SHA256: p.SHA256}}.WithValues(r.Digest)
	for name, test := range map[string]struct {
		change func(*corev1.ConfigMap)
		want   string
	}{
		"the same":      {func(*corev1.ConfigMap) {}, ""},
		"none":          {func(cm *corev1.ConfigMap) { cm.Annotations = nil }, "the values of its rules: "},
		"another value": {func(cm *corev1.ConfigMap) { cm.Annotations[annotationValues] = `[{"path":"maxPods","value":"41"}]` }, "do not match the recorded digest"},
		"no value":      {func(cm *corev1.ConfigMap) { cm.Annotations[annotationValues] = `[{"path":"maxPods","value":"x"}]` }, "is not a number of pods"},
		"another field": {func(cm *corev1.ConfigMap) {
			cm.Annotations[annotationValues] = `[{"path":"kubeReserved.cpu","value":"1"}]`
		}, "a value was recorded for"},
		"another object": {func(cm *corev1.ConfigMap) { cm.Data[payload.KeyKubelet] += "\n" }, "the payload does not match the recorded digest"},
	} {
		t.Run(name, func(t *testing.T) {
			var cm corev1.ConfigMap
			raw := assert.Value(json.Marshal(rules("uid-good")))(t)
			assert.NoError(t, json.Unmarshal(assert.Value(withValues(raw, r.Values))(t), &cm))
			test.change(&cm)
			got, err := (&Agent{disk: disk{store: oneCheckpoint{data: assert.Value(json.Marshal(cm))(t)}}}).payload(c)
			if test.want == "" {
				assert.That(t, err == nil && string(got.Upstream) == string(r.Upstream), "got %s, %v", got.Upstream, err)
				return
			}

			assert.That(t, err != nil && strings.Contains(err.Error(), test.want), "got %v, want %s", err, test.want)
		})
	}
}
