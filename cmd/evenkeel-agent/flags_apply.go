// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evenkeel/evenkeel/internal/atomicfile"
	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/node/agent"
	"github.com/evenkeel/evenkeel/internal/node/checkpoint"
	"github.com/evenkeel/evenkeel/internal/node/install"
	"github.com/evenkeel/evenkeel/internal/payload"
)

// kubeletDropins is the --config-dir of a kubelet that has none before its
// flags are replaced.
const kubeletDropins = "/etc/kubernetes/kubelet.conf.d"

// flagsDropins are the drop-ins of flags --apply. A changed drop-in has another
// name, so that install sees a change.
const flagsDropins = "99-evenkeel-flags-*.conf"

// flagsInstaller installs an agent with --flags-dropin. *install.Host
// implements it.
type flagsInstaller interface {
	CommandLine(ctx context.Context, r install.Request) (agent, kubelet []string, err error)
	Install(ctx context.Context, r install.Request) (string, error)
}

// applyFlags replaces flags of the unit's kubelet with a drop-in, in dir if the
// kubelet has no --config-dir. It returns a message for the user.
//
// The drop-in is written first: the flags are still on the command line and
// override it. The agent that is then tried leaves them out. If it does not
// become healthy, install restores the previous agent, and the drop-in is
// removed. If this process is killed, a drop-in that is left over has no
// effect.
func applyFlags(ctx context.Context, i flagsInstaller, r install.Request, dir string) (string, error) {
	flags, argv, err := i.CommandLine(ctx, r)
	if err != nil {
		return "", err
	}

	o, err := parseAgentFlags(flags)
	if err != nil {
		return "", err
	}
	if err := o.checkReplaceable(); err != nil {
		return "", err
	}

	var words string
	err = withHostKubelet(o, argv, func(host *agent.HostKubelet) error {
		if host.ConfigDir != "" {
			dir = filepath.Clean(host.ConfigDir)
		}

		file, data, err := flagsFile(ctx, host, dir)
		if err != nil {
			return err
		}

		if file == "" {
			words = "no flag of the kubelet can be removed: nothing to do"
			return nil
		}

		remove, err := writeFlagsFile(file, data)
		if err != nil {
			return err
		}

		if err = o.checkSame(ctx, host, file); err == nil {
			r.Keep, r.Flags = false, append(slices.Clone(flags), "--flags-dropin="+file)
			words, err = i.Install(ctx, r)
		}

		if err != nil {
			return errors.Join(err, remove())
		}

		words += "; " + file + " replaces flags of the kubelet"

		return nil
	})

	return words, err
}

// checkReplaceable returns why flags cannot be replaced on this node.
func (o *options) checkReplaceable() error {
	initFile, err := o.initFile()
	if err != nil {
		return err
	}
	if initFile != "" {
		return fmt.Errorf("%s of --init-config-dir replaces the kubelet's drop-ins: put the fields into that file", initFile)
	}
	if _, err := os.Stat(o.dynamicConfigDir); o.dynamicConfigDir == "" || errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	v, err := checkpoint.ReadOnly(atomicfile.OS{}, o.dynamicConfigDir, "")
	if err != nil {
		return err
	}

	if !v.State.Current.IsLocal() || !v.State.LastKnownGood.IsLocal() {
		return errors.New("this node has a configuration from the API, which its flags override too: add the fields of the flags to that " +
			"configuration, or return the node to its local configuration first; nothing was changed")
	}

	return nil
}

// flagsFile returns the drop-in that replaces flags, and its path; "" if no
// flag can be replaced.
func flagsFile(ctx context.Context, host *agent.HostKubelet, dir string) (file string, data []byte, err error) {
	if !filepath.IsAbs(dir) {
		return "", nil, fmt.Errorf("the kubelet's --config-dir must be an absolute path, not %q", dir)
	}

	before, err := filepath.Glob(filepath.Join(dir, flagsDropins))
	if err != nil {
		return "", nil, err
	}

	if len(before) > 0 {
		return "", nil, fmt.Errorf("%s replaces flags of the kubelet already, or is left over: remove it to replace them again; nothing was "+
			"changed", before[0])
	}

	converted, err := host.DryRunner.ConvertFlags(ctx, "")
	if err != nil {
		return "", nil, fmt.Errorf("cannot convert the kubelet's flags: %w", err)
	}

	if len(converted.Differences) > 0 {
		return "", nil, fmt.Errorf("no drop-in is equivalent to the flags: %s would be %s instead of %s; nothing was changed",
			converted.Differences[0].Field, converted.Differences[0].Value, converted.Differences[0].Local)
	}

	if !slices.ContainsFunc(converted.Flags, func(f component.ConvertedFlag) bool { return f.Removed }) {
		return "", nil, nil
	}

	data, err = converted.FlagsDropin()
	name := strings.Replace(flagsDropins, "*", fmt.Sprintf("%.4x", sha256.Sum256(data)), 1)

	return filepath.Join(dir, name), data, err
}

// writeFlagsFile writes a drop-in durably. remove removes it again, with its
// directory if that is new.
func writeFlagsFile(file string, data []byte) (remove func() error, err error) {
	disk, dir := atomicfile.OS{}, filepath.Dir(file)
	_, err = os.Stat(dir)
	created := errors.Is(err, fs.ErrNotExist)
	if created {
		err = atomicfile.MakeDir(disk, dir, 0o755)
	}

	remove = func() error {
		err := disk.Remove(file)
		if created {
			return errors.Join(err, disk.Remove(dir))
		}

		return errors.Join(err, disk.SyncDir(dir))
	}
	if err == nil {
		err = atomicfile.Write(disk, file, data, 0o600)
	}

	return remove, err
}

// checkSame returns an error unless the kubelet's effective configuration stays
// the same with a drop-in, as written, instead of its flags.
func (o *options) checkSame(ctx context.Context, host *agent.HostKubelet, file string) error {
	k, err := host.ReplaceFlags(file)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}

	before := host.CheckLocal(ctx)

	return withHostKubelet(o, append([]string{k.Path}, k.Args...), func(changed *agent.HostKubelet) error {
		after := changed.CheckLocal(ctx)
		for _, v := range []component.Verdict{before, after} {
			if v.Outcome != component.Accepted || v.Effective == nil {
				return fmt.Errorf("cannot compare the kubelet's configuration with and without its flags: %s: %s", v.Outcome, v.Message)
			}
		}

		if differs := payload.Diff(after.Effective, before.Effective); len(differs) > 0 {
			return fmt.Errorf("%s is not equivalent to the flags: %s would be %s instead of %s; nothing was changed", file, differs[0].Field,
				differs[0].Value, differs[0].Local)
		}

		return nil
	})
}
