// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// FlagsCommand returns "flags".
func FlagsCommand(env *command.Env) *cobra.Command {
	a := &app{env}
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "flags NODE",
		Short: "Show which flags of a node's kubelet can be fields of its configuration",
		Long: `Show which flags of a node's kubelet have an equivalent field of the KubeletConfiguration, a drop-in with the same
meaning, and the remaining command line. Nothing on the node is changed, and its kubelet is not restarted.

The node's own kubelet finds the fields, in dry runs, and proves the result: the effective configuration with the drop-in must
equal the present one. Credentials are masked. To replace the flags, run "evenkeel-agent flags --apply" on the node.

The command asks the node's agent with the annotation evenkeel.dev/flags of the NodeConfig, and removes it at the end.
The exit code is 0 if the drop-in is equivalent to the flags, 1 if not, and 3 when --timeout has expired.`,
		Example: `  kubectl evenkeel flags worker-17
  kubectl evenkeel flags worker-17 > flags.yaml`,
		Args:              command.Args(1, 1, "needs the name of one node: list them with: kubectl evenkeel nodes"),
		ValidArgsFunction: a.CompleteNode,
		RunE: func(cmd *cobra.Command, args []string) error {
			if timeout <= 0 {
				return fmt.Errorf("--timeout must be longer than 0, such as 1m, not %s", timeout)
			}
			return a.flags(cmd.Context(), args[0], timeout)
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 2*time.Minute, "stop waiting for the agent after this long, with exit code 3")
	return cmd
}

// flags asks a node's agent about the flags of its kubelet, and prints the answer.
func (a *app) flags(ctx context.Context, node string, timeout time.Duration) error {
	c, err := a.Client()
	if err != nil {
		return err
	}
	nc := &v1alpha1.NodeConfig{}
	if err := c.Get(ctx, client.ObjectKey{Name: node}, nc); err != nil {
		if apierrors.IsNotFound(err) {
			return fmt.Errorf("node %s has no NodeConfig: no agent has ever run there; list the nodes with: kubectl evenkeel nodes", node)
		}
		return fmt.Errorf("read NodeConfig %s: %w", node, err)
	}
	if nc.Status.AgentVersion == "" {
		return fmt.Errorf("no agent has reported from node %s: install one with kubectl evenkeel install, or run evenkeel-agent flags on the "+
			"node", node)
	}
	request := string(uuid.NewUUID())
	ask, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": nc.UID,
		"annotations": map[string]string{v1alpha1.AnnotationFlags: request}}})
	if err != nil {
		return fmt.Errorf("encode the request: %w", err)
	}
	if err := c.Patch(ctx, nc.DeepCopy(), client.RawPatch(types.MergePatchType, ask)); err != nil {
		return fmt.Errorf("ask the agent of node %s: %w", node, err)
	}
	defer a.withdraw(context.WithoutCancel(ctx), c, nc, request)
	answer, err := a.awaitFlags(ctx, c, node, request, timeout)
	if err != nil {
		return err
	}
	fmt.Fprint(a.Out, answer.Text)
	if answer.Error != "" {
		return fmt.Errorf("node %s: %s", node, printable.Line(answer.Error))
	}
	return nil
}

// withdraw removes a request, unless another one has replaced it.
func (a *app) withdraw(ctx context.Context, c client.Client, nc *v1alpha1.NodeConfig, request string) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	const path = "/metadata/annotations/evenkeel.dev~1flags"
	patch := fmt.Appendf(nil, `[{"op": "test", "path": %[1]q, "value": %[2]q}, {"op": "remove", "path": %[1]q}]`, path, request)
	err := c.Patch(ctx, nc.DeepCopy(), client.RawPatch(types.JSONPatchType, patch))
	if err != nil && !apierrors.IsInvalid(err) && !apierrors.IsNotFound(err) {
		fmt.Fprintf(a.ErrOut, "note: the annotation %s of NodeConfig %s stays: %s\n", v1alpha1.AnnotationFlags, nc.Name,
			printable.Line(describe.Brief(err)))
	}
}

// awaitFlags waits for the answer to a request.
func (a *app) awaitFlags(ctx context.Context, c client.WithWatch, node, request string, timeout time.Duration) (*v1alpha1.FlagsAnswer,
	error) {
	interrupted := ctx
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	updates := command.Watched[*v1alpha1.NodeConfig]{
		List: &v1alpha1.NodeConfigList{}, Name: node, What: "NodeConfig " + node, Deleted: "nobody answers",
	}.Follow(ctx, c)
	for u := range updates {
		switch {
		case u.Last && ctx.Err() == nil:
			return nil, u.Err
		case u.Err != nil:
			fmt.Fprintf(a.ErrOut, "waiting for the API server: %s\n", printable.Line(describe.Brief(u.Err)))
		case u.Object.Status.Flags != nil && u.Object.Status.Flags.Request == request:
			return u.Object.Status.Flags, nil
		case u.Object.Annotations[v1alpha1.AnnotationFlags] != request:
			return nil, fmt.Errorf("the request to the agent of node %s was removed or replaced by another one: run the command again", node)
		}
	}
	if interrupted.Err() != nil {
		return nil, errors.New("interrupted")
	}
	return nil, &command.Exit{Code: command.ExitTimeout,
		Err: fmt.Errorf("the agent of node %s has not answered within %s: kubectl evenkeel node %s", node, timeout, node)}
}
