// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package localcluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/localcluster/sweep"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// victimEnv makes this test binary a process that runs a cluster, tells where,
// and waits to be killed.
const victimEnv = "LOCALCLUSTER_VICTIM"

func runVictim(ctx context.Context) (err error) {
	defer must.Catch(&err)

	c := must.Get(Start(ctx, Options{Manifests: os.Getenv(victimEnv)}))
	client := must.Get(kubernetes.NewForConfig(c.AdminConfig()))
	n, err := c.NewNode(ctx, "node-a")
	if errors.Is(err, ErrNoNode) {
		fmt.Println("ready", c.Dir(), "none", "none")
		return nil
	}

	if err != nil {
		return err
	}

	must.Get(runKubelet(ctx, n, client))
	// Not a child with a parent-death signal, as an agent that a test starts is
	// not.
	stray := exec.Command("tail", "-f", n.KubeletConfig())
	must.OK(stray.Start())
	must.OK(runPod(ctx, client, "node-a", "default", "sleeper"))
	fmt.Println("ready", c.Dir(), n.bridge, n.cgroup)

	return nil
}

func TestNothingOutlivesAProcessThatIsKilled(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), victimEnv+"="+t.TempDir())
	out := assert.Value(cmd.StdoutPipe())(t)
	cmd.Stderr = os.Stderr
	assert.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	words := strings.Fields(line)
	if err != nil || len(words) != 4 || words[0] != "ready" {
		_ = cmd.Process.Kill()
		t.Fatalf("the victim says %q, %v, %v", line, err, cmd.Wait())
	}

	dir, bridge, cgroup := words[1], words[2], words[3]
	before := sweep.Processes(dir)
	assert.Must(t, len(before) >= 3, "processes of the cluster: %v", before)
	assert.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait() // killed
	begin := time.Now()
	eventually(t, 30*time.Second, func(context.Context) error {
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("directory %s is still there: %v", dir, err)
		}

		return traces(dir, bridge, cgroup)
	})
	t.Logf("%d processes and all else are gone after %v", len(before), time.Since(begin))
}
