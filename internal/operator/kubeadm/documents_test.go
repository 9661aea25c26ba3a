// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"pgregory.net/rapid"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

const (
	kubeletDocument   = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	kubeProxyDocument = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"
)

// kubeadms is a document of one of kubeadm's kinds.
func kubeadms(version, kind, more string) string {
	return "apiVersion: kubeadm.k8s.io/" + version + "\nkind: " + kind + "\n" + more
}

func documents(t *testing.T, data string) []Document {
	t.Helper()
	return assert.Value(Documents("f.yaml", []byte(data)))(t)
}

func TestADocumentKeepsEveryByte(t *testing.T) {
	first := "# why: a comment\r\n" + strings.ReplaceAll(kubeletDocument, "\n", "\r\n") + "maxPods: 7 # and this\r\n\r\n"
	second := strings.TrimSuffix(kubeProxyDocument, "\n")
	all := documents(t, "# license\n---\n"+first+"--- # the second\r\n"+second)
	want := []Document{
		{[]byte(first), "kubelet.config.k8s.io/v1beta1", "kubelet.config.k8s.io", "v1beta1", "KubeletConfiguration", "f.yaml, document 1"},
		{[]byte(second), "kubeproxy.config.k8s.io/v1alpha1", "kubeproxy.config.k8s.io", "v1alpha1", "KubeProxyConfiguration", "f.yaml, document 2"},
	}
	assert.NoDiff(t, cmp.Diff(want, all))
}

func TestPlaceNamesTheDocumentOnlyInAFileWithSeveral(t *testing.T) {
	for _, data := range []string{kubeletDocument, "---\n" + kubeletDocument + "---\n# nothing\n...\n---\n", "\ufeff# nothing\n---\n" + kubeletDocument} {
		all := documents(t, data)
		assert.That(t, len(all) == 1 && all[0].Place == "f.yaml", "%q: %+v", data, all)
	}
}

func TestAFileOfCommentsHasNoDocuments(t *testing.T) {
	for _, data := range []string{"", "\n", "# one\n---\n  # two\n---"} {
		all := documents(t, data)
		assert.That(t, len(all) == 0, "%q: %+v", data, all)
	}
}

func TestADocumentMayBeJSONThatIsNotYAML(t *testing.T) {
	text := "{\"apiVersion\": \"v1\",\n\t\"kind\": \"A\", \"b\": \"\\ud83d\\ude00\"}"
	all := documents(t, text+"\n---\n"+kubeletDocument)
	assert.That(t, string(all[0].Text) == text+"\n" && all[0].Kind == "A" && all[0].Group == "" && all[0].Version == "v1" && len(all) == 2, "%+v", all)
}

// readAsKubeadm returns the documents that kubeadm finds in a file. It has
// apimachinery's reader, which makes \n of every end of a line.
func readAsKubeadm(data []byte) ([]string, error) {
	var all []string
	for reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data))); ; {
		doc, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}

		if bytes.HasPrefix(doc, []byte("---")) { // it leaves the line in what has nothing before it
			_, doc, _ = bytes.Cut(doc, []byte("\n"))
		}
		if !isEmpty(doc) {
			all = append(all, string(doc))
		}
	}
}

func TestDocumentsAreSeparatedWhereKubeadmSeparatesThem(t *testing.T) {
	lines := []string{"---", "--- ", "--- # c", "# c", "", " ---", "a: b", "  c", "...", "\t", "- x"}
	rapid.Check(t, func(t *rapid.T) {
		var text strings.Builder
		for range rapid.IntRange(0, 12).Draw(t, "lines") {
			text.WriteString(rapid.SampledFrom(lines).Draw(t, "line") + rapid.SampledFrom([]string{"\n", "\r\n"}).Draw(t, "end"))
		}

		text.WriteString(rapid.SampledFrom(append(lines, "")).Draw(t, "last"))
		want := assert.Value(readAsKubeadm([]byte(text.String())))(t)
		var got []string
		for _, doc := range split([]byte(text.String())) {
			doc = bytes.ReplaceAll(doc, []byte("\r\n"), []byte("\n"))
			got = append(got, strings.TrimSuffix(string(doc), "\n")+"\n")
		}

		assert.NoDiff(t, cmp.Diff(want, got))
	})
}

func TestADocumentThatCannotBeReadIsNamed(t *testing.T) {
	for _, tt := range []struct{ name, data, want string }{
		{"no YAML", kubeletDocument + "---\n" + kubeletDocument + "maxPods: [\n", "f.yaml, document 2: neither JSON nor YAML: yaml: line 3: did not find expected node content"},
		{"a list", "- a\n", "f.yaml: must be a mapping of fields, not a list"},
		{"null", "null", "f.yaml: empty"},
		{"a word", "word\n---\n" + kubeletDocument, `f.yaml, document 1: must be a mapping of fields, not "word"`},
		{"no apiVersion", "kind: A\n", "f.yaml: it has no apiVersion, or one that is not a string"},
		{"no kind", "apiVersion: v1\n", "f.yaml: it has no kind, or one that is not a string"},
		{"a kind that is a number", "apiVersion: v1\nkind: 1\n", "f.yaml: it has no kind, or one that is not a string"},
		{"a bad apiVersion", "apiVersion: a/b/c\nkind: A\n", `f.yaml: its apiVersion "a/b/c" is invalid`},
		{"a key twice", kubeletDocument + "kind: B\n", `f.yaml: duplicate key: yaml: unmarshal errors: line 3: key "kind" already set in map`},
		{"a key twice, JSON", `{"apiVersion": "v1", "kind": "A", "kind": "B"}`, `f.yaml: duplicate field "kind"`},
		{"text after the line between", kubeletDocument + "--- {kind: A}\n", "f.yaml, document 2: only a comment may follow --- on the same line"},
		{"no line between", kubeletDocument + "...\n" + kubeletDocument, "f.yaml: another document follows without a line --- between them"},
		{"aliases", kubeletDocument + "a: &a [x]\nb: [" + strings.Repeat("*a,", 30) + "]\n", "f.yaml: its YAML aliases may expand to more than 1 MiB: replace the aliases with their values"},
		{"UTF-16", "a\x00:\x00\xff\xfe", "f.yaml: it is not UTF-8"},
		{"too large", strings.Repeat("#", MaxFile+1), "f.yaml: larger than 4 MiB"},
	} {
		assert.Error(t, assert.Err(Documents("f.yaml", []byte(tt.data))), tt.want, tt.name)
		assert.Error(t, assert.Err(ParseFile("f.yaml", []byte(tt.data))), tt.want, tt.name)
	}
}

func TestDocumentsAfterAnUnreadableOneAreYielded(t *testing.T) {
	var got []string
	for d, err := range EachDocument("f.yaml", []byte("a: [\n---\n"+kubeletDocument+"---\n- b\n---\n"+kubeProxyDocument)) {
		if err != nil {
			d.Kind = err.Error()
		}

		got = append(got, d.Place+": "+d.Kind)
		if len(got) == 3 {
			break
		}
	}

	want := []string{
		"f.yaml, document 1: neither JSON nor YAML: yaml: line 1: did not find expected node content",
		"f.yaml, document 2: KubeletConfiguration",
		"f.yaml, document 3: must be a mapping of fields, not a list",
	}
	assert.NoDiff(t, cmp.Diff(want, got))
}

func TestParseFileAcceptsComponentConfigurationsOfAnyVersion(t *testing.T) {
	future := strings.ReplaceAll(kubeProxyDocument, "v1alpha1", "v2")
	g := assert.Value(ParseFile("f.yaml", []byte(kubeletDocument+"maxPods: 7 # seven\n---\n"+future)))(t)
	assert.That(t, g.File == "f.yaml" && g.Cluster == nil && g.Endpoint == "" && len(g.Notes) == 0 && len(g.Configs) == 2, "%+v", g)
	assert.Equal(t, string(g.Configs["kubelet"].Text), kubeletDocument+"maxPods: 7 # seven\n", "the kubelet's is")
	got := g.Configs["kube-proxy"]
	assert.That(t, string(got.Text) == future && got.Version == "v2" && got.Place == "f.yaml, document 2", "kube-proxy's is %+v", got)
}

func TestParseFileReadsTheClusterConfigurationOfBothVersions(t *testing.T) {
	for _, version := range []string{"v1beta3", "v1beta4"} {
		document := kubeadms(version, "ClusterConfiguration", "networking: {dnsDomain: other.example}\n")
		g := assert.Value(ParseFile("f.yaml", []byte(kubeletDocument+"---\n"+document)))(t)
		c := g.Cluster
		assert.That(t, c != nil && c.APIVersion == "kubeadm.k8s.io/"+version && c.DNSDomain == "other.example" && string(c.Document) == document, "%+v", g.Cluster)
		assert.That(t, len(g.Configs) == 1, "configs are %v", g.Configs)
	}
}

func TestParseFileNamesAnInvalidClusterConfiguration(t *testing.T) {
	_, err := ParseFile("f.yaml", []byte(kubeletDocument+"---\n"+kubeadms("v1beta4", "ClusterConfiguration", "networking: 7\n")))
	assert.ErrorHas(t, err, "f.yaml, document 2: ")
}

func TestParseFileReadsTheEndpointOfAnInitConfiguration(t *testing.T) {
	for _, tt := range []struct{ init, want string }{
		{"localAPIEndpoint: {advertiseAddress: 192.0.2.7, bindPort: 7443}\nnodeRegistration: {name: a}\n", "192.0.2.7:7443"},
		{"localAPIEndpoint: {advertiseAddress: 192.0.2.7}\n", "192.0.2.7:6443"},
		{"localAPIEndpoint: {advertiseAddress: '2001:db8::7'}\n", "[2001:db8::7]:6443"},
		{"localAPIEndpoint: {bindPort: 7443}\n", ""},
		{"localapiendpoint: {advertiseAddress: 192.0.2.7}\n", ""},
		{"", ""},
	} {
		for _, version := range kubeadmVersions {
			g, err := ParseFile("f.yaml", []byte(kubeadms(version, "InitConfiguration", tt.init)+"---\n"+kubeletDocument))
			assert.That(t, err == nil && g.Endpoint == tt.want, "%q: %+v, %v, want %s", tt.init, g, err, tt.want)
		}
	}
}

func TestParseFileIgnoresKindsThatDoNotConfigureComponents(t *testing.T) {
	join, upgrade := kubeadms("v1beta4", "JoinConfiguration", ""), kubeadms("v1beta9", "UpgradeConfiguration", "")
	g, err := ParseFile("f.yaml", []byte(strings.Join([]string{join, kubeletDocument, upgrade, kubeadms("v1beta3", "ResetConfiguration", ""), join}, "---\n")))
	assert.NoError(t, err)
	want := []string{
		"f.yaml, document 1: JoinConfiguration ignored: it does not configure components",
		"f.yaml, document 3: UpgradeConfiguration ignored: it does not configure components",
		"f.yaml, document 4: ResetConfiguration ignored: it does not configure components",
		"f.yaml, document 5: JoinConfiguration ignored: it does not configure components",
	}
	diff := cmp.Diff(want, g.Notes)
	assert.That(t, diff == "" && len(g.Configs) == 1, "%v, %s", g.Configs, diff)
}

func TestParseFileRejectsInvalidFiles(t *testing.T) {
	nothing := "f.yaml has neither a ClusterConfiguration nor a component configuration"
	old := " is not supported, only of v1beta3 and v1beta4; convert older versions with \"kubeadm config migrate\""
	for _, tt := range []struct{ name, data, want string }{
		{"nothing", "# nothing\n", nothing},
		{"a JoinConfiguration alone", kubeadms("v1beta4", "JoinConfiguration", ""), nothing},
		{"an old ClusterConfiguration", kubeadms("v1beta2", "ClusterConfiguration", ""), "f.yaml: ClusterConfiguration of kubeadm.k8s.io/v1beta2" + old},
		{"a future InitConfiguration", kubeletDocument + "---\n" + kubeadms("v1", "InitConfiguration", ""),
			"f.yaml, document 2: InitConfiguration of kubeadm.k8s.io/v1" + old},
		{"an endpoint that is none", kubeadms("v1beta4", "InitConfiguration", "localAPIEndpoint: {advertiseAddress: a.example}\n"),
			`f.yaml: its localAPIEndpoint.advertiseAddress "a.example" is not an IP address`},
		{"a port that is none", kubeadms("v1beta4", "InitConfiguration", "localAPIEndpoint: {advertiseAddress: 192.0.2.7, bindPort: 65536}\n"),
			"f.yaml: its localAPIEndpoint.bindPort 65536 is not a port"},
		{"an endpoint of another type", kubeadms("v1beta4", "InitConfiguration", "localAPIEndpoint: [a]\n"),
			"f.yaml: it cannot be parsed: json: cannot unmarshal array into Go struct field initConfiguration.localAPIEndpoint of type kubeadm.localAPIEndpoint"},
		{"another kind of kubeadm's", kubeadms("v1beta4", "ClusterStatus", ""), "f.yaml: ClusterStatus of kubeadm.k8s.io/v1beta4 is not a kubeadm or component configuration"},
		{"another kind of a component's", strings.Replace(kubeletDocument, "KubeletConfiguration", "CredentialProviderConfig", 1),
			"f.yaml: CredentialProviderConfig of kubelet.config.k8s.io/v1beta1 is not a kubeadm or component configuration"},
		{"a component's kind of another group", "apiVersion: example.com/v1\nkind: KubeletConfiguration\n",
			"f.yaml: KubeletConfiguration of example.com/v1 is not a kubeadm or component configuration"},
		{"a ConfigMap", "apiVersion: v1\nkind: ConfigMap\n",
			"f.yaml: ConfigMap of v1 is not a kubeadm or component configuration; pass the value of one of its keys, not the ConfigMap itself"},
		{"grouped", kubeProxyDocument + "---\napiVersion: evenkeel.dev/v1alpha1\nkind: KubeletConfiguration\n",
			"f.yaml, document 2 is in evenkeel's grouped form, which kubelet and kubeadm do not read; convert it with: kubectl evenkeel config convert --form=flat FILE"},
		{"two of a component", kubeletDocument + "---\n" + kubeProxyDocument + "---\n" + kubeletDocument,
			"f.yaml, document 3: duplicate KubeletConfiguration, the first is f.yaml, document 1: remove one of them"},
		{"two versions of a component", kubeProxyDocument + "---\n" + strings.Replace(kubeProxyDocument, "v1alpha1", "v1", 1),
			"f.yaml, document 2: duplicate KubeProxyConfiguration, of v1alpha1 (f.yaml, document 1) and of v1: remove one of them"},
	} {
		assert.Error(t, assert.Err(ParseFile("f.yaml", []byte(tt.data))), tt.want, tt.name)
	}
}
