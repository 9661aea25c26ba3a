// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package podguard

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/printable"
)

const userNamespaces = "featureGates.UserNamespacesSupport"

// Reason is why a configuration is unusable.
type Reason struct {
	Key   string // the field or resource: two configurations with the same key have the same fault, perhaps with other values
	Words string // with the fields and their values, each truncated
}

// Unusable returns why the kubelet does not start with a configuration on this
// machine although it accepts it, or why it could run no pod: each with the
// fields and their values. It uses Minor and Machine. While the container
// runtime's cgroup driver is unknown, it is not compared.
func Unusable(in Input, config component.Effective) (reasons []Reason) {
	refuse := func(key, format string, args ...any) {
		reasons = append(reasons, Reason{key, fmt.Sprintf(format, args...)})
	}
	total := capacity(in)
	left := allocatable(config, total, in.Machine.IgnoreEviction)
	// Ephemeral storage and huge pages are left to the kubelet: it ends if more
	// is reserved than there is, and many pods need none.
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		held := reserved(config, name)
		for signal, of := range evictionSignals {
			if value := evictionHard(config)[signal]; of == name && !in.Machine.IgnoreEviction {
				held = add(held, threshold(value, total[name]))
			}
		}

		if total[name] > 0 && (left[name] == 0 || held > total[name]) {
			has := resource.NewQuantity(total[name], resource.BinarySI)
			if name == corev1.ResourceCPU {
				has = resource.NewMilliQuantity(total[name], resource.DecimalSI)
			}

			refuse(string(name), "%s: no %s is left for pods, because this machine has %s", reservations(config, name), name, has)
		}
	}

	// The text counts even if the runtime decides: a kubelet without an answer
	// of the runtime uses it.
	if driver := textOr(config, "cgroupDriver", "cgroupfs"); driver != "cgroupfs" && driver != "systemd" {
		refuse("cgroupDriver", "cgroupDriver: %s is neither cgroupfs nor systemd", quote(driver))
	} else if runtime := in.Machine.CgroupDriver; runtime != "" && cgroupDriver(in, config) != runtime {
		refuse("cgroupDriver of the runtime", "cgroupDriver: %q, but the container runtime uses %q", driver, runtime)
	}

	// User namespaces have the IDs below 2^32 that no other user of the host
	// has; up to 1.34 even without the feature gate (pkg/kubelet/userns,
	// MakeUserNsManager).
	ids := max(1, intOr(config, "userNamespaces.idsPerPod", 65536))
	if most := (1<<32 - ids) / ids; intOr(config, "maxPods", 110) > most && (in.Minor < 35 || isOn(config, userNamespaces)) {
		refuse("maxPods", "maxPods: %d is above %d, for which there are user IDs", intOr(config, "maxPods", 110), most)
	}
	if config.String("systemCgroups") == "/" {
		refuse("systemCgroups", `systemCgroups: "/": the kubelet refuses the root cgroup when it starts its container manager`)
	}

	// HTTP/2 needs one of two cipher suites unless TLS is 1.3 (net/http2,
	// ConfigureServer).
	if suites := list(config, "tlsCipherSuites"); len(suites) > 0 && config.String("tlsMinVersion") != "VersionTLS13" &&
		!slices.ContainsFunc(suites, func(s any) bool {
			return s == "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256" || s == "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
		}) {
		refuse("tlsCipherSuites", "tlsCipherSuites: %s has no cipher suite with which the kubelet can serve HTTP/2", quote(suites))
	}

	// Only a kubelet with access to the API server compares this field, and a
	// dry run has none (pkg/kubelet/kubelet.go, NewMainKubelet).
	const strategy = "configMapAndSecretChangeDetectionStrategy"
	if value := textOr(config, strategy, "Watch"); !slices.Contains([]string{"Get", "Cache", "Watch"}, value) {
		refuse(strategy, "%s: %s is none of Get, Cache and Watch", strategy, quote(value))
	}

	return reasons
}

// reservations names what the configuration holds back of a resource.
func reservations(config component.Effective, name corev1.ResourceName) string {
	var parts []string
	if cpus := config.String("reservedSystemCPUs"); name == corev1.ResourceCPU && cpus != "" {
		return "reservedSystemCPUs: " + quote(cpus)
	}

	for _, field := range []string{"kubeReserved", "systemReserved"} {
		if value := texts(config, field)[string(name)]; value != "" {
			parts = append(parts, fmt.Sprintf("%s[%s]: %s", field, name, quote(value)))
		}
	}

	for _, signal := range slices.Sorted(maps.Keys(evictionSignals)) {
		if value := evictionHard(config)[signal]; evictionSignals[signal] == name && value != "" {
			parts = append(parts, fmt.Sprintf("evictionHard[%s]: %s", signal, quote(value)))
		}
	}

	return strings.Join(parts, ", ")
}

// quote returns a value in quotes, truncated.
func quote(value any) string { return printable.Brief(fmt.Sprintf("%q", value), 100) }
