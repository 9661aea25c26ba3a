// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/fakeapi"
)

func newAPI(t *testing.T) *fakeapi.API {
	t.Helper()
	return fakeapi.New(t, Command)
}

func TestConfigDiffComparesANodeWithARolloutAndItsRevisions(t *testing.T) {
	api := newAPI(t)
	first, second := api.AddRevision("compared", 1, "maxPods: 110\n"), api.AddRevision("compared", 2, "maxPods: 120\npodsPerCore: 7\n")
	api.AddRollout("compared", "compared", fakeapi.Pods(130), func(r *v1alpha1.NodeConfigRollout) {
		r.Status.History = []v1alpha1.RolloutOutcome{fakeapi.SucceededAs(2, second), fakeapi.SucceededAs(1, first)}
	})
	api.AddAgent("compared-a", "compared", fakeapi.ByRollout("compared", 2, second, first), func(st *v1alpha1.NodeConfigStatus) {
		st.Active = fakeapi.Runs(first)
	})

	got := api.Run("config", "diff", "node/compared-a", "rollout/compared@2")
	want := fmt.Sprintf("--- node/compared-a (ConfigMap evenkeel-system/%s)\n+++ rollout/compared@2 (ConfigMap evenkeel-system/%s)\nmaxPods: 110 -> 120\npodsPerCore: unset -> 7\n", first.Name, second.Name)
	assert.That(t, got.Out == want && got.Code == 0, "got %+v, want %s", got, want)
	api.Run("config", "diff", "rollout/compared@2", "rollout/compared", "--form", "grouped").WantOutput(t,
		"+++ rollout/compared (spec.template)\n", "resources.maxPods: 120 -> 130\n", "resources.podsPerCore: 7 -> unset\n")
	api.Run("config", "diff", "node/compared-a", "rollout/compared@1").WantOutput(t, "no differences\n")
	d := fakeapi.Decoded[describe.Comparison](t, api.Run("config", "diff", "rollout/compared@1", "rollout/compared", "-o", "json"))
	assert.That(t, len(d.Differences) == 1 && d.Differences[0] == (describe.Difference{Field: "maxPods", A: "110", B: "130"}) &&
		d.A.Name == "rollout/compared@1", "as JSON: %+v", d)
}

func TestConfigDiffOfADropInComparesOnlyItsFields(t *testing.T) {
	api := newAPI(t)
	api.AddRollout("dropped", "dropped", nil, func(r *v1alpha1.NodeConfigRollout) {
		r.Spec.Template = v1alpha1.RolloutTemplate{KubeletDropIn: fakeapi.Pods(120)}
	})
	api.Run("config", "diff", "rollout/dropped", fakeapi.File(t, fakeapi.Header+"maxPods: 110\npodsPerCore: 7\n")).WantOutput(t,
		"maxPods: 120 -> 110\nnot compared: 1 field that only one of them has, because a configuration as written is compared with a drop-in\n")
}

func TestConfigDiffComparesBothFormsAndMasksSecrets(t *testing.T) {
	api := newAPI(t)
	upstream := fakeapi.File(t, fakeapi.Header+"maxPods: 110\nstaticPodURL: https://pods.example/a?token=hush\nstaticPodURLHeader: {Authorization: [hush]}\n")
	grouped := fakeapi.File(t, "apiVersion: evenkeel.dev/v1alpha1\nkind: KubeletConfiguration\nresources: {maxPods: 120}\ntrial: {configTrialDuration: 5m, crashLoopThreshold: 1, allowPodLoss: true}\n"+
		"staticPods: {staticPodURL: 'https://pods.example/a?token=shout', staticPodURLHeader: {Authorization: [shout]}}\n")
	got := api.Run("config", "diff", upstream, grouped)
	got.WantOutput(t, "maxPods: 110 -> 120\n", "staticPodURL: masked -> masked\n", "staticPodURLHeader.Authorization: masked -> masked\n",
		"trial.allowPodLoss: unset -> true\n", "trial.configTrialDuration: unset -> \"5m0s\"\n", "trial.crashLoopThreshold: unset -> 1\n")
	assert.That(t, !strings.Contains(got.Out, "hush") && !strings.Contains(got.Out, "shout"), "a secret is shown: %s", got.Out)
}

func TestConfigDiffOfUnreadableConfigurationsIsAnError(t *testing.T) {
	api := newAPI(t)
	rev := api.AddRevision("unreadable", 3, "maxPods: 110\n")
	api.AddRollout("unreadable", "unreadable", fakeapi.Pods(130), func(r *v1alpha1.NodeConfigRollout) {
		r.Status.History = []v1alpha1.RolloutOutcome{fakeapi.SucceededAs(3, rev), {Revision: 2, ConfigMap: "unreadable-0000000000", Outcome: "Succeeded"}}
	})
	fine := fakeapi.File(t, fakeapi.Header)
	gone, edited, broken, anew := *fakeapi.Runs(rev), *fakeapi.Runs(rev), *fakeapi.Runs(rev), *fakeapi.Runs(rev)
	gone.Name = "nowhere"
	edited.SHA256 = strings.Repeat("0", 64)
	anew.UID = "another"
	bad := fakeapi.Add(api, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: rev.Namespace, Name: "broken-payload"}, Data: map[string]string{"kubelet": "a: ["}})
	broken.Name, broken.UID = bad.Name, bad.UID
	for name, active := range map[string]*v1alpha1.ConfigRevision{"runs-gone": &gone, "runs-edited": &edited, "runs-broken": &broken, "runs-anew": &anew, "runs-local": nil} {
		api.AddAgent(name, "unreadable", nil, func(st *v1alpha1.NodeConfigStatus) { st.Active = active })
	}

	api.AddNode("runs-nothing", "unreadable", "z1")
	for _, tt := range []struct {
		a    string
		want []string
	}{
		{"nowhere.yaml", []string{"nowhere.yaml", "node/NAME"}},
		{fakeapi.File(t, "kind: Pod\napiVersion: v1\n"), []string{"is not a KubeletConfiguration"}},
		{fakeapi.File(t, "a: ["), []string{"is not a KubeletConfiguration"}},
		{"node/nowhere", []string{`node "nowhere" does not exist`}},
		{"node/runs-nothing", []string{"the agent of node runs-nothing has not reported what it runs", "--live"}},
		{"node/runs-local", []string{"node runs-local runs its local configuration", "--live"}},
		{"node/runs-gone", []string{"node runs-gone runs ConfigMap evenkeel-system/nowhere", "which was deleted", "--live"}},
		{"node/runs-anew", []string{"which was deleted; the node keeps a copy", "--live"}},
		{"node/runs-edited", []string{"as it was before it was changed", "--live"}},
		{"node/runs-broken", []string{"evenkeel-system/broken-payload", "which was changed since", "--live"}},
		{"rollout/nowhere", []string{`"nowhere"`}},
		{"rollout/unreadable@2", []string{"unreadable-0000000000", "was deleted", "3"}},
		{"rollout/unreadable@7", []string{"no revision 7", "3"}},
		{"rollout/unreadable@x", []string{`"x" is not a revision number`}},
	} {
		api.Run("config", "diff", tt.a, fine).WantError(t, tt.want...)
		api.Run("config", "diff", fine, tt.a).WantError(t, tt.want...)
	}

	api.AddRollout("templateless", "unreadable", nil, func(r *v1alpha1.NodeConfigRollout) {
		r.Spec.Template = fakeapi.Follow("evenkeel-system", "nowhere")
	})
	api.Run("config", "diff", fine, "rollout/templateless").WantError(t, "templateless", "evenkeel-system/nowhere")
	api.Run("config", "diff", fine, fine, "--form", "round").WantError(t, `--form: "round" is not valid: must be one of flat, grouped`)
	api.Run("config", "diff", fine, fine, "--live").WantError(t, "--live needs node/NAME")
	api.Run("config", "diff", fine, fine, "-o", "xml").WantError(t, "json")
	for kind, tt := range map[string][2]string{
		"NodeConfig": {"node/runs-edited", "get NodeConfig runs-edited"}, "ConfigMap": {"node/runs-edited", "read the configuration of node runs-edited"}, "NodeConfigRollout": {"rollout/unreadable@3", "unreadable"},
	} {
		api.Forbid("*", kind)
		api.Run("config", "diff", fine, tt[0]).WantError(t, tt[1], "forbidden")
	}

	api.Forbid("list", "ConfigMap")
	api.Run("config", "diff", fine, "rollout/unreadable@3").WantError(t, "list the ConfigMaps of the revisions", "forbidden")
}

func TestConfigDiffLiveReadsTheEffectiveConfiguration(t *testing.T) {
	answers := map[string]struct {
		code int
		body string
	}{
		"lively": {200, `{"kubeletconfig": {"maxPods": 110, "podsPerCore": 0, "evictionHard": {"memory.available": "1Mi", "nodefs.available": "10%"}}}`},
		"odd":    {200, "hello"},
		"silent": {503, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"error trying to reach service: connection refused","reason":"ServiceUnavailable","code":503}`},
		"secret": {403, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"nodes \"secret\" is forbidden","reason":"Forbidden","code":403,"details":{"name":"secret","kind":"nodes"}}`},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, is := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, "/api/v1/nodes/"), "/proxy/configz")
		if a, known := answers[name]; is && known {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(a.code)
			fmt.Fprint(w, a.body)
			return
		}

		http.Error(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`, http.StatusNotFound)
	}))
	t.Cleanup(server.Close)
	api := newAPI(t)
	diff := func(args ...string) fakeapi.Result {
		return api.Run(append([]string{"config", "diff", "--live", "--server", server.URL}, args...)...)
	}
	file := fakeapi.File(t, fakeapi.Header+"maxPods: 120\nevictionHard: {memory.available: 1Mi}\nserializeImagePulls: false\n")
	diff("node/lively", file).WantOutput(t,
		"--- node/lively (the kubelet's /configz)\n", "maxPods: 110 -> 120\n", "serializeImagePulls: unset -> false\n",
		"not compared: 2 fields that only one of them has, because the effective configuration is compared with a configuration as written\n")
	diff(file, "node/lively").WantOutput(t, "maxPods: 120 -> 110\n", "serializeImagePulls: false -> unset\n", "not compared: 2 fields")
	diff("node/odd", file).WantError(t, "/configz of the kubelet of node odd: not a configuration", "hello")
	diff("node/nowhere", file).WantError(t, `node "nowhere" does not exist`)
	diff("node/silent", file).WantError(t, "the API server cannot reach the kubelet of node silent", "omit --live")
	diff("node/secret", file).WantError(t, "--live needs permission to get nodes/proxy of node secret")
}
