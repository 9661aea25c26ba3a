package component

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// realKubelet returns the path of the pinned kubelet, which `make tools` builds.
func realKubelet(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		if dir == "/" {
			t.Fatal("no go.mod above the working directory")
		}
	}
	path := filepath.Join(dir, "bin", "tools", "kubelet")
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: run make tools", err)
	}
	return path
}

// config returns a KubeletConfiguration that the kubelet accepts on this host, which may use cgroup v1, with more
// fields.
func config(more string) []byte {
	return []byte("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nfailCgroupV1: false\n" + more)
}

func kubeletWith(t testing.TB, local string, flags ...string) *Kubelet {
	t.Helper()
	file := filepath.Join(t.TempDir(), "local.yaml")
	if err := os.WriteFile(file, config(local), 0o600); err != nil {
		t.Fatal(err)
	}
	k, err := ParseKubelet(append([]string{realKubelet(t), "--config=" + file}, flags...))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// noRuntime is a local configuration with a missing runtime, so that stage 2 is unavailable and only stage 1 is
// tested.
func noRuntime(t testing.TB) string {
	return "containerRuntimeEndpoint: unix://" + filepath.Join(t.TempDir(), "none.sock") + "\n"
}

func TestVerdictsOfTheRealKubeletAtStage1(t *testing.T) {
	tests := []struct {
		name    string
		data    string
		message string // "" for accepted
	}{
		{"the defaults", "", ""},
		{"another value", "maxPods: 77\n", ""},
		{"an unknown field", "bogus: 1\n", `strict decoding error: unknown field "bogus"`},
		{"the wrong case", "MaxPods: 1\n", `strict decoding error: unknown field "MaxPods"`},
		{"a duplicate key", "maxPods: 1\nmaxPods: 2\n",
			`strict decoding error: yaml: unmarshal errors: line 5: key "maxPods" already set in map`},
		{"out of range", "maxPods: -1\n", "invalid configuration: maxPods (--max-pods) -1 must not be a negative number"},
		{"two values out of range", "maxPods: -1\npodsPerCore: -1\n",
			"[invalid configuration: maxPods (--max-pods) -1 must not be a negative number, invalid configuration: podsPerCore (--pods-per-core) -1 must not be a negative number]"},
		{"out of range and unknown", "maxPods: -1\nbogus: 1\n",
			`invalid configuration: maxPods (--max-pods) -1 must not be a negative number; strict decoding error: unknown field "bogus"`},
		{"an unknown feature gate", "featureGates: {Nope: true}\n",
			"unrecognized feature gate: Nope"},
		{"a wrong type", "maxPods: lots\n",
			"failed to decode: json: cannot unmarshal string into Go struct field KubeletConfiguration.maxPods of type int32"},
		{"JSON logging", "maxPods: 77\nlogging: {format: json}\n", ""},
		{"JSON logging and out of range", "maxPods: -1\nlogging: {format: json}\n",
			"invalid configuration: maxPods (--max-pods) -1 must not be a negative number"},
		{"logging split and buffered", "featureGates: {LoggingAlphaOptions: true}\nlogging: {format: text, options: {text: {splitStream: true, infoBufferSize: 64Mi}}}\n", ""},
		{"JSON logging split and buffered", "featureGates: {LoggingAlphaOptions: true}\nlogging: {format: json, options: {json: {splitStream: true, infoBufferSize: 64Mi}}}\n", ""},
		{"quiet logging", "logging: {verbosity: 0, vmodule: [{filePattern: server, verbosity: 0}]}\n", ""},
		{"an unknown log format", "logging: {format: xml}\n",
			`initialize logging: logging.format: Invalid value: "xml": Unsupported log format`},
		{"words of acceptance in a value", "featureGates: {\"x: failed to run Kubelet: cannot exit on lock file contention: no lock file specified\": true}\n",
			"unrecognized feature gate: x: failed to run Kubelet: cannot exit on lock file contention: no lock file specified"},
	}
	h := dryRunner(t, kubeletWith(t, noRuntime(t)))
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v := h.Check(context.Background(), Candidate{Data: config(tt.data)}, "")
			if tt.message != "" {
				checkVerdict(t, v, Rejected, 1, tt.message)
				return
			}
			if v.Outcome != Accepted || v.Stage != 1 || !strings.HasPrefix(v.Message, "stage 2 of the dry run was not used: ") {
				t.Errorf("got %+v", v)
			}
			if address := v.Effective.String("healthzBindAddress"); address != "127.0.0.1" {
				t.Errorf("the dump was not read: healthzBindAddress = %q", address)
			}
		})
	}
	t.Run("the wrong kind", func(t *testing.T) {
		v := h.Check(context.Background(), Candidate{Data: []byte("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: Nope\n")}, "")
		if v.Outcome != Rejected || !strings.Contains(v.Message, `no kind "Nope" is registered`) {
			t.Errorf("got %+v", v)
		}
	})
	t.Run("nothing", func(t *testing.T) {
		checkVerdict(t, h.Check(context.Background(), Candidate{}, ""), Rejected, 1, `kubelet config file "kubelet" was empty`)
	})
}

func TestVerdictsOfTheRealKubeletOnTheLocalConfiguration(t *testing.T) {
	h := dryRunner(t, kubeletWith(t, "bogus: 1\nmaxPods: 33\n", "--max-pods=44", "-v=3"))
	v := h.CheckLocal(context.Background(), "")
	checkVerdict(t, v, Accepted, 1, "")
	if want := []string{`strict decoding error: unknown field "bogus"`}; !slices.Equal(v.Warnings, want) {
		t.Errorf("warnings = %q, want %q", v.Warnings, want)
	}
	if n, _ := v.Effective.Int("maxPods"); n != 44 {
		t.Errorf("maxPods = %d, want the flag's 44", n)
	}
	if n, _ := v.Effective.Int("logging.verbosity"); n != 3 {
		t.Errorf("logging.verbosity = %d, want the node's 3, not the dry run's", n)
	}
	if cert := v.Effective.String("tlsCertFile"); cert != "/var/lib/kubelet/pki/kubelet.crt" {
		t.Errorf("tlsCertFile = %s, want where the kubelet would have it", cert)
	}
	initFile := filepath.Join(t.TempDir(), "kubelet")
	write(t, initFile, string(config("podsPerCore: -1\n")), 0o600)
	checkVerdict(t, h.CheckLocal(context.Background(), initFile), Rejected, 1,
		"invalid configuration: podsPerCore (--pods-per-core) -1 must not be a negative number")
	checkVerdict(t, dryRunner(t, kubeletWith(t, "", "--nope")).CheckLocal(context.Background(), ""), Rejected, 1,
		"failed to parse kubelet flag: unknown flag: --nope")
}

func TestTheRealKubeletReadsTheNodesDropInsOnlyForTheLocalConfiguration(t *testing.T) {
	dropins := t.TempDir()
	write(t, filepath.Join(dropins, "10.conf"), string(config("maxPods: 55\nlogging: {verbosity: 4}\n")), 0o600)
	h := dryRunner(t, kubeletWith(t, noRuntime(t), "--config-dir="+dropins))
	for what, v := range map[string]Verdict{
		"local 55":     h.CheckLocal(context.Background(), ""),
		"candidate 66": h.Check(context.Background(), Candidate{Data: config("maxPods: 66\n")}, ""),
	} {
		n, _ := v.Effective.Field("maxPods")
		if name, want, _ := strings.Cut(what, " "); v.Outcome != Accepted || !strings.HasSuffix(what, " "+want) || want != stringOf(n) {
			t.Errorf("%s: %s %s, maxPods = %v", name, v.Outcome, v.Message, n)
		}
	}
}

func stringOf(v any) string {
	if s, ok := v.(interface{ String() string }); ok {
		return s.String()
	}
	return ""
}

func TestADryRunRemovesFlagsThatGiveAccessToTheAPI(t *testing.T) {
	// Each of these flags would change how the dry run ends.
	dir := t.TempDir()
	h := dryRunner(t, kubeletWith(t, noRuntime(t), "--kubeconfig="+dir+"/none", "--bootstrap-kubeconfig="+dir+"/none", "--lock-file="+dir+"/lock",
		"--exit-on-lock-contention", "--cert-dir="+dir+"/pki", "--root-dir="+dir+"/root", "--v=0"))
	v := h.Check(context.Background(), Candidate{Data: config("")}, "")
	if v.Outcome != Accepted {
		t.Errorf("got %+v", v)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("the dry run wrote %v into the node's directories", left)
	}
}

func TestFlagsThatOverrideThePayloadAreNamed(t *testing.T) {
	payload := "maxPods: 77\npodsPerCore: 5\nevictionHard: {memory.available: 5%, nodefs.available: 3%}\nfeatureGates: {NodeSwap: true, CPUManagerPolicyAlphaOptions: true}\n" +
		"authentication: {anonymous: {enabled: false}, webhook: {cacheTTL: 3m}}\nresolvConf: /etc/resolv.conf\nlogging: {verbosity: 2}\nseccompDefault: false\nclusterDNS: [10.0.0.1]\nkubeAPIQPS: null\n"
	tests := []struct {
		name  string
		flags []string
		want  []string
	}{
		{"none", nil, nil},
		{"none that sets the configuration", []string{"--node-ip=127.0.0.1", "--hostname-override=x", "--node-labels=a=b"}, nil},
		{"one", []string{"--max-pods=50"}, []string{"maxPods"}},
		{"one that says the same", []string{"--max-pods=77"}, nil},
		{"one that the payload does not set", []string{"--kube-api-qps=9"}, nil},
		{"a nested one", []string{"--anonymous-auth", "--authentication-token-webhook-cache-ttl=1m"},
			[]string{"authentication.anonymous.enabled", "authentication.webhook.cacheTTL"}},
		{"a map", []string{"--eviction-hard=memory.available<5%"}, []string{"evictionHard[nodefs.available]"}},
		{"one feature gate", []string{"--feature-gates=CPUManagerPolicyAlphaOptions=false,CPUManagerPolicyBetaOptions=true"}, []string{"featureGates.CPUManagerPolicyAlphaOptions"}},
		{"a list", []string{"--cluster-dns=10.0.0.2"}, []string{"clusterDNS"}},
		{"a field of another name", []string{"--resolv-conf=/run/resolv.conf"}, []string{"resolvConf"}},
		{"verbosity", []string{"-v", "4"}, []string{"logging.verbosity"}},
		{"the same verbosity", []string{"--v=2"}, nil},
		{"a flag that does not show", []string{"--seccomp-default"}, []string{"seccompDefault"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v := dryRunner(t, kubeletWith(t, noRuntime(t), tt.flags...)).Check(context.Background(), Candidate{Data: config(payload)}, "")
			if v.Outcome != Accepted || len(v.Warnings) > 0 {
				t.Fatalf("got %+v", v)
			}
			if diff := cmp.Diff(tt.want, v.Overridden); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func TestUnknownOverridesAreAWarning(t *testing.T) {
	// The payload is valid only with the flag.
	v := dryRunner(t, kubeletWith(t, noRuntime(t), "--max-pods=50")).Check(context.Background(), Candidate{Data: config("maxPods: -1\n")}, "")
	want := []string{"cannot tell which fields are overridden by flags: invalid configuration: maxPods (--max-pods) -1 must not be a negative number"}
	if v.Outcome != Accepted || !slices.Equal(v.Warnings, want) {
		t.Errorf("%s, warnings %q, want %q", v.Outcome, v.Warnings, want)
	}
}

func TestTheVersionOfTheRealKubelet(t *testing.T) {
	version, err := kubeletWith(t, "").Version(context.Background())
	if err != nil || !regexp.MustCompile(`^v1\.\d+\.\d+$`).MatchString(version) {
		t.Errorf("version %q, error %v", version, err)
	}
}

// Every field of the API must be in the dump of the internal type. Otherwise overridden fields could be missed.
func TestEveryFieldOfTheAPIIsFoundInTheDump(t *testing.T) {
	v := dryRunner(t, kubeletWith(t, "")).CheckLocal(context.Background(), "")
	var missing []string
	var walk func(prefix string, typ reflect.Type)
	walk = func(prefix string, typ reflect.Type) {
		for i := range typ.NumField() {
			f := typ.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "" || name == "-" || name == "vmodule" { // omitted when it is empty
				continue
			}
			value, ok := v.Effective.Field(prefix + name)
			switch f.Type.Kind() {
			case reflect.Pointer, reflect.Slice, reflect.Map: // omitted when empty, by kubelets from 1.37
				ok = true
			}
			if !ok {
				missing = append(missing, prefix+name)
				continue
			}
			inner := f.Type
			if _, isMap := value.(map[string]any); isMap && inner.Kind() == reflect.Struct {
				walk(prefix+name+".", inner)
			}
		}
	}
	walk("", reflect.TypeFor[kubeletv1beta1.KubeletConfiguration]())
	if len(missing) > 0 {
		t.Errorf("not in the dump: %s", strings.Join(missing, ", "))
	}
}

func TestAPayloadOfOneMebibyteIsValidatedWithinTheDeadline(t *testing.T) {
	var b strings.Builder
	b.WriteString("staticPodURLHeader:\n")
	for i := 0; b.Len() < 1<<20-300; i++ {
		b.WriteString("  h" + strings.Repeat("x", 100) + string(rune('a'+i%26)) + time.Duration(i).String() + ": [v]\n")
	}
	began := time.Now()
	v := dryRunner(t, kubeletWith(t, noRuntime(t))).Check(context.Background(), Candidate{Data: config(b.String())}, "")
	if v.Outcome != Accepted || v.Effective.String("healthzBindAddress") == "" {
		t.Errorf("%s: %.300s", v.Outcome, v.Message)
	}
	t.Logf("validated in %s", time.Since(began))
}
