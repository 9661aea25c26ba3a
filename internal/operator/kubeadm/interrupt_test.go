// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// cut is what becomes of one request of a client, and of those that follow.
type cut struct {
	at      int  // the request's number, from 1; 0: none is cut
	carried bool // the API server carries it out, and only the answer is lost
	dead    bool // none that follows is made: the process was killed, or the API is gone
}

func (c cut) String() string {
	return fmt.Sprintf("request %d, carried out %t, the last %t", c.at, c.carried, c.dead)
}

var errCut = errors.New("the connection is lost")

// line is the connection of one client, whose requests come one after another.
type line struct {
	next   http.RoundTripper
	cut    cut
	before func(*http.Request) error // is called before each request, which is not made if it fails; nil: nothing

	seen      int  // requests so far
	lostWrite bool // the one that was cut would write
}

func (l *line) RoundTrip(r *http.Request) (*http.Response, error) {
	l.seen++
	if l.before != nil {
		if err := l.before(r); err != nil {
			return nil, err
		}
	}
	if l.cut.at == 0 || l.seen < l.cut.at || l.seen > l.cut.at && !l.cut.dead {
		return l.next.RoundTrip(r)
	}

	if l.seen == l.cut.at {
		var err error
		if _, l.lostWrite, err = written(r); err != nil {
			return nil, err
		}

		if l.cut.carried {
			answer, err := l.next.RoundTrip(r)
			if err != nil {
				return nil, err
			}

			_, err = io.Copy(io.Discard, answer.Body)

			return nil, errors.Join(errCut, err, answer.Body.Close())
		}
	}

	if r.Body != nil {
		return nil, errors.Join(errCut, r.Body.Close())
	}

	return nil, errCut
}

// written returns what a request sends, and whether it would change something:
// another one reads, or only tries, which a DELETE says in its body.
func written(r *http.Request) (text string, write bool, err error) {
	if r.Method == http.MethodGet || strings.Contains(r.URL.RawQuery, "dryRun") {
		return "", false, nil
	}

	body, err := r.GetBody()
	if err != nil {
		return "", false, err
	}

	raw, err := io.ReadAll(body)

	return string(raw), !strings.Contains(string(raw), metav1.DryRunAll), err
}

// over returns an administrator's client whose connection is this line.
func over(t *testing.T, l *line) client.Client {
	t.Helper()
	config := cluster.AdminConfig()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		l.next = next
		return l
	})

	return clientOf(t, config)
}

// everyCut calls a function with every cut, of these kinds, that there can be,
// until it says that there was no such request any more.
func everyCut(t *testing.T, kinds []cut, f func(*testing.T, cut) bool) {
	for _, kind := range kinds {
		for kind.at = 1; ; kind.at++ {
			more := false
			if !t.Run(kind.String(), func(t *testing.T) { more = f(t, kind) }) {
				return
			}

			if !more {
				assert.That(t, kind.at >= 5, "only %d requests were cut", kind.at-1)
				break
			}
		}
	}
}

var (
	allCuts  = []cut{{carried: true, dead: true}, {dead: true}, {carried: true}, {}}
	deadCuts = []cut{{carried: true, dead: true}, {dead: true}}
)

// The contents of these tests: of v1.35.0, v1.36.0 and v1.37.0.
var (
	oldest = contents{"kubelet-config": "a0", "kube-proxy": "user's"}
	before = contents{"kubelet-config": "a1", "kube-proxy": "user's"}
	wanted = contents{"kubelet-config": "a2", "kube-proxy": "", "kubeadm-config": "c2"}
)

// unwind undoes what is recorded until all is as it was before, and then before
// that.
func unwind(t *testing.T, c client.Client) {
	t.Helper()
	for _, want := range []contents{before, oldest} {
		assert.NoError(t, undo(t.Context(), c, false))
		has(t, c, want)
	}

	recorded(t, c)
}

func TestAnApplyInterruptedAtAnyRequestIsContinuedAndUndone(t *testing.T) {
	everyCut(t, allCuts, func(t *testing.T, cut cut) bool {
		c := upgraded(t)
		l := &line{cut: cut}
		err := Store(t.Context(), over(t, l), "v1.37.0", to(t, c, wanted))
		assert.That(t, (err != nil || l.seen < cut.at || !cut.dead) && (err == nil || errors.Is(err, errCut)),
			"not the error of a cut: %v", err)
		assert.That(t, !l.lostWrite || !cut.carried || cut.dead || err == nil, "what a look shows to be done is no error: %v", err)
		store(t, c, "v1.37.0", wanted)
		has(t, c, wanted)
		unwind(t, c)

		return l.seen >= cut.at
	})
}

func TestAnApplyInterruptedAtAnyRequestIsUndone(t *testing.T) {
	everyCut(t, deadCuts, func(t *testing.T, cut cut) bool {
		c := world(t, before)
		l := &line{cut: cut}
		err := Store(t.Context(), over(t, l), "v1.37.0", to(t, c, wanted))
		if r, readErr := LatestUndoRecord(t.Context(), c); readErr != nil || r != nil {
			assert.NoError(t, errors.Join(readErr, undo(t.Context(), c, false)))
		} else if err == nil {
			t.Error("there is no record")
		}

		has(t, c, before)

		return l.seen >= cut.at
	})
}

// Each apply wants something else than the one before, and the last is not
// interrupted. Those before it that had all written have records of their own;
// those that had not are undone with it.
func TestSeveralInterruptedAppliesAreUndone(t *testing.T) {
	other := contents{"kubelet-config": "a3", "kube-proxy": "b3"}
	carried := false
	everyCut(t, []cut{{dead: true}}, func(t *testing.T, first cut) bool {
		more := false
		everyCut(t, []cut{{dead: true}}, func(t *testing.T, second cut) bool {
			c := upgraded(t)
			want := 2
			carried = !carried
			first.carried, second.carried = carried, carried
			one, two := &line{cut: first}, &line{cut: second}
			_ = Store(t.Context(), over(t, one), "v1.37.0", to(t, c, wanted)) // whatever it says
			want += complete(t, c, wanted)
			_ = Store(t.Context(), over(t, two), "v1.37.2", to(t, c, other)) // whatever it says
			want += complete(t, c, other)
			store(t, c, "v1.37.2", contents{"kubelet-config": "a4"})
			assert.Equal(t, countRecords(t, c), want, "records")
			unwindAll(t, c)
			more = one.seen >= first.at

			return two.seen >= second.at
		})

		return more
	})
}

// complete returns 1 if these are among the contents.
func complete(t *testing.T, c client.Client, want contents) int {
	t.Helper()
	for _, w := range to(t, c, want) {
		if contentDigest(w.Old) != contentDigest(w.New) {
			return 0
		}
	}

	return 1
}

func TestAnUndoInterruptedAtAnyRequestIsContinued(t *testing.T) {
	everyCut(t, allCuts, func(t *testing.T, cut cut) bool {
		c := upgraded(t)
		store(t, c, "v1.37.0", wanted)
		l := &line{cut: cut}
		err := undo(t.Context(), over(t, l), false)
		assert.That(t, (err != nil || l.seen < cut.at || !cut.dead) && (err == nil || errors.Is(err, errCut)),
			"not the error of a cut: %v", err)
		if countRecords(t, c) == 2 {
			assert.NoError(t, undo(t.Context(), c, false))
		}

		has(t, c, before)
		assert.NoError(t, undo(t.Context(), c, false))
		has(t, c, oldest)

		return l.seen >= cut.at
	})
}

func TestAnApplyAfterAnInterruptedUndoLosesNothing(t *testing.T) {
	everyCut(t, deadCuts, func(t *testing.T, cut cut) bool {
		c := upgraded(t)
		store(t, c, "v1.37.0", wanted)
		l := &line{cut: cut}
		_ = undo(t.Context(), over(t, l), false) // whatever it says
		store(t, c, "v1.38.0", contents{"kubelet-config": "a3", "kube-proxy": "b3"})
		unwindAll(t, c)

		return l.seen >= cut.at
	})
}

// unwindAll undoes all that is recorded, however it was recorded.
func unwindAll(t *testing.T, c client.Client) {
	t.Helper()
	for countRecords(t, c) > 0 {
		assert.NoError(t, undo(t.Context(), c, false))
	}

	has(t, c, oldest)
}

func countRecords(t *testing.T, c client.Client) int {
	t.Helper()
	return len(assert.Value(listUndoRecords(t.Context(), c))(t))
}

// amid calls a function before each request of an apply in turn, each time in a
// world made anew, then runs the apply again if it failed, and then looks.
func amid(t *testing.T, happens, look func(*testing.T, client.Client)) {
	for at := 1; ; at++ {
		last := false
		if !t.Run(fmt.Sprint("before request ", at), func(t *testing.T) {
			c := upgraded(t)
			l := &line{}
			l.before = func(*http.Request) error {
				if l.seen == at {
					happens(t, c)
				}

				return nil
			}
			err := Store(t.Context(), over(t, l), "v1.37.0", to(t, c, wanted))
			if last = l.seen < at; last {
				return
			}
			if err != nil {
				store(t, c, "v1.37.0", wanted)
			}

			look(t, c)
		}) || last {
			return
		}
	}
}

func TestAnEditDuringAnApplyIsNeverLost(t *testing.T) {
	amid(t, func(t *testing.T, c client.Client) {
		replace(t, c, "kubelet-config", "theirs")
	}, func(t *testing.T, c client.Client) {
		if snapshot(t, c)["kubelet-config"].Data["config"] == "theirs" {
			says(t, undo(t.Context(), c, false), "changed since the apply", "kube-system/kubelet-config")
			return
		}

		assert.NoError(t, undo(t.Context(), c, false))
		has(t, c, contents{"kubelet-config": "theirs", "kube-proxy": "user's"})
	})
}

func TestAnUndoDuringAnApplyLosesNothing(t *testing.T) {
	amid(t, func(t *testing.T, c client.Client) {
		assert.NoError(t, undo(t.Context(), c, false))
	}, unwindAll)
}

func TestAnotherApplyDuringAnApplyLosesNothing(t *testing.T) {
	amid(t, func(t *testing.T, c client.Client) {
		store(t, c, "v1.37.2", contents{"kubelet-config": "a3", "kube-proxy": "b3"})
	}, unwindAll)
}

func TestAnApplyContinuesAfterAnOutageOfTheAPIServer(t *testing.T) {
	c := upgraded(t)
	stopped := between(t, "kube-proxy", cluster.StopAPIServer)
	says(t, Store(t.Context(), stopped, "v1.37.0", to(t, c, wanted)),
		"1 of 3 ConfigMaps were written: ConfigMap kube-system/kube-proxy cannot be written: ",
		"(it may have been written nevertheless: read ConfigMap kube-system/kube-proxy: ", "run the command again")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	assert.NoError(t, cluster.StartAPIServer(ctx))
	store(t, c, "v1.37.0", wanted)
	has(t, c, wanted)
	unwind(t, c)
}
