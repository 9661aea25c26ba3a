// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/must"
	"github.com/evenkeel/evenkeel/testkit/simapi"
)

// ask returns the code and the content of an answer, of a list with the pages
// that follow.
func ask(t *testing.T, c *http.Client, method, path, kind, body string) (int, map[string]any) {
	r := must.Get(http.NewRequestWithContext(t.Context(), method, cluster.URL()+path, strings.NewReader(body)))
	r.Header.Set("Content-Type", kind)
	answer := assert.Value(c.Do(r))(t)
	defer answer.Body.Close()
	content := map[string]any{}
	assert.NoError(t, json.NewDecoder(answer.Body).Decode(&content))
	if items, is := content["items"].([]any); is {
		if next, _ := content["metadata"].(map[string]any)["continue"].(string); next != "" {
			path, _, _ = strings.Cut(path, "&continue=")
			_, rest := ask(t, c, method, path+"&continue="+url.QueryEscape(next), kind, body)
			content["items"] = append(items, rest["items"].([]any)...)
		}
	}

	return answer.StatusCode, content
}

// essence is what both servers must say: of a refusal its reason; of an object
// all but what is its own, such as the UID; of a list that of its items.
func essence(content map[string]any) string {
	if content["kind"] == "Status" {
		return fmt.Sprint(content["reason"])
	}
	if items, is := content["items"].([]any); is {
		var all []string
		for _, item := range items {
			all = append(all, essence(item.(map[string]any)))
		}

		return strings.Join(all, "\n")
	}

	meta := content["metadata"].(map[string]any)

	return fmt.Sprint(meta["name"], meta["labels"], meta["generation"], content["spec"], content["data"], content["status"])
}

// TestTheSimulatedServerAnswersAsTheRealOne makes the same random requests to
// the real API server and to that of package simapi, and compares the answers
// and what is stored then.
func TestTheSimulatedServerAnswersAsTheRealOne(t *testing.T) {
	clients := []*http.Client{assert.Value(rest.HTTPClientFor(cluster.AdminConfig()))(t), {Transport: &simapi.Transport{
		Server: simapi.New(simapi.KindsWithDefaults()...), Client: "admin", Fate: func(*http.Request) (f simapi.Fate) { return f },
		Lag: func() time.Duration { return 0 }, Gate: context.Context.Err,
	}}}
	for _, name := range []string{"twin-a", "twin-b"} {
		removeAtEnd(t, parse("metadata: {name: "+name+"}"))
		removeAtEnd(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}})
	}

	seed := rand.Uint64()
	t.Log("the seed is", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	pick := func(all ...string) string { return all[random.IntN(len(all))] }
	const nodeConfigs, configMaps = "/apis/evenkeel.dev/v1alpha1/nodeconfigs", "/api/v1/namespaces/default/configmaps"
	for range 600 {
		list, name := pick(nodeConfigs, configMaps), pick("twin-a", "twin-b")
		object := fmt.Sprintf(`{"metadata":{"name":"%s","labels":{"twin":"%s"}VERSION},`, name, pick("0", "1"))
		if list == nodeConfigs {
			object += fmt.Sprintf(`"apiVersion":"evenkeel.dev/v1alpha1","kind":"NodeConfig",`+
				`"spec":{"trial":{"crashLoopThreshold":%s}},"status":{"observedGeneration":%s}}`, pick("2", "3"), pick("0", "1"))
		} else {
			object += fmt.Sprintf(`"apiVersion":"v1","kind":"ConfigMap","data":{"a":"%s"},"immutable":%t}`, pick("0", "1"), random.IntN(20) == 0)
		}

		at := list + "/" + name
		version := pick("none", "own", "own", "old") // the two servers have others
		method, kind, path, body := "GET", "application/json", at+pick("", "", "/status"), object
		dry := pick("", "", "?dryRun=All")
		switch random.IntN(9) {
		case 0, 1:
			method, path = "POST", list+dry
		case 2, 3:
			method, path = "PUT", path+dry
		case 4:
			method, kind, path, body = "PATCH", "application/merge-patch+json", path+dry, pick(object, object, `{"metadata":{"labels":null}}`)
		case 5:
			method, kind, path = "PATCH", "application/json-patch+json", path+dry
			body = `[{"op":"test","path":"/metadata/labels/twin","value":"` + pick("0", "1") + `"},` + pick(
				`{"op":"add","path":"/metadata/labels/more","value":"a"}]`, `{"op":"remove","path":"/metadata/labels/more"}]`,
				`{"op":"replace","path":"/metadata/generation","value":9}]`, `{"op":"poem"}]`)
		case 6:
			method, path = "DELETE", at
			body = pick("", `{"preconditions":{"uid":"other"}}`, `{"preconditions":{"resourceVersion":"1"}}`, `{"dryRun":["All"]}`)
		case 7:
			path = list + "?labelSelector=twin%3D1" + pick("", "&limit=1", "&fieldSelector=metadata.name%3Dtwin-a", "&fieldSelector=spec.x%3Da")
		}

		var got [2]string
		for i, c := range clients {
			field := map[string]string{"old": `,"resourceVersion":"1"`}[version]
			if code, now := ask(t, c, "GET", at, "", ""); version == "own" && code == http.StatusOK {
				field = fmt.Sprintf(`,"resourceVersion":"%s"`, now["metadata"].(map[string]any)["resourceVersion"])
			}

			code, answer := ask(t, c, method, path, kind, strings.Replace(body, "VERSION", field, 1))
			if method == "DELETE" && code == http.StatusOK {
				answer = map[string]any{"kind": "Status"} // the real server's says no more
			}

			_, now := ask(t, c, "GET", list+"?labelSelector=twin", "", "")
			got[i] = fmt.Sprint(code, " ", essence(answer), "\nnow ", essence(now))
		}

		assert.NoDiff(t, cmp.Diff(got[0], got[1]), "the real server (-) and the simulated one (+) at", method, path, body, version, "version")
	}
}
