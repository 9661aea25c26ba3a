// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
)

type asker = func(context.Context, component.Effective) (component.Effective, error)

// page returns the answer of the agent's /configz, and its text.
func (w *world) page(form string, ask asker) (z Configz, text string) {
	w.t.Helper()
	r := get(w.t, w.agent.Handler(ask), "/configz?form="+form)
	assert.Must(w.t, r.Code == http.StatusOK && r.Header().Get("Content-Type") == "application/json",
		"%d %s: %s", r.Code, r.Header().Get("Content-Type"), r.Body)
	text = r.Body.String()
	assert.NoError(w.t, json.Unmarshal([]byte(text), &z))

	return z, text
}

func TestConfigzContainsTheRunningConfigAndItsSource(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		r := get(t, w.agent.Handler(nil), "/configz")
		assert.That(t, r.Code == http.StatusServiceUnavailable && strings.Contains(r.Body.String(), "no kubelet has been started yet"),
			"before the first start: %d %s", r.Code, r.Body)
		w.runs("")
		z, _ := w.page("", nil)
		assert.That(t, z.Source == ConfigzSource{Kind: "init"} && z.KubeletSays == "the agent has no credentials for the kubelet", "%+v", z)
		w.adopts("uid-good", conf{name: "good", healthz: 20248})
		_, text := w.page("", func(_ context.Context, e component.Effective) (component.Effective, error) {
			return component.Effective{"healthzPort": e["healthzPort"]}, nil
		})
		for _, want := range []string{
			`"kind": "remote",`, `"namespace": "evenkeel-system",`, `"name": "good",`, `"uid": "uid-good",`, `"revision": "uid-good"`,
			`"sha256": "` + w.view().Current.SHA256, `"hairpinMode": "good",`, `"componentVersion": "v1.36.3",`,
			"\"kubeletConfigz\": {\n    \"healthzPort\": 20248\n  }", "\"overridden\": [\n    \"clusterDNS\"\n  ]",
		} {
			assert.That(t, strings.Contains(text, want), "no %s in %s", want, text)
		}

		_, text = w.page("", func(context.Context, component.Effective) (component.Effective, error) {
			return nil, errors.New("403 Forbidden")
		})
		assert.That(t, strings.Contains(text, `"kubeletConfigzError": "403 Forbidden"`) && !strings.Contains(text, `"kubeletConfigz":`),
			"%s", text)
	})
}

func TestConfigzHasBothFormsWithOriginsAndDifferences(t *testing.T) {
	inWorld(t, func(w *world) {
		var kept []string
		refuses := true
		w.options = func(o *Options) {
			o.SaveRunning = func(about []byte) error {
				if refuses {
					return errors.New("no space left on device")
				}

				kept = append(kept, string(about))

				return nil
			}
		}
		w.start()
		w.adopts("uid-good", conf{name: "good", maxPods: 50})
		n := w.log.count("cannot save the description")
		assert.That(t, n == 1 && len(kept) == 0, "warned %d times, kept %q", n, kept)
		refuses = false
		w.pass(15 * time.Second)
		ask := func(_ context.Context, e component.Effective) (component.Effective, error) {
			return component.Effective{"maxPods": e["maxPods"], "staticPodURL": "https://user:pass@pods.example/t0ken?key=s3cret"}, nil
		}
		for form, path := range map[string]string{"": "maxPods", "flat": "maxPods", "grouped": "resources.maxPods"} {
			z, text := w.page(form, ask)
			maxPods := z.Effective["maxPods"]
			if form == "grouped" {
				maxPods = z.Effective["resources"].(map[string]any)["maxPods"]
				assert.That(t, z.Kubelet["resources"].(map[string]any)["maxPods"] == 50.0 && slices.Contains(z.Overridden, "networking.clusterDNS"),
					"grouped: the kubelet says %v, overridden %q", z.Kubelet, z.Overridden)
			}

			for _, secret := range []string{"user:pass", "t0ken", "s3cret"} {
				assert.That(t, !strings.Contains(text, secret), "%q shows %s", form, secret)
			}

			differs := payload.Difference{Field: path, Value: "50", Local: "110"}
			assert.That(t, maxPods == 50.0 && z.Origins[path] == "remote" && slices.Contains(z.Differs, differs) && z.Remote == "NodeConfig" &&
				z.Config().Revision == "uid-good", "%q: %s", form, text)
		}

		r := get(t, w.agent.Handler(ask), "/configz?form=pretty")
		assert.That(t, r.Code == http.StatusBadRequest && r.Body.String() == "form must be flat or grouped, not \"pretty\"\n",
			"%d %s", r.Code, r.Body)
		assert.That(t, len(kept) == 1 && strings.Contains(kept[0], `"revision":"uid-good"`) && !strings.Contains(kept[0], "kubeletConfigz"),
			"kept %q", kept)
		w.assignLocal()
		w.runs("")
		last := kept[len(kept)-1]
		assert.That(t, strings.Contains(last, `"kind":"init"`), "kept last %s", last)
	})
}

func TestHealthzFailsOnlyIfTheAgentHangs(t *testing.T) {
	inWorld(t, func(w *world) {
		healthz := func() string {
			r := get(t, w.agent.Handler(nil), "/healthz")
			return strings.TrimSpace(http.StatusText(r.Code) + ": " + strings.TrimSpace(r.Body.String()))
		}
		w.up()
		for range 30 {
			w.assign("uid-slow-"+time.Now().Format("150405"), conf{name: "slow", hangs: true})
			w.pass(10 * time.Second)
			got := healthz()
			assert.Must(t, got == "OK: ok", "%s", got)
		}

		w.kubelet.set(func(s *kubeletState) { s.stopTakes = 10 * time.Minute }) // it cannot even be killed
		w.assign("uid-good", good)
		w.pass(5 * time.Minute)
		if got := healthz(); got != "Internal Server Error: no decision for 5m0s" && !strings.HasPrefix(got, "Internal Server Error: no decision for 4m59") {
			t.Error(got)
		}

		w.kubelet.set(func(s *kubeletState) { s.stopTakes = 0 })
		w.pass(6 * time.Minute)
	})
}

func TestInitSystemIsNotifiedOnceWhenTheKubeletIsHealthy(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.init.set(func(s *initState) { s.err = errors.New("no such file or directory") })
		w.runs("")
		w.pass(15 * time.Second)
		assert.That(t, w.init.get().ready >= 2, "tried %d times", w.init.get().ready)
		w.init.set(func(s *initState) { s.err = nil })
		w.pass(15 * time.Second)
		told := w.init.get().ready
		w.crashes("")
		w.pass(time.Minute)
		assert.That(t, w.init.get().ready == told, "told %d times more", w.init.get().ready-told)
	})
}

// serves runs the HTTP server of an agent until the test ends.
func serves(t *testing.T, address string, log io.Writer) {
	var all sync.WaitGroup
	t.Cleanup(all.Wait)
	a := New(Options{Log: slog.New(slog.NewTextHandler(log, nil))}, Parts{})
	all.Go(func() { a.Serve(t.Context(), address) })
}

func TestIdleClientsAreLimited(t *testing.T) {
	address := localcluster.FreeAddressForTest(t)
	serves(t, address, io.Discard)
	var open []net.Conn
	connect := func() (err error) {
		c, err := net.Dial("tcp", address)
		open = append(open, c)
		return err
	}
	answered := func(c net.Conn) bool {
		t.Helper()
		fmt.Fprint(c, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
		_ = c.SetReadDeadline(time.Now().Add(time.Second))
		n, err := c.Read(make([]byte, 1))

		return n == 1 && (err == nil || err == io.EOF)
	}
	assert.Eventually(t, "the agent listens", func() bool { open = nil; return connect() == nil })
	for i := range maxConnections + 1 {
		if i > 0 {
			assert.NoError(t, connect())
		}

		defer open[i].Close()
		ok := answered(open[i])
		assert.Must(t, ok == (i < maxConnections), "client %d was answered: %v", i+1, ok)
	}

	open[0].Close()
	assert.That(t, answered(open[maxConnections]), "who waited was not answered when another left")
	s := NewServer(http.NotFoundHandler())
	assert.That(t, s.IdleTimeout > 0 && s.ReadTimeout > 0 && s.WriteTimeout > 0, "the server has no timeouts: %+v", s)
}

func TestTheServerListensWhenItsPortIsFreeAgain(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NoError(t, err)
	address, log := taken.Addr().String(), &lines{}
	serves(t, address, log)
	assert.Eventually(t, "the agent says that the port is taken", func() bool { return log.count("address already in use") > 0 })
	<-time.After(2 * listenInterval)
	assert.NoError(t, taken.Close())
	assert.Eventually(t, "the agent answers", func() bool {
		r, err := http.Get("http://" + address + "/healthz")
		return err == nil && r.Body.Close() == nil
	})
	assert.That(t, log.count("cannot serve") == 1 && log.count(`msg="serving /healthz, /metrics and /configz"`) == 1,
		"the log:\n%s", log.tail())
}
