package command

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"
)

// Args returns a check of the number of arguments. The error names the command, and goes on with words about what it takes.
func Args(least, most int, words string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most || slices.Contains(args, "") {
			return fmt.Errorf("%s %s", cmd.CommandPath(), words)
		}
		return nil
	}
}
