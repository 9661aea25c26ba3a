package cli

import "github.com/spf13/cobra"

func (a *app) rolloutCommand() *cobra.Command { return &cobra.Command{Use: "rollout"} }
