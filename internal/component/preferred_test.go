package component

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/version"
)

// knows makes a fake kubelet accept only these versions of the configuration.
func knows(versions string) string {
	return `version=$(echo "$config" | sed -n 's/.*kubelet.config.k8s.io\/\(v[0-9a-z]*\).*/\1/p')
case " ` + versions + ` " in *" $version "*) ;; *) end "failed to load kubelet config file, path: $file, error: failed to load Kubelet config file $file, ` +
		`error failed to decode: no kind \\\"KubeletConfiguration\\\" is registered for version \\\"kubelet.config.k8s.io/$version\\\" in scheme \\\"x.go:1\\\"";; esac
`
}

func TestConfigurationVersionsAreTriedInKubernetesVersionPriority(t *testing.T) {
	if !slices.IsSortedFunc(kubeletVersions, func(a, b string) int { return -version.CompareKubeAwareVersionStrings(a, b) }) {
		t.Errorf("the order is %q", kubeletVersions)
	}
}

func TestThePreferredVersionIsTheFirstThatTheKubeletAccepts(t *testing.T) {
	for _, tt := range []struct{ body, want string }{
		{knows("v1beta1"), "v1beta1"},
		{knows("v1beta1 v1"), "v1"},
		{knows("v1alpha1"), "v1alpha1"},
		{`case "$config" in *v1beta1*) ;; *) end "no luck";; esac`, "the dry run does not work with this kubelet: no luck"},
		{knows("v7"), `the dry run does not work with this kubelet: failed to decode: no kind "KubeletConfiguration" is registered for version ` +
			`"kubelet.config.k8s.io/v1alpha1" in scheme "x.go:1"`},
	} {
		got, err := component(t, "kubelet", fake(t, tt.body+"\naccept").Path).PreferredVersion(t.Context())
		if strings.HasPrefix(tt.want, "v") {
			if err != nil || got != "kubelet.config.k8s.io/"+tt.want {
				t.Errorf("got %s, %v, want %s", got, err, tt.want)
			}
		} else if err == nil || err.Error() != "cannot determine the preferred version of the kubelet's configuration: "+tt.want {
			t.Errorf("got %s, %v, want %s", got, err, tt.want)
		}
	}
}

func TestAConfigurationInARemovedVersionIsRejected(t *testing.T) {
	c := component(t, "kubelet", fake(t, knows("v1")+dump+"accept").Path)
	checkVerdict(t, c.Validate(t.Context(), bareConfig("")), Rejected, 1,
		`failed to decode: no kind "KubeletConfiguration" is registered for version "kubelet.config.k8s.io/v1beta1" in scheme "x.go:1"`)
	defaults, err := c.Defaults(t.Context())
	if err != nil || defaults["apiVersion"] != "kubelet.config.k8s.io/v1" || defaults["kind"] != "KubeletConfiguration" {
		t.Errorf("defaults are %v, %v", defaults, err)
	}

	c = component(t, "kube-proxy", fakeProxy(t, `accept() { printf 'apiVersion: kubeproxy.config.k8s.io/v1\nkind: KubeProxyConfiguration\n' >"$out"; exit; }
case "$config" in *v1alpha1*) end "failed complete: failed to decode: no kind";; esac
accept`))
	checkVerdict(t, c.Validate(t.Context(), proxyConfig("")), Rejected, 1, "failed to decode: no kind")
	if preferred, err := c.PreferredVersion(t.Context()); err != nil || preferred != "kubeproxy.config.k8s.io/v1" {
		t.Errorf("got %s, %v", preferred, err)
	}
	if defaults, err = c.Defaults(t.Context()); err != nil || defaults["apiVersion"] != "kubeproxy.config.k8s.io/v1" {
		t.Errorf("defaults are %v, %v", defaults, err)
	}
}

func TestThePreferredVersionIsCachedForEachBinary(t *testing.T) {
	count := filepath.Join(t.TempDir(), "count")
	for name, fakeOf := range map[string]func(body string) string{
		"kubelet":    func(body string) string { return fake(t, body+"\n"+knows("v1")+"accept").Path },
		"kube-proxy": func(body string) string { return fakeProxy(t, body+"\naccept") },
	} {
		t.Run(name, func(t *testing.T) {
			body := "echo x >>" + count
			path := fakeOf(body)
			c := component(t, name, path)
			runs := func() int {
				if _, err := c.PreferredVersion(t.Context()); err != nil {
					t.Fatal(err)
				}
				text, _ := os.ReadFile(count)
				return strings.Count(string(text), "x")
			}
			once := runs()
			if again := runs(); once == 0 || again != once {
				t.Errorf("%d runs, then %d", once, again)
			}
			if err := os.Rename(fakeOf(body), path); err != nil {
				t.Fatal(err)
			}
			if twice := runs(); twice != 2*once {
				t.Errorf("%d runs of another binary, want %d", twice-once, once)
			}
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			want := fmt.Sprintf("cannot determine the preferred version of the %s's configuration: there is no %s at %s: file does not exist", name, name, path)
			if _, err := c.PreferredVersion(t.Context()); err == nil || err.Error() != want {
				t.Errorf("got %v, want %s", err, want)
			}
			if err := os.Remove(count); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestPreferredVersionsOfTheRealComponents(t *testing.T) {
	for name, want := range map[string]string{"kubelet": "kubelet.config.k8s.io/v1beta1", "kube-proxy": "kubeproxy.config.k8s.io/v1alpha1"} {
		began := time.Now()
		if got, err := realComponent(t, name).PreferredVersion(t.Context()); err != nil || got != want {
			t.Errorf("%s: %s, %v", name, got, err)
		}
		t.Log(name, "took", time.Since(began))
	}
}
