// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Kubelet is the command line of a node's kubelet.
type Kubelet struct {
	Path string   // as given
	Args []string // unchanged

	// Values of flags in Args (the last one of each flag wins), or the
	// kubelet's defaults.
	Config               string
	ConfigDir            string
	Kubeconfig           string
	HostnameOverride     string
	RootDir              string // default /var/lib/kubelet
	CertDir              string // default /var/lib/kubelet/pki
	LockFile             string
	ExitOnLockContention bool

	flags []flag
}

// Defaults of the kubelet. CertDir does not depend on RootDir.
const (
	defaultRootDir = "/var/lib/kubelet"
	defaultCertDir = "/var/lib/kubelet/pki"
)

// ParseKubelet parses a kubelet's command line; argv[0] is the program. It
// returns an error if the kubelet would not parse the command line.
func ParseKubelet(argv []string) (*Kubelet, error) {
	if len(argv) == 0 || argv[0] == "" {
		return nil, errors.New("no kubelet given")
	}

	flags, err := parseFlags(argv[1:])
	if err != nil {
		return nil, fmt.Errorf("kubelet command line: %w", err)
	}

	value := func(name, fallback string) string {
		if v, given := last(flags, name); given {
			return v
		}

		return fallback
	}
	exit, given := last(flags, "exit-on-lock-contention")

	return &Kubelet{
		Path:                 argv[0],
		Args:                 argv[1:len(argv):len(argv)],
		Config:               value("config", ""),
		ConfigDir:            value("config-dir", ""),
		Kubeconfig:           value("kubeconfig", ""),
		HostnameOverride:     value("hostname-override", ""),
		RootDir:              value("root-dir", defaultRootDir),
		CertDir:              value("cert-dir", defaultCertDir),
		LockFile:             value("lock-file", ""),
		ExitOnLockContention: given && exit != "false" && exit != "0" && !strings.EqualFold(exit, "f"),
		flags:                flags,
	}, nil
}

// Argv returns the command line to run, including the program. An init file or
// a candidate replaces the node's --config and --config-dir. lockFile replaces
// the node's --lock-file; "" removes it. The node's own --exit-on-lock-contention
// is removed: the supervisor decides when a kubelet stops. Other flags are kept
// in order. Added flags come first, so that a flag without its value at the end
// of the command line cannot consume them.
func (k *Kubelet) Argv(run RunConfig, lockFile string) []string {
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

// Identity identifies the kubelet's binary. The error says whether it is
// missing, a directory or not executable.
func (k *Kubelet) Identity() (Identity, error) { return identify("kubelet", k.Path) }

// Version runs the kubelet to read its version, such as "v1.36.3", which is
// safe to use as a path element.
func (k *Kubelet) Version(ctx context.Context) (string, error) {
	return queryVersion(ctx, "kubelet", program{"kubelet", k.Path})
}

// VersionWithLock returns the version and, unless lockFile is empty, reports
// whether the kubelet supports --lock-file, an alpha flag. A kubelet without the
// flag would not start with it.
func (k *Kubelet) VersionWithLock(ctx context.Context, lockFile string) (version string, locks bool, err error) {
	if lockFile == "" {
		version, err = k.Version(ctx)
		return version, true, err
	}

	version, err = queryVersion(ctx, "kubelet", program{"kubelet", k.Path}, "--lock-file="+lockFile)
	if err == nil || !strings.Contains(err.Error(), "unknown flag: --lock-file") {
		return version, true, err
	}

	version, err = k.Version(ctx)

	return version, false, err
}

// Flag returns the value of a flag in Args, by its name without dashes; "" if
// it is not given.
func (k *Kubelet) Flag(name string) string {
	value, _ := last(k.flags, name)
	return value
}
