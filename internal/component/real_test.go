// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/localcluster"
)

// realKubelet returns the path of the pinned kubelet, which `make tools`
// builds.
func realKubelet(t testing.TB) string {
	t.Helper()
	localcluster.SkipShort(t)
	path := assert.Value(filepath.Abs("../../bin/tools/kubelet"))(t)
	assert.NoError(t, assert.Err(os.Stat(path)), "run make tools")

	return path
}

// config returns a KubeletConfiguration that the kubelet accepts on this host,
// which may use cgroup v1, with more fields.
func config(more string) []byte {
	return []byte("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nfailCgroupV1: false\n" + more)
}

func kubeletWith(t testing.TB, local string, flags ...string) *Kubelet {
	t.Helper()
	file := filepath.Join(t.TempDir(), "local.yaml")
	assert.NoError(t, os.WriteFile(file, config(local), 0o600))
	return assert.Value(ParseKubelet(append([]string{realKubelet(t), "--config=" + file}, flags...)))(t)
}

// noRuntime is a local configuration with a missing runtime, so that stage 2 is
// unavailable and only stage 1 is tested.
func noRuntime(t testing.TB) string {
	return "containerRuntimeEndpoint: unix://" + filepath.Join(t.TempDir(), "none.sock") + "\n"
}

func TestVerdictsOfTheRealKubeletAtStage1(t *testing.T) {
	h := dryRunner(t, kubeletWith(t, noRuntime(t)))
	for _, tt := range []struct {
		name    string
		data    string
		message string // "" for accepted
	}{
		{"a duplicate key", "maxPods: 1\nmaxPods: 2\n",
			`strict decoding error: yaml: unmarshal errors: line 5: key "maxPods" already set in map`},
		{"two values out of range", "maxPods: -1\npodsPerCore: -1\n",
			"[invalid configuration: maxPods (--max-pods) -1 must not be a negative number, invalid configuration: podsPerCore (--pods-per-core) -1 must not be a negative number]"},
		{"out of range and unknown", "maxPods: -1\nbogus: 1\n",
			`invalid configuration: maxPods (--max-pods) -1 must not be a negative number; strict decoding error: unknown field "bogus"`},
		{"an unknown feature gate", "featureGates: {Nope: true}\n", "unrecognized feature gate: Nope"},
		{"a wrong type", "maxPods: lots\n",
			"failed to decode: json: cannot unmarshal string into Go struct field KubeletConfiguration.maxPods of type int32"},
		{"JSON logging", "maxPods: 77\nlogging: {format: json}\n", ""},
		{"logging split and buffered", "featureGates: {LoggingAlphaOptions: true}\nlogging: {format: text, options: {text: {splitStream: true, infoBufferSize: 64Mi}}}\n", ""},
		{"JSON logging split and buffered", "featureGates: {LoggingAlphaOptions: true}\nlogging: {format: json, options: {json: {splitStream: true, infoBufferSize: 64Mi}}}\n", ""},
		{"quiet logging", "logging: {verbosity: 0, vmodule: [{filePattern: server, verbosity: 0}]}\n", ""},
		{"an unknown log format", "logging: {format: xml}\n",
			`initialize logging: logging.format: Invalid value: "xml": Unsupported log format`},
		{"words of acceptance in a value", "featureGates: {\"x: failed to run Kubelet: cannot exit on lock file contention: no lock file specified\": true}\n",
			"unrecognized feature gate: x: failed to run Kubelet: cannot exit on lock file contention: no lock file specified"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := h.Check(context.Background(), Candidate{Data: config(tt.data)}, "")
			if tt.message != "" {
				checkVerdict(t, v, Rejected, 1, tt.message)
				return
			}

			assert.That(t, v.Outcome == Accepted && v.Stage == 1 && strings.HasPrefix(v.Message, "stage 2 of the dry run was not used: "), "got %+v", v)
			assert.Equal(t, v.Effective.String("healthzBindAddress"), "127.0.0.1", "the dump was not read: healthzBindAddress =")
		})
	}

	v := h.Check(context.Background(), Candidate{Data: []byte("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: Nope\n")}, "")
	assert.That(t, v.Outcome == Rejected && strings.Contains(v.Message, `no kind "Nope" is registered`), "the wrong kind: got %+v", v)
	checkVerdict(t, h.Check(context.Background(), Candidate{}, ""), Rejected, 1, `kubelet config file "kubelet" was empty`)
}

func TestVerdictsOfTheRealKubeletOnTheLocalConfiguration(t *testing.T) {
	h := dryRunner(t, kubeletWith(t, "bogus: 1\nmaxPods: 33\n", "--max-pods=44", "-v=3"))
	v := h.CheckLocal(context.Background(), "")
	checkVerdict(t, v, Accepted, 1, "")
	assert.NoDiff(t, cmp.Diff([]string{`strict decoding error: unknown field "bogus"`}, v.Warnings))
	mustBeFields(t, v.Effective, map[string]string{"maxPods": "44", "logging.verbosity": "3", "tlsCertFile": "/var/lib/kubelet/pki/kubelet.crt"})
	assert.NoDiff(t, cmp.Diff(v.Effective, v.Local))
	assert.NoDiff(t, cmp.Diff(map[string]Origin{"failCgroupV1": "local", "maxPods": "flag", "logging.verbosity": "flag"}, v.Origins))
	initFile := filepath.Join(t.TempDir(), "kubelet")
	write(t, initFile, string(config("podsPerCore: -1\n")), 0o600)
	checkVerdict(t, h.CheckLocal(context.Background(), initFile), Rejected, 1,
		"invalid configuration: podsPerCore (--pods-per-core) -1 must not be a negative number")
	checkVerdict(t, dryRunner(t, kubeletWith(t, "", "--nope")).CheckLocal(context.Background(), ""), Rejected, 1,
		"failed to parse kubelet flag: unknown flag: --nope")
}

func TestADryRunRemovesFlagsThatGiveAccessToTheAPI(t *testing.T) {
	// Each of these flags would change how the dry run ends.
	dir := t.TempDir()
	h := dryRunner(t, kubeletWith(t, noRuntime(t), "--kubeconfig="+dir+"/none", "--bootstrap-kubeconfig="+dir+"/none", "--lock-file="+dir+"/lock",
		"--exit-on-lock-contention", "--cert-dir="+dir+"/pki", "--root-dir="+dir+"/root", "--v=0"))
	v := h.Check(context.Background(), Candidate{Data: config("")}, "")
	assert.That(t, v.Outcome == Accepted, "got %+v", v)
	left, _ := os.ReadDir(dir)
	assert.That(t, len(left) == 0, "the dry run wrote %v into the node's directories", left)
}

func TestFlagsThatOverrideThePayloadAreNamed(t *testing.T) {
	payload := "maxPods: 77\npodsPerCore: 5\nevictionHard: {memory.available: 5%, nodefs.available: 3%}\nfeatureGates: {NodeSwap: true, CPUManagerPolicyAlphaOptions: true}\n" +
		"authentication: {anonymous: {enabled: false}, webhook: {cacheTTL: 3m}}\nresolvConf: /etc/resolv.conf\nlogging: {verbosity: 2}\nseccompDefault: false\nclusterDNS: [10.0.0.1]\nkubeAPIQPS: null\n"
	for _, tt := range []struct {
		name  string
		flags []string
		want  []string
	}{
		{"none that sets a field of the payload", []string{"--node-ip=127.0.0.1", "--hostname-override=x", "--node-labels=a=b", "--kube-api-qps=9"}, nil},
		{"all of them say the same", []string{"--max-pods=77", "--v=2"}, nil},
		{"of every kind", []string{
			"--max-pods=50", "--anonymous-auth", "--authentication-token-webhook-cache-ttl=1m", "--eviction-hard=memory.available<5%",
			"--feature-gates=CPUManagerPolicyAlphaOptions=false,CPUManagerPolicyBetaOptions=true", "--cluster-dns=10.0.0.2", "--resolv-conf=/run/resolv.conf",
		}, []string{
			"authentication.anonymous.enabled", "authentication.webhook.cacheTTL", "clusterDNS", "evictionHard[nodefs.available]",
			"featureGates.CPUManagerPolicyAlphaOptions", "maxPods", "resolvConf",
		}},
		{"verbosity", []string{"-v", "4"}, []string{"logging.verbosity"}},
		{"a flag that does not show", []string{"--seccomp-default"}, []string{"seccompDefault"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := dryRunner(t, kubeletWith(t, noRuntime(t), tt.flags...)).Check(context.Background(), Candidate{Data: config(payload)}, "")
			assert.Must(t, v.Outcome == Accepted && len(v.Warnings) == 0, "got %+v", v)
			assert.NoDiff(t, cmp.Diff(tt.want, v.Overridden))
		})
	}
}

func TestUnknownOverridesAreAWarning(t *testing.T) {
	// The payload is valid only with the flag.
	v := dryRunner(t, kubeletWith(t, noRuntime(t), "--max-pods=50")).Check(context.Background(), Candidate{Data: config("maxPods: -1\n")}, "")
	assert.Equal(t, v.Outcome, Accepted, v.Message)
	want := "cannot tell which fields are overridden by flags: invalid configuration: maxPods (--max-pods) -1 must not be a negative number"
	assert.NoDiff(t, cmp.Diff([]string{want}, v.Warnings))
}

// Every field of the API must be in the dump of the internal type. Otherwise
// overridden fields could be missed.
func TestEveryFieldOfTheAPIIsFoundInTheDump(t *testing.T) {
	v := dryRunner(t, kubeletWith(t, "")).CheckLocal(context.Background(), "")
	var walk func(prefix string, typ reflect.Type)
	walk = func(prefix string, typ reflect.Type) {
		for f := range typ.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "" || name == "-" || name == "vmodule" { // omitted when it is empty
				continue
			}

			value, ok := v.Effective.Field(prefix + name)
			switch kind := f.Type.Kind(); kind {
			case reflect.Pointer, reflect.Slice, reflect.Map: // omitted when empty, by kubelets from 1.37
			default:
				assert.That(t, ok, "not in the dump: %s%s", prefix, name)
				if _, isMap := value.(map[string]any); isMap && kind == reflect.Struct {
					walk(prefix+name+".", f.Type)
				}
			}
		}
	}
	walk("", reflect.TypeFor[kubeletv1beta1.KubeletConfiguration]())
}

func TestAPayloadOfOneMebibyteIsValidatedWithinTheDeadline(t *testing.T) {
	var b strings.Builder
	b.WriteString("staticPodURLHeader:\n")
	for i := 0; b.Len() < 1<<20-300; i++ {
		b.WriteString("  h" + strings.Repeat("x", 100) + string(rune('a'+i%26)) + time.Duration(i).String() + ": [v]\n")
	}

	v := dryRunner(t, kubeletWith(t, noRuntime(t))).Check(context.Background(), Candidate{Data: config(b.String())}, "")
	assert.That(t, v.Outcome == Accepted && v.Effective.String("healthzBindAddress") != "", "%s: %.300s", v.Outcome, v.Message)
}
