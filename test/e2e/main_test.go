// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package e2e tests the agent end to end, with a real etcd, kube-apiserver,
// containerd and stock kubelets. test/promises has the stories of the README;
// here are those of each feature, and of what can go wrong. Tests that do not
// disturb each other share a node.
package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/atomicfile"
	"github.com/evenkeel/evenkeel/internal/node/agent"
	"github.com/evenkeel/evenkeel/internal/node/checkpoint"
	"github.com/evenkeel/evenkeel/internal/node/trial"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/bed"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
	"github.com/evenkeel/evenkeel/testkit/must"
	"github.com/evenkeel/evenkeel/testkit/nodetest"
)

var getOptions = metav1.GetOptions{}

// shared is the cluster of all tests that leave the API server alone.
var shared *localcluster.Cluster

func TestMain(m *testing.M) {
	flag.Parse()
	var err error
	if underTest, err = askKubelet(*kubeletFlag); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}

	os.Exit(localcluster.RunTests(options(), func(_ context.Context, c *localcluster.Cluster) (int, error) {
		shared = c
		return m.Run(), nil
	}))
}

func options() localcluster.Options {
	return localcluster.Options{Kubelet: underTest.path, APIServer: *apiServerFlag}
}

// node is a real node with an agent, which is not started yet.
type node struct {
	*nodetest.Subject
	t *testing.T
}

// in is the node, failing another test: a subtest.
func (n *node) in(t *testing.T) *node { return &node{n.In(t), t} }

// newNode adds a node to the shared cluster.
func newNode(t *testing.T, name string, flags ...string) *node {
	t.Helper()
	return nodeOn(t, shared, name, flags...)
}

// newCluster starts a cluster of the test's own, with a node.
func newCluster(t *testing.T, name string, flags ...string) *node {
	t.Helper()
	return nodeOn(t, localcluster.StartForTest(t, options()), name, flags...)
}

func nodeOn(t *testing.T, cluster *localcluster.Cluster, name string, flags ...string) *node {
	t.Helper()
	return &node{nodetest.On(t, cluster, name, flags...), t}
}

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
		for line := range strings.Lines(string(must.Get(os.ReadFile(n.Log)))) {
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

// want is ConfigOK in the proposal's terms, word for word: the message says
// what is used, the cause why. reason is the CamelCase one.
type want struct {
	status, reason string
	message, cause string
	err            string // that status.error begins with; empty: there is none
}

func allChecksPassed(cm *corev1.ConfigMap) want {
	return want{status: "True", reason: "AllChecksPassed", message: fmt.Sprintf("using current (UID: %s)", cm.UID), cause: "all checks passed"}
}

var localInit = want{
	status: "True", reason: "LocalInit", message: "using current (init)",
	cause: "current is set to the local default, and an init config was provided",
}

// rolledBack is ConfigOK after a trial has failed.
func rolledBack(cm *corev1.ConfigMap, reason, lastKnownGood, how string) want {
	cause := fmt.Sprintf("current (UID: %s) %s", cm.UID, how)
	return want{"False", reason, "using last-known-good " + lastKnownGood, cause, cause}
}

// withoutInAll removes words that depend on when the agent looks: whether it
// saw the kubelet unhealthy before it became healthy. The transcripts of trial
// have both.
func withoutInAll(message string) string { return strings.TrimSuffix(message, " in all") }

// is waits until ConfigOK is exactly that, in the NodeConfig and on the Node,
// and returns the NodeConfig.
func (n *node) is(w want) *v1alpha1.NodeConfig {
	n.t.Helper()
	return n.Awaits(fmt.Sprintf("ConfigOK is %+v", w), func(nc *v1alpha1.NodeConfig) error {
		c := bed.ConfigOK(nc)
		must.That(string(c.Status) == w.status && c.Reason == w.reason && withoutInAll(c.Message) == w.message+": "+w.cause &&
			c.ObservedGeneration == nc.Generation, "NodeConfig of generation %d: %+v; error %q", nc.Generation, c, nc.Status.Error)
		must.That((w.err != "" || nc.Status.Error == "") && strings.HasPrefix(nc.Status.Error, w.err), "status.error is %q", nc.Status.Error)

		return n.nodeSays(n.t.Context(), w)
	})
}

// nodeSays compares the Node's own condition.
func (n *node) nodeSays(ctx context.Context, w want) error {
	conditions := must.Get(n.Object(ctx)).Status.Conditions
	return assert.Unless(slices.ContainsFunc(conditions, func(c corev1.NodeCondition) bool {
		return c.Type == v1alpha1.ConditionConfigOK && string(c.Status) == w.status && withoutInAll(c.Reason) == w.cause && c.Message == w.message
	}), "the Node has %+v", conditions)
}

// onDisk is what the agent would find if it started now.
func (n *node) onDisk() trial.State {
	n.t.Helper()
	view := assert.Value(checkpoint.ReadOnly(atomicfile.OS{}, n.Dir, ""))(n.t)
	for _, p := range view.Problems {
		n.t.Errorf("on disk: %s", p)
	}

	return view.State
}

// recorded waits until current and last-known-good on disk are these
// revisions, "" being local.
func (n *node) recorded(current, lastKnownGood string) {
	n.t.Helper()
	n.Eventually("the records on disk", func(context.Context) error {
		view := must.Get(checkpoint.ReadOnly(atomicfile.OS{}, n.Dir, ""))
		is, lkg := view.State.Current.Revision, view.State.LastKnownGood.Revision

		return assert.Unless(is == current && lkg == lastKnownGood,
			"current is %q, last-known-good %q, want %q and %q", is, lkg, current, lastKnownGood)
	})
}

// assignNew creates a ConfigMap with the node's configuration and changes, and
// assigns it.
func (n *node) assignNew(name string, changes map[string]any) *corev1.ConfigMap {
	n.t.Helper()
	cm := n.ConfigMap(name, changes)
	n.AssignMap(cm)
	return cm
}

// proves assigns a ConfigMap, and waits until it has passed its trial.
func (n *node) proves(cm *corev1.ConfigMap) {
	n.t.Helper()
	n.AssignMap(cm)
	n.is(allChecksPassed(cm))
	n.LastKnownGood(cm)
}

// good is assignNew, and waits until the ConfigMap has passed its trial.
func (n *node) good(name string, changes map[string]any) *corev1.ConfigMap {
	n.t.Helper()
	cm := n.ConfigMap(name, changes)
	n.proves(cm)
	return cm
}

// text is the node's configuration with changes, as a payload.
func (n *node) text(changes map[string]any) string {
	n.t.Helper()
	return assert.Value(n.Config(changes))(n.t)
}

// patchNode changes the Node.
func (n *node) patchNode(format string, args ...any) {
	n.t.Helper()
	_, err := n.Kube.CoreV1().Nodes().Patch(n.t.Context(), n.Node.Name(), types.StrategicMergePatchType, fmt.Appendf(nil, format, args...), metav1.PatchOptions{})
	assert.NoError(n.t, err)
}
