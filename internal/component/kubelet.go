package component

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Kubelet is the command line that a node has for its kubelet.
type Kubelet struct {
	Path string   // the program, as it was given
	Args []string // everything after it, untouched

	// The values that the kubelet takes from Args (the last of each flag), or its defaults.
	Config              string
	ConfigDir           string
	Kubeconfig          string
	BootstrapKubeconfig string
	HostnameOverride    string
	RootDir             string // default /var/lib/kubelet
	CertDir             string // default /var/lib/kubelet/pki
	LockFile            string
	// ExitOnLockContention is the node's own --exit-on-lock-contention.
	ExitOnLockContention bool

	flags []flag
}

// The kubelet's own defaults. CertDir does not follow RootDir.
const (
	defaultRootDir = "/var/lib/kubelet"
	defaultCertDir = "/var/lib/kubelet/pki"
)

// ParseKubelet reads a kubelet's command line; argv[0] is its path. It returns an error for a command line that the
// kubelet would refuse to parse.
func ParseKubelet(argv []string) (*Kubelet, error) {
	if len(argv) == 0 || argv[0] == "" {
		return nil, errors.New("no kubelet given")
	}
	flags, err := parseFlags(argv[1:])
	if err != nil {
		return nil, fmt.Errorf("kubelet command line: %w", err)
	}
	value := func(name, standard string) string {
		if v, given := last(flags, name); given {
			return v
		}
		return standard
	}
	exit, given := last(flags, "exit-on-lock-contention")
	return &Kubelet{
		Path:                 argv[0],
		Args:                 argv[1:len(argv):len(argv)],
		Config:               value("config", ""),
		ConfigDir:            value("config-dir", ""),
		Kubeconfig:           value("kubeconfig", ""),
		BootstrapKubeconfig:  value("bootstrap-kubeconfig", ""),
		HostnameOverride:     value("hostname-override", ""),
		RootDir:              value("root-dir", defaultRootDir),
		CertDir:              value("cert-dir", defaultCertDir),
		LockFile:             value("lock-file", ""),
		ExitOnLockContention: given && exit != "false" && exit != "0" && !strings.EqualFold(exit, "f"),
		flags:                flags,
	}, nil
}

// Argv returns the command line to run, path included. An init file or a candidate replaces the node's --config and
// --config-dir; else both stay as they are. A lockFile replaces the node's --lock-file; "" removes it. The node's own
// --exit-on-lock-contention goes: who gives way on what lock is for who runs the kubelet. Everything else stays, in
// order. Ours come first, where no half-written flag at the end can take them for its value.
func (k *Kubelet) Argv(run Run, lockFile string) []string {
	drop := []string{"lock-file", "exit-on-lock-contention"}
	argv := []string{k.Path}
	if run.InitFile != "" || run.Dir != "" {
		drop = append(drop, "config", "config-dir")
		argv = append(argv, k.configFlags(run)...)
	}
	if lockFile != "" {
		argv = append(argv, "--lock-file="+lockFile)
	}
	return append(argv, without(k.flags, drop...)...)
}

// Identity looks at the kubelet's file. The error says plainly what is wrong with it: missing, a directory, not
// executable.
func (k *Kubelet) Identity() (Identity, error) { return identify("kubelet", k.Path) }

// Version asks the kubelet for its version, such as "v1.36.3". It is safe as a single path element.
func (k *Kubelet) Version(ctx context.Context) (string, error) {
	return askVersion(ctx, "kubelet", program{"kubelet", k.Path})
}

// VersionWithLock is Version, and tells whether the kubelet knows --lock-file, which is an alpha feature of it: one that
// does not would refuse to start with it.
func (k *Kubelet) VersionWithLock(ctx context.Context, lockFile string) (version string, locks bool, err error) {
	version, err = askVersion(ctx, "kubelet", program{"kubelet", k.Path}, "--lock-file="+lockFile)
	if err == nil || !strings.Contains(err.Error(), "unknown flag: --lock-file") {
		return version, true, err
	}
	version, err = k.Version(ctx)
	return version, false, err
}
