package cli

import "github.com/spf13/cobra"

func (a *app) nodesCommand() *cobra.Command { return &cobra.Command{Use: "nodes"} }
