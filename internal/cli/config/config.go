// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package config has the commands about configuration files and about kubeadm's
// component configurations: "config" and "component" with their subcommands.
//
// It must not decide how a component configuration is upgraded:
// internal/operator/kubeadm does.
package config

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/internal/cli/printing"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/internal/operator/query"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/internal/program"
)

// app runs the commands of this package.
type app struct{ *command.Env }

// Command returns "config" and its subcommands.
func Command(env *command.Env) *cobra.Command {
	a := &app{env}
	cmd := command.Group(&cobra.Command{
		Use: "config", Short: "Compare, validate, convert and generate configurations",
		Example: `  kubectl evenkeel config diff node/worker-17 rollout/workers
  kubectl evenkeel config diff old.yaml new.yaml
  kubectl evenkeel config validate kubelet.yaml --component-binary kubelet=/usr/bin/kubelet
  kubectl evenkeel config convert --form=grouped kubelet.yaml`,
	})
	command.AddTitled(cmd, "Compare and validate:", a.configDiffCommand(), a.configValidateCommand())
	command.AddTitled(cmd, "Advanced: convert, and migrate kubeadm's configurations:", a.configConvertCommand(), a.configViewCommand(),
		a.configPrintCommand(), a.configUploadCommand())

	return cmd
}

// diffOptions has the flags of "config diff".
type diffOptions struct {
	live   bool
	form   string
	output printing.Format
}

func (a *app) configDiffCommand() *cobra.Command {
	o := diffOptions{form: "flat"}
	cmd := &cobra.Command{
		Use:   "diff A B",
		Short: "Compare two configurations, field by field",
		Long: `Compare two configurations, field by field. Each is one of

  node/NAME              the ConfigMap of the active revision in the node's NodeConfig
  rollout/NAME           the present template of the rollout
  rollout/NAME@REVISION  the revision of the rollout with this number
  PATH                   a file with a KubeletConfiguration, upstream or grouped (use ./node/x for a path like node/x)

With --live, the command asks the node's kubelet, through the API server, for its effective configuration, which includes
defaults, flags and the node's own files. This needs the right to get nodes/proxy.

A drop-in has fewer fields than a configuration, and a configuration fewer than the effective one. If the two are of
different kinds, only the fields of the smaller kind are compared. Values that may be secret are masked.

The exit code is 0 with and without differences; scripts should read -o json.`,
		Example: `  # What the next rollout changes on a node
  kubectl evenkeel config diff node/worker-17 rollout/workers

  # What changed between two revisions
  kubectl evenkeel config diff rollout/workers@3 rollout/workers@4

  # Check whether a node's kubelet uses the values of a file
  kubectl evenkeel config diff --live node/worker-17 kubelet.yaml`,
		Args: command.Args(2, 2, "needs two configurations, such as node/NAME kubelet.yaml: see its --help"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.configDiff(cmd.Context(), args[0], args[1], o) },
	}
	cmd.Flags().BoolVar(&o.live, "live", false, "ask the node's kubelet for its effective configuration")
	program.Choice(cmd, &o.form, "form", "", "names of fields", "flat", "grouped")
	printing.FormatFlag(cmd, &o.output, printing.JSON, printing.YAML)

	return cmd
}

func (a *app) configDiff(ctx context.Context, nameA, nameB string, o diffOptions) error {
	if o.live && !strings.HasPrefix(nameA, "node/") && !strings.HasPrefix(nameB, "node/") {
		return errors.New("--live needs node/NAME")
	}

	var d describe.Comparison
	var err error
	if d.A, err = a.readSide(ctx, nameA, o.live); err != nil {
		return err
	}
	if d.B, err = a.readSide(ctx, nameB, o.live); err != nil {
		return err
	}

	d.Compare(o.form)
	if o.output != "" {
		return printing.Encode(a.Out, o.output, d)
	}

	fmt.Fprintf(a.Out, "--- %s\n+++ %s\n", printable.Line(d.A.Name+" ("+d.A.Source+")"), printable.Line(d.B.Name+" ("+d.B.Source+")"))
	for _, c := range d.Differences {
		fmt.Fprintln(a.Out, printable.Line(c.String()))
	}
	if len(d.Differences) == 0 {
		fmt.Fprintln(a.Out, "no differences")
	}

	if d.NotCompared > 0 {
		fmt.Fprintf(a.Out, "not compared: %s that only one of them has, because %s is compared with %s\n",
			printable.Count(d.NotCompared, "field"), max(d.A.Extent, d.B.Extent), min(d.A.Extent, d.B.Extent))
	}

	return nil
}

// readSide reads one of the two configurations.
func (a *app) readSide(ctx context.Context, name string, live bool) (query.Side, error) {
	kind, rest, _ := strings.Cut(name, "/")
	switch {
	case (kind == "node" || kind == "rollout") && rest == "" && name != kind:
		return query.Side{}, fmt.Errorf("%q lacks a name: %s/NAME", name, kind)
	case kind == "node" && live:
		config, err := a.RESTConfig()
		if err != nil {
			return query.Side{}, err
		}

		return query.LiveSide(ctx, config, rest)
	case kind == "node", kind == "rollout":
		c, err := a.Client()
		if err != nil {
			return query.Side{}, err
		}
		if kind == "rollout" {
			return query.RolloutSide(ctx, c, rest)
		}

		return query.NodeSide(ctx, c, rest)
	}

	p, err := a.filePayload(ctx, name)

	return query.SideOf(name, "file", p), err
}

func (a *app) filePayload(ctx context.Context, path string) (payload.Payload, error) {
	data, _, err := a.ReadFile(ctx, path, payload.MaxSize)
	if err != nil {
		return payload.Payload{}, fmt.Errorf("%w (use node/NAME or rollout/NAME[@REVISION] for configurations in the cluster)", err)
	}

	p, err := payload.Decode(payload.KeyKubelet, data)
	if err != nil {
		err = fmt.Errorf("file %s is not a KubeletConfiguration: %w", path, err)
	}

	return p, err
}

// outputFlag adds --output to a command that writes a file. It has no -o, which
// is a format elsewhere.
func outputFlag(cmd *cobra.Command, path *string) {
	cmd.Flags().StringVar(path, "output", "", "file to write, which must not exist yet (default standard output)")
	_ = cmd.MarkFlagFilename("output", "yaml", "yml", "json")
}

// output writes data to a new file, or to standard output if path is "" or "-".
// After an error it leaves no new file behind.
func (a *app) output(path string, data []byte) error {
	if path == "" || path == "-" {
		if _, err := a.Out.Write(data); err != nil {
			return fmt.Errorf("write to standard output: %w", err)
		}

		return nil
	}

	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	switch {
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("--output: %s already exists: remove it, or choose another name; nothing was written", path)
	case err != nil:
		return fmt.Errorf("--output: %w; nothing was written", err)
	}

	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("--output: %w; the partial file was removed", errors.Join(err, os.Remove(path)))
	}

	return nil
}
