// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package podguard

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestAMachineOnWhichAConfigurationIsUnusable(t *testing.T) {
	for _, tt := range []struct {
		name, config string
		driver       string // of the container runtime
		want         string
	}{
		{"the defaults", `{}`, "", ""},
		{"a reservation that leaves enough", `{"systemReserved":{"memory":"3Gi","cpu":"1","ephemeral-storage":"80Gi","pid":"1000"}}`, "", ""},
		{"more memory than there is", `{"systemReserved":{"memory":"500Gi"}}`, "",
			`systemReserved[memory]: "500Gi", evictionHard[memory.available]: "100Mi": no memory is left for pods, because this machine has 4Gi`},
		{"a sum of memory", `{"kubeReserved":{"memory":"2Gi"},"systemReserved":{"memory":"1Gi"},"evictionHard":{"memory.available":"25%"}}`, "",
			`kubeReserved[memory]: "2Gi", systemReserved[memory]: "1Gi", evictionHard[memory.available]: "25%": no memory is left for pods, because this machine has 4Gi`},
		{"all CPUs", `{"reservedSystemCPUs":"0-1","kubeReserved":{"cpu":"100m"}}`, "", `reservedSystemCPUs: "0-1": no cpu is left for pods, because this machine has 2`},
		{"more storage than there is", `{"kubeReserved":{"ephemeral-storage":"200Gi"}}`, "", ""},
		{"a threshold above the storage", `{"evictionHard":{"nodefs.available":"500Gi"}}`, "", ""},
		{"an unknown cgroup driver", `{"cgroupDriver":"systmd"}`, "", `cgroupDriver: "systmd" is neither cgroupfs nor systemd`},
		{"an unknown cgroup driver, although the runtime decides", `{"cgroupDriver":"systmd"}`, "systemd", `cgroupDriver: "systmd" is neither cgroupfs nor systemd`},
		{"the runtime decides on the cgroup driver", `{"cgroupDriver":"cgroupfs"}`, "systemd", ""},
		{"a long value", `{"cgroupDriver":"` + strings.Repeat("x", 200) + `"}`, "", `cgroupDriver: "` + strings.Repeat("x", 99) + `… is neither cgroupfs nor systemd`},
		{"another cgroup driver than the runtime's", `{"cgroupDriver":"cgroupfs","featureGates":{"KubeletCgroupDriverFromCRI":false}}`, "systemd",
			`cgroupDriver: "cgroupfs", but the container runtime uses "systemd"`},
		{"the runtime's cgroup driver", `{"cgroupDriver":"systemd","featureGates":{"KubeletCgroupDriverFromCRI":false}}`, "systemd", ""},
		{"pods without user IDs", `{"maxPods":65536}`, "", "maxPods: 65536 is above 65535, for which there are user IDs"},
		{"few IDs for each pod", `{"maxPods":40000,"userNamespaces":{"idsPerPod":131072}}`, "", "maxPods: 40000 is above 32767, for which there are user IDs"},
		{"as many pods as there are user IDs for", `{"maxPods":65535}`, "", ""},
		{"cipher suites of TLS 1.3", `{"tlsCipherSuites":["TLS_AES_128_GCM_SHA256"],"tlsMinVersion":"VersionTLS12"}`, "",
			`tlsCipherSuites: ["TLS_AES_128_GCM_SHA256"] has no cipher suite with which the kubelet can serve HTTP/2`},
		{"cipher suites and TLS 1.3", `{"tlsCipherSuites":["TLS_AES_128_GCM_SHA256"],"tlsMinVersion":"VersionTLS13"}`, "", ""},
		{"a cipher suite of HTTP/2", `{"tlsCipherSuites":["TLS_AES_128_GCM_SHA256","TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"]}`, "", ""},
		{"the root cgroup", `{"systemCgroups":"/"}`, "", `systemCgroups: "/": the kubelet refuses the root cgroup when it starts its container manager`},
		{"how Secrets are watched", `{"configMapAndSecretChangeDetectionStrategy":"Foo"}`, "",
			`configMapAndSecretChangeDetectionStrategy: "Foo" is none of Get, Cache and Watch`},
	} {
		in := Input{Minor: 33, Machine: Machine{CgroupDriver: tt.driver, Capacity: corev1.ResourceList{
			"cpu": resource.MustParse("2"), "memory": resource.MustParse("4Gi"), "ephemeral-storage": resource.MustParse("100Gi")}}}
		var words []string
		for _, reason := range Unusable(in, config(t, tt.config)) {
			words = append(words, reason.Words)
		}

		assert.Equal(t, strings.Join(words, "; "), tt.want, tt.name)
		in.Machine.Capacity = nil
		if strings.Contains(tt.want, "is left for pods") { // nothing is known of a machine that cannot be measured
			assert.Equal(t, len(Unusable(in, config(t, tt.config))), 0, tt.name)
		}
	}
}
