// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/internal/cli/printing"
	"github.com/evenkeel/evenkeel/internal/fleet"
	"github.com/evenkeel/evenkeel/internal/operator/describe"
	"github.com/evenkeel/evenkeel/internal/operator/query"
	"github.com/evenkeel/evenkeel/internal/operator/steer"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/printable"
)

// inquiry has the flags of "preflight".
type inquiry struct {
	file            string
	selection       v1alpha1.NodeSelection
	dropIn, podLoss bool
	timeout         time.Duration // 0: no limit
	output          printing.Format
}

// PreflightCommand returns "preflight".
func PreflightCommand(env *command.Env) *cobra.Command {
	a := &app{env}
	var o inquiry
	var selector string
	var allNodes bool
	cmd := &cobra.Command{
		Use:   "preflight -f FILE {--selector LABELS | --all-nodes}",
		Short: "Ask nodes whether they would adopt a configuration, without a rollout",
		Long: `Ask nodes whether they would adopt a kubelet configuration, without a rollout.

Each node's agent judges the configuration as it would judge an assignment: its own kubelet validates it in a dry run, protected
fields must not change, and the pod guard looks at the pods that run now. No node adopts the configuration, no kubelet is
restarted, and assignments and trials are not disturbed.

The command creates a NodeConfigPreflight, waits until all agents have answered or were too late, and prints their answers. The
controller deletes the object after an hour. It needs a right of its own: the ClusterRole evenkeel-preflight.

The exit code is 0 if every node accepts, 2 if a node refuses or the configuration is invalid, and 3 if a node did not answer or
could not tell, or --timeout has expired.`,
		Example: `  # Ask the nodes of a pool
  kubectl evenkeel preflight -f kubelet.yaml --selector node-restriction.kubernetes.io/pool=workers

  # Ask all nodes about a few fields
  kubectl evenkeel preflight -f fields.yaml --drop-in --all-nodes`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			switch changed := cmd.Flags().Changed; {
			case o.file == "":
				return errors.New("preflight needs -f FILE with a kubelet configuration, or -f - for standard input")
			case changed("timeout") && o.timeout <= 0:
				return fmt.Errorf("--timeout must be longer than 0, such as 5m, not %s", o.timeout)
			}

			if o.selection, err = command.ParseSelection(selector, cmd.Flags().Changed("selector"), allNodes); err != nil {
				return err
			}

			return a.preflight(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&o.file, "filename", "f", "", "file with the configuration; - is standard input")
	f.BoolVar(&o.dropIn, "drop-in", false, "the file is partial: each node's kubelet merges it over its local configuration")
	f.StringVarP(&selector, "selector", "l", "", "labels of the nodes, such as node-restriction.kubernetes.io/pool=workers")
	f.BoolVar(&allNodes, "all-nodes", false, "ask every node")
	f.BoolVar(&o.podLoss, "allow-pod-loss", false, "nodes accept it even if their kubelets would end pods because of it")
	f.DurationVar(&o.timeout, "timeout", 0, "stop waiting after this long, such as 5m, with exit code 3")
	printing.FormatFlag(cmd, &o.output, printing.JSON, printing.YAML)
	_ = cmd.MarkFlagFilename("filename", "yaml", "yml", "json")

	return cmd
}

// object returns the NodeConfigPreflight for the flags and a configuration.
func (o *inquiry) object(content payload.Payload) (*v1alpha1.NodeConfigPreflight, error) {
	p := &v1alpha1.NodeConfigPreflight{}
	p.GenerateName = "preflight-"
	p.Spec.NodeSelection = o.selection
	template, err := steer.TemplateOf(content.Key, content.Data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.file, err)
	}

	p.Spec.Template = v1alpha1.PreflightTemplate{Kubelet: template.Kubelet, KubeletDropIn: template.KubeletDropIn}
	if o.podLoss {
		p.Spec.Trial = &v1alpha1.TrialTerms{AllowPodLoss: true}
	}
	if t := fleet.PreflightTemplateOf(p); t.Err != nil {
		return nil, fmt.Errorf("%w; nothing was written", t.Err)
	}

	return p, nil
}

// preflight asks nodes about a configuration, waits, and prints their answers.
func (a *app) preflight(ctx context.Context, o inquiry) error {
	content, err := a.ReadPayload(ctx, o.file, o.dropIn, "written")
	if err != nil {
		return err
	}

	p, err := o.object(content)
	if err != nil {
		return err
	}

	c, err := a.Client()
	if err != nil {
		return err
	}
	if err := c.Create(ctx, p, client.FieldValidation(metav1.FieldValidationStrict)); err != nil {
		return fmt.Errorf("create a NodeConfigPreflight: %w", err)
	}

	fmt.Fprintf(a.ErrOut, "nodeconfigpreflight %s created; waiting for the agents\n", p.Name)
	interrupted := ctx
	ctx, stop := command.Limited(ctx, o.timeout)
	defer stop()
	updates := command.Watched[*v1alpha1.NodeConfigPreflight]{
		List: &v1alpha1.NodeConfigPreflightList{}, Name: p.Name, What: "NodeConfigPreflight " + p.Name, Deleted: "its answers are lost",
	}.Follow(ctx, c)
	late := time.After(query.ObserveTimeout)
	last := ""
	for {
		select {
		case u, open := <-updates:
			switch {
			case !open && interrupted.Err() != nil:
				return fmt.Errorf("interrupted; the agents are still asked: kubectl get nodeconfigpreflight %s -o yaml", p.Name)
			case !open:
				return &command.Exit{Code: command.ExitTimeout,
					Err: fmt.Errorf("timed out after %s: %s; the agents are still asked: kubectl get nodeconfigpreflight %s -o yaml",
						o.timeout, printable.Line(cmp.Or(p.Status.Message, "-")), p.Name)}
			case u.Last && ctx.Err() == nil:
				return u.Err
			case u.Err != nil:
				fmt.Fprintf(a.ErrOut, "waiting for the API server: %s\n", printable.Line(describe.Brief(u.Err)))
				continue
			}

			p = u.Object
			if p.Status.Ended() != nil {
				return a.preflightEnded(p, o.output)
			}

			if m := p.Status.Message; p.Status.Phase == v1alpha1.PreflightWaiting && m != last {
				last = m
				fmt.Fprintln(a.ErrOut, printable.Line(m))
			}
		case <-late:
			if p.Status.Phase == "" {
				a.Notes(query.Unobserved)
			}
		}
	}
}

// preflightEnded prints the answers, and returns the error of the command.
func (a *app) preflightEnded(p *v1alpha1.NodeConfigPreflight, f printing.Format) error {
	p.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("NodeConfigPreflight"))
	r := p.Status.Result
	switch {
	case f != "":
		if err := printing.Object(a.Out, f, p); err != nil {
			return err
		}
	case p.Status.Phase == v1alpha1.PreflightComplete:
		fmt.Fprintln(a.Out, strings.Join(describe.Preflight(r), "\n"))
	}

	switch {
	case p.Status.Phase == v1alpha1.PreflightInvalid:
		return &command.Exit{Code: command.ExitHalted, Err: errors.New(printable.Line(p.Status.Message))}
	case r.Refused+r.Blocked > 0:
		return &command.Exit{Code: command.ExitHalted}
	case r.Unknown+r.Unanswered > 0:
		return &command.Exit{Code: command.ExitTimeout}
	case r.Accepted == 0:
		return errors.New("no node was asked: the selector matches no node that uses its NodeConfig")
	}

	return nil
}

// awaitPreflight waits until all agents were asked about the revision of a
// rollout, and prints their answers.
func (a *app) awaitPreflight(ctx context.Context, c client.WithWatch, name string) error {
	fmt.Fprintln(a.ErrOut, "waiting for the agents' answers; an interruption does not stop the rollout")
	follow, stop := context.WithCancel(ctx)
	defer stop()
	late := time.After(query.ObserveTimeout)
	seen := false
	for updates := watchRollout(follow, c, name); ; {
		select {
		case u, open := <-updates:
			switch {
			case !open:
				return fmt.Errorf("interrupted; the rollout continues: kubectl evenkeel rollout status %s -w", name)
			case u.Last && ctx.Err() == nil:
				return u.Err
			case u.Err != nil:
				fmt.Fprintf(a.ErrOut, "waiting for the API server: %s\n", printable.Line(describe.Brief(u.Err)))
				continue
			}

			r := u.Object
			if seen = query.Observed(r); !seen {
				continue
			}

			st := &r.Status
			if p := st.Preflight; p != nil && p.EndTime != nil {
				fmt.Fprintln(a.Out, strings.Join(describe.Preflight(p), "\n"))
				if describe.Stopped(st.Phase) {
					return &command.Exit{Code: command.ExitHalted, Err: errors.New(plainLine(r))}
				}

				return nil
			}

			if st.Phase != v1alpha1.RolloutWaiting || st.Preflight == nil { // it does not ask now
				fmt.Fprintf(a.Out, "no agent is asked: %s\n", plainLine(r))
				if describe.Stopped(st.Phase) {
					return &command.Exit{Code: command.ExitHalted}
				}

				return nil
			}
		case <-late:
			if !seen {
				return &command.Exit{Code: command.ExitTimeout, Err: fmt.Errorf("rollout %q: %s", name, query.Unobserved)}
			}
		}
	}
}
