package lockfile

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
)

// kubelets starts stock kubelets, with a container runtime and without an API server.
type kubelets struct {
	node *localcluster.Node
	n    int
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
