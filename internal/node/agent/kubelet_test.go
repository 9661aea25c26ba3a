package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/supervisor"
	"github.com/evenkeel/evenkeel/internal/node/trial"
)

// asKubelet makes this test binary a kubelet that behaves as the address of its health endpoint requests.
const asKubelet = "EVENKEEL_TEST_KUBELET_ADDRESS"

func TestMain(m *testing.M) {
	if address := os.Getenv(asKubelet); address != "" {
		serveAsKubelet(address)
	}
	os.Exit(m.Run())
}

func serveAsKubelet(address string) {
	var sick atomic.Bool
	http.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		if sick.Load() {
			http.Error(w, "not today", http.StatusInternalServerError)
			return
		}
		fmt.Fprint(w, "ok")
	})
	http.HandleFunc("/ready", func(http.ResponseWriter, *http.Request) {
		if conn, err := net.Dial("unixgram", os.Getenv("NOTIFY_SOCKET")); err == nil {
			_, _ = conn.Write([]byte("READY=1"))
			_ = conn.Close()
		}
	})
	http.HandleFunc("/sick", func(http.ResponseWriter, *http.Request) { sick.Store(true) })
	http.HandleFunc("/exit", func(http.ResponseWriter, *http.Request) { os.Exit(3) })
	fmt.Fprintln(os.Stderr, http.ListenAndServe(address, nil))
	os.Exit(1)
}

func TestKubeletIsHealthyAfterREADYAndHealthz(t *testing.T) {
	address := freeAddress(t)
	_, port, _ := net.SplitHostPort(address)
	t.Setenv(asKubelet, address)
	h := hostKubelet(t)
	p, err := h.Start(t.Context(), component.RunConfig{}, component.Effective{"HealthzPort": json.Number(port)})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Stop(0)
	ask := func(path string) bool {
		r, err := http.Get("http://" + address + path)
		if err != nil {
			return false
		}
		return r.Body.Close() == nil && r.StatusCode == http.StatusOK
	}
	eventually(t, "healthz answers", func() bool { return ask("/healthz") })
	eventually(t, "its health was asked for", p.(*kubeletProcess).ok.Load)
	if p.Healthy() || p.Waiting() {
		t.Error("healthy, or waiting for a lock, before it said READY")
	}
	ask("/ready")
	eventually(t, "it is healthy", p.Healthy)
	select {
	case <-p.Changed():
	case <-time.After(5 * time.Second):
		t.Error("Changed was not signalled")
	}
	ask("/sick")
	p.Watch(true) // else it is asked every ten seconds
	eventually(t, "it is not healthy", func() bool { return !p.Healthy() })
	ask("/exit")
	select {
	case <-p.Done():
	case <-time.After(5 * time.Second):
		t.Fatal("it does not end")
	}
	if exit := p.Exit(); exit.Code != 3 || exit.Stopped {
		t.Errorf("%+v", exit)
	}
}

func TestKubeletWithoutHealthEndpointIsHealthyAfterREADY(t *testing.T) {
	address := freeAddress(t)
	t.Setenv(asKubelet, address)
	p, err := hostKubelet(t).Start(t.Context(), component.RunConfig{}, component.Effective{"HealthzPort": json.Number("0")})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Stop(0)
	eventually(t, "it says READY", func() bool {
		r, err := http.Get("http://" + address + "/ready")
		return err == nil && r.Body.Close() == nil
	})
	eventually(t, "it is healthy", p.Healthy)
}

func TestFailedStartReturnsTheReason(t *testing.T) {
	h := hostKubelet(t)
	h.Kubelet.Path = t.TempDir() + "/kubelet"
	if p, err := h.Start(t.Context(), component.RunConfig{}, nil); p != nil || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v, %v", p, err)
	}
	if _, err := h.Identity(); err == nil {
		t.Error("a binary that is not there has an identity")
	}
}

func TestLocalIsInitIfThereIsAFile(t *testing.T) {
	h := hostKubelet(t)
	if got := h.Local(); got != trial.Default {
		t.Errorf("without any file it is %s", got)
	}
	h.InitFile = "/etc/evenkeel/kubelet"
	if got := h.Local(); got != trial.Init {
		t.Errorf("with an init file it is %s", got)
	}
	h.InitFile, h.Kubelet.Config = "", "/var/lib/kubelet/config.yaml"
	if got := h.Local(); got != trial.Init {
		t.Errorf("with the kubelet's own --config it is %s", got)
	}
}

func hostKubelet(t *testing.T) *HostKubelet {
	t.Helper()
	t.Setenv("NOTIFY_SOCKET", "")
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	kubelet, err := component.ParseKubelet([]string{path})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	notifier, err := supervisor.NewNotifier(t.TempDir(), log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(notifier.Close)
	return &HostKubelet{Kubelet: kubelet, Notifier: notifier, Log: log}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// eventually polls, because the processes are real.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for tick := time.NewTicker(10 * time.Millisecond); !so(); {
		select {
		case <-ctx.Done():
			t.Fatalf("never: %s", what)
		case <-tick.C:
		}
	}
}
