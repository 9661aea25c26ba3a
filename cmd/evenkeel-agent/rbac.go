// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/evenkeel/evenkeel/internal/node/source"
	"github.com/evenkeel/evenkeel/internal/program"
)

// defaultConfigNamespace is the proposal's.
const defaultConfigNamespace = "kube-system"

func rbacCommand() *cobra.Command {
	var namespace string
	cmd := &cobra.Command{
		Use:   "rbac NODE... [--config-namespace NS]",
		Short: "Print RBAC rules that let each node read only its own ConfigMap",
		Long: `rbac prints a Role and a RoleBinding for each node whose agent runs with
--config-source=configmap. They let the node read the ConfigMap kubelet-NODE and
no other. The same nodes give the same output, in any order.

The manifest config/configmap-source lets all nodes read every ConfigMap of
the namespace.

Exit codes: 0 printed, 1 error, 3 usage.`,
		Example: `  # For all nodes:
  evenkeel-agent rbac $(kubectl get nodes -o jsonpath='{.items[*].metadata.name}') | kubectl apply -f -

  # Remove the rules of one node:
  evenkeel-agent rbac worker-1 | kubectl delete -f -`,
		RunE: func(cmd *cobra.Command, nodes []string) error {
			return rbac(cmd.OutOrStdout(), namespace, nodes)
		},
	}
	cmd.Flags().StringVar(&namespace, "config-namespace", defaultConfigNamespace, "the --config-namespace of the agents")
	return cmd
}

func rbac(out io.Writer, namespace string, nodes []string) error {
	if len(nodes) == 0 {
		return program.Usage("rbac takes one NODE or more")
	}
	nodes = slices.Compact(slices.Sorted(slices.Values(nodes)))
	var b strings.Builder
	for _, node := range nodes {
		own, err := source.NodeConfigMapOf(namespace, node)
		if err != nil {
			return program.Usage("%w", err)
		}
		b.WriteString(own.Manifest())
	}
	_, err := io.WriteString(out, b.String())
	return err
}
