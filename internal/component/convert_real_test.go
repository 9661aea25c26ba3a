// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/testkit/assert"
)

// TestRealKubeletsConvertTheirFlags asks each kubelet that was built for the
// tests.
func TestRealKubeletsConvertTheirFlags(t *testing.T) {
	for _, path := range realKubelets(t) {
		t.Run(filepath.Base(filepath.Dir(path)), func(t *testing.T) {
			local := "maxPods: 33\nrotateCertificates: true\nevictionHard: {memory.available: 100Mi, nodefs.available: 10%}\n"
			k := kubeletWith(t, local, "--max-pods=50", "--pods-per-core", "0", "--max-pods=44", "-v", "3",
				"--eviction-hard=memory.available<200Mi", "--node-ip=10.0.0.1",
				"--rotate-certificates", "--image-gc-high-threshold=40", "--image-gc-low-threshold=30", "--cgroups-per-qos=false",
				"--enforce-node-allocatable=", "--register-with-taints=a=b:NoSchedule", "--feature-gates=AllAlpha=false",
				"--seccomp-default", "--manifest-url-header=a:b", "--cluster-dns=10.0.0.10", "--system-reserved=cpu=100m,memory=1Gi",
				"--logging-format=json", "--container-runtime-endpoint=unix:///run/none.sock", "--node-labels=a=b", "--kubeconfig=/none")
			k.Path = path
			got := assert.Value(dryRunner(t, k).ConvertFlags(context.Background(), ""))(t)
			assert.That(t, len(got.Differences) == 0, "differences: %v", got.Differences)
			sets := func(name, fields string, args ...string) ConvertedFlag {
				return ConvertedFlag{Name: name, Args: args, Fields: strings.Fields(fields), Removed: true}
			}
			flags := []ConvertedFlag{
				{Name: "config", Args: []string{"--config=" + k.Config}},
				sets("max-pods", "maxPods", "--max-pods=50", "--max-pods=44"),
				sets("pods-per-core", "", "--pods-per-core", "0"),
				sets("v", "logging.verbosity", "-v", "3"),
				sets("eviction-hard", "evictionHard[memory.available] evictionHard[nodefs.available]", "--eviction-hard=memory.available<200Mi"),
				{Name: "node-ip", Args: []string{"--node-ip=10.0.0.1"}},
				sets("rotate-certificates", "", "--rotate-certificates"),
				sets("image-gc-high-threshold", "imageGCHighThresholdPercent", "--image-gc-high-threshold=40"),
				sets("image-gc-low-threshold", "imageGCLowThresholdPercent", "--image-gc-low-threshold=30"),
				sets("cgroups-per-qos", "cgroupsPerQOS", "--cgroups-per-qos=false"),
				sets("enforce-node-allocatable", "enforceNodeAllocatable", "--enforce-node-allocatable="),
				sets("register-with-taints", "registerWithTaints", "--register-with-taints=a=b:NoSchedule"),
				sets("feature-gates", "featureGates.AllAlpha", "--feature-gates=AllAlpha=false"),
				sets("seccomp-default", "seccompDefault", "--seccomp-default"),
				{Name: headerFlag, Args: []string{"--manifest-url-header=a:b"}, Fields: []string{headerField}, Kept: "the kubelet does not print the values of this field"},
				sets("cluster-dns", "clusterDNS", "--cluster-dns=10.0.0.10"),
				sets("system-reserved", "systemReserved.cpu systemReserved.memory", "--system-reserved=cpu=100m,memory=1Gi"),
				sets("logging-format", "logging.format", "--logging-format=json"),
				sets("container-runtime-endpoint", "containerRuntimeEndpoint", "--container-runtime-endpoint=unix:///run/none.sock"),
				{Name: "node-labels", Args: []string{"--node-labels=a=b"}},
				{Name: "kubeconfig", Args: []string{"--kubeconfig=/none"}},
			}
			assert.NoDiff(t, cmp.Diff(flags, got.Flags, cmpopts.EquateEmpty()))
			remaining := []string{
				path, "--config=" + k.Config, "--node-ip=10.0.0.1", "--manifest-url-header=a:b", "--node-labels=a=b", "--kubeconfig=/none",
			}
			assert.NoDiff(t, cmp.Diff(remaining, got.Remaining))
			want := dropinText(`
cgroupsPerQOS: false
enforceNodeAllocatable: []
clusterDNS: [10.0.0.10]
containerRuntimeEndpoint: unix:///run/none.sock
evictionHard: {memory.available: 200Mi, nodefs.available: null}
featureGates: {AllAlpha: false}
imageGCHighThresholdPercent: 40
imageGCLowThresholdPercent: 30
logging: {format: json, verbosity: 3}
maxPods: 44
registerWithTaints: [{key: a, value: b, effect: NoSchedule}]
seccompDefault: true
systemReserved: {cpu: 100m, memory: 1Gi}
`)
			decode := func(text []byte) map[string]any { return assert.Value(payload.DecodeMapping(text))(t) }
			assert.NoDiff(t, cmp.Diff(decode([]byte(want)), decode(got.Dropin)))
		})
	}
}

func TestTheRealKubeletNamesTheFlagsThatItDoesNotHave(t *testing.T) {
	ask := func(path, flags string) (version string, unknown []string, err error) {
		k := assert.Value(ParseKubelet(strings.Fields("/usr/bin/kubelet " + flags)))(t)
		return k.UnknownFlags(context.Background(), path)
	}
	version, unknown, err := ask(realKubelet(t), "--max-pods=44 --containerd=/run/c.sock --kubeconfig=/none --boot-id-file /none -v=2")
	assert.NoError(t, err)
	assert.Equal(t, version, "v1.37.2")
	assert.NoDiff(t, cmp.Diff([]string{"containerd", "boot-id-file"}, unknown))
	_, _, err = ask(realKubelet(t), "--max-pods=many")
	assert.ErrorHas(t, err, `kubelet --version: exit code 1, "`)
	assert.ErrorHas(t, err, `" is not a version`)
	_, _, err = ask("/no/kubelet", "")
	assert.Error(t, err, "there is no kubelet at /no/kubelet: file does not exist")
}
