package component

import (
	"fmt"
	"slices"
	"strings"
)

// flag is one flag of a command line, as the kubelet's own parser (pflag) would read it.
type flag struct {
	name   string   // without dashes; underscores as dashes, as the kubelet normalizes them
	value  string   // empty if there is none
	tokens []string // as they stand on the command line, one or two
}

// booleans are the flags that never take the next word as their value, in kubelets 1.32 to 1.37. One that is missing
// here, of another version, does no harm unless it is followed by a word that is no flag, which the kubelet refuses.
var booleans = map[string]bool{
	"anonymous-auth": true, "authentication-token-webhook": true, "cgroups-per-qos": true, "contention-profiling": true,
	"cpu-cfs-quota": true, "enable-controller-attach-detach": true, "enable-debugging-handlers": true,
	"enable-load-reader": true, "enable-server": true, "exit-on-lock-contention": true,
	"experimental-allocatable-ignore-eviction": true, "fail-cgroupv1": true, "fail-swap-on": true,
	"kernel-memcg-notification": true, "keep-terminated-pod-volumes": true, "local-storage-capacity-isolation": true,
	"log-cadvisor-usage": true, "log-json-split-stream": true, "log-text-split-stream": true,
	"make-iptables-util-chains": true, "protect-kernel-defaults": true, "register-node": true,
	"register-schedulable": true, "rotate-certificates": true, "rotate-server-certificates": true, "runonce": true,
	"seccomp-default": true, "serialize-image-pulls": true, "storage-driver-secure": true,
}

// valued are flags that this package reads or replaces; they always take a value.
var valued = map[string]bool{
	"bootstrap-kubeconfig": true, "cert-dir": true, "config": true, "config-dir": true, "hostname-override": true,
	"kubeconfig": true, "lock-file": true, "node-ip": true, "root-dir": true, "v": true, "authorization-mode": true,
}

// notConfig are the flags that set nothing of the KubeletConfiguration: they cannot override a field of a payload.
// (-v sets logging.verbosity, but every dry run has a -v of its own: that one is compared by hand.)
var notConfig = map[string]bool{
	"bootstrap-kubeconfig": true, "cert-dir": true, "cloud-provider": true, "config": true, "config-dir": true,
	"exit-on-lock-contention": true, "experimental-allocatable-ignore-eviction": true,
	"experimental-mounter-path": true, "hostname-override": true, "housekeeping-interval": true,
	"image-credential-provider-bin-dir": true, "image-credential-provider-config": true, "kubeconfig": true,
	"lock-file": true, "maximum-dead-containers": true, "maximum-dead-containers-per-container": true,
	"minimum-container-ttl-duration": true, "node-ip": true, "node-labels": true, "pod-infra-container-image": true,
	"root-dir": true, "runtime-cgroups": true, "v": true,
}

// parseFlags splits a command line like pflag does. It refuses what the kubelet would refuse, where going on would
// mean guessing: words that are no flag, and single dashes before anything but v.
func parseFlags(args []string) ([]flag, error) {
	var flags []flag
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if arg == "--" {
			if i+1 < len(args) {
				return nil, fmt.Errorf("the kubelet takes flags only, but %q follows --", args[i+1])
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
				return nil, fmt.Errorf("%q is no flag", arg)
			}
		case strings.HasPrefix(arg, "-v"):
			f.name, f.value, hasValue = "v", strings.TrimPrefix(arg[2:], "="), len(arg) > 2
		case arg == "-h":
			f.name = "help"
		case strings.HasPrefix(arg, "-") && len(arg) > 1:
			return nil, fmt.Errorf("%q is no flag of the kubelet: flags other than -v take two dashes", arg)
		default:
			return nil, fmt.Errorf("the kubelet takes flags only, but %q is none", arg)
		}
		if f.name == "help" || f.name == "version" {
			return nil, fmt.Errorf("%q does not run a kubelet", arg)
		}
		if !hasValue && !booleans[f.name] {
			next := i+1 < len(args)
			switch {
			case next && (valued[f.name] || !strings.HasPrefix(args[i+1], "-") || isNumber(args[i+1])):
				i++
				f.value, f.tokens = args[i], args[i-1:i+1:i+1]
			case valued[f.name]:
				return nil, fmt.Errorf("the flag %q needs a value", arg)
			}
		}
		flags = append(flags, f)
	}
	return flags, nil
}

// isNumber tells a negative number, as in `--pod-max-pids -1`, from a flag.
func isNumber(s string) bool {
	return len(s) > 1 && strings.Trim(s[1:], "0123456789.") == ""
}

// last returns the value of the flag that wins: the last one.
func last(flags []flag, name string) (value string, given bool) {
	for _, f := range flags {
		if f.name == name {
			value, given = f.value, true
		}
	}
	return value, given
}

// without returns the words of all flags but those named, in order.
func without(flags []flag, names ...string) []string {
	var args []string
	for _, f := range flags {
		if !slices.Contains(names, f.name) {
			args = append(args, f.tokens...)
		}
	}
	return args
}

// only returns the words of the flags of one name, in order.
func only(flags []flag, name string) []string {
	var args []string
	for _, f := range flags {
		if f.name == name {
			args = append(args, f.tokens...)
		}
	}
	return args
}

// setsConfig tells whether the command line has a flag that may override a field of the configuration.
func (k *Kubelet) setsConfig() bool {
	return slices.ContainsFunc(k.flags, func(f flag) bool { return !notConfig[f.name] })
}
