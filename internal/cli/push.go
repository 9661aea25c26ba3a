package cli

import "github.com/spf13/cobra"

func (a *app) pushCommand() *cobra.Command { return &cobra.Command{Use: "push"} }
