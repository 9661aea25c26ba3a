package lockfile

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
)

// kubelets starts stock kubelets, with a container runtime and without an API server.
type kubelets struct {
	node *localcluster.Node
	n    int
}

func newKubelets(t *testing.T) *kubelets {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cluster := localcluster.StartForTest(t, localcluster.Options{APIServerLater: true})
	node := assert.Value(cluster.NewNode(ctx, "contended"))(t)
	return &kubelets{node: node}
}

// start starts a kubelet, which writes to its log.
func (k *kubelets) start(t *testing.T, flags ...string) *peer {
	t.Helper()
	k.n++
	log := assert.Value(os.Create(filepath.Join(k.node.Dir(), "log", fmt.Sprintf("kubelet-%d.log", k.n))))(t)
	defer log.Close()
	p := &peer{t: t, cmd: exec.Command(k.node.KubeletPath(), append(k.node.KubeletArgs(), flags...)...)}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	assert.NoError(t, p.cmd.Start())
	t.Cleanup(func() {
		p.kill()
		if text, err := os.ReadFile(log.Name()); t.Failed() && err == nil {
			t.Logf("%s", text[max(0, len(text)-3000):])
		}
	})
	return p
}

func holds(t *testing.T, path string, p *peer) {
	t.Helper()
	assert.Eventually(t, fmt.Sprintf("process %d has the lock", p.pid()), func() bool { return WhoHolds(path) == p.pid() })
}

func TestStockKubeletAndContenderExcludeEachOther(t *testing.T) {
	k := newKubelets(t)
	t.Run("the contender waits for a kubelet", func(t *testing.T) {
		path := lockPath(t)
		kubelet := k.start(t, "--lock-file="+path)
		holds(t, path, kubelet)
		waiter := startPeer(t, Contender{Path: path, ReopenEvery: 50 * time.Millisecond})
		waiter.hears("waiting", fmt.Sprintf("by process %d (kubelet)", kubelet.pid()))
		queued(t, waiter.pid())
		waiter.saidNothingOf("held")
		kubelet.kill()
		waiter.hears("held")
	})
	t.Run("a kubelet with --exit-on-lock-contention exits", func(t *testing.T) {
		path := lockPath(t)
		kubelet := k.start(t, "--lock-file="+path, "--exit-on-lock-contention")
		holds(t, path, kubelet)
		// It may miss opens before its watch exists, so the waiter opens the file again.
		waiter := startPeer(t, Contender{Path: path, ReopenEvery: 500 * time.Millisecond})
		waiter.hears("waiting", "(kubelet)")
		waiter.hears("held")
		assert.NoError(t, kubelet.cmd.Wait(), "the kubelet")
	})
	t.Run("a kubelet makes a yielding holder release", func(t *testing.T) {
		path := lockPath(t)
		bootstrap := startHolding(t, Contender{Path: path, Yield: true})
		kubelet := k.start(t, "--lock-file="+path)
		bootstrap.hears("contended", ErrContended.Error())
		queued(t, kubelet.pid())
		assert.Equal(t, WhoHolds(path), bootstrap.pid(), "process has the lock before it is released")
		bootstrap.release()
		holds(t, path, kubelet)
	})
	t.Run("a kubelet waits for a holder without Yield", func(t *testing.T) {
		path := lockPath(t)
		claim := claimed(t, Contender{Path: path})
		kubelet := k.start(t, "--lock-file="+path, "--exit-on-lock-contention")
		queued(t, kubelet.pid())
		notContended(t, claim)
		assert.NoError(t, claim.Release())
		holds(t, path, kubelet)
	})
	t.Run("a kubelet that waited first is seen", func(t *testing.T) {
		path := lockPath(t)
		_, kill := startHolder(t, path)
		kubelet := k.start(t, "--lock-file="+path)
		queued(t, kubelet.pid())
		kubelet.signal(unix.SIGSTOP) // so that it is not the next
		bootstrap := startWaiting(t, Contender{Path: path, Yield: true})
		kill()
		bootstrap.hears("held")
		kubelet.signal(unix.SIGCONT)
		bootstrap.hears("contended", fmt.Sprintf("process %d (kubelet) waits for it", kubelet.pid()))
		bootstrap.release()
		holds(t, path, kubelet)
	})
	t.Run("waiters still wait for a kubelet whose file is replaced", func(t *testing.T) {
		path := lockPath(t)
		kubelet := k.start(t, "--lock-file="+path)
		holds(t, path, kubelet)
		waiter := startWaiting(t, Contender{Path: path})
		assert.NoError(t, os.Remove(path))
		waiter.hears("waiting", fmt.Sprint(kubelet.pid()))
		waiter.hears("waiting", fmt.Sprint(kubelet.pid()), "(kubelet)", "on a file that was deleted or replaced since")
		waiter.saidNothingOf("held")
		kubelet.kill()
		waiter.hears("held")
		assert.Is(t, assert.Err(TryAcquire(path)), ErrHeld, "what is at the path")
	})
}
