// Package dashboard has the command "dashboard", which serves the web page of internal/fleet/dashboard.
//
// It must not know what the page shows.
package dashboard

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/internal/fleet/dashboard"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// app runs the commands of this package.
type app struct{ *command.Env }

// Command returns "dashboard".
func Command(env *command.Env) *cobra.Command {
	a := &app{env}
	port := dashboard.DefaultPort
	cmd := &cobra.Command{
		Use:   "dashboard",
		Short: "Serve a page that shows the fleet and its rollouts as they are now",
		Long: `Serve a page that shows the fleet and its rollouts as they are now, and lets rollouts be paused, promoted and aborted.

It listens on 127.0.0.1 alone, acts with your kubeconfig and your rights, and answers only who opens the address that is
printed: the token in it is made anew each time, and worth your rights. It ends with Ctrl-C.

To look from another machine, forward the port: ssh -L 8085:127.0.0.1:8085 HOST, and open the address there.`,
		Example: `  kubectl evenkeel dashboard
  kubectl evenkeel dashboard --port 0 --context staging`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.serve(cmd.Context(), port) },
	}
	cmd.Flags().IntVar(&port, "port", port, "port of 127.0.0.1 to listen on; 0 is any that is free")
	return cmd
}

func (a *app) serve(ctx context.Context, port int) error {
	if port < 0 || port > 65535 {
		return fmt.Errorf("--port must be from 0 to 65535, not %d", port)
	}
	config, err := a.Connection.ToRESTConfig()
	if err != nil {
		return err
	}
	name := ""
	if raw, err := a.Connection.ToRawKubeConfigLoader().RawConfig(); err == nil {
		name = raw.CurrentContext
		if c := a.Connection.Context; c != nil && *c != "" {
			name = *c
		}
	}
	s, err := dashboard.Listen(ctx, dashboard.Options{Config: config, Context: report.OneLine(name), Port: port, Version: a.Program.Version, Log: a.ErrOut})
	if err != nil {
		return err
	}
	fmt.Fprintf(a.Out, "open %s\n", s.URL())
	return s.Serve(ctx)
}
