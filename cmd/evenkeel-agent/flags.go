// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/evenkeel/evenkeel/internal/node/agent"
	"github.com/evenkeel/evenkeel/internal/node/install"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/internal/program"
)

func flagsCommand() *cobra.Command {
	o := &options{}
	c := &nodeChange{}
	var newer string
	var apply bool
	cmd := &cobra.Command{
		Use:   "flags [flags] -- KUBELET [KUBELET FLAGS]\n  evenkeel-agent flags --apply [--unit UNIT]",
		Short: "Show which flags of the kubelet can be fields of its configuration, or replace them",
		Long: `flags shows which flags of a kubelet's command line have an equivalent field of the
KubeletConfiguration, a drop-in with the same meaning, and the remaining command
line. The output is a drop-in for the kubelet's --config-dir; the rest is in its
comments. Nothing is changed, and the kubelet is not started.

The kubelet itself finds the fields: it prints its effective configuration with
and without each flag. It also proves the result: the effective configuration of
the remaining command line with the drop-in must equal the present one.
Differences are listed. Use this node's kubelet, flags and files.

With --apply, the kubelet is that of the unit. The command writes the drop-in to the
kubelet's --config-dir (if it has none: ` + kubeletDropins + `), and
installs an agent that starts the kubelet without these flags; see install. If the
kubelet does not become healthy, both are taken back. The unit keeps its flags:
without the agent or the drop-in they count again, and so does a flag that changes.

Exit codes: 0 equivalent, 1 not equivalent, 2 could not tell, 3 usage. With --apply:
0 done, or nothing to do, 1 error and nothing was changed, 2 tried and rolled back.`,
		Example: `  evenkeel-agent flags -- /usr/bin/kubelet --config=/var/lib/kubelet/config.yaml --max-pods=250

  # Which flags does the kubelet of a planned upgrade no longer have?
  evenkeel-agent flags --newer-kubelet=./kubelet-v1.37.2 -- /usr/bin/kubelet --containerd=/run/containerd.sock

  # Replace the flags of this node's kubelet:
  evenkeel-agent flags --apply`,
		RunE: func(cmd *cobra.Command, args []string) error {
			ofRestart, ofShow := []string{"unit", "timeout", "allow-pod-loss", "bin-dir"}, []string{"init-config-dir", "newer-kubelet"}
			if apply {
				if len(args) > 0 || slices.ContainsFunc(ofShow, cmd.Flags().Changed) {
					return program.Usage("flags --apply takes only --unit, --timeout, --allow-pod-loss and --bin-dir: the kubelet is that of the unit")
				}

				c.request.Keep = true

				return c.run(cmd.Context(), cmd.OutOrStdout(), func(h *install.Host, ctx context.Context, r install.Request) (string, error) {
					return applyFlags(ctx, h, r, kubeletDropins)
				})
			}

			if slices.ContainsFunc(ofRestart, cmd.Flags().Changed) {
				return program.Usage("--unit, --timeout, --allow-pod-loss and --bin-dir are for flags --apply")
			}
			if cmd.ArgsLenAtDash() != 0 || len(args) == 0 {
				return program.Usage("flags takes only -- and the kubelet's command line")
			}

			return withHostKubelet(o, args, func(host *agent.HostKubelet) error {
				return showFlags(cmd.Context(), cmd.OutOrStdout(), host, newer)
			})
		},
	}
	o.given = cmd.Flags().Changed
	cmd.Flags().StringVar(&o.initConfigDir, "init-config-dir", "", "the agent's --init-config-dir")
	cmd.Flags().StringVar(&newer, "newer-kubelet", "", "path of another kubelet: mark the flags that it does not have")
	cmd.Flags().BoolVar(&apply, "apply", false, "replace the flags of the unit's kubelet with the drop-in; roll back if that fails")
	c.bindRestart(cmd.Flags())
	c.bindBinDir(cmd.Flags())

	return cmd
}

// showFlags prints how the flags of a kubelet can be converted.
func showFlags(ctx context.Context, out io.Writer, host *agent.HostKubelet, newer string) error {
	var version string
	var unknown []string
	if newer != "" {
		var err error
		if version, unknown, err = host.UnknownFlags(ctx, newer); err != nil {
			return couldNotTell(err)
		}
	}

	converted, err := host.DryRunner.ConvertFlags(ctx, host.InitFile)
	if err != nil {
		return couldNotTell(err)
	}

	var removed, kept []string
	for _, f := range converted.Flags {
		note := strings.Join(f.Fields, ", ")
		switch {
		case f.Kept != "" && note != "":
			note += "; it stays, because " + f.Kept
		case f.Kept != "":
			note = "it stays, because " + f.Kept
		case f.Removed && note == "":
			note = "changes nothing"
		}

		if slices.Contains(unknown, f.Name) {
			note = strings.TrimPrefix(note+"; kubelet "+version+" does not have this flag", "; ")
		}

		line := printable.Shell(f.Args...)
		if note != "" {
			line += " (" + note + ")"
		}

		if f.Removed {
			removed = append(removed, line)
		} else {
			kept = append(kept, line)
		}
	}

	var text strings.Builder
	comment(&text, "These flags of the kubelet can be removed:", removed)
	comment(&text, "These flags stay:", kept)
	comment(&text, "The remaining command line:", []string{printable.Shell(converted.Remaining...)})
	var differences []string
	for _, d := range converted.Differences {
		differences = append(differences, fmt.Sprintf("%s: %s instead of %s", d.Field, d.Value, d.Local))
	}

	comment(&text, "The kubelet's effective configuration would differ:", differences)
	switch {
	case len(removed) == 0:
		text.WriteString("# No flag can be removed.\n")
	case len(differences) == 0:
		text.WriteString("# The kubelet's effective configuration stays the same, with this drop-in instead of the flags.\n")
	}

	text.Write(converted.Dropin)
	if _, err := io.WriteString(out, text.String()); err != nil {
		return err
	}
	if len(differences) > 0 {
		return fmt.Errorf("the drop-in is not equivalent to the flags: effective fields that would differ: %d", len(differences))
	}

	return nil
}

// comment writes lines as comments of a YAML document; nothing if there are
// none.
func comment(out *strings.Builder, title string, lines []string) {
	if len(lines) == 0 {
		return
	}

	fmt.Fprintf(out, "# %s\n", title)
	for _, line := range lines {
		fmt.Fprintf(out, "#   %s\n", strings.ReplaceAll(printable.Text(line), "\n", `\n`))
	}
}
