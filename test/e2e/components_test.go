package e2e

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// bench is a host with the agent's program and some components', but no node.
type bench struct {
	t   *testing.T
	tmp string // must be empty when the test ends
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t, t.TempDir()}
	t.Cleanup(func() {
		if left, _ := os.ReadDir(b.tmp); len(left) > 0 {
			t.Errorf("the commands left %v", left)
		}
	})
	return b
}

// tool is the path of a pinned upstream program.
func tool(name string) string { return filepath.Join("..", "..", "bin", "tools", name) }

// runs runs one of the agent's commands, which must exit with code, and say the
// words on the standard error. It returns what it printed.
func (b *bench) runs(code int, stdin, words string, args ...string) string {
	b.t.Helper()
	cmd := exec.CommandContext(b.t.Context(), filepath.Join("..", "..", "bin", "evenkeel-agent"), args...)
	cmd.Env = append(os.Environ(), "TMPDIR="+b.tmp)
	cmd.Stdin = strings.NewReader(stdin)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		b.t.Fatal(err)
	}
	if got := cmd.ProcessState.ExitCode(); got != code || !strings.Contains(said.String(), words) || words == "" && said.Len() > 0 {
		b.t.Errorf("%q: exit code %d, %q; want %d, %q", args, got, said.String(), code, words)
	}
	return out.String()
}

const proxyHeader = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"

func TestCheckReturnsTheVerdictOfAKubeProxy(t *testing.T) {
	b := newBench(t)
	proxy := tool("kube-proxy")
	file := filepath.Join(t.TempDir(), "config.conf")
	if err := os.WriteFile(file, []byte(proxyHeader+"mode: nftables\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		code  int
		stdin string
		args  []string // after --component=kube-proxy
		out   string
		words string
	}{
		{"accepted, from a file", 0, "", []string{file, "--", proxy}, "accepted\n", ""},
		{"accepted, from the standard input", 0, proxyHeader, []string{"-", "--", proxy}, "accepted\n", ""},
		{"rejected by the kube-proxy", 1, proxyHeader + "oomScoreAdj: 2000\n", []string{"-", "--", proxy}, "",
			"evenkeel-agent: rejected: KubeProxyConfiguration.KubeProxyLinuxConfiguration.OOMScoreAdj: Invalid value: 2000: must be within the range [-1000, 1000]\n"},
		{"a field that it only warns about", 1, proxyHeader + "modus: ipvs\n", []string{"-", "--", proxy}, "",
			`evenkeel-agent: rejected: strict decoding error: unknown field "modus"` + "\n"},
		{"a document that it would pass over", 1, proxyHeader + "---\nmode: ipvs\n", []string{"-", "--", proxy}, "",
			"evenkeel-agent: rejected: more than one YAML document: the kube-proxy would read only the first\n"},
		{"nothing", 1, "", []string{"-", "--", proxy}, "", "evenkeel-agent: rejected: empty\n"},
		{"too much", 1, strings.Repeat("#", 2<<20), []string{"-", "--", proxy}, "", "evenkeel-agent: rejected: larger than 1 MiB\n"},
		{"another component's binary", 2, proxyHeader, []string{"-", "--", underTest.path}, "",
			"evenkeel-agent: could not tell: the dry run does not work with this kube-proxy: failed to parse kubelet flag: unknown flag: --write-config-to\n"},
		{"with flags", 3, proxyHeader, []string{"-", "--", proxy, "--v=2"}, "",
			`evenkeel-agent: the kube-proxy takes no flags here: remove ["--v=2"]` + "\n"},
		{"with a local configuration", 3, proxyHeader, []string{"--init-config-dir=/", "-", "--", proxy}, "", "evenkeel-agent: --init-config-dir is for the kubelet"},
		{"no such file", 3, "", []string{"/not/there", "--", proxy}, "", "evenkeel-agent: cannot read the configuration: open /not/there: no such file or directory\n"},
		{"a directory", 3, "", []string{"/", "--", proxy}, "", "evenkeel-agent: cannot read the configuration: read /: is a directory\n"},
		{"no such kube-proxy", 3, proxyHeader, []string{"-", "--", "/not/there"}, "", "evenkeel-agent: there is no kube-proxy at /not/there"},
		{"no kube-proxy", 3, proxyHeader, []string{"-"}, "", "evenkeel-agent: check takes one FILE (or -), then -- and the kube-proxy's command line\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := &bench{t, b.tmp}
			if out := b.runs(c.code, c.stdin, c.words, append([]string{"check", "--component=kube-proxy"}, c.args...)...); out != c.out {
				t.Errorf("it printed %q, want %q", out, c.out)
			}
		})
	}
	b.runs(3, proxyHeader, `evenkeel-agent: there is no component "kube-dns"; there are kube-proxy, kubelet`, "check", "--component=kube-dns", "-", "--", proxy)
	b.runs(1, "maxPods: 3\n", `evenkeel-agent: rejected: key "kubelet": `, "check", "--component=kubelet", "-", "--", underTest.path)
	for _, words := range []string{"Exit codes: 0 accepted, 1 rejected or refused, 2 could not tell, 3 usage.", "Examples:", "component of the configuration: kube-proxy or kubelet"} {
		if help := b.runs(0, "", "", "check", "--help"); !strings.Contains(help, words) {
			t.Errorf("the help does not say %q but:\n%s", words, help)
		}
	}
}

func TestDefaultsAreAConfigurationOfTheComponentThatPrintedThem(t *testing.T) {
	b := newBench(t)
	for name, c := range map[string]struct{ path, begin string }{
		"kubelet": {underTest.path, "# The defaults of kubelet " + underTest.version + ", as it printed them.\n" +
			"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\naddress: 0.0.0.0\n"},
		"kube-proxy": {tool("kube-proxy"), "# The defaults of kube-proxy v1.37.1, as it printed them.\n" + proxyHeader + "bindAddress: 0.0.0.0\n"},
	} {
		t.Run(name, func(t *testing.T) {
			b := &bench{t, b.tmp}
			document := b.runs(0, "", "", "defaults", "--component="+name, "--", c.path)
			if !strings.HasPrefix(document, c.begin) {
				t.Errorf("it begins %.300q", document)
			}
			var fields map[string]any
			if err := yaml.UnmarshalStrict([]byte(document), &fields); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(document, b.tmp) {
				t.Errorf("there is something of the dry run in it:\n%s", document)
			}
			args := []string{"check", "--component=" + name, "-", "--", c.path}
			if name == "kubelet" {
				args = slices.Insert(args, 1, "--anywhere") // a kubelet without any file lets everybody in
			}
			if out := b.runs(0, document, "", args...); !strings.Contains(out, "accepted") {
				t.Errorf("it said %q", out)
			}
		})
	}
	if document := b.runs(0, "", "", "defaults", "--", underTest.path); !strings.Contains(document, "\nkind: KubeletConfiguration\n") {
		t.Errorf("without a name it printed %.300q", document)
	}

	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho Kubernetes v1.0.0\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		code  int
		args  []string
		words string
	}{
		{2, []string{"--", tool("kube-proxy")}, "could not tell: cannot read the defaults of the kubelet: the dry run does not work with this kubelet: unknown flag: --cert-dir"},
		{2, []string{"--", "/bin/true"}, `could not tell: kubelet --version: exit code 0, "`},
		{2, []string{"--component=kube-proxy", "--", script}, "could not tell: cannot read the defaults of the kube-proxy: the dry run does not work with this kube-proxy: the kube-proxy ended with exit code 0, but wrote no configuration"},
		{3, []string{"--component=kube-dns", "--", underTest.path}, `there is no component "kube-dns"; there are kube-proxy, kubelet`},
		{3, []string{"--", "/not/there"}, "there is no kubelet at /not/there"},
		{3, []string{"--", underTest.path, "--v=2"}, `the kubelet takes no flags here: remove ["--v=2"]`},
		{3, []string{"--component=kube-proxy"}, "defaults takes -- and the path of a kube-proxy"},
		{3, []string{"kubelet", "--", underTest.path}, "defaults takes -- and the path of a kubelet"},
	} {
		if out := b.runs(c.code, "", "evenkeel-agent: "+c.words, append([]string{"defaults"}, c.args...)...); out != "" {
			t.Errorf("%q: it printed %.300q", c.args, out)
		}
	}
	if help := b.runs(0, "", "", "defaults", "--help"); !strings.Contains(help, "Exit codes: 0 printed, 2 could not tell, 3 usage.") || !strings.Contains(help, "Examples:") {
		t.Errorf("the help is %s", help)
	}
}
