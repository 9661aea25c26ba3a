// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli"
	"github.com/evenkeel/evenkeel/internal/program"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/fakeapi"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
)

// contexts writes a kubeconfig with the contexts "here", which is the current
// one and reaches the cluster, "away", whose API server does not exist, and
// "also away".
func contexts(t *testing.T) string {
	t.Helper()
	config := assert.Value(clientcmd.LoadFromFile(cluster.AdminKubeconfig()))(t)
	assert.NoError(t, clientcmd.ResolveLocalPaths(config))
	closed := localcluster.FreeAddressForTest(t)
	config.Clusters["away"] = &clientcmdapi.Cluster{Server: "https://" + closed}
	config.Contexts = map[string]*clientcmdapi.Context{
		"here": config.Contexts[config.CurrentContext], "away": {Cluster: "away"}, "also away": {Cluster: "away"},
	}
	config.CurrentContext = "here"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	assert.NoError(t, clientcmd.WriteToFile(*config, path))

	return path
}

// page is a dashboard that serves.
type page struct {
	t              *testing.T
	address, token string
}

// serve starts a dashboard and returns it when it has printed its address. It
// ends with the test.
func serve(t *testing.T, args ...string) *page {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	done := make(chan int, 1)
	go func() {
		code := cli.Run(ctx, program.NewInfo("kubectl-evenkeel", "v0.0.0-test", "0123abcd"), append([]string{"dashboard", "--port=0"}, args...),
			genericclioptions.IOStreams{In: strings.NewReader(""), Out: in, ErrOut: in})
		in.Close()
		done <- code
	}()
	lines := bufio.NewScanner(out)
	lines.Scan()
	address, token, found := strings.Cut(strings.TrimPrefix(lines.Text(), "open "), "#")
	t.Cleanup(func() {
		cancel()
		_, _ = io.Copy(io.Discard, out) // what it still prints
		assert.Equal(t, <-done, 0, "the dashboard ends with")
	})
	assert.Must(t, found, "the dashboard prints %q", lines.Text())

	return &page{t, address, token}
}

// shows asks the API once, and returns the line of its answer that has all the
// words. A feed is read until an event has them.
func (p *page) shows(path string, words ...string) string {
	p.t.Helper()
	r, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, p.address+strings.TrimPrefix(path, "/"), nil)
	assert.NoError(p.t, err)
	r.Header.Set("Authorization", "Bearer "+p.token)
	answer := assert.Value(http.DefaultClient.Do(r))(p.t)
	defer answer.Body.Close()
	lines, last := bufio.NewScanner(answer.Body), ""
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		last = lines.Text()
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(last, w) }) {
			return last
		}
	}

	p.t.Fatalf("%s answers %s, %v, and no line has %q; the last one is %s", path, answer.Status, lines.Err(), words, last)

	return ""
}

func TestTheDashboardNeedsACurrentContextThatAnswers(t *testing.T) {
	kubeconfig := contexts(t)
	refused := func(want string, args ...string) {
		t.Helper()
		evenkeel(t, kubeconfig, append([]string{"dashboard", "--port=0"}, args...)...).WantError(t, want)
	}
	refused(`); existing contexts: also away, away, here`, "--context=here", "--context=nowhere")
	refused("--server, --token cannot be used with several contexts: it would apply to all of them", "--context=here", "--context=away", "--token=secret", "--server=https://other")
	refused("the API server cannot be reached", "--context=away")
	refused(`context "also away": list NodeConfigs`, "--context=away", "--context=also away")
	// For other commands it is kubectl's flag, of which the last one counts.
	evenkeel(t, kubeconfig, "nodes", "--context=nowhere").WantError(t, `context "nowhere" does not exist`)
	evenkeel(t, kubeconfig, "nodes", "--context=away", "--context=here").Want(t, 0, nil)
}

// Events of both APIs are in the log of a rollout. A viewer gets less, and is
// told so once. A cluster that cannot be reached does not hide the other one.
func TestTheDashboardShowsWhatTheUserMaySee(t *testing.T) {
	assert.NoError(t, empty(t.Context()))
	api := fakeapi.Of(t, admin)
	cm := api.AddRevision("logged", 1, "maxPods: 7\n")
	api.AddRollout("logged", "logged", fakeapi.Pods(7), nil)
	api.AddNode("logged-a", "logged", "z1")
	api.AddNodeConfig("logged-a", fakeapi.ByRollout("logged", 1, cm, nil), func(st *v1alpha1.NodeConfigStatus) {
		fakeapi.Failing(st, v1alpha1.ReasonCrashLooped, "the kubelet exited 4 times")
	})
	now := metav1.Now()
	fakeapi.Add(api, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: "default", Name: "logged-a.1"},
		InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: "logged-a", UID: "logged-a"}, Source: corev1.EventSource{Component: "evenkeel-agent", Host: "logged-a"},
		Type: "Warning", Reason: "KubeletGivenUp", Message: "of the agent", FirstTimestamp: now, LastTimestamp: now, Count: 1,
	})
	events := kubernetes.NewForConfigOrDie(cluster.AdminConfig()).EventsV1().Events("default")
	assert.NoError(t, assert.Err(events.Create(t.Context(), &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "logged.1"}, EventTime: metav1.NowMicro(), Type: "Normal", Reason: "RolloutStarted", Action: "Rollout", Note: "of the controller",
		Regarding:           corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeConfigRollout", Name: "logged"},
		ReportingController: "evenkeel-controller", ReportingInstance: "evenkeel-controller-1",
	}, metav1.CreateOptions{})))

	serve(t, "--kubeconfig="+contexts(t)).shows("/api/about", `"clusters":[{"id":0,"context":"here",`)
	p := serve(t, "--context=away", "--context", "here", "--context=here", "--kubeconfig="+contexts(t))
	p.shows("/api/about", `"clusters":[{"id":0,"context":"away",`, `},{"id":1,"context":"here","server":"`+cluster.AdminConfig().Host+`"}]`)
	p.shows("/api/clusters/0/feed", `"rest":{"ready":false,`, `"trouble":[{`, "connection refused")
	p.shows("/api/clusters/1/feed", `"rest":{"ready":true,`, `"trouble":[],`, `"mayPatch":true`, `"mayListNodes":true`)
	log := p.shows("/api/clusters/1/rollouts/logged/log",
		`"node":"logged-a","kind":"Warning","reason":"KubeletGivenUp","message":"of the agent","source":"Event"`,
		`"kind":"Normal","reason":"RolloutStarted","message":"of the controller","source":"Event"`,
		`"kind":"Warning","reason":"Failed","message":"revision 1 of rollout logged was refused: CrashLooped: the kubelet exited 4 times","source":"Outcome"`)
	assert.That(t, !strings.Contains(log, `"note"`), "something is missing: %s", log)
	ofNode := p.shows("/api/clusters/1/rollouts/logged/log?node=logged-a", "KubeletGivenUp")
	assert.That(t, !strings.Contains(ofNode, "RolloutStarted"), "of the node alone: %s", ofNode)

	viewer := assert.Value(cluster.ClientKubeconfig("page-viewer"))(t)
	create(t, bindingOf("page-viewer", "evenkeel-view"))
	assert.NoError(t, allowed(t.Context(), "page-viewer", v1alpha1.GroupName, "nodeconfigs"))
	p = serve(t, "--kubeconfig="+viewer)
	p.shows("/api/clusters/0/feed", `"rest":{"ready":true,`, `"trouble":[],`, `"mayPatch":false`, `"words":"Read only, and without zones`)
	p.shows("/api/clusters/0/rollouts/logged/log", `"reason":"Failed"`, "you are not allowed to list them in the namespace default")
	node := p.shows("/api/clusters/0/nodes/logged-a", `"health":"Failed"`)
	assert.That(t, !strings.Contains(node, "does not exist"), "a viewer's node is %s", node)
}
