// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

const (
	head    = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	grouped = "apiVersion: evenkeel.dev/v1alpha1\nkind: KubeletConfiguration\n"
)

func configMap(data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "evenkeel-system", Name: "workers"},
		Data:       data,
	}
}

func TestAPayloadKeepsItsBytesAndTheirDigest(t *testing.T) {
	text := head + "maxPods: 120\n"
	for _, key := range []string{KeyKubelet, KeyKubeletDropin} {
		p := assert.Value(FromConfigMap(configMap(map[string]string{key: text})))(t)
		assert.That(t, p.Key == key && string(p.Data) == text && string(p.upstream) == text, "key %q, data %q, upstream %q", p.Key, p.Data, p.upstream)
		assert.Equal(t, p.SHA256, Digest(key, []byte(text)), "sha256")
		assert.That(t, p.Fields["maxPods"] == int64(120), "maxPods = %#v, want int64 120", p.Fields["maxPods"])
	}
}

func TestTheDigestCoversKeyNewlineAndData(t *testing.T) {
	// printf 'kubelet\nabc' | sha256sum
	const want = "444e493821033a51ac2c562ac17f5c50bd626bc17b1d9328e91c3ac3bcdc917d"
	assert.Equal(t, Digest("kubelet", []byte("abc")), want, "Digest")
}

func TestErrorsNameTheConfigMap(t *testing.T) {
	const who = `ConfigMap evenkeel-system/workers: `
	tests := []struct {
		name    string
		data    map[string]string
		binary  map[string][]byte
		problem Problem
		words   string
	}{
		{"neither key", nil, nil, ProblemKeys, who + `it has neither the data key "kubelet" nor "kubelet-dropin"`},
		{"both keys", map[string]string{"kubelet": head, "kubelet-dropin": head}, nil, ProblemKeys,
			who + `it has both data keys "kubelet" and "kubelet-dropin"; exactly one is allowed`},
		{"an unknown key beside a good one", map[string]string{"kubelet": head, "b": "", "a": ""}, nil, ProblemKeys,
			who + `unknown data keys "a", "b"; exactly one of "kubelet" and "kubelet-dropin" is allowed`},
		{"many unknown keys", map[string]string{"a": "", "b": "", "c": "", "d": "", "e": "", "f": ""}, nil, ProblemKeys,
			who + `unknown data keys "a", "b", "c", "d", "e", ...; exactly one of "kubelet" and "kubelet-dropin" is allowed`},
		{"binaryData", map[string]string{"kubelet": head}, map[string][]byte{"x": {1}}, ProblemKeys,
			who + `binaryData is not allowed ("x")`},
		{"a bad drop-in", map[string]string{"kubelet-dropin": head + "staticPodPath: m"}, nil, ProblemRelativePath,
			who + `key "kubelet-dropin": staticPodPath is the relative path "m"; paths must be absolute`},
		{"a bad value", map[string]string{"kubelet": ""}, nil, ProblemEmpty, who + `key "kubelet": empty`},
	}
	for _, tt := range tests {
		cm := configMap(tt.data)
		cm.BinaryData = tt.binary
		checkRefused(t, assert.Err(FromConfigMap(cm)), tt.problem, tt.words, tt.name)
	}
}

func checkRefused(t *testing.T, err error, problem Problem, words string, about ...any) {
	t.Helper()
	assert.Error(t, err, words, about...)
	assert.Equal(t, ProblemOf(err), problem, about...)
}

func TestErrorsOfInvalidValues(t *testing.T) {
	tests := []struct {
		name    string
		data    string
		problem Problem
		words   string
	}{
		{"nothing", "", ProblemEmpty, "empty"},
		{"white space and a comment", " \n# nothing\n", ProblemEmpty, "empty"},
		{"null", "null\n", ProblemEmpty, "empty"},
		{"no YAML", "a: [1\n", ProblemSyntax, "neither JSON nor YAML: yaml: line 1: did not find expected ',' or ']'"},
		{"a string", "hello\n", ProblemSyntax, "must be a mapping of fields, not \"hello\""},
		{"a key that JSON cannot have", head + "? [a]\n: 1\n", ProblemSyntax,
			"neither JSON nor YAML: yaml: invalid map key: []interface {}{\"a\"}"},
		{"a value that JSON cannot have", head + "a: .nan\n", ProblemSyntax, "neither JSON nor YAML: json: unsupported value: NaN"},
		{"two documents", head + "---\n" + head, ProblemDocuments, "more than one YAML document"},
		{"a second document that is no YAML", head + "---\na: [\n", ProblemDocuments, "more than one YAML document"},
		{"a key twice in YAML", head + "maxPods: 1\nmaxPods: 2\n", ProblemDuplicate,
			`duplicate key: yaml: unmarshal errors: line 4: key "maxPods" already set in map`},
		{"a key twice in JSON", `{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration","a":1,"a":2}`, ProblemDuplicate,
			`duplicate field "a"`},
		{"no kind", "maxPods: 1\n", ProblemKind,
			`apiVersion is "" and kind is "", but must be "kubelet.config.k8s.io/v1beta1" or "evenkeel.dev/v1alpha1", and "KubeletConfiguration"`},
		{"another kind", strings.Replace(head, "KubeletConfiguration", "KubeletConfig", 1), ProblemKind,
			`apiVersion is "kubelet.config.k8s.io/v1beta1" and kind is "KubeletConfig", but must be "kubelet.config.k8s.io/v1beta1" and "KubeletConfiguration"`},
		{"another version", strings.Replace(head, "v1beta1", "v1", 1), ProblemKind,
			`apiVersion is "kubelet.config.k8s.io/v1" and kind is "KubeletConfiguration", but must be "kubelet.config.k8s.io/v1beta1" or "evenkeel.dev/v1alpha1", and "KubeletConfiguration"`},
		{"another kind of the grouped form", strings.Replace(grouped, "KubeletConfiguration", "NodeConfig", 1), ProblemKind,
			`apiVersion is "evenkeel.dev/v1alpha1" and kind is "NodeConfig", but must be "evenkeel.dev/v1alpha1" and "KubeletConfiguration"`},
		{"over 1 MiB", head + "#" + strings.Repeat("x", MaxSize), ProblemTooLarge, "larger than 1 MiB"},
		{"a short value with many aliases", head + "clusterDomain: &a x\nclusterDNS: [*a" + strings.Repeat(",*a", 20) + "]\n", ProblemTooLarge,
			"its YAML aliases may expand to more than 1 MiB: replace the aliases with their values"},
		{"a relative path, nested, in another case", head + "Authentication: {X509: {ClientCaFile: ca}}\n", ProblemRelativePath,
			`Authentication.X509.ClientCaFile is the relative path "ca"; paths must be absolute`},
		{"a relative path behind an absolute one", head + "staticPodPath: /m\nStaticPodPath: m\n", ProblemRelativePath,
			`StaticPodPath is the relative path "m"; paths must be absolute`},
		{"a relative path in letters that only fold", head + "\u017ftaticPodPath: m\n", ProblemRelativePath,
			"\u017ftaticPodPath is the relative path \"m\"; paths must be absolute"},
		{"no health endpoint, in another case and as a float", head + "HealthzPort: 0.0\n", ProblemHealthDisabled,
			"HealthzPort is 0, which disables the health endpoint: the kubelet's health could not be checked"},
	}
	for _, tt := range tests {
		checkRefused(t, assert.Err(Decode("kubelet", []byte(tt.data))), tt.problem, tt.words, tt.name)
	}

	checkRefused(t, assert.Err(Decode("other", []byte(head))), ProblemKeys, `unknown key "other"`)
}

func TestPathsMustBeAbsolute(t *testing.T) {
	for _, path := range []string{
		"staticPodPath", "authentication.x509.clientCAFile", "tlsCertFile", "tlsPrivateKeyFile", "resolvConf", "volumePluginDir", "podLogsDir",
	} {
		fields := at(path, "./x")
		fields["apiVersion"], fields["kind"] = UpstreamAPIVersion, KubeletKind
		err := assert.Err(Decode(KeyKubelet, assert.Value(json.Marshal(fields))(t)))
		checkRefused(t, err, ProblemRelativePath, path+` is the relative path "./x"; paths must be absolute`)
	}
}

func TestValuesThatOnlyTheKubeletChecksAreAccepted(t *testing.T) {
	for name, data := range map[string]string{
		"JSON":                             `{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration","maxPods":1}`,
		"JSON with tabs":                   "{\n\t\"apiVersion\":\"kubelet.config.k8s.io/v1beta1\",\n\t\"kind\":\"KubeletConfiguration\"}",
		"a leading document separator":     "---\n" + head,
		"an empty document at the end":     head + "---\n",
		"an unknown field":                 head + "bogus: 1\n",
		"a path that means none":           head + "staticPodPath: \"\"\nauthentication: {x509: {clientCAFile: \"\"}}\n",
		"a path of another type":           head + "staticPodPath: 7\n",
		"authentication that is no object": head + "authentication: 7\n",
		"absolute paths":                   head + "staticPodPath: /m\nresolvConf: /etc/resolv.conf\n",
		"a few aliases":                    head + "evictionSoft: &a {memory.available: 1Gi}\nevictionHard: *a\nevictionMinimumReclaim: *a\n",
		"stars and ands that are no names": head + "clusterDomain: '&a * & **'\nclusterDNS: ['*b" + strings.Repeat("*b", 100) + "']\n",
		"exactly 1 MiB":                    head + "#" + strings.Repeat("x", MaxSize-len(head)-1),
	} {
		p := assert.Value(Decode("kubelet", []byte(data)))(t, name)
		assert.That(t, p.Fields["kind"] == "KubeletConfiguration", "%s: fields = %v", name, p.Fields)
	}
}

func TestYAMLAliasesCannotExhaustMemory(t *testing.T) {
	long, many := strings.Repeat("A", 400_000), strings.Repeat(",*a", 30_000)
	laughs := "a: &a [x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c < 'z'; c++ {
		laughs += fmt.Sprintf("%c: &%[1]c [%s]\n", c, strings.Repeat(fmt.Sprintf("*%c,", c-1), 8))
	}

	utf16 := []byte("\xff\xfe")
	for _, c := range []byte("a: &a " + long + "\nb: [*a" + many + "]\n") {
		utf16 = append(utf16, c, 0)
	}

	for name, data := range map[string]string{
		"values":                        "a: &a " + long + "\nb: [*a" + many + "]\n",
		"binary values":                 "a: &a !!binary " + long + "\nb: [*a" + many + "]\n",
		"keys that are there twice":     "a: &a " + long + "\nb: {*a : 1" + strings.ReplaceAll(many, "a", "a : 1") + "}\n",
		"aliases of aliases":            laughs,
		"in a second document":          "---\na: &a " + long + "\nb: [*a" + many + "]\n",
		"an anchor that is there twice": "a: &a " + long + " # &a *a\nb: [*a" + many + "]\n",
		"in UTF-16":                     string(utf16),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, refused := toJSON([]byte(data))
		runtime.ReadMemStats(&after)
		assert.That(t, ProblemOf(refused) == ProblemTooLarge, "%s: refused: %v", name, refused)
		took := after.TotalAlloc - before.TotalAlloc
		assert.That(t, took <= 32<<20, "%s: it took %d MiB to refuse it", name, took>>20)
	}
}

func TestALongErrorIsTruncated(t *testing.T) {
	_, err := Decode("kubelet", []byte(head+"staticPodPath: "+strings.Repeat("\u00e9", 4000)))
	assert.Must(t, err != nil && len(err.Error()) <= 500, "error of %d bytes", len(err.Error()))
}

func FuzzDecodeNeverPanics(f *testing.F) {
	for _, seed := range append([]string{
		head + "---\n", "<<: *x", head + "healthzPort: 0", head + "authentication: {x509: {clientCAFile: ca}}", "!!map {a: b}",
		grouped, grouped + "trial: {crashLoopThreshold: 1e999}",
		grouped + "resources: {reservations: {reservedMemory: [{numaNode: 0, limits: {memory: 1}}, null, [[{}]]]}}",
		grouped + "networking: null\nruntime: []\nungrouped: {}\n\"\": {a.b: 1}\nmaxPods: 1", grouped + "server: &a {b: *a}",
		`{"apiVersion":"evenkeel.dev/v1alpha1","kind":"KubeletConfiguration","server":{"port":1.0e4,"healthzPort":-0}}`,
	}, payloads...) {
		f.Add([]byte(seed))
	}

	f.Fuzz(func(t *testing.T, data []byte) {
		for _, key := range []string{KeyKubelet, KeyKubeletDropin} {
			p, err := Decode(key, data)
			if err != nil {
				continue
			}
			assert.That(t, string(p.Data) == string(data) && p.Fields["kind"] == "KubeletConfiguration" && p.Fields["apiVersion"] == UpstreamAPIVersion,
				"accepted %q as %v", data, p.Fields)

			again, err := Decode(key, p.upstream)
			diff := cmp.Diff(p.Fields, again.Fields)
			assert.That(t, err == nil && diff == "", "%q became %q, which is read as something else: %v %s", data, p.upstream, err, diff)
		}
	})
}
