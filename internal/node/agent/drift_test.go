// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/source"
	"github.com/evenkeel/evenkeel/internal/node/supervisor"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

const configFile = "/var/lib/kubelet/config.yaml"

type configzState struct {
	change map[string]any // fields with other values than those it was started with
	err    error
	hangs  bool
	asked  []time.Time
}

// simConfigz is the /configz of the running kubelet.
type simConfigz struct{ guarded[configzState] }

func (z *simConfigz) answer(ctx context.Context, started component.Effective) (component.Effective, error) {
	z.set(func(s *configzState) { s.asked = append(s.asked, time.Now()) })
	s := z.get()
	if s.hangs {
		<-ctx.Done()
		return nil, &url.Error{Op: "Get", URL: "https://127.0.0.1:10250/configz", Err: ctx.Err()}
	}

	running := maps.Clone(started)
	maps.Copy(running, s.change)

	return running, s.err
}

// inDriftWorld runs a test on a node whose kubelet runs its local
// configuration, and was compared with it.
var inDriftWorld = after(func(w *world) {
	w.up()
	w.drifts(noDrift)
})

func (w *world) drifted() string { return w.condition(v1alpha1.ConditionDrifted) }

func (w *world) drifts(want string) {
	w.t.Helper()
	w.within(30*time.Minute, "Drifted is "+want, func() bool { return w.drifted() == want })
}

const (
	noDrift   = "False NoDrift: the running kubelet and the local files are as they were when the kubelet was started"
	fileDrift = "True FilesEdited: local file " + configFile + " changed since the kubelet was started; the change takes effect at the next restart of the kubelet"
)

// asks waits until the kubelet is asked for its /configz again.
func (w *world) asks() {
	w.t.Helper()
	before := len(w.configz.get().asked)
	w.within(15*time.Minute, "the kubelet is asked again", func() bool { return len(w.configz.get().asked) > before })
}

func TestDriftIsCheckedAtMostEveryTenMinutes(t *testing.T) {
	inDriftWorld(t, func(w *world) {
		w.pass(time.Hour)
		for range 60 { // also if the kubelet crashes every minute
			w.dies(supervisor.Exit{Signal: "killed"})
			w.runs("")
			w.pass(time.Minute)
		}

		asked := w.configz.get().asked
		assert.That(t, len(asked) >= 10 && len(asked) <= 13, "/configz was read %d times in two hours", len(asked))
		for i := 1; i < len(asked); i++ {
			gap := asked[i].Sub(asked[i-1])
			assert.That(t, gap >= 10*time.Minute, "comparison %d began %s after the one before", i, gap)
		}
	})
}

func TestDriftIsReportedOnceAndNothingIsCorrected(t *testing.T) {
	inDriftWorld(t, func(w *world) {
		disk, reports := w.records(), len(w.reporter.all())
		w.behaves(conf{maxPods: 77})
		w.drifts(fileDrift)
		w.pass(2 * time.Hour)
		want := &v1alpha1.Drift{Files: []string{configFile}}
		assert.NoDiff(t, cmp.Diff(want, w.status().Drift))
		assert.Equal(t, len(w.reporter.all())-reports, 1, "reports of the edit")
		w.wantLogged("differ from what was started", 1)
		w.configz.set(func(s *configzState) {
			s.change = map[string]any{"maxPods": json.Number("55"), "hairpinMode": "x", "evictionHard": map[string]any{"memory.available": "1Gi"}}
		})
		w.drifts("True ConfigzDiffers: the running kubelet differs in 3 fields from the configuration that the agent validated and started; " +
			strings.TrimPrefix(fileDrift, "True FilesEdited: "))
		assert.NoDiff(t, cmp.Diff([]string{"evictionHard[memory.available]", "hairpinMode", "maxPods"}, w.status().Drift.Fields))
		w.wantConfigOK("True | using current (init): current is set to the local default, and an init config was provided (LocalInit)")
		w.wantStarts("")
		assert.Equal(t, w.records(), disk, "the records on disk")

		// A change that is taken back is no drift.
		w.behaves(conf{})
		w.configz.set(func(s *configzState) { s.change = nil })
		w.drifts(noDrift)
		w.wantLogged("are again as they were started", 1)

		// A start ends drift.
		w.behaves(conf{maxPods: 77})
		w.drifts(fileDrift)
		w.dies(supervisor.Exit{Signal: "killed"})
		w.untilStarts(2)
		w.runs("")
		assert.Equal(t, w.drifted(), "", "Drifted before the new kubelet was compared")
		w.drifts(noDrift)
	})
}

func TestAnEditThatTheRunningConfigurationReplacesHasNoEffect(t *testing.T) {
	inDriftWorld(t, func(w *world) {
		w.adopts("uid-good", good)
		w.promoted("uid-good")
		w.drifts(noDrift)
		w.behaves(conf{maxPods: 77})
		w.drifts("True FilesEdited: local file " + configFile + " changed since the kubelet was started; the change has no effect while the assigned configuration runs, because that replaces the local one")
		w.wantStarts("", "good")
	})
}

func TestAKubeletThatOnceDoesNotAnswerKeepsItsResult(t *testing.T) {
	inDriftWorld(t, func(w *world) {
		reports := len(w.reporter.all())
		failed := func() {
			t.Helper()
			w.asks()
			w.pass(15 * time.Second)
		}
		w.configz.set(func(s *configzState) { s.err = &url.Error{Op: "Get", URL: "u", Err: errors.New("connection refused")} })
		failed()
		got := w.drifted()
		assert.That(t, got == noDrift && len(w.reporter.all()) == reports, "after one failure, Drifted is %q", got)
		const unanswered = "False FilesUnchanged: the local files are as they were when the kubelet was started; /configz is not compared: the kubelet does not answer requests for its /configz"
		w.drifts(unanswered)
		w.configz.set(func(s *configzState) {
			s.err = &url.Error{Op: "Get", URL: "u", Err: errors.New("connection reset, port 4711")}
		})
		failed()
		n := len(w.reporter.all()) - reports
		assert.That(t, n == 1 && w.drifted() == unanswered, "%d reports of three failures, the last is %q", n, w.drifted())
		w.configz.set(func(s *configzState) { s.err = nil })
		w.drifts(noDrift)
	})
}

func TestAHangingComparisonBlocksNothing(t *testing.T) {
	inDriftWorld(t, func(w *world) {
		w.configz.set(func(s *configzState) { s.hangs = true })
		w.asks()
		w.adopts("uid-good", good) // while the request hangs
		w.promoted("uid-good")
		w.drifts("False FilesUnchanged: the local files are as they were when the kubelet was started; /configz is not compared: the kubelet does not answer requests for its /configz")
		w.wantStarts("", "good")
	})
}

func TestWhyConfigzIsNotComparedIsStable(t *testing.T) {
	started := component.Effective{"maxPods": json.Number("110")}
	for _, tt := range []struct {
		name      string
		effective component.Effective
		err       error
		noClient  bool
		want      string
		passing   bool
	}{
		{name: "no credentials", effective: started, noClient: true, want: "the kubelet has no kubeconfig, so the agent has no credentials for its /configz"},
		{name: "no dump", want: "the dry run of this kubelet did not print the configuration that was started"},
		{name: "no server", effective: component.Effective{"enableServer": false}, want: "the configuration switches the kubelet's server off (enableServer)"},
		{name: "no right", effective: started, err: &component.StatusError{Code: 403}, want: "the node may not read the /configz of its kubelet: apply config/drift (kubelets before 1.33 never allow it)"},
		{name: "unauthenticated", effective: started, err: &component.StatusError{Code: 401}, want: "the kubelet does not accept the client certificate of its node for /configz: check authentication.x509.clientCAFile"},
		{name: "authorizer", effective: started, err: &component.StatusError{Code: 500}, want: "the kubelet answered a request for its /configz with status 500", passing: true},
		{name: "silent", effective: started, err: &url.Error{Op: "Get", URL: "https://127.0.0.1:10250/configz", Err: errors.New("read tcp 127.0.0.1:4711")}, want: "the kubelet does not answer requests for its /configz", passing: true},
		{name: "garbage", effective: started, err: errors.New("configz: invalid character"), want: "the answer of the kubelet's /configz could not be read", passing: true},
		{name: "compared", effective: started},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ask := func(context.Context, component.Effective) (component.Effective, error) {
				if tt.err != nil {
					return nil, fmt.Errorf("configz: %w", tt.err)
				}

				return component.Effective{"maxPods": json.Number("111")}, nil
			}
			if tt.noClient {
				ask = nil
			}

			fields, why, passing, err := compareConfigz(t.Context(), tt.effective, ask)
			assert.That(t, why == tt.want && passing == tt.passing && (tt.err != nil) == (err != nil),
				"%q, passing %v, error %v; want %q, passing %v", why, passing, err, tt.want, tt.passing)
			compared := why == ""
			assert.That(t, compared == slices.Equal(fields, []string{"maxPods"}), "fields are %q", fields)
		})
	}
}

func TestChangedFilesAreThoseEditedAddedOrRemoved(t *testing.T) {
	got := changedFiles(map[string]string{"/a": "1", "/b": "1", "/c": "1"}, map[string]string{"/a": "1", "/b": "2", "/d": "1"})
	assert.NoDiff(t, cmp.Diff([]string{"/b", "/c", "/d"}, got))
}

func TestDriftedSaysHowManyFilesAndFields(t *testing.T) {
	c := drifted(&v1alpha1.Drift{Files: []string{"/a", "/b"}, NotCompared: "why"}, trial.Config{Revision: "r", Dropin: true})
	want := "2 local files changed since the kubelet was started; the change takes effect at the next restart of the kubelet; /configz is not compared: why"
	assert.That(t, c.Status == "True" && c.Reason == v1alpha1.DriftFilesEdited && c.Message == want, "the condition is %+v", c)
}

func TestTheKubeletIsAskedOnThisMachine(t *testing.T) {
	for want, effective := range map[string]component.Effective{
		"https://127.0.0.1:10250": {"address": "0.0.0.0", "port": json.Number("10250")},
		"https://127.0.0.1:4194":  {"port": json.Number("4194")},
		"https://[::1]:10250":     {"address": "::"},
		"https://10.1.2.3:10250":  {"address": "10.1.2.3"},
		"https://[fd00::1]:10250": {"address": "fd00::1"},
	} {
		assert.Equal(t, kubeletURL(effective), want, effective)
	}
}

// A process that has taken the port of the kubelet learns no token, and cannot
// send the agent elsewhere.
func TestTheKubeletIsAskedWithNoTokenAndNoRedirectIsFollowed(t *testing.T) {
	var asked []string
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path+" "+r.Header.Get("Authorization"))
		http.Redirect(w, r, "/elsewhere", http.StatusFound)
	}))
	defer server.Close()
	config := &rest.Config{Host: "https://api.invalid", BearerToken: "secret", Username: "u", Password: "p"}
	client := assert.Value(source.NewClientFor(config, http.DefaultClient))(t)
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	assert.NoError(t, err)
	_, err = KubeletConfigz(client)(t.Context(), component.Effective{"port": json.Number(port)})
	var refused *component.StatusError
	assert.That(t, errors.As(err, &refused) && refused.Code == http.StatusFound, "the error is %v", err)
	assert.That(t, slices.Equal(asked, []string{"/configz "}), "the kubelet was asked for %q", asked)
}
