// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// cgroupV1 makes a fake kubelet behave like on a host with cgroup v1.
const cgroupV1 = `case "$config$*" in *"failCgroupV1: false"*|*'"failCgroupV1":false'*|*--fail-cgroupv1=false*) ;; *) end "cgroup v1 is old";; esac
`

// dump is the configuration that a fake kubelet prints.
const dump = `dump '{"MaxPods":110,"FailCgroupV1":false}'
`

func TestVerdictsOfAFakeKubeletWithoutANode(t *testing.T) {
	const notPrinted = "[the kubelet did not print the configuration with its defaults]"
	const onNode = "[not checked: " + notJudged + "]"
	const onOtherHost = "[not checked: failCgroupV1: true (the default), because this host uses cgroup v1, where a kubelet does not run with it; " +
		notJudged + "]"
	for _, tt := range []struct {
		name, body string
		outcome    Outcome
		stage      int
		message    string
		warnings   string
	}{
		{"accepted", dump + `accept`, Accepted, 1, "", onNode},
		{"accepted, but not printed", `quiet; accept`, Accepted, 1, "", "[not checked: " + notJudged + " " + notPrinted[1:]},
		{"an empty one is refused too", `case "$config" in *no-runtime*) accept;; CANDIDATE) end "no good";; esac; end "no luck"`, CouldNotTell, 1,
			"no good (but an empty configuration does not pass the dry run either: no luck)", "[]"},
		{"killed by somebody", `case "$config" in CANDIDATE) kill -9 $$;; esac; accept`, CouldNotTell, 0, "the dry run of the kubelet: it died: signal: killed", "[]"},
		{"no kubelet at all", `end "no luck"`, CouldNotTell, 0, "the dry run does not work with this kubelet: no luck", "[]"},
		{"accepted, were it not for the host", dump + cgroupV1 + `accept`, Accepted, 1, "", onOtherHost},
		{"refused, host or not", cgroupV1 + `case "$config" in CANDIDATE) end "no good";; esac; accept`, Rejected, 1, "no good", "[]"},
		{"refused for what else the host has", cgroupV1 + `case "$config" in CANDIDATE) end "` + refusedOnCgroupV1 + `";; esac; accept`, CouldNotTell, 0,
			refusedOnCgroupV1 + " (this host uses cgroup v1; the node may not)", "[]"},
		{"killed the second time", cgroupV1 + `case "$config" in CANDIDATE) kill -9 $$;; esac; accept`, CouldNotTell, 0, "the dry run of the kubelet: it died: signal: killed", "[]"},
	} {
		v := component(t, "kubelet", fake(t, tt.body).Path).Validate(context.Background(), []byte("CANDIDATE"))
		checkVerdict(t, v, tt.outcome, tt.stage, tt.message, tt.name)
		assert.Equal(t, fmt.Sprint(v.Warnings), tt.warnings, "warnings are", tt.name)
	}
}

func TestDefaultsAreIndependentOfTheHostsCgroupVersion(t *testing.T) {
	for host, want := range map[string]string{"": "false", cgroupV1: "true"} {
		e := defaultsOf(t, component(t, "kubelet", fake(t, dump+host+"accept").Path))
		assert.Equal(t, fmt.Sprintf("%v %v", e["failCgroupV1"], e["maxPods"]), want+" 110", "failCgroupV1 and maxPods are", want, "110")
	}
}

func bareConfig(more string) []byte {
	return append(emptyConfig(payload.UpstreamAPIVersion, payload.KubeletKind), more...)
}

func TestTheRealKubeletWithoutANodeIgnoresTheHost(t *testing.T) {
	c := realComponent(t, "kubelet")
	var fs unix.Statfs_t
	assert.NoError(t, unix.Statfs("/sys/fs/cgroup", &fs))
	oldHost := fs.Type != unix.CGROUP2_SUPER_MAGIC
	for _, tt := range []struct {
		name, data string
		outcome    Outcome
		message    string
		tolerates  bool // it sets failCgroupV1: false
	}{
		{"the defaults", "", Accepted, "", false},
		{"what says nothing of the host", "failCgroupV1: false\n", Accepted, "", true},
		{"what says it of the host", "failCgroupV1: true\n", Accepted, "", false},
		{"paths that are not there", "staticPodPath: /not/there\nresolvConf: /not/there\nauthentication: {x509: {clientCAFile: /not/there}}\n", Accepted, "", false},
		{"words about the host", "featureGates: {when using cgroup v1: true}\n", Rejected, "unrecognized feature gate: when using cgroup v1", false},
		{"a wrong type", "failCgroupV1: maybe\n", Rejected, "failed to decode: json: cannot unmarshal string into Go struct field KubeletConfiguration.failCgroupV1 of type bool", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := c.Validate(context.Background(), bareConfig(tt.data))
			checkVerdict(t, v, tt.outcome, 1, tt.message)
			warned := strings.Contains(fmt.Sprint(v.Warnings), "failCgroupV1: true (the default)")
			assert.Equal(t, warned, oldHost && !tt.tolerates && tt.outcome == Accepted, "warnings are", v.Warnings)
			assert.That(t, tt.outcome != Accepted || v.Effective["failCgroupV1"] == !tt.tolerates, "failCgroupV1 is %v", v.Effective["failCgroupV1"])
		})
	}

	v := c.Validate(context.Background(), bareConfig("singleProcessOOMKill: false\n"))
	if !oldHost {
		checkVerdict(t, v, Accepted, 1, "")
		return
	}

	checkVerdict(t, v, CouldNotTell, 0, "invalid configuration: singleProcessOOMKill must not be explicitly set to false when using cgroup v1 (this host uses cgroup v1; the node may not)")
}

func TestTheEffectiveConfigurationContainsNothingOfTheDryRun(t *testing.T) {
	v := realComponent(t, "kubelet").Validate(context.Background(), bareConfig("staticPodPath: manifests\nvolumePluginDir: .\ntlsCertFile: /pki/kubelet.crt\ntlsPrivateKeyFile: /pki/kubelet.key\n"+
		"authentication: {x509: {clientCAFile: pki/ca.crt}}\nlogging: {verbosity: 3}\nclusterDNS: [10.0.0.10]\n"))
	checkVerdict(t, v, Accepted, 1, "")
	mustBeFields(t, v.Effective, map[string]string{
		"staticPodPath": "manifests", "volumePluginDir": ".", "authentication.x509.clientCAFile": "pki/ca.crt",
		"tlsCertFile": "/pki/kubelet.crt", "tlsPrivateKeyFile": "/pki/kubelet.key", "logging.verbosity": "3", "clusterDNS": "[10.0.0.10]",
	})
	for name := range v.Effective {
		assert.That(t, name[0] >= 'a', "%q is no name of the API", name)
	}
}
