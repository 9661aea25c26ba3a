package cli

import (
	"context"
	"io"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
)

func (a *app) planCommand() *cobra.Command { return &cobra.Command{Use: "plan"} }

// showPlan writes what a rollout, stored or not yet, would do: order, batches, time, conflicts.
func (a *app) showPlan(ctx context.Context, c client.Client, r *v1alpha1.NodeConfigRollout, w io.Writer) error {
	return nil
}
