package cli

import "github.com/spf13/cobra"

func (a *app) nodeCommand() *cobra.Command { return &cobra.Command{Use: "node"} }
