// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// TestRealKubeletsConvertTheirFlags asks each kubelet that was built for the
// tests.
func TestRealKubeletsConvertTheirFlags(t *testing.T) {
	for _, path := range realKubelets(t) {
		t.Run(filepath.Base(filepath.Dir(path)), func(t *testing.T) {
			local := "maxPods: 33\nrotateCertificates: true\nevictionHard: {memory.available: 100Mi, nodefs.available: 10%}\n"
			k := kubeletWith(t, local, "--max-pods=44", "-v", "3", "--eviction-hard=memory.available<200Mi", "--node-ip=10.0.0.1",
				"--rotate-certificates", "--image-gc-high-threshold=40", "--image-gc-low-threshold=30", "--cgroups-per-qos=false",
				"--enforce-node-allocatable=", "--register-with-taints=a=b:NoSchedule", "--feature-gates=AllAlpha=false",
				"--seccomp-default", "--manifest-url-header=a:b", "--cluster-dns=10.0.0.10", "--system-reserved=cpu=100m,memory=1Gi",
				"--logging-format=json", "--container-runtime-endpoint=unix:///run/none.sock", "--node-labels=a=b")
			k.Path = path
			got := assert.Value(dryRunner(t, k).ConvertFlags(context.Background(), ""))(t)
			assert.That(t, len(got.Differences) == 0, "differences: %v", got.Differences)
			if want := []string{path, "--config=" + k.Config, "--node-ip=10.0.0.1", "--manifest-url-header=a:b", "--node-labels=a=b"}; !slices.Equal(got.Remaining, want) {
				t.Errorf("remaining: %q", got.Remaining)
			}

			want := dropinText(`cgroupsPerQOS: false
clusterDNS:
- 10.0.0.10
containerRuntimeEndpoint: unix:///run/none.sock
enforceNodeAllocatable: []
evictionHard:
  memory.available: 200Mi
  nodefs.available: null
featureGates:
  AllAlpha: false
imageGCHighThresholdPercent: 40
imageGCLowThresholdPercent: 30
logging:
  format: json
  verbosity: 3
maxPods: 44
registerWithTaints:
- effect: NoSchedule
  key: a
  value: b
seccompDefault: true
systemReserved:
  cpu: 100m
  memory: 1Gi
`)
			assert.That(t, string(got.Dropin) == want, "got\n%s\nwant\n%s", got.Dropin, want)
		})
	}
}

func TestTheRealKubeletNamesTheFlagsThatItDoesNotHave(t *testing.T) {
	k := assert.Value(ParseKubelet(strings.Fields("/usr/bin/kubelet --max-pods=44 --containerd=/run/containerd.sock --kubeconfig=/none")))(t)
	version, unknown, err := k.UnknownFlags(context.Background(), realKubelet(t))
	assert.That(t, err == nil && strings.HasPrefix(version, "v1.") && slices.Equal(unknown, []string{"containerd"}), "kubelet %s does not have %q: %v", version, unknown, err)
}
