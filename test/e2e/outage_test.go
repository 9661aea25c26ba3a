package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel/evenkeel/internal/node/lockfile"
)

// undisturbed checks that the kubelet keeps running, and that there is no promotion and no verdict.
func (n *node) undisturbed(pid int, cm *corev1.ConfigMap) func(context.Context) error {
	return func(ctx context.Context) error {
		if now, err := n.KubeletPID(); err != nil || now != pid {
			return fmt.Errorf("the kubelet is process %d, was %d, %v", now, pid, err)
		}
		s := n.onDisk()
		if s.Current.Revision != string(cm.UID) || !s.LastKnownGood.IsLocal() || len(s.Bad) > 0 || s.Trial == nil || len(s.Startups) != 1 {
			return fmt.Errorf("on disk: current %q, last-known-good %q, bad %+v, trial %+v, %d starts", s.Current.Revision, s.LastKnownGood.Revision, s.Bad, s.Trial, len(s.Startups))
		}
		return n.Healthy(ctx)
	}
}

func TestAnAPIOutagePausesTheTrialWithoutARollback(t *testing.T) {
	t.Parallel()
	n := newCluster(t, "outage", "--config-trial-duration=12s", "--ready-timeout=10s", "--health-timeout=10s", "--crash-loop-threshold=0")
	n.up()
	n.is(localInit) // the API server is new, and may not know the kind yet
	cm := n.configMap("a", map[string]any{"maxPods": 120})
	n.assign(cm)
	n.is(allChecksPassed(cm))
	n.healthyWith(cm)
	pid := n.kubeletPID()
	n.eventually("the clock of the trial runs", func(context.Context) error {
		if n.sample("evenkeel_trial_healthy_seconds") == 0 {
			return errors.New("it does not")
		}
		return nil
	})
	if err := n.Cluster.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	n.agentSays("Unknown", "SyncFailed",
		fmt.Sprintf("using current (UID: %s): failed to sync, desired config unclear, cause: NodeConfig outage cannot be read: the API server refuses connections (", cm.UID))
	n.throughout(13*time.Second, "during the outage", n.undisturbed(pid, cm))
	n.wantSample("evenkeel_node_config_error", 1)

	if err := n.Cluster.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.agentSays("True", "AllChecksPassed", "all checks passed") // by itself
	n.lastKnownGood(cm)
	n.is(allChecksPassed(cm))
	if now := n.kubeletPID(); now != pid {
		t.Errorf("the kubelet was restarted: process %d, was %d", now, pid)
	}

	// Later, with nothing on trial.
	if err := n.Cluster.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	n.agentSays("Unknown", "SyncFailed", "the API server refuses connections (")
	n.throughout(3*time.Second, "during the second outage", func(ctx context.Context) error {
		if now, err := n.KubeletPID(); err != nil || now != pid {
			return fmt.Errorf("the kubelet is process %d, was %d, %v", now, pid, err)
		}
		return n.Healthy(ctx)
	})
	if err := n.Cluster.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.agentSays("True", "AllChecksPassed", "all checks passed")
	n.is(allChecksPassed(cm))
}

func TestAnOutageOfContainerdGivesNoVerdict(t *testing.T) {
	t.Parallel()
	n := newNode(t, "noruntime", "--config-trial-duration=10s", "--ready-timeout=8s", "--health-timeout=5s", "--crash-loop-threshold=0")
	n.up()
	cm := n.configMap("a", map[string]any{"maxPods": 120})
	n.assign(cm)
	n.is(allChecksPassed(cm))
	n.healthyWith(cm)

	// One that hangs still takes connections. A kubelet that starts waits for its answer, and is not healthy meanwhile.
	n.freeze(n.Node.RuntimePID())
	n.kill(n.kubeletPID())
	n.throughout(6*time.Second, "while containerd hangs", func(context.Context) error {
		if s := n.onDisk(); len(s.Bad) > 0 || len(s.Startups) != 1 || s.Trial == nil {
			return fmt.Errorf("on disk bad are %+v, %d starts, trial %+v", s.Bad, len(s.Startups), s.Trial)
		}
		return nil
	})
	n.thaw(n.Node.RuntimePID())
	n.healthyWith(cm)

	pid := n.kubeletPID()
	if err := n.Node.StopRuntime(); err != nil {
		t.Fatal(err)
	}
	n.throughout(10*time.Second, "without containerd", n.undisturbed(pid, cm))

	// Without it a kubelet that starts ends at once: no crash of the
	// configuration's doing, though the threshold tolerates none.
	n.kill(pid)
	n.eventually("the kubelet was tried again", func(context.Context) error {
		if count := n.countLog("the kubelet exited unexpectedly"); count < 3 {
			return fmt.Errorf("it exited %d times", count)
		}
		return nil
	})
	if s := n.onDisk(); len(s.Bad) > 0 || len(s.Startups) != 1 || s.Trial == nil {
		t.Errorf("on disk bad are %+v, %d starts, trial %+v", s.Bad, len(s.Startups), s.Trial)
	}
	if err := n.Node.StartRuntime(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.healthyWith(cm)
	n.lastKnownGood(cm)
	nc := n.is(allChecksPassed(cm))
	if len(nc.Status.BadConfigs) > 0 {
		t.Errorf("bad are %+v", nc.Status.BadConfigs)
	}

	// A kubelet that waits for its lock does nothing, and no runtime is to blame.
	lock, err := os.Open(n.Dir + "/kubelet.lock")
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	locked := make(chan error)
	go func() { locked <- unix.Flock(int(lock.Fd()), unix.LOCK_EX) }()
	n.eventually("this process is next in the lock's queue", func(context.Context) error {
		if !lockfile.Waiting(os.Getpid()) {
			return errors.New("it does not wait")
		}
		return nil
	})
	next := n.configMap("b", map[string]any{"maxPods": 121})
	n.assign(next)
	if err := <-locked; err != nil {
		t.Fatal(err)
	}
	const waits = "the kubelet is waiting for its lock file, which another process holds"
	n.is(want{"Unknown", "WaitingForLock", fmt.Sprintf("using current (UID: %s)", next.UID), waits, waits})
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	n.healthyWith(next)
	n.is(allChecksPassed(next))
}

// fault is what the API server suffers from, as far as the agent can see.
type fault struct {
	mu     sync.Mutex
	answer func(w http.ResponseWriter, r *http.Request) bool // nil: nothing; true: it was answered
	ended  chan struct{}                                     // closed when it is over
}

// begin replaces the fault, and cuts every connection that is open: watches
// too.
func (f *fault) begin(answer func(w http.ResponseWriter, r *http.Request) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended != nil {
		close(f.ended)
	}
	f.answer, f.ended = answer, make(chan struct{})
}

func (f *fault) now() (answer func(w http.ResponseWriter, r *http.Request) bool, ended <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.answer, f.ended
}

// cut ends a request without an answer.
var cut = http.ErrAbortHandler

func (f *fault) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, ended := f.now()
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		go func() {
			select {
			case <-ended:
				cancel()
			case <-ctx.Done():
			}
		}()
		r = r.WithContext(ctx)
		if answer == nil || !answer(w, r) {
			next.ServeHTTP(w, r)
		}
		if ctx.Err() != nil {
			panic(cut)
		}
	})
}

// reads answers what reads the NodeConfig; the status can still be written.
func reads(answer func(w http.ResponseWriter, r *http.Request)) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, "/nodeconfigs") {
			return false
		}
		answer(w, r)
		return true
	}
}

func code(status int) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"out of order","reason":%q,"code":%d}`, strings.ReplaceAll(http.StatusText(status), " ", ""), status)
	}
}

// behind puts the node's agent, but not its kubelet, behind a proxy.
func (n *node) behind(f *fault) {
	n.t.Helper()
	f.begin(nil)
	proxy, err := n.Proxy(f.wrap)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() {
		f.begin(nil)
		proxy.Close()
	})
	n.Flags = append(n.Flags, "--kubeconfig="+proxy.Kubeconfig)
}

func TestAnAPIThatAnswersWithErrorsChangesNothingAndRecovers(t *testing.T) {
	t.Parallel()
	n := newNode(t, "errors", "--config-trial-duration=1s")
	f := &fault{}
	n.behind(f)
	n.up()
	cm := n.configMap("a", map[string]any{"maxPods": 120})
	n.assign(cm)
	n.lastKnownGood(cm)
	undisturbed := n.steady()
	for _, c := range []struct {
		name, cause string
		refuses     bool
		answer      func(http.ResponseWriter, *http.Request)
	}{
		{"401", "the API server does not accept this node's credentials (401): check whether the client certificate of its kubeconfig has expired", true, code(http.StatusUnauthorized)},
		{"403", "forbidden to this node (403): apply evenkeel's RBAC, which grants the group system:nodes get, list, watch and create on nodeconfigs", true, code(http.StatusForbidden)},
		{"404", "the API server does not know this kind of object (404): apply evenkeel's CRDs", true, code(http.StatusNotFound)},
		{"429", "the API server is overloaded (429); retrying", false, code(http.StatusTooManyRequests)},
		{"500", "the API server failed (500): ", false, code(http.StatusInternalServerError)},
		{"503", "the API server failed (503): ", false, code(http.StatusServiceUnavailable)},
		{"cut", "NodeConfig errors cannot be read: ", false, func(http.ResponseWriter, *http.Request) { panic(cut) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := n.in(t)
			f.begin(reads(c.answer))
			n.agentSays("Unknown", "SyncFailed", fmt.Sprintf("using current (UID: %s): failed to sync, desired config unclear, cause: NodeConfig errors cannot be read: ", cm.UID))
			n.agentSays("Unknown", "SyncFailed", c.cause)
			if c.refuses { // a silent API server is told only after five minutes
				n.says("Unknown", "SyncFailed", c.cause)
			}
			f.begin(nil)
			n.agentSays("True", "AllChecksPassed", "")
			n.is(allChecksPassed(cm))
			undisturbed.check(t)
			// A watch that ends within a second is restarted with a growing delay.
			n.throughout(1200*time.Millisecond, "the kubelet stays healthy", n.Healthy)
		})
	}
	undisturbed.end(t)
	n.recorded(string(cm.UID), string(cm.UID))
}

func TestAnExpiredWatchIsRestarted(t *testing.T) {
	t.Parallel()
	n := newNode(t, "gone", "--config-trial-duration=1s")
	f := &fault{}
	n.behind(f)
	n.up()
	n.is(localInit)
	var mu sync.Mutex
	asked := 0
	f.begin(reads(func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if asked++; asked%2 == 0 { // both ways of saying so
			code(http.StatusGone)(w, nil)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintln(w, `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","message":"too old resource version","code":410}}`)
	}))
	n.eventually("the agent asks again and again", func(context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		if asked < 4 {
			return fmt.Errorf("%d times", asked)
		}
		return nil
	})
	cm := n.configMap("a", map[string]any{"maxPods": 120})
	n.assign(cm) // the agent does not see it yet
	f.begin(nil)
	n.is(allChecksPassed(cm))
	n.lastKnownGood(cm)
}

func TestASlowAPIDelaysButDoesNotHarm(t *testing.T) {
	t.Parallel()
	n := newNode(t, "slow", "--config-trial-duration=1s", "--ready-timeout=30s")
	f := &fault{}
	n.behind(f)
	f.begin(func(_ http.ResponseWriter, r *http.Request) bool {
		select {
		case <-time.After(time.Second):
		case <-r.Context().Done():
		}
		return false
	})
	n.up()
	n.is(localInit)
	good := n.configMap("a", map[string]any{"maxPods": 120})
	n.assign(good)
	n.is(allChecksPassed(good))
	n.lastKnownGood(good)
	bad := n.configMap("b", map[string]any{"maxPods": -1})
	n.assign(bad)
	n.says("False", "ValidationFailed", fmt.Sprintf("using last-known-good (UID: %s): failed to validate current (UID: %s)", good.UID, bad.UID))
	n.healthyWith(good)
}

func TestAnAPIThatNeverAnswersDoesNotBlockTheAgent(t *testing.T) {
	t.Parallel()
	n := newNode(t, "mute", "--config-trial-duration=1s", "--sync-timeout=1s")
	f := &fault{}
	n.behind(f)
	n.up()
	cm := n.configMap("a", map[string]any{"maxPods": 120})
	n.assign(cm)
	n.lastKnownGood(cm)
	n.stop()
	next := n.configMap("b", map[string]any{"maxPods": 121})
	n.assign(next)

	var requests atomic.Int64
	f.begin(func(_ http.ResponseWriter, r *http.Request) bool {
		requests.Add(1)
		<-r.Context().Done()
		return true
	})
	n.start()
	n.healthyWith(cm) // the checkpoint, after the sync timeout
	if requests.Load() == 0 {
		t.Error("the agent used its checkpoint without a request to the API server")
	}
	z := n.agentSays("Unknown", "SyncFailed", fmt.Sprintf("using current (UID: %s): failed to sync, desired config unclear, cause: NodeConfig mute cannot be read: no answer from the API server yet", cm.UID))
	if z.Source.Kind != "remote" || z.Source.UID != string(cm.UID) {
		t.Errorf("the source is %+v", z.Source)
	}
	n.stop() // reports that hang must not hold up the end
	n.exitsWith(0)

	n.start()
	n.healthyWith(cm)
	f.begin(nil)
	n.is(allChecksPassed(next))
	n.lastKnownGood(next)
}

// countLog counts the lines of the agent's log that hold words.
func (n *node) countLog(words string) int {
	n.t.Helper()
	raw, err := os.ReadFile(n.Log)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		n.t.Fatal(err)
	}
	return strings.Count(string(raw), words)
}
