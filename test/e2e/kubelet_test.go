package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel/evenkeel/internal/node/agent"
)

// wrapper is the beginning of a shell script that replaces the kubelet. The rest
// of the script may misbehave; otherwise it executes the real kubelet.
const wrapper = `#!/bin/sh
real='%s' dir='%s' config='' mode=run
for arg; do
	case $arg in
	--version) mode=version ;;
	--config=*) config=${arg#--config=} ;;
	--exit-on-lock-contention) mode=stage1 ;;
	--node-ip=0.0.0.0,::) mode=stage2 ;;
	esac
done
has() { grep -qx "$1" "$config" 2>/dev/null; }
runs() { [ $mode = run ] && has "$1"; }
[ $mode = run ] && echo "$config" >>"$dir/starts"
%s
exec "$real" "$@"
`

// wrap puts a script in the kubelet's place, or replaces the one that is there.
func (n *node) wrap(script string) {
	n.t.Helper()
	dir := filepath.Join(n.Node.Dir(), "wrapper")
	file := filepath.Join(dir, "kubelet")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(file+".new", fmt.Appendf(nil, wrapper, n.Node.KubeletPath(), dir, script), 0o755); err != nil {
		n.t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		n.t.Fatal(err)
	}
	n.Kubelet[0] = file
}

// beside is a file that the wrapper finds as $dir/name.
func (n *node) beside(name string) string { return filepath.Join(n.Node.Dir(), "wrapper", name) }

// starts counts the starts of the kubelet with a ConfigMap; nil: with the local
// configuration.
func (n *node) starts(cm *corev1.ConfigMap) int {
	n.t.Helper()
	raw, err := os.ReadFile(n.beside("starts"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		n.t.Fatal(err)
	}
	count := 0
	for line := range strings.Lines(string(raw)) {
		config := strings.TrimSpace(line)
		if cm == nil && config == n.Node.KubeletConfig() || cm != nil && strings.Contains(config, string(cm.UID)) {
			count++
		}
	}
	return count
}

// throughout is the opposite of eventually: it fails as soon as check does.
func (n *node) throughout(during time.Duration, what string, check func(context.Context) error) {
	n.t.Helper()
	end, tick := time.NewTimer(during), time.NewTicker(100*time.Millisecond)
	defer end.Stop()
	defer tick.Stop()
	for {
		if err := check(n.t.Context()); err != nil {
			n.t.Fatalf("%s: %v", what, err)
		}
		select {
		case <-end.C:
			return
		case <-tick.C:
		}
	}
}

// healthyWith waits until the kubelet is healthy with a ConfigMap; nil: with
// the local configuration.
func (n *node) healthyWith(cm *corev1.ConfigMap) {
	n.t.Helper()
	want := n.Node.KubeletConfig()
	if cm != nil {
		want = string(cm.UID)
	}
	n.healthyOn(want)
}

// healthyOn waits until the kubelet is healthy with a command line that contains want, the path of its configuration.
func (n *node) healthyOn(want string) {
	n.t.Helper()
	n.eventually("the kubelet is healthy with "+want, func(ctx context.Context) error {
		pid, err := n.KubeletPID()
		if err != nil {
			return err
		}
		argv, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil {
			return err
		}
		if !strings.Contains(string(argv), want) {
			return fmt.Errorf("it runs %q", argv)
		}
		return n.Healthy(ctx)
	})
}

// askAgent asks the agent over HTTP.
func (n *node) askAgent(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.Listen+path, nil)
	if err != nil {
		return nil, err
	}
	res, err := (&http.Client{Timeout: 20 * time.Second}).Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", res.Status, raw)
	}
	return raw, err
}

// agentSays waits until the agent's own report has this ConfigOK.
func (n *node) agentSays(status, reason, words string) agent.Configz {
	n.t.Helper()
	var z agent.Configz
	n.eventually(fmt.Sprintf("the agent says %s, %s, %q", status, reason, words), func(ctx context.Context) error {
		raw, err := n.askAgent(ctx, "/configz")
		if err != nil {
			return err
		}
		z = agent.Configz{}
		if err := json.Unmarshal(raw, &z); err != nil {
			return err
		}
		c := z.ConfigOK
		if c.Status != status || c.Reason != reason || !strings.Contains(c.Message+": "+c.Cause, words) {
			return fmt.Errorf("it says %+v, error %q", c, z.Error)
		}
		return nil
	})
	return z
}

// sample returns a value of the agent's /metrics, such as
// evenkeel_rollbacks_total{reason="CrashLooped"}; 0 if there is none.
func (n *node) sample(series string) float64 {
	n.t.Helper()
	for line := range strings.Lines(n.get("/metrics")) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				n.t.Fatal(err)
			}
			return v
		}
	}
	return 0
}

func (n *node) wantSample(series string, want float64) {
	n.t.Helper()
	if got := n.sample(series); got != want {
		n.t.Errorf("%s is %v, want %v", series, got, want)
	}
}

// logged waits until the agent's log has a line with all the words.
func (n *node) logged(words ...string) {
	n.t.Helper()
	n.eventually(fmt.Sprintf("a line of the log has %q", words), func(context.Context) error {
		raw, err := os.ReadFile(n.Log)
		if err != nil {
			return err
		}
	lines:
		for line := range strings.Lines(string(raw)) {
			for _, w := range words {
				if !strings.Contains(line, w) {
					continue lines
				}
			}
			return nil
		}
		return errors.New("no such line")
	})
}

// exitsWith waits for the agent's end.
func (n *node) exitsWith(code int) {
	n.t.Helper()
	select {
	case <-n.Done():
		if n.ExitCode() != code {
			n.t.Errorf("the agent exited with %d, want %d", n.ExitCode(), code)
		}
	case <-time.After(patience):
		n.t.Fatalf("the agent still runs after %s", patience)
	}
}

// lastWord checks that the last line of the agent's log contains words.
func (n *node) lastWord(words string) {
	n.t.Helper()
	raw, err := os.ReadFile(n.Log)
	if err != nil {
		n.t.Fatal(err)
	}
	last := string(raw[max(0, strings.LastIndex(string(raw), "evenkeel-agent: ")):])
	if !strings.HasPrefix(last, "evenkeel-agent: ") || !strings.Contains(last, words) || strings.Count(last, "\n") != 1 {
		n.t.Errorf("it does not say %q in one line at its end, but:\n%s", words, last)
	}
}

func (n *node) start() {
	n.t.Helper()
	if err := n.Start(); err != nil {
		n.t.Fatal(err)
	}
}

func TestAnotherVersionOfTheKubeletResetsVerdicts(t *testing.T) {
	t.Parallel()
	n := newNode(t, "upgrade", "--config-trial-duration=1s", "--crash-loop-threshold=0")
	n.wrap(crashes)
	n.up()
	cm := n.configMap("a", map[string]any{"maxPods": 123})
	n.assign(cm)
	bad := rolledBack(cm, "CrashLooped", "(init)", "crash-looped: 1 start in its trial, last: exit status 7")
	nc := n.is(bad)
	if nc.Status.ComponentVersion != underTest.version {
		t.Errorf("the version is %q", nc.Status.ComponentVersion)
	}
	n.healthyWith(nil)

	n.wrap(`[ $mode = version ] && echo 'Kubernetes v1.37.99' && exit 0`)
	pid, err := n.KubeletPID()
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil { // what runs is of the old version until it ends
		t.Fatal(err)
	}
	nc = n.is(allChecksPassed(cm))
	if nc.Status.ComponentVersion != "v1.37.99" || len(nc.Status.BadConfigs) != 0 {
		t.Errorf("the version is %q, bad are %+v", nc.Status.ComponentVersion, nc.Status.BadConfigs)
	}
	n.lastKnownGood(cm)
	raw, err := os.ReadFile(filepath.Join(n.Dir, underTest.version, "bad-configs"))
	if err != nil || !strings.Contains(string(raw), string(cm.UID)) {
		t.Errorf("the records of the old version: %v\n%s", err, raw)
	}

	// Back again: it was found bad with this version, and good with that.
	n.stop()
	n.wrap(crashes)
	n.start()
	n.healthyWith(nil)
	bad.message = "using (init)" // last-known-good is the same one, by the other version
	nc = n.is(bad)
	if nc.Status.ComponentVersion != underTest.version || len(nc.Status.BadConfigs) != 1 {
		t.Errorf("after the downgrade the version is %q, bad are %+v", nc.Status.ComponentVersion, nc.Status.BadConfigs)
	}
	if got := n.starts(cm); got != 2 { // once with each version
		t.Errorf("it was started %d times", got)
	}
}

func TestAKubeletThatCannotRunIsAnErrorAtStart(t *testing.T) {
	t.Parallel()
	n := newNode(t, "nobinary")
	for _, c := range []struct {
		name, words string
		make        func(file string) error
	}{
		{"missing", "there is no kubelet at ", func(string) error { return nil }},
		{"a directory", " is a directory", func(file string) error { return os.Mkdir(file, 0o755) }},
		{"not executable", " is not executable", func(file string) error { return os.WriteFile(file, []byte("#!/bin/sh\n"), 0o644) }},
		{"no kubelet", `"hello" is not a version`, func(file string) error { return os.WriteFile(file, []byte("#!/bin/sh\necho hello\n"), 0o755) }},
		{"without its interpreter", "it cannot be started: ", func(file string) error { return os.WriteFile(file, []byte("#!/no/such/shell\n"), 0o755) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := n.in(t)
			file := filepath.Join(t.TempDir(), "kubelet")
			if err := c.make(file); err != nil {
				t.Fatal(err)
			}
			n.Kubelet[0] = file
			n.start()
			n.exitsWith(1)
			n.lastWord(c.words)
		})
	}
}

func TestAMissingKubeletBinaryIsAwaitedAndIsNotAFailure(t *testing.T) {
	t.Parallel()
	n := newNode(t, "vanished", "--config-trial-duration=5m", "--crash-loop-threshold=1")
	n.wrap("")
	n.up()
	cm := n.configMap("a", map[string]any{"maxPods": 120})
	n.assign(cm)
	n.is(allChecksPassed(cm))
	n.healthyWith(cm)

	if err := os.Rename(n.Kubelet[0], n.Kubelet[0]+".away"); err != nil {
		t.Fatal(err)
	}
	n.kill(n.kubeletPID())
	w := allChecksPassed(cm)
	w.err = "the kubelet exited unexpectedly: start " + n.Kubelet[0] + ": "
	n.is(w)
	n.eventually("it was tried three times", func(context.Context) error {
		raw, err := os.ReadFile(n.Log)
		if count := strings.Count(string(raw), "the kubelet cannot be started"); err == nil && count < 3 {
			err = fmt.Errorf("%d times", count)
		}
		return err
	})
	if err := os.Rename(n.Kubelet[0]+".away", n.Kubelet[0]); err != nil {
		t.Fatal(err)
	}
	n.healthyWith(cm)
	nc := n.is(allChecksPassed(cm))
	if len(nc.Status.BadConfigs) != 0 || nc.Status.Trial == nil {
		t.Errorf("bad are %+v, trial is %+v", nc.Status.BadConfigs, nc.Status.Trial)
	}
	if s := n.onDisk(); s.Trial == nil || len(s.Startups) != 2 { // it was adopted, and killed once
		t.Errorf("on disk are %d starts, trial %+v", len(s.Startups), s.Trial)
	}
}

func TestSIGTERMStopsTheKubeletAndExitsZero(t *testing.T) {
	t.Parallel()
	n := newNode(t, "sigterm", "--config-trial-duration=5m")
	n.up()
	cm := n.configMap("a", map[string]any{"maxPods": 120})
	n.assign(cm)
	n.is(allChecksPassed(cm))
	n.healthyWith(cm)
	kubelet := n.watchProcess(n.kubeletPID())
	n.stop()
	n.exitsWith(0)
	kubelet.gone(0)
	n.logged(`msg="kubelet stopped"`, `exit="exit status 0"`)
	if s := n.onDisk(); s.Trial == nil || !s.Trial.Clean {
		t.Errorf("no clean shutdown is on record: trial %+v", s.Trial)
	}
}

func TestTwoNodesOfAClusterAreIndependent(t *testing.T) {
	t.Parallel()
	one := newNode(t, "pair-1", "--config-trial-duration=1s", "--crash-loop-threshold=0")
	two := newNode(t, "pair-2", "--config-trial-duration=1s", "--crash-loop-threshold=0")
	two.wrap(crashes)
	one.start()
	two.start()
	one.is(localInit)
	two.is(localInit)

	// A configuration names the directories and ports of its node.
	a, b := one.configMap("a", map[string]any{"maxPods": 123}), two.configMap("b", map[string]any{"maxPods": 123})
	one.assign(a)
	two.assign(b)
	one.is(allChecksPassed(a))
	two.is(rolledBack(b, "CrashLooped", "(init)", "crash-looped: 1 start in its trial, last: exit status 7"))
	one.lastKnownGood(a)
	two.healthyWith(nil)
	one.healthyWith(a)

	two.stop()
	two.exitsWith(0)
	one.healthyWith(a)
}
