// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/podguard"
	"github.com/evenkeel/evenkeel/internal/node/supervisor"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
)

// asKubelet makes this test binary a kubelet that behaves as the address of its
// health endpoint requests.
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
	http.HandleFunc("/ready", func(http.ResponseWriter, *http.Request) { _, _ = daemon.SdNotify(false, daemon.SdNotifyReady) })
	http.HandleFunc("/sick", func(http.ResponseWriter, *http.Request) { sick.Store(true) })
	http.HandleFunc("/exit", func(http.ResponseWriter, *http.Request) { os.Exit(3) })
	fmt.Fprintln(os.Stderr, http.ListenAndServe(address, nil))
	os.Exit(1)
}

func TestKubeletIsHealthyAfterREADYAndHealthz(t *testing.T) {
	p, ask := startThisBinary(t, "")
	assert.Eventually(t, "healthz answers", func() bool { return ask("/healthz") })
	assert.Eventually(t, "its health was asked for", p.(*kubeletProcess).ok.Load)
	assert.That(t, !p.Healthy() && !p.Waiting(), "healthy, or waiting for a lock, before it said READY")
	ask("/ready")
	assert.Eventually(t, "it is healthy", p.Healthy)
	select {
	case <-p.Changed():
	case <-time.After(5 * time.Second):
		t.Error("Changed was not signalled")
	}

	ask("/sick")
	p.Watch(true) // else it is asked every ten seconds
	assert.Eventually(t, "it is not healthy", func() bool { return !p.Healthy() })
	ask("/exit")
	select {
	case <-p.Done():
	case <-time.After(5 * time.Second):
		t.Fatal("it does not end")
	}

	exit := p.Exit()
	assert.That(t, exit.Code == 3 && !exit.Stopped, "%+v", exit)
}

func TestKubeletWithoutHealthEndpointIsHealthyAfterREADY(t *testing.T) {
	p, ask := startThisBinary(t, "0")
	assert.Eventually(t, "it says READY", func() bool { return ask("/ready") })
	assert.Eventually(t, "it is healthy", p.Healthy)
}

// startThisBinary starts this test binary as a kubelet with that port of the
// health endpoint; empty: the port where it listens. The function requests
// something from it.
func startThisBinary(t *testing.T, healthzPort string) (Process, func(path string) bool) {
	t.Helper()
	address := localcluster.FreeAddressForTest(t)
	_, port, _ := net.SplitHostPort(address)
	t.Setenv(asKubelet, address)
	effective := component.Effective{"HealthzPort": json.Number(cmp.Or(healthzPort, port))}
	p := assert.Value(hostKubelet(t).Start(t.Context(), component.RunConfig{}, effective))(t)
	t.Cleanup(func() { p.Stop(0) })

	return p, func(path string) bool {
		r, err := http.Get("http://" + address + path)
		return err == nil && r.Body.Close() == nil && r.StatusCode == http.StatusOK
	}
}

// kubeletScript makes a shell script the kubelet.
func kubeletScript(t *testing.T, h *HostKubelet, script string) {
	t.Helper()
	h.Kubelet.Path = t.TempDir() + "/kubelet"
	assert.NoError(t, os.WriteFile(h.Kubelet.Path, []byte("#!/bin/sh\n"+script+"\n"), 0o700))
}

func TestLastErrorsOfAKubeletThatExits(t *testing.T) {
	for name, tt := range map[string]struct{ script, want string }{
		"nothing":  {"exit 1", ""},
		"an error": {`echo 'E1122 07:10:36.358684   21610 run.go:72] "command failed" err="no cgroup"' >&2; exit 1`, "no cgroup"},
		"a token":  {"echo Error: https://user:secret@host refuses >&2; exit 1", "https://masked@host refuses"},
		"a flood": {`for i in $(seq 1000); do echo "Error: $i"; done >&2; echo 'panic: oh
goroutine 1 [running]:' >&2; seq 5000 >&2; exit 2`, "panic: oh; 1000; 999; "},
		"a child that stays": {"sleep 1000 >&2 & echo Error: x $! >&2; exit 1", "x "},
	} {
		t.Run(name, func(t *testing.T) {
			h := hostKubelet(t)
			kubeletScript(t, h, tt.script)
			p := assert.Value(h.Start(t.Context(), component.RunConfig{}, nil))(t)
			got := p.LastErrors()
			var pid int
			if _, err := fmt.Sscanf(got, "x %d", &pid); err == nil {
				got = "x "
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}

			if len(got) > maxLastErrors || tt.want == "" && got != "" || !strings.HasPrefix(got, tt.want) || p.Exit().Code == 0 {
				t.Errorf("the last errors are %q, want %q", got, tt.want)
			}

			p.Stop(0)
		})
	}
}

func TestAKubeletWithoutARelayRuns(t *testing.T) {
	h := hostKubelet(t)
	kubeletScript(t, h, "echo Error: not kept >&2; exit 3")
	var limit syscall.Rlimit
	assert.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	open := assert.Value(os.ReadDir("/proc/self/fd"))(t)
	assert.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: uint64(len(open) - 1), Max: limit.Max}))
	output, stderr := h.relayOutput()
	assert.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
	assert.Must(t, output == nil && stderr == os.Stderr, "without descriptors there is a relay")
	p := assert.Value(h.Start(t.Context(), component.RunConfig{}, nil))(t)
	k := &kubeletProcess{Process: p.(*kubeletProcess).Process, collected: make(chan struct{}), copied: make(chan struct{})}
	go k.collect()
	got := k.LastErrors()
	assert.That(t, got == "" && k.Stop(0).Code == 3, "%v, %q", k.Exit(), got)
}

func TestFailedStartReturnsTheReason(t *testing.T) {
	h := hostKubelet(t)
	h.Kubelet.Path = t.TempDir() + "/kubelet"
	p, err := h.Start(t.Context(), component.RunConfig{}, nil)
	assert.That(t, p == nil && errors.Is(err, fs.ErrNotExist), "%v, %v", p, err)
	assert.That(t, assert.Err(h.Identity()) != nil, "a binary that is not there has an identity")
}

func TestLocalIsInitIfThereIsAFile(t *testing.T) {
	h := hostKubelet(t)
	assert.Equal(t, h.Local(), trial.LocalDefault, "without any file")
	h.InitFile = "/etc/evenkeel/kubelet"
	assert.Equal(t, h.Local(), trial.LocalInit, "with an init file")
	h.InitFile, h.Kubelet.Config = "", "/var/lib/kubelet/config.yaml"
	assert.Equal(t, h.Local(), trial.LocalInit, "with the kubelet's own --config")
}

func hostKubelet(t *testing.T) *HostKubelet {
	t.Helper()
	t.Setenv("NOTIFY_SOCKET", "")
	path := assert.Value(os.Executable())(t)
	kubelet := assert.Value(component.ParseKubelet([]string{path}))(t)
	log := slog.New(slog.DiscardHandler)
	notifier := assert.Value(supervisor.NewNotifier(t.TempDir(), log))(t)
	t.Cleanup(notifier.Close)

	return &HostKubelet{Kubelet: kubelet, Notifier: notifier, Log: log}
}

func TestACandidateIsNotRefusedForAFaultOfTheLocalConfiguration(t *testing.T) {
	long := strings.Repeat("x", 2*maxReasons)
	for _, tt := range []struct{ candidate, local []podguard.Reason }{
		{nil, []podguard.Reason{{Key: "memory", Words: "all of it"}}},
		{[]podguard.Reason{{Key: "memory", Words: "less"}}, []podguard.Reason{{Key: "memory", Words: "all of it"}}},
	} {
		assert.Equal(t, newReasons(tt.candidate, tt.local), "", tt.candidate)
	}

	got := newReasons([]podguard.Reason{{Key: "cpu", Words: "no cpu"}, {Key: "memory", Words: "less"}, {Key: "maxPods", Words: "many"}},
		[]podguard.Reason{{Key: "memory", Words: "all of it"}})
	assert.That(t, got == "no cpu; many", "got %s", got)
	got = newReasons([]podguard.Reason{{Key: "a", Words: long}}, nil)
	assert.That(t, len(got) <= maxReasons && got != "", "%d bytes", len(got))
}

func TestAConfigurationIsComparedWithTheMachineWithoutARuntime(t *testing.T) {
	h := hostKubelet(t)
	h.Kubelet, _ = component.ParseKubelet([]string{"/nonexistent"})
	kubeletScript(t, h, `[ "$1" = --version ] && { echo Kubernetes v1.36.3; exit; }
stage=2
for a in "$@"; do case "$a" in
--config=*) config=$(cat "${a#--config=}");;
--allowed-unsafe-sysctls=*) sysctl="${a##*[=,]}";;
--exit-on-lock-contention) stage=1;;
esac; done
end() { echo "E1121 07:10:36.358684   21610 run.go:72] \"command failed\" err=\"$1\"" >&2; exit 1; }
case "$config" in *evenkeelUnknownField*) end "strict decoding error: unknown field";; esac
endpoint=$(echo "$config" | sed -n 's/.*"containerRuntimeEndpoint":"\([^"]*\)".*/\1/p')
case "$config" in *many*) pods=99999999;; *) pods=110;; esac
echo 'I1121 07:10:36.358684   21610 server.go:72] "KubeletConfiguration" configuration=<' >&2
printf '\t{"Authentication":{},"Authorization":{},"ContainerRuntimeEndpoint":"%s","HealthzPort":10248,"MaxPods":%s}\n >\n' "${endpoint:-unix:///nonexistent/runtime.sock}" $pods >&2
[ $stage = 1 ] && end "failed to run Kubelet: cannot exit on lock file contention: no lock file specified"
end "failed to run Kubelet: failed to create kubelet: the sysctls \\\"$sysctl\\\" are not known to be namespaced"`)
	h.DryRunner = component.NewDryRunner(h.Kubelet, t.TempDir(), h.Log)
	v := h.Check(t.Context(), payload.Resolved{Upstream: []byte("maxPods: 110")})
	compared := !strings.Contains(fmt.Sprint(v.Warnings), "the cgroup driver was not compared: ")
	assert.That(t, v.Outcome == component.Accepted && v.Stage == 2 && !compared, "%s at stage %d: %s; %s", v.Outcome, v.Stage, v.Message, v.Warnings)
	v = h.Check(t.Context(), payload.Resolved{Upstream: []byte("many")})
	want := "maxPods: 99999999 is above 65535, for which there are user IDs"
	assert.That(t, v.Outcome == component.Rejected && v.Stage == 3 && v.Message == want,
		"%s at stage %d: %s; %s", v.Outcome, v.Stage, v.Message, v.Warnings)
}

// askedKubelet is the real kubelet behind a script that records its calls.
type askedKubelet struct {
	t    *testing.T
	dir  string
	host *HostKubelet
}

func newAskedKubelet(t *testing.T) *askedKubelet {
	t.Helper()
	localcluster.SkipShort(t)
	real := assert.Value(filepath.Abs("../../../bin/tools/kubelet"))(t)
	_, err := os.Stat(real)
	assert.NoError(t, err, "run make tools")

	c := &askedKubelet{t: t, dir: t.TempDir()}
	c.write("kubelet", fmt.Sprintf("#!/bin/sh\ncase $1 in --version) echo version ;; *) echo judge ;; esac >>%s/asked\nexec %s \"$@\"\n", c.dir, real))
	assert.NoError(t, os.Chmod(c.file("kubelet"), 0o755))
	c.write("asked", "")
	c.local("maxPods: 111")
	k := assert.Value(component.ParseKubelet([]string{c.file("kubelet"), "--config=" + c.file("config")}))(t)
	log := slog.New(slog.DiscardHandler)
	c.host = &HostKubelet{Kubelet: k, DryRunner: component.NewDryRunner(k, filepath.Join(c.dir, "scratch"), log), Log: log}

	return c
}

func (c *askedKubelet) file(name string) string { return filepath.Join(c.dir, name) }

func (c *askedKubelet) write(name, content string) {
	c.t.Helper()
	assert.NoError(c.t, os.WriteFile(c.file(name), []byte(content), 0o644))
}

func (c *askedKubelet) local(field string) {
	c.write("config", "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nfailCgroupV1: false\n"+field+"\n")
}

// asked returns how often the kubelet was run since the last call.
func (c *askedKubelet) asked() int {
	c.t.Helper()
	raw := assert.Value(os.ReadFile(c.file("asked")))(c.t)
	c.write("asked", "")

	return strings.Count(string(raw), "\n")
}

func (c *askedKubelet) prepare(want component.Outcome) {
	c.t.Helper()
	v, err := c.host.Prepare(c.t.Context())
	assert.Must(c.t, err == nil && v.Outcome == want, "prepared: %+v, %v, want %s", v, err, want)
	c.asked()
}

// judged checks the verdict on the local configuration, and whether the kubelet
// was run for it.
func (c *askedKubelet) judged(want component.Outcome, words string, anew bool) {
	c.t.Helper()
	v := c.host.CheckLocal(c.t.Context())
	assert.That(c.t, v.Outcome == want && strings.Contains(v.Message, words), "judged %s, %q, want %s, %q", v.Outcome, v.Message, want, words)
	assert.Equal(c.t, c.asked() > 0, anew, "whether the kubelet was asked")
}

func TestKubeletWithoutLockFileFlagRunsWithoutIt(t *testing.T) {
	for name, test := range map[string]struct {
		script string
		want   string // the lock that it is given; none: it cannot be run
		err    string
	}{
		"it does":          {"echo Kubernetes v1.37.2", "/run/lock", ""},
		"it does not":      {`case "$*" in *lock-file*) echo 'E1122 13:18:48.173756    3352 run.go:72] "command failed" err="failed to parse kubelet flag: unknown flag: --lock-file"' >&2; exit 1 ;; esac; echo Kubernetes v1.40.0`, "", ""},
		"it cannot be run": {"echo out of order >&2; exit 3", "/run/lock", "out of order"},
	} {
		t.Run(name, func(t *testing.T) {
			h := hostKubelet(t)
			h.LockFile = "/run/lock"
			kubeletScript(t, h, test.script)
			if _, err := h.Version(t.Context()); (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("error %v, want %q", err, test.err)
			}

			assert.Equal(t, h.lockFile(), test.want, "its lock")
		})
	}
}

func TestPreparedVerdictIsUsedOnce(t *testing.T) {
	c := newAskedKubelet(t)
	c.prepare(component.Accepted)
	for range 2 {
		assert.Returns(t, "v1.37.2")(c.host.Version(t.Context()))
		assert.Equal(t, c.asked(), 0, "runs of the kubelet for its version")
	}

	c.judged(component.Accepted, "", false)
	c.judged(component.Accepted, "", true) // the next start's
}

func TestAKubeletIsAskedOnceForItsVersion(t *testing.T) {
	c := newAskedKubelet(t)
	for i, runs := range []int{1, 0} {
		assert.Returns(t, "v1.37.2")(c.host.Version(t.Context()))
		assert.Equal(t, c.asked(), runs, "runs of the kubelet in call", i)
	}
}

func TestConfigEditedAfterPrepareIsValidatedAgain(t *testing.T) {
	c := newAskedKubelet(t)
	c.prepare(component.Accepted)
	c.local("maxPods: -1")
	c.judged(component.Rejected, "maxPods", true)

	c.prepare(component.Rejected)
	c.judged(component.Rejected, "maxPods", false)
}

func TestKubeletReplacedAfterPrepareIsExaminedAgain(t *testing.T) {
	c := newAskedKubelet(t)
	c.prepare(component.Accepted)
	c.write("kubelet", "#!/bin/sh\necho >>"+c.file("asked")+"\n[ \"$1\" = --version ] && echo Kubernetes v1.36.99\n")
	assert.Returns(t, "v1.36.99")(c.host.Version(t.Context()))
	assert.That(t, c.asked() != 0, "the kubelet was not asked for its version")
	c.judged(component.CouldNotTell, "the dry run does not work with this kubelet", true)

	c.prepare(component.CouldNotTell)
	c.judged(component.CouldNotTell, "", true) // nothing to keep
}

func TestPrepareReturnsAnErrorIfTheKubeletCannotRun(t *testing.T) {
	c := newAskedKubelet(t)
	c.write("kubelet", "#!/bin/sh\nexit 1\n")
	assert.ErrorHas(t, assert.Err(c.host.Prepare(t.Context())), "version")
	assert.NoError(t, os.Remove(c.file("kubelet")))
	assert.ErrorHas(t, assert.Err(c.host.Prepare(t.Context())), "there is no kubelet at "+c.file("kubelet"))
}
