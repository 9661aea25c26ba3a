// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
)

// flag is one flag of a command line, parsed like in the kubelet (pflag).
type flag struct {
	name   string   // without leading dashes; underscores normalized to dashes
	value  string   // "" if it has none
	tokens []string // one or two arguments
}

// booleans are the flags of kubelets 1.32 to 1.37 that never take the next
// argument as their value. If one is missing here, it is misread only before an
// argument that is not a flag, which the kubelet rejects anyway.
var booleans = sets.New(
	"anonymous-auth", "authentication-token-webhook", "cgroups-per-qos", "contention-profiling", "cpu-cfs-quota",
	"enable-controller-attach-detach", "enable-debugging-handlers", "enable-load-reader", "enable-server",
	"exit-on-lock-contention", "experimental-allocatable-ignore-eviction", "fail-cgroupv1", "fail-swap-on",
	"kernel-memcg-notification", "keep-terminated-pod-volumes", "local-storage-capacity-isolation",
	"log-cadvisor-usage", "log-json-split-stream", "log-text-split-stream", "make-iptables-util-chains",
	"protect-kernel-defaults", "register-node", "register-schedulable", "rotate-certificates",
	"rotate-server-certificates", "runonce", "seccomp-default", "serialize-image-pulls", "storage-driver-secure",
)

// valued are the flags that this package reads or replaces and that always have
// a value.
var valued = sets.New(
	"bootstrap-kubeconfig", "cert-dir", "config", "config-dir", "hostname-override", "kubeconfig", "lock-file",
	"node-ip", "root-dir", "v", "authorization-mode",
)

// notConfig are the flags that set no field of the KubeletConfiguration. -v
// does set logging.verbosity, but every dry run has its own -v; see
// Kubelet.verbosity.
var notConfig = sets.New(
	"bootstrap-kubeconfig", "cert-dir", "cloud-provider", "config", "config-dir", "exit-on-lock-contention",
	"experimental-allocatable-ignore-eviction", "experimental-mounter-path", "hostname-override",
	"housekeeping-interval", "image-credential-provider-bin-dir", "image-credential-provider-config", "kubeconfig",
	"lock-file", "maximum-dead-containers", "maximum-dead-containers-per-container", "minimum-container-ttl-duration",
	"node-ip", "node-labels", "pod-infra-container-image", "root-dir", "runtime-cgroups", "v",
)

// parseFlags parses a command line like pflag. It rejects what the kubelet
// rejects and what would be ambiguous: arguments that are not flags, and single
// dashes except for -v.
func parseFlags(args []string) ([]flag, error) {
	var flags []flag
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if arg == "--" {
			if i+1 < len(args) {
				return nil, fmt.Errorf("the kubelet takes only flags, but %q follows --", args[i+1])
			}

			break
		}

		f := flag{tokens: args[i : i+1 : i+1]}
		hasValue := false
		switch {
		case strings.HasPrefix(arg, "--"):
			f.name, f.value, hasValue = strings.Cut(arg[2:], "=")
			f.name = strings.ReplaceAll(f.name, "_", "-")
			if f.name == "" || f.name[0] == '-' {
				return nil, fmt.Errorf("%q is not a flag", arg)
			}
		case strings.HasPrefix(arg, "-v"):
			f.name, f.value, hasValue = "v", strings.TrimPrefix(arg[2:], "="), len(arg) > 2
		case arg == "-h":
			f.name = "help"
		case strings.HasPrefix(arg, "-") && len(arg) > 1:
			return nil, fmt.Errorf("%q is not a kubelet flag: flags other than -v take two dashes", arg)
		default:
			return nil, fmt.Errorf("the kubelet takes only flags, but %q is not a flag", arg)
		}

		if f.name == "help" || f.name == "version" {
			return nil, fmt.Errorf("%q does not run a kubelet", arg)
		}

		if !hasValue && !booleans.Has(f.name) {
			next := i+1 < len(args)
			switch {
			case next && (valued.Has(f.name) || !strings.HasPrefix(args[i+1], "-") || isNumber(args[i+1])):
				i++
				f.value, f.tokens = args[i], args[i-1:i+1:i+1]
			case valued.Has(f.name):
				return nil, fmt.Errorf("the flag %q needs a value", arg)
			}
		}

		flags = append(flags, f)
	}

	return flags, nil
}

// isNumber reports whether an argument is a negative number, as in
// `--pod-max-pids -1`.
func isNumber(s string) bool {
	return len(s) > 1 && strings.Trim(s[1:], "0123456789.") == ""
}

// last returns the value of the last flag with this name, which wins.
func last(flags []flag, name string) (value string, given bool) {
	for _, f := range flags {
		if f.name == name {
			value, given = f.value, true
		}
	}

	return value, given
}

// without returns the arguments of all other flags, in order.
func without(flags []flag, names ...string) []string {
	return arguments(flags, func(f flag) bool { return !slices.Contains(names, f.name) })
}

// only returns the arguments of the flags with this name, in order.
func only(flags []flag, name string) []string {
	return arguments(flags, func(f flag) bool { return f.name == name })
}

func arguments(flags []flag, selected func(flag) bool) []string {
	var args []string
	for _, f := range flags {
		if selected(f) {
			args = append(args, f.tokens...)
		}
	}

	return args
}

// setsConfig reports whether a flag may override a field of the configuration.
func (k *Kubelet) setsConfig() bool {
	return slices.ContainsFunc(k.flags, func(f flag) bool { return !notConfig.Has(f.name) })
}
