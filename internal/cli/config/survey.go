// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/internal/cli/printing"
	"github.com/evenkeel/evenkeel/internal/operator/query"
	"github.com/evenkeel/evenkeel/internal/operator/survey"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// surveyOptions has the flags of "survey".
type surveyOptions struct {
	selector, poolLabel string
	programs            componentFlags
	output              printing.Format
}

// SurveyCommand returns "survey".
func SurveyCommand(env *command.Env) *cobra.Command {
	a := &app{env}
	var o surveyOptions
	cmd := &cobra.Command{
		Use:   "survey",
		Short: "Show which configurations the kubelets of a cluster run, and what is risky about them",
		Long: `Show which configurations the kubelets of a cluster run, in which fields they differ, and what is risky about them.

Nothing of evenkeel needs to be installed, and nothing is written. The command asks each kubelet for its effective configuration,
which includes defaults and flags, through the API server: 20 nodes at a time, each for at most 10 seconds. Nodes that do not
answer are named. If you interrupt the command, it prints what it knows.

Differences are those from the most common configuration. A node's own name, addresses, provider ID and pod CIDR are none, nor are
fields of which nearly every node has its own value, or which only some versions have. Values that may be secret are masked.

With --component-binary kubelet=PATH, the kubelet of another version judges each configuration in a dry run on this machine
(Linux only). Most useful is the next version: it refuses feature gates, for example, that were removed. An older version may
refuse defaults that it does not know.

The smallest role for this command follows. Get on nodes/proxy allows much more, such as commands in pods: bind it to a person for
as long as the survey takes. nodes/configz does not suffice: only kubelets know it, and a request through the API server needs
nodes/proxy in every version.

` + indented(survey.Role) + `
Exit codes:
  0  all nodes were read, and would start if they were judged; there may be risks
  1  wrong usage, interrupted, or the API server refuses the request or does not answer
  2  a node would not start with the kubelet of --component-binary
  3  a node could not be read or judged`,
		Example: `  kubectl evenkeel survey

  # Before an upgrade: which nodes would not start?
  kubectl evenkeel survey --component-binary kubelet=./kubelet-v1.38.0

  # JSON of a pool for a script
  kubectl evenkeel survey -l node-restriction.kubernetes.io/pool=workers -o json`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.survey(cmd.Context(), o) },
	}
	f := cmd.Flags()
	f.StringVarP(&o.selector, "selector", "l", "", "only nodes with these labels")
	f.StringVar(&o.poolLabel, "pool-label", "", "the label that names a node's pool; empty: those of well-known platforms")
	o.programs.add(cmd)
	printing.FormatFlag(cmd, &o.output, printing.Wide, printing.JSON, printing.YAML)

	return cmd
}

func indented(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  ") + "\n"
}

func (a *app) survey(ctx context.Context, o surveyOptions) error {
	selector, err := command.ParseSelector(o.selector)
	if err != nil {
		return err
	}

	components, done, err := o.programs.open(a.ErrOut)
	defer done()
	if err != nil {
		return err
	}

	kubelet := components["kubelet"]
	if len(components) > 0 && (kubelet == nil || len(components) > 1) {
		return errors.New("survey judges configurations of kubelets only: use --component-binary kubelet=PATH")
	}

	version := ""
	if kubelet != nil { // before thousands of nodes are read in vain
		if version, err = kubelet.Version(ctx); err != nil {
			return fmt.Errorf("the version of the kubelet to judge with is unknown: %w", err)
		}
	}

	r, err := a.ask(ctx, selector, o.poolLabel)
	if err != nil {
		if apierrors.IsForbidden(err) {
			fmt.Fprintf(a.ErrOut, "note: the smallest role for survey is\n%s", indented(survey.Role))
		}

		return err
	}

	if kubelet != nil && ctx.Err() == nil {
		fmt.Fprintf(a.ErrOut, "judging %s\n", printable.Count(len(r.Configurations), "configuration"))
		r.Judge(ctx, kubelet, version)
	}

	switch o.output {
	case printing.JSON, printing.YAML:
		err = printing.Encode(a.Out, o.output, r)
	default:
		err = printSurvey(a.Out, r, o.output == printing.Wide)
	}

	switch j := r.Judged; {
	case err != nil:
		return err
	case ctx.Err() != nil:
		return fmt.Errorf("interrupted: %d of %s read", r.Read, printable.Count(r.Nodes, "node"))
	case j != nil && j.Nodes[survey.WouldNotStart] > 0:
		return &command.Exit{Code: command.ExitHalted}
	case r.Read < r.Nodes || j != nil && j.Nodes[survey.NotJudged] > 0:
		return &command.Exit{Code: command.ExitTimeout}
	}

	return nil
}

// ask reads the nodes, and shows the progress if that takes long.
func (a *app) ask(ctx context.Context, selector labels.Selector, poolLabel string) (*survey.Report, error) {
	c, err := a.Client()
	if err != nil {
		return nil, err
	}

	pools := survey.PoolLabels
	if poolLabel != "" {
		pools = []string{poolLabel}
	}

	var nodes []survey.Node
	for n, err := range query.Pages[*corev1.Node](ctx, c, &corev1.NodeList{}, client.MatchingLabelsSelector{Selector: selector}) {
		if err != nil {
			return nil, fmt.Errorf("list nodes: %w", err)
		}

		nodes = append(nodes, survey.NodeOf(n, pools))
	}

	if len(nodes) == 0 {
		return nil, errors.New("no nodes found: correct --selector, or choose another cluster with --context")
	}

	config, err := a.RESTConfig()
	if err != nil {
		return nil, err
	}

	config.UserAgent, config.QPS = "kubectl-evenkeel/"+a.Program.Version, -1 // survey.Read limits itself
	api, err := query.ConfigzClient(config)
	if err != nil {
		return nil, err
	}

	const interval = 5 * time.Second
	said := time.Now()
	answers, err := survey.Read(ctx, api, nodes, survey.Patience, func(done int) {
		if time.Since(said) > interval {
			said = time.Now()
			fmt.Fprintf(a.ErrOut, "asked %d of %s\n", done, printable.Count(len(nodes), "node"))
		}
	})
	if err != nil {
		return nil, err
	}

	return survey.NewReport(answers, time.Now()), nil
}

// printSurvey prints a report for people: everything if all is true.
func printSurvey(w io.Writer, r *survey.Report, all bool) error {
	var out strings.Builder
	most := map[bool]int{false: 5, true: r.Nodes}[all]
	for _, words := range r.Summary {
		fmt.Fprintln(&out, printable.Line(words))
	}

	for _, s := range r.Sections() {
		var text strings.Builder
		if rows := s.Rows; len(rows) > 0 {
			if err := printing.Table(&text, s.Header, rows[:min(len(rows), 4*most)]); err != nil {
				return err
			}
		}

		for i, item := range s.Items {
			if i == 4*most {
				fmt.Fprintf(&text, "and %d more: -o wide and -o json have all\n", len(s.Items)-i)
				break
			}

			words := item.Words
			if item.Of.Nodes > 0 {
				words = fmt.Sprintf("%s (%s): %s", printable.Count(item.Of.Nodes, "node"), printable.First(item.Of.Names, most, ", "), words)
			}

			fmt.Fprintln(&text, printable.Line(words))
			for j, line := range item.Lines {
				if j == most && !all {
					fmt.Fprintf(&text, "   and %d more: -o wide has all\n", len(item.Lines)-j)
					break
				}

				fmt.Fprintln(&text, "  ", printable.Line(line))
			}
		}

		if text.Len() > 0 {
			fmt.Fprintf(&out, "\n%s\n%s", strings.ToUpper(s.Title), &text)
		}
	}

	_, err := io.WriteString(w, out.String())

	return err
}
