// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/node/source"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// simPreflights are the preflight requests of a simulated API server.
type simPreflights struct{ guarded[preflights] }

type preflights struct {
	request *source.Preflight
	object  *corev1.ConfigMap // that it names
	hangs   bool              // the API server does not answer
	err     error             // of the download
}

func (p *simPreflights) Preflight() *source.Preflight { return p.get().request }

func (p *simPreflights) PreflightPayload(ctx context.Context, ref v1alpha1.ConfigMapReference) (payload.Payload, error) {
	s := p.get()
	if s.hangs {
		<-ctx.Done()
		return payload.Payload{}, ctx.Err()
	}
	if s.err != nil {
		return payload.Payload{}, s.err
	}
	if ref.UID != s.object.UID {
		return payload.Payload{}, fmt.Errorf("the request names %s, not %q", s.object.UID, ref.UID)
	}

	return payload.FromConfigMap(s.object)
}

// ask requests the judgement of a configuration.
func (w *world) ask(uid string, c conf, attempt int64) {
	w.knows(c)
	w.askAbout(uid, configMap("asked-"+c.name, c), attempt)
}

func (w *world) askAbout(uid string, cm *corev1.ConfigMap, attempt int64) {
	ref := v1alpha1.ConfigMapReference{Namespace: cm.Namespace, Name: cm.Name, UID: cm.UID}
	request := &source.Preflight{PreflightRequest: v1alpha1.PreflightRequest{UID: uid, ConfigMapRef: ref, Attempt: attempt}}
	w.preflights.set(func(p *preflights) { p.object, p.request = cm, request })
	signal(w.source.changed)
}

// answered waits for the answer to a request.
func (w *world) answered(uid string) *v1alpha1.PreflightAnswer {
	w.t.Helper()
	w.until("the request "+uid+" is answered", func() bool {
		a := w.status().Preflight
		return a != nil && a.UID == uid
	})

	return w.status().Preflight
}

// wantAnswer waits for the answer to a request, whose message contains words.
func (w *world) wantAnswer(uid string, verdict v1alpha1.PreflightVerdict, reason, words string) {
	w.t.Helper()
	a := w.answered(uid)
	assert.That(w.t, a.Verdict == verdict && a.Reason == reason && strings.Contains(a.Message, words), "the answer to %s is %+v", uid, a)
}

func TestAPreflightWaitsForAnAPIServerThatDoesNotAnswer(t *testing.T) {
	inStartedWorld(t, func(w *world) {
		unlistable(true)(w)
		w.ask("short", good, 1)
		w.pass(guardInterval)
		a := w.status().Preflight
		assert.That(t, a == nil, "the answer is %+v", a)
		unlistable(false)(w)
		w.wantAnswer("short", v1alpha1.PreflightAccepted, "", "")
		unlistable(true)(w)
		w.ask("replaced", good, 1)
		w.pass(time.Second)
		w.ask("long", good, 1)
		begin := time.Now()
		w.wantAnswer("long", v1alpha1.PreflightUnknown, v1alpha1.ReasonCouldNotValidate, "the API server does not answer")
		took := time.Since(begin)
		assert.That(t, took >= unansweredLimit && took <= unansweredLimit+guardInterval, "answered after %s", took)
	})
}

func TestAPreflightJudgesTheKubeletThatRunsWhenItAnswers(t *testing.T) {
	inStartedWorld(t, func(w *world) {
		w.adopts("uid-good", good)
		w.promoted("uid-good")
		w.pods("a")
		w.adopts("uid-few", conf{name: "few", maxPods: 2})
		unlistable(true)(w)
		w.ask("waits", conf{name: "next"}, 1)
		w.pass(time.Second)
		for range limits.CrashLoopThreshold + 1 {
			w.dies(exitOne)
			w.pass(3 * time.Second)
		}

		w.runs("good")        // the trial of few has failed
		w.pods("a", "b", "c") // too many for few
		unlistable(false)(w)
		w.wantAnswer("waits", v1alpha1.PreflightAccepted, "", "")
	})
}

func TestAgentsAnswerPreflightRequests(t *testing.T) {
	with(protecting)(t, func(w *world) {
		w.kubelet.set(func(s *kubeletState) { s.cpuState = "none" })
		w.pods("a", "b")
		disk := w.records()
		for _, c := range []struct {
			conf            conf
			verdict         v1alpha1.PreflightVerdict
			reason, message string
		}{
			{conf{name: "good"}, v1alpha1.PreflightAccepted, "", `changes hairpinMode: "" -> "good"`},
			{conf{name: "more", maxPods: 200}, v1alpha1.PreflightAccepted, "", "; maxPods: 110 -> 200"},
			{conf{name: "invalid", rejected: "maxPods: Invalid value"}, v1alpha1.PreflightRefused, v1alpha1.ReasonValidationFailed, "maxPods: Invalid value"},
			{conf{name: "open", readOnlyPort: 10255}, v1alpha1.PreflightRefused, v1alpha1.ReasonProtectedFields, "readOnlyPort"},
			{conf{name: "few", maxPods: 1}, v1alpha1.PreflightRefused, v1alpha1.ReasonWouldEvictPods, "default/a"},
			{conf{name: "static", policy: "static"}, v1alpha1.PreflightRefused, v1alpha1.ReasonNeedsDrain, "cordon and drain the node first"},
			{conf{name: "doubtful", doubtful: true}, v1alpha1.PreflightUnknown, v1alpha1.ReasonCouldNotValidate, ""},
		} {
			uid := "request for " + c.conf.name
			w.ask(uid, c.conf, 1)
			w.wantAnswer(uid, c.verdict, c.reason, c.message)
		}

		w.preflights.set(func(p *preflights) { p.err = errors.New("referenced ConfigMap evenkeel-system/gone not found") })
		w.ask("gone", conf{name: "gone"}, 1)
		w.wantAnswer("gone", v1alpha1.PreflightUnknown, v1alpha1.ReasonSyncFailed, "not found")
		w.preflights.set(func(p *preflights) { p.err = nil })

		// Nothing else has happened.
		w.wantStarts("")
		assert.Equal(t, w.records(), disk, "the records on disk")
		s := w.status()
		assert.That(t, s.Assigned == nil && s.Active == nil && len(s.BadConfigs) == 0 && s.Conditions[0].Status == "True", "the status is %+v", s)

		w.breaksLocal()
		w.ask("local", conf{name: "next"}, 0)
		w.wantAnswer("local", v1alpha1.PreflightUnknown, v1alpha1.ReasonLocalInvalid,
			`the local configuration is invalid: unknown field "maxpods"`)

		// Without a request there is no answer.
		w.preflights.set(func(p *preflights) { p.request = nil })
		signal(w.source.changed)
		w.until("the answer is gone", func() bool { return w.status().Preflight == nil })
	})
}

func TestWhatFailedHereIsRefusedUntilTheNextAttempt(t *testing.T) {
	inStartedWorld(t, func(w *world) {
		w.assign("uid-sick", sick, 1)
		w.until("it is bad", func() bool { return len(w.status().BadConfigs) > 0 })
		w.ask("again", sick, 1)
		w.wantAnswer("again", v1alpha1.PreflightRefused, "NotHealthy", "")
		w.ask("next attempt", sick, 2)
		w.wantAnswer("next attempt", v1alpha1.PreflightAccepted, "", "")
	})
}

// TestAnEqualPayloadIsAcceptedOnlyIfItRuns: a configuration may be current, but
// refused, so that the kubelet runs another one.
func TestAnEqualPayloadIsAcceptedOnlyIfItRuns(t *testing.T) {
	inStartedWorld(t, func(w *world) {
		open := conf{name: "open", readOnlyPort: 10255}
		w.adopts("uid-open", open)
		dryRuns := w.kubelet.checked("open")
		w.ask("on trial", open, 0)
		w.wantAnswer("on trial", v1alpha1.PreflightAccepted, "", "")
		w.promoted("uid-open")
		w.ask("good", open, 0)
		w.wantAnswer("good", v1alpha1.PreflightAccepted, "", "")
		w.wantDryRuns("open", dryRuns) // none of what runs
		w.stop()
		w.options = protecting
		w.up()
		assert.Equal(t, w.view().Current.Revision, "uid-open", "current")
		w.ask("refused", open, 0)
		w.wantAnswer("refused", v1alpha1.PreflightRefused, v1alpha1.ReasonProtectedFields, "")
	})
}

func TestTheDryRunOfAnAssignmentEndsThatOfAPreflight(t *testing.T) {
	inStartedWorld(t, func(w *world) {
		w.ask("slow", conf{name: "slow", hangs: true}, 0)
		w.pass(time.Second)
		w.wantDryRuns("slow", 1)
		w.adopts("uid-good", conf{name: "good"})
		w.pass(5 * time.Second)
		w.wantDryRuns("slow", 3)
		w.answered("slow")
	})
}

func TestAnAnswerSurvivesTheAgentAndAnotherRequestReplacesIt(t *testing.T) {
	inStartedWorld(t, func(w *world) {
		w.ask("one", conf{name: "good"}, 1)
		a := *w.answered("one")
		w.stop()
		w.preflights.set(func(p *preflights) {
			p.request.Answered = &a // as the API server has it
			p.err = errors.New("it is not downloaded again")
		})
		w.up()
		got := w.status().Preflight
		assert.That(t, got != nil && *got == a, "after a restart of the agent the answer is %+v, want %+v", got, a)
		w.preflights.set(func(p *preflights) { p.err, p.hangs = nil, true })
		w.ask("hangs", good, 1)
		w.pass(time.Second)
		got = w.status().Preflight
		assert.That(t, got == nil, "the answer to another request is still there: %+v", got)
		w.preflights.set(func(p *preflights) { p.hangs = false })
		w.ask("two", conf{name: "invalid", rejected: "no"}, 1)
		w.wantAnswer("two", v1alpha1.PreflightRefused, v1alpha1.ReasonValidationFailed, "")
	})
}

// records returns what is on disk.
func (w *world) records() string {
	return string(assert.Value(json.Marshal(w.view()))(w.t))
}

// TestPreflightRequestsChangeNoDecision runs the same history with and without
// preflight requests.
func TestPreflightRequestsChangeNoDecision(t *testing.T) {
	confs := []conf{{name: "good"}, {name: "better"}, {name: "bad", crashes: time.Second}, {name: "invalid", rejected: "no"}, {name: "few", maxPods: 1}, {name: "sick", sick: true}}
	rapid.Check(t, func(rt *rapid.T) {
		type step struct{ what, conf, seconds int }
		var steps []step
		for range rapid.IntRange(1, 8).Draw(rt, "steps") {
			steps = append(steps, step{rapid.IntRange(0, 5).Draw(rt, "what"), rapid.IntRange(0, len(confs)-1).Draw(rt, "conf"), rapid.IntRange(1, 60).Draw(rt, "seconds")})
		}

		asked := rapid.SliceOfN(rapid.IntRange(-1, len(confs)-1), len(steps), len(steps)).Draw(rt, "asked") // -1: nothing
		play := func(asking bool) (out string) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				defer w.stop()
				w.up()
				for i, s := range steps {
					if n := asked[i]; asking && n >= 0 {
						w.ask(fmt.Sprint("request-", i), confs[n], int64(1+i%2))
					}

					c := confs[s.conf]
					switch s.what {
					case 0, 1:
						w.assign("uid-"+c.name, c, int64(1+s.seconds%2))
					case 2:
						w.assignLocal()
					case 3:
						w.pods("a", "b")
					case 4:
						w.pods()
					case 5:
						w.restart()
					}

					w.pass(time.Duration(s.seconds) * time.Second)
				}

				w.pass(2 * time.Minute)
				status := w.status()
				status.Preflight = nil
				text := assert.Value(json.Marshal(status))(t)
				out = fmt.Sprintf("starts %q\nstatus %s\nrecords %s", w.kubelet.get().starts, text, w.records())
			})
			return out
		}
		with, without := play(true), play(false)
		assert.Must(rt, sameHistory(t, with, without), "with requests:\n%s\nwithout:\n%s", with, without)
	})
}

// sameHistory compares two histories, whose times may differ by less than the
// interval between two passes of an agent in a trial: an answer is another
// reason for a pass, and what is observed counts from pass to pass.
func sameHistory(t *testing.T, a, b string) bool {
	const interval = 5 * time.Second
	isTime := regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z`)
	if isTime.ReplaceAllString(a, "") != isTime.ReplaceAllString(b, "") {
		return false
	}

	others := isTime.FindAllString(b, -1)
	for i, text := range isTime.FindAllString(a, -1) {
		x, err := time.Parse(time.RFC3339Nano, text)
		y, err2 := time.Parse(time.RFC3339Nano, others[i])
		assert.NoError(t, errors.Join(err, err2))
		if x.Sub(y).Abs() >= interval {
			return false
		}
	}

	return true
}
