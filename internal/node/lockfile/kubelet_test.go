package lockfile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

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
	cluster, err := localcluster.Start(ctx, localcluster.Options{APIServerLater: true})
	do(t, err)
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	node, err := cluster.NewNode(ctx, "contended")
	do(t, err)
	return &kubelets{node: node}
}

// start starts a kubelet. It says no word here, but in its log.
func (k *kubelets) start(t *testing.T, flags ...string) *peer {
	t.Helper()
	k.n++
	log, err := os.Create(filepath.Join(k.node.Dir(), "log", fmt.Sprintf("kubelet-%d.log", k.n)))
	do(t, err)
	defer log.Close()
	p := &peer{t: t, cmd: exec.Command(k.node.KubeletPath(), append(k.node.KubeletArgs(), flags...)...)}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	do(t, p.cmd.Start())
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
	eventually(t, fmt.Sprintf("process %d has the lock", p.pid()), func() bool { return WhoHolds(path) == p.pid() })
}

func TestTheStockKubeletAndAContenderExcludeEachOther(t *testing.T) {
	k := newKubelets(t)
	t.Run("one that goes on is waited for", func(t *testing.T) {
		path := lockPath(t)
		kubelet := k.start(t, "--lock-file="+path)
		holds(t, path, kubelet)
		waiter := startPeer(t, Contender{Path: path, Poke: 50 * time.Millisecond})
		waiter.hears("waiting", fmt.Sprintf("by process %d (kubelet)", kubelet.pid()))
		queued(t, waiter.pid())
		waiter.saidNothingOf("held")
		kubelet.kill()
		waiter.hears("held")
	})
	t.Run("one that gives way does", func(t *testing.T) {
		path := lockPath(t)
		kubelet := k.start(t, "--lock-file="+path, "--exit-on-lock-contention")
		holds(t, path, kubelet)
		// It may miss an open until it watches, and looks at what it saw when it has started: it is asked again.
		waiter := startPeer(t, Contender{Path: path, Poke: 500 * time.Millisecond})
		waiter.hears("waiting", "(kubelet)")
		waiter.hears("held")
		if err := kubelet.cmd.Wait(); err != nil {
			t.Errorf("the kubelet: %v", err)
		}
	})
	t.Run("it makes one who gives way leave", func(t *testing.T) {
		path := lockPath(t)
		bootstrap := startPeer(t, Contender{Path: path, Yield: true})
		bootstrap.hears("held")
		kubelet := k.start(t, "--lock-file="+path)
		bootstrap.hears("wanted", ErrWanted.Error())
		queued(t, kubelet.pid())
		if pid := WhoHolds(path); pid != bootstrap.pid() {
			t.Errorf("process %d has the lock before it is released", pid)
		}
		bootstrap.release()
		holds(t, path, kubelet)
	})
	t.Run("it waits for one who does not", func(t *testing.T) {
		path := lockPath(t)
		claim := claimed(t, Contender{Path: path})
		kubelet := k.start(t, "--lock-file="+path, "--exit-on-lock-contention")
		queued(t, kubelet.pid())
		notWanted(t, claim)
		do(t, claim.Release())
		holds(t, path, kubelet)
	})
	t.Run("it is seen if it waited before the contender came", func(t *testing.T) {
		path := lockPath(t)
		_, kill := startHolder(t, path)
		kubelet := k.start(t, "--lock-file="+path)
		queued(t, kubelet.pid())
		kubelet.signal(unix.SIGSTOP) // so that it is not the next
		bootstrap := startPeer(t, Contender{Path: path, Yield: true})
		queued(t, bootstrap.pid())
		kill()
		bootstrap.hears("held")
		kubelet.signal(unix.SIGCONT)
		bootstrap.hears("wanted", fmt.Sprintf("process %d (kubelet) waits for it", kubelet.pid()))
		bootstrap.release()
		holds(t, path, kubelet)
	})
	t.Run("it does not notice that its file is replaced, and others wait on", func(t *testing.T) {
		path := lockPath(t)
		kubelet := k.start(t, "--lock-file="+path)
		holds(t, path, kubelet)
		waiter := startPeer(t, Contender{Path: path})
		queued(t, waiter.pid())
		do(t, os.Remove(path))
		waiter.hears("waiting", fmt.Sprint(kubelet.pid()))
		waiter.hears("waiting", fmt.Sprint(kubelet.pid()), "(kubelet)", "on a file that was deleted or replaced since")
		waiter.saidNothingOf("held")
		kubelet.kill()
		waiter.hears("held")
		if _, err := TryAcquire(path); !errors.Is(err, ErrHeld) {
			t.Errorf("what is at the path: %v", err)
		}
	})
}
