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
		Short: "Serve a web page with the live state of the fleet and its rollouts",
		Long: `Serve a web page with the live state of the fleet and its rollouts. On the page you can pause, promote and abort rollouts.

The server listens on 127.0.0.1 only, and acts with your kubeconfig and your permissions. It answers only requests with the
token in the printed URL, which is new each time. Anyone with this URL can act with your permissions while the command runs.
Stop the command with Ctrl-C.

To open the page on another machine, forward the port: ssh -L 8085:127.0.0.1:8085 HOST, and open the URL there.`,
		Example: `  kubectl evenkeel dashboard
  kubectl evenkeel dashboard --port 0 --context staging`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.serve(cmd.Context(), port) },
	}
	cmd.Flags().IntVar(&port, "port", port, "port on 127.0.0.1; 0 chooses a free port")
	return cmd
}

func (a *app) serve(ctx context.Context, port int) error {
	if port < 0 || port > 65535 {
		return fmt.Errorf("--port must be from 0 to 65535, not %d", port)
	}
	config, err := a.RESTConfig()
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
	s, err := dashboard.Listen(ctx, dashboard.Options{Config: config, Context: printable.Line(name), Port: port, Version: a.Program.Version, Log: a.ErrOut})
	if err != nil {
		return err
	}
	fmt.Fprintf(a.Out, "open %s\n", s.URL())
	return s.Serve(ctx)
}
