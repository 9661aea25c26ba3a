// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli/config"
	"github.com/evenkeel/evenkeel/internal/cli/printing"
	"github.com/evenkeel/evenkeel/internal/cli/rollout"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/internal/operator/kubeadm"
	"github.com/evenkeel/evenkeel/internal/operator/query"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/fakeapi"
)

// hostile returns values of about 1 MiB, or that expand to far more. YAML
// values need a header before them.
func hostile() (asJSON, asYAML map[string]string) {
	const size = payload.MaxSize - 4<<10
	const deepest = 9_000 // decoders refuse 10,000 levels by themselves
	times := func(text string, n int) string {
		return "[" + strings.TrimSuffix(strings.Repeat(text+",", n), ",") + "]"
	}
	nest := func(open, inner, end string, n int) string {
		return strings.Repeat(open, n) + inner + strings.Repeat(end, n)
	}
	filled := func(open, inner, end string, n int) string {
		one := nest(open, inner, end, n)
		return times(one, size/(len(one)+1))
	}
	asJSON = map[string]string{
		"one deep list":          nest("[", "", "]", deepest),
		"deep lists":             filled("[", "", "]", deepest),
		"deep mappings":          filled(`{"a":`, "0", "}", deepest),
		"lists up to the limit":  filled("[", "", "]", 45),
		"wide at the limit":      nest("[", times("0", size/2-200), "]", 45),
		"just enough values":     nest("[", times("0", 98_000), "]", 45),
		"many empty mappings":    times("{}", size/3),
		"a key of half its size": `{"` + strings.Repeat("k", size/2) + `":{` + keys(40_000) + `}}`,
		"text that is all of it": `"` + strings.Repeat("<", size) + `"`,
	}
	laughs := "[x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c <= 'i'; c++ {
		laughs += fmt.Sprintf("y%c: &%[1]c [%s]\n", c, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c,", c-1), 8), ","))
	}

	asYAML = map[string]string{
		"aliases of aliases":     "&a " + laughs,
		"a long text repeated":   "&a " + strings.Repeat("x", size/2) + "\ny: [" + strings.TrimSuffix(strings.Repeat("*a,", 60_000), ",") + "]\n",
		"flow mappings":          filled("{a: ", "0", "}", deepest) + "\n",
		"dashes":                 "\n" + strings.Repeat(strings.Repeat("- ", deepest)+"0\n", size/2/deepest) + "\n",
		"deep, and a key twice":  nest("[", "", "]", deepest) + "\nx: 1\n",
		"a merge of many":        "&a {b: 1}\ny: {<<: [" + strings.TrimSuffix(strings.Repeat("*a,", 60_000), ",") + "]}\n",
		"one line for each byte": "\n" + strings.Repeat("-\n", size/2),
	}

	return asJSON, asYAML
}

func keys(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"%d":1,`, i)
	}

	return strings.TrimSuffix(b.String(), ",")
}

// TestMemoryOfHostileInputIsLimited feeds everything that decodes or prints
// input of other people.
func TestMemoryOfHostileInputIsLimited(t *testing.T) {
	// Limits of all allocations in MiB. The controller's container has 256 MiB;
	// printing happens on an operator's machine.
	const decoded, printed = 224, 1024
	asJSON, asYAML := hostile()
	texts := map[string]string{}
	for name, value := range asJSON {
		texts["JSON, "+name] = `{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration","x":` + value + `}`
		texts["grouped, "+name] = `{"apiVersion":"evenkeel.dev/v1alpha1","kind":"KubeletConfiguration","x":` + value + `}`
	}

	for name, value := range asYAML {
		texts["YAML, "+name] = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nx: " + value
	}

	rolloutOf := func(text string) *v1alpha1.NodeConfigRollout {
		r := &v1alpha1.NodeConfigRollout{ObjectMeta: metav1.ObjectMeta{Name: "r"}}
		r.Spec.Template.Kubelet = &apiruntime.RawExtension{Raw: []byte(text)}
		return r
	}
	nothing := assert.Value(payload.Decode(payload.KeyKubelet, []byte(fakeapi.Header)))(t)
	for _, c := range []struct {
		what     string
		most     uint64
		onlyJSON bool
		take     func(text string)
	}{
		{"a payload, and what differs", decoded, false, func(text string) {
			p, err := payload.FromConfigMap(&corev1.ConfigMap{Data: map[string]string{payload.KeyKubelet: text}})
			if err == nil {
				describe.Changes(nothing.Fields, p.Fields)
				payload.DefaultProtection().Violations(p.Fields, nothing.Fields, nil)
			}
		}},
		{"what a program printed", decoded, false, func(text string) { _, _ = payload.DecodeMapping([]byte(text)) }},
		{"a component's documents", decoded, false, func(text string) { _, _ = kubeadm.Documents("f", []byte(text)) }},
		{"a rollout's manifest", decoded, false, func(text string) { _, _ = rollout.ParseManifest([]byte(text)) }},
		{"a file to convert", decoded, false, func(text string) {
			for _, form := range []string{"flat", "grouped"} {
				_, _ = config.Convert("f", []byte(text), form)
			}
		}},
		{"a rollout's template", decoded, true, func(text string) { _, _ = fleet.ContentOf(rolloutOf(text).Spec.Template, nil) }},
		{"a rollout as YAML", printed, true, func(text string) { _ = printing.Object(io.Discard, printing.YAML, rolloutOf(text)) }},
		{"a rollout as JSON", printed, true, func(text string) { _ = printing.Object(io.Discard, printing.JSON, rolloutOf(text)) }},
		{"a rollout as a document", printed, true, func(text string) { _, _ = printing.Document(rolloutOf(text)) }},
		{"a kubelet's answer", decoded, true, func(text string) {
			api := httptest.NewServer(answer(http.StatusOK, "", `{"kubeletconfig":`+text+`}`))
			defer api.Close()
			_, _ = query.LiveSide(context.Background(), &rest.Config{Host: api.URL}, "n")
		}},
	} {
		for name, text := range texts {
			if c.onlyJSON && strings.HasPrefix(name, "YAML") {
				continue
			}

			t.Run(c.what+"/"+name, func(t *testing.T) {
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				c.take(text)
				runtime.ReadMemStats(&after)
				took := (after.TotalAlloc - before.TotalAlloc) >> 20
				assert.That(t, took <= c.most, "%d MiB were allocated", took)
			})
		}
	}
}

func TestADeeplyNestedRolloutIsPrintedOnOneLine(t *testing.T) {
	r := &v1alpha1.NodeConfigRollout{ObjectMeta: metav1.ObjectMeta{Name: "r"}}
	deep := strings.Repeat("[", 9000) + strings.Repeat("]", 9000)
	r.Spec.Template.Kubelet = &apiruntime.RawExtension{Raw: []byte(`{"x":` + deep + `}`)}
	for _, f := range []printing.Format{printing.JSON, printing.YAML} {
		var out bytes.Buffer
		assert.NoError(t, printing.Object(&out, f, r))
		lines := strings.Count(out.String(), "\n")
		assert.That(t, lines == 1 && strings.Contains(out.String(), `"x":`+deep), "%s: %d lines: %.200s", f, lines, out.String())
	}

	line, err := printing.Document(r)
	assert.That(t, err == nil && strings.Count(line, "\n") == 1 && strings.Contains(line, deep), "%v, %.200s", err, line)
}
