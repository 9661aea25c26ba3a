// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel/evenkeel/internal/node/agent"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/nodetest"
)

// wrapper is the beginning of a shell script that replaces the kubelet. The
// rest of the script may misbehave; otherwise it executes the real kubelet.
const wrapper = `#!/bin/sh
real='%s' dir='%s' config='' mode=run
for arg; do
	case $arg in
	--version) mode=version ;;
	--config=*) config=${arg#--config=} ;;
	--exit-on-lock-contention) mode=stage1 ;;
	--allowed-unsafe-sysctls=*evenkeel.dryrun-*) mode=stage2 ;;
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
	assert.NoError(n.t, os.MkdirAll(dir, 0o755))
	assert.NoError(n.t, os.WriteFile(file+".new", fmt.Appendf(nil, wrapper, n.Node.KubeletPath(), dir, script), 0o755))
	assert.NoError(n.t, os.Rename(file+".new", file))
	n.Kubelet[0] = file
}

// beside is a file that the wrapper finds as $dir/name.
func (n *node) beside(name string) string { return filepath.Join(n.Node.Dir(), "wrapper", name) }

// throughout is the opposite of eventually: it fails as soon as check does.
func (n *node) throughout(during time.Duration, what string, check func(context.Context) error) {
	n.t.Helper()
	end, tick := time.NewTimer(during), time.NewTicker(100*time.Millisecond)
	defer end.Stop()
	defer tick.Stop()
	for {
		assert.NoError(n.t, check(n.t.Context()), what)
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

// healthyOn waits until the kubelet is healthy with a command line that
// contains want, the path of its configuration.
func (n *node) healthyOn(want string) {
	n.t.Helper()
	n.Eventually("the kubelet is healthy with "+want, func(ctx context.Context) error {
		kubelet, err := n.RunningKubelet()
		is := strings.Contains(strings.Join(kubelet.Argv, " "), want)

		return errors.Join(err, assert.Unless(is, "it runs %q", kubelet.Argv), n.Healthy(ctx))
	})
}

// sample returns a value of the agent's /metrics, such as
// evenkeel_rollbacks_total{reason="CrashLooped"}; 0 if there is none.
func (n *node) sample(series string) float64 {
	n.t.Helper()
	for line := range strings.Lines(n.get("/metrics")) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			return assert.Value(strconv.ParseFloat(strings.TrimSpace(value), 64))(n.t)
		}
	}

	return 0
}

// logged waits until the agent's log has a line with all the words.
func (n *node) logged(words ...string) {
	n.t.Helper()
	n.Eventually(fmt.Sprintf("a line of the log has %q", words), func(context.Context) error {
		raw, err := os.ReadFile(n.Log)
		if err != nil {
			return err
		}

		for line := range strings.Lines(string(raw)) {
			if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
				return nil
			}
		}

		return errors.New("no such line")
	})
}

// exitsWith waits for the agent's end.
func (n *node) exitsWith(code int) {
	n.t.Helper()
	select {
	case <-n.Done():
		assert.Equal(n.t, n.ExitCode(), code, "the agent exited with")
	case <-time.After(nodetest.Patience):
		n.t.Fatalf("the agent still runs after %s", nodetest.Patience)
	}
}

func (n *node) start() {
	n.t.Helper()
	assert.NoError(n.t, n.Start())
}

// page is all that the agent's /configz says.
func (n *node) page(query string) agent.Configz {
	n.t.Helper()
	var out agent.Configz
	assert.NoError(n.t, json.Unmarshal([]byte(n.get("/configz"+query)), &out))
	return out
}

// get asks the agent over HTTP.
func (n *node) get(path string) string {
	n.t.Helper()
	body := assert.Value(n.AskAgent(n.t.Context(), path))(n.t)
	return string(body)
}
