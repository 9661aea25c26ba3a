// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podguard compares the losses that internal/node/podguard predicts
// with those of real kubelets: random pods run on a real node, whose kubelet is
// restarted with a random configuration after random changes of the Node. It
// must not know the rules of the prediction.
package podguard_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
)

var (
	pairsFlag    = flag.Int("pairs", 12, "number of pairs, spread over the kubelets")
	configsFlag  = flag.Int("configs", 20, "number of configurations that started kubelets are compared with, spread over them")
	seedFlag     = flag.Uint64("seed", 1, "seed of the first pair")
	kubeletsFlag = flag.String("kubelets", "oldest,newest", "versions of kubelets, such as v1.33.13; oldest, newest; or all")
)

const tools = "../../bin/tools"

// cluster is that of all nodes.
var cluster *localcluster.Cluster

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(localcluster.RunTests(localcluster.Options{}, func(ctx context.Context, c *localcluster.Cluster) (int, error) {
		cluster = c
		if err := c.Apply(ctx, "testdata"); err != nil {
			return 0, err
		}

		return m.Run(), nil
	}))
}

// kubelet is a program and its version.
type kubelet struct {
	path, version string
	minor         int
}

// kubelets returns the kubelets that the flag names, the oldest first.
func kubelets(t *testing.T) []kubelet {
	t.Helper()
	paths := assert.Value(filepath.Glob(filepath.Join(tools, "kubelets", "*", "kubelet")))(t)
	paths = append(paths, filepath.Join(tools, "kubelet"))
	var found []kubelet
	for _, path := range paths {
		out := assert.Value(exec.CommandContext(t.Context(), path, "--version").CombinedOutput())(t, "no kubelet at", path, "run `make tools`")
		k := kubelet{path: path, version: strings.TrimSpace(strings.TrimPrefix(string(out), "Kubernetes "))}
		assert.NoError(t, assert.Err(fmt.Sscanf(k.version, "v1.%d.", &k.minor)), path, "has version", k.version)
		found = append(found, k)
	}

	slices.SortFunc(found, func(a, b kubelet) int { return a.minor - b.minor })
	if *kubeletsFlag == "all" {
		return found
	}

	var chosen []kubelet
	for name := range strings.SplitSeq(*kubeletsFlag, ",") {
		i := slices.IndexFunc(found, func(k kubelet) bool { return k.version == name })
		switch name {
		case "oldest":
			i = 0
		case "newest": // not a preview of the next version, which only some machines have
			i = slices.IndexFunc(found, func(k kubelet) bool { return k.path == filepath.Join(tools, "kubelet") })
		}

		assert.Must(t, i >= 0, "there is no kubelet %s in %s", name, tools)
		chosen = append(chosen, found[i])
	}

	return chosen
}
