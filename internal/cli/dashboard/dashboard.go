// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dashboard has the command "dashboard", which serves the web page of
// internal/operator/dashboard.
//
// It must not know what the page shows.
package dashboard

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/internal/operator/dashboard"
)

// app runs the commands of this package.
type app struct{ *command.Env }

// Command returns "dashboard".
func Command(env *command.Env) *cobra.Command {
	a := &app{env}
	port := dashboard.DefaultPort
	var contexts []string
	cmd := &cobra.Command{
		Use:   "dashboard",
		Short: "Serve a web page with the live state of the fleet and its rollouts",
		Long: `Serve a web page with the live state of the fleet and its rollouts. On the page you can approve, pause, retry, undo and abort
rollouts. With several --context, the page shows each of these clusters, also if some of them cannot be reached.

The server listens on 127.0.0.1 only, and acts with your kubeconfig and your permissions. It answers only requests with the
token in the printed URL, which is new each time. Anyone with this URL can act with your permissions while the command runs.
Stop the command with Ctrl-C.

To open the page on another machine, forward the port: ssh -L 8085:127.0.0.1:8085 HOST, and open the URL there.`,
		Example: `  kubectl evenkeel dashboard
  kubectl evenkeel dashboard --port 0 --context staging
  kubectl evenkeel dashboard --context staging --context production`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.serve(cmd.Context(), port, contexts, cmd.Flags())
		},
	}
	// It takes the place of the flag that all commands have, which can be given
	// once.
	cmd.Flags().StringArrayVar(&contexts, "context", nil, "context of the kubeconfig to show, repeatable (default: the current context)")
	cmd.Flags().IntVar(&port, "port", port, "port on 127.0.0.1; 0 chooses a free port")

	return cmd
}

func (a *app) serve(ctx context.Context, port int, contexts []string, flags *pflag.FlagSet) error {
	if port < 0 || port > 65535 {
		return fmt.Errorf("--port must be from 0 to 65535, not %d", port)
	}

	clusters, err := a.clusters(contexts, flags)
	if err != nil {
		return err
	}

	s, err := dashboard.Listen(ctx, dashboard.Options{Clusters: clusters, Port: port, Version: a.Program.Version, Log: a.ErrOut})
	if err != nil {
		return err
	}

	fmt.Fprintf(a.Out, "open %s\n", s.URL())

	return s.Serve(ctx)
}

// clusters returns the clusters of these contexts; of the current one if there
// are none.
func (a *app) clusters(contexts []string, flags *pflag.FlagSet) ([]dashboard.Cluster, error) {
	if len(contexts) == 0 {
		c, err := a.CurrentContext()
		return []dashboard.Cluster{{Config: c.Config, Context: c.Name}}, err
	}

	all, err := a.Contexts(contexts, flags)
	var out []dashboard.Cluster
	for _, c := range all {
		out = append(out, dashboard.Cluster{Config: c.Config, Context: c.Name, Named: true})
	}

	return out, err
}
