package docs

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestTheCommandsOfTheREADMEDoWhatItSays(t *testing.T) {
	w := newWorld(t)
	w.instead["kubectl evenkeel install node-1"] = w.node1
	w.instead["kubectl evenkeel install --selector"] = func(context.Context) error {
		return w.nodes("worker", 6, map[string]string{"node-restriction.kubernetes.io/pool": "workers"}, time.Second)
	}
	w.instead["ssh node-1 cat"] = func(context.Context) error {
		const own = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 110\n"
		return os.WriteFile(filepath.Join(w.workdir, "kubelet.yaml"), []byte(own), 0o600)
	}
	w.instead["make demo KEEP=1"] = func(ctx context.Context) error {
		out, code, err := w.session.Run(ctx, "export KUBECONFIG="+w.cluster.AdminKubeconfig())
		if err == nil && code != 0 {
			err = errors.New(out)
		}
		return err
	}
	w.read("README.md", "")
	for prefix := range w.instead {
		t.Errorf("the README has no command that begins with %q any more", prefix)
	}
}

// The JSON patch is for a NodeConfig that the agent made.
func TestTheCommandsToAssignByHandDoWhatThePageSays(t *testing.T) {
	w := newWorld(t)
	if err := errors.Join(w.apply(t.Context()), w.node1(t.Context())); err != nil {
		t.Fatal(err)
	}
	w.read("docs/operating.md", "### By hand, with kubectl")
}
