// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/evenkeel/evenkeel/api/v1alpha1"
	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/internal/cli/printing"
	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/operator/kubeadm"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/internal/program"
)

// Exit codes of config validate for all but an accepted configuration. That of
// wrong usage is program.ExitUsage.
const (
	exitRejected = 1
	exitUnknown  = 2
)

// validateOptions has the flags of "config validate".
type validateOptions struct {
	programs componentFlags
	output   printing.Format
	machine  string
}

func (a *app) configValidateCommand() *cobra.Command {
	var o validateOptions
	cmd := &cobra.Command{
		Use:   "validate FILE...",
		Short: "Validate configurations with the binaries of their components",
		Long: `Validate the configurations in files, each with its component's own binary, before they reach a cluster.

A file holds one or more documents, in YAML or JSON; - is standard input. No cluster is needed. Validated are

  KubeletConfiguration      by the kubelet, upstream and in evenkeel's grouped form
  KubeProxyConfiguration    by kube-proxy

The result is for the version of the binary: use the binary of the next version to find fields and feature gates that an
upgrade removes. Mistakes that a component only warns about or ignores, such as an unknown field, are rejected too. A
drop-in is validated as if it were a whole configuration. Rules (values that depend on the machine) are resolved for
--machine, shown, and validated as constants; this alone needs no binary. Settings that depend on the host are not validated; the output
lists them under the verdict. kubeadm's own kinds are allowed in the files, but not validated, and do not count.

Exit codes:
  0  all configurations are accepted
  1  a configuration is rejected or cannot be read
  2  no configuration is rejected, but one could not be judged because its component's binary was not given or does not
     work; or there was nothing to judge
  3  wrong usage: flags, no file, an unreadable file, an unknown kind; nothing was judged`,
		Example: `  # Validate with the kubelet of the next version
  kubectl evenkeel config validate kubelet.yaml --component-binary kubelet=./v1.37/kubelet

  # Validate all of kubeadm's configuration in a CI job
  kubectl evenkeel config validate kubeadm.yaml -o json \
    --component-binary kubelet=kubelet --component-image kube-proxy=registry.k8s.io/kube-proxy:v1.37.2`,
		Args: func(cmd *cobra.Command, files []string) error {
			again := slices.Index(files, "-") + 1
			switch {
			case len(files) == 0:
				return program.Usage("%s needs files, or - for standard input: see its --help", cmd.CommandPath())
			case slices.Contains(files[again:], "-") && again > 0:
				return program.Usage("- is given twice: standard input can be read only once")
			}

			return nil
		},
		RunE: func(cmd *cobra.Command, files []string) error { return a.configValidate(cmd.Context(), files, o) },
	}
	cmd.SetFlagErrorFunc(command.UsageError)
	o.programs.add(cmd)
	cmd.Flags().StringVar(&o.machine, "machine", "", "a machine's capacity, such as cpu=8,memory=32Gi,ephemeral-storage=100Gi,pid=32768: "+
		"show what the rules of the configurations give there")
	printing.FormatFlag(cmd, &o.output, printing.JSON, printing.YAML)

	return cmd
}

// outcome is the result for a document; the first three are those of
// component.Outcome.
type outcome string

const (
	accepted     outcome = "accepted"
	rejected     outcome = "rejected"
	couldNotTell outcome = "could not tell"
	unvalidated  outcome = "unvalidated" // there is no binary of its component
	notJudged    outcome = "not judged"  // it is not a component's configuration
)

// judgement is the result for one document.
type judgement struct {
	Place      string   `json:"place"`
	APIVersion string   `json:"apiVersion,omitempty"`
	Kind       string   `json:"kind,omitempty"`
	Component  string   `json:"component,omitempty"`
	Version    string   `json:"componentVersion,omitempty"` // of the binary
	Verdict    outcome  `json:"verdict"`
	Words      string   `json:"words,omitempty"` // the message of the component, or why it was not asked
	Warnings   []string `json:"warnings,omitempty"`
	// Values are those of the rules on the machine.
	Values []v1alpha1.ResolvedValue `json:"resolvedValues,omitempty"`
}

func (j judgement) String() string {
	by := j.Component
	switch {
	case j.Version != "":
		by += " " + j.Version
	case by == "":
		by = j.Kind
	}

	parts := []string{j.Place, by, string(j.Verdict), j.Words}

	return printable.Line(strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ": "))
}

// judgements is the output of "config validate -o json".
type judgements struct {
	Verdict   outcome     `json:"verdict"`
	Documents []judgement `json:"documents"`
}

// overall returns the verdict on all documents.
func overall(all []judgement) outcome {
	has := func(which ...outcome) bool {
		return slices.ContainsFunc(all, func(j judgement) bool { return slices.Contains(which, j.Verdict) })
	}
	switch {
	case has(rejected):
		return rejected
	case has(couldNotTell, unvalidated):
		return couldNotTell
	case has(accepted):
		return accepted
	default:
		return notJudged
	}
}

// submission is a document to judge, or the reason why it cannot be read.
type submission struct {
	kubeadm.Document
	unreadable error
}

func (a *app) configValidate(ctx context.Context, files []string, o validateOptions) error {
	all, err := a.submissions(ctx, files)
	switch {
	case ctx.Err() != nil:
		return &command.Exit{Code: exitUnknown, Err: errors.New("interrupted: nothing was judged")}
	case err != nil:
		return program.Usage("%w; nothing was judged", err)
	}

	components, done, err := o.programs.open(a.ErrOut)
	defer done()
	if err != nil {
		return program.Usage("%w; nothing was judged", err)
	}

	var machine payload.Capacity
	if o.machine != "" {
		if machine, err = payload.ParseCapacity(o.machine); err != nil {
			return program.Usage("--machine: %w; nothing was judged", err)
		}
	}

	result := judgements{Documents: []judgement{}}
	for _, s := range all {
		j := judge(ctx, s, components, machine)
		if ctx.Err() != nil {
			return &command.Exit{Code: exitUnknown, Err: fmt.Errorf("interrupted at %s", s.Place)}
		}

		result.Documents = append(result.Documents, j)
		if o.output == "" {
			a.printJudgement(j)
		}
	}

	result.Verdict = overall(result.Documents)
	if o.output != "" {
		if err := printing.Encode(a.Out, o.output, result); err != nil {
			return &command.Exit{Code: exitUnknown, Err: err}
		}
	}

	switch result.Verdict {
	case accepted:
		return nil
	case rejected:
		return &command.Exit{Code: exitRejected}
	case notJudged:
		return &command.Exit{Code: exitUnknown, Err: errors.New("nothing to judge: no file holds a component's configuration")}
	default:
		return &command.Exit{Code: exitUnknown}
	}
}

// submissions reads files. It returns an error for an unreadable file, and for
// a document of an unknown kind.
func (a *app) submissions(ctx context.Context, files []string) ([]submission, error) {
	var all []submission
	for _, file := range files {
		data, called, err := a.ReadFile(ctx, file, kubeadm.MaxFile)
		if err != nil {
			return nil, err
		}

		before := len(all)
		for d, err := range kubeadm.EachDocument(called, data) {
			_, isComponents := d.Component()
			if err == nil && !isComponents && !d.IsGrouped() && !d.IsKubeadmKind() {
				return nil, d.UnknownKindError()
			}

			all = append(all, submission{d, err})
		}

		if len(all) == before {
			all = append(all, submission{kubeadm.Document{Place: called}, errors.New("the file is empty")})
		}
	}

	return all, nil
}

// judge validates a document with its component.
func judge(ctx context.Context, s submission, components map[string]component.Component, machine payload.Capacity) judgement {
	j := judgement{Place: s.Place, APIVersion: s.APIVersion, Kind: s.Kind}
	text := s.Text
	switch known, isComponents := s.Component(); {
	case s.unreadable != nil:
		j.Verdict, j.Words = rejected, s.unreadable.Error()
		return j
	case s.IsKubeadmKind():
		j.Verdict, j.Words = notJudged, "this is kubeadm's own configuration: use kubeadm config validate"
		return j
	case isComponents:
		j.Component = known.Name
	default:
		j.Component = "kubelet"
		p, err := payload.Decode(payload.KeyKubelet, text)
		var constants payload.Resolved
		if err == nil {
			constants, err = p.Resolve(machine)
		}

		if payload.NeedsCapacity(err) {
			j.Verdict, j.Words = unvalidated, err.Error()+": use --machine, such as cpu=8,memory=32Gi"
			return j
		} else if err != nil {
			j.Verdict, j.Words = rejected, "the grouped form: "+err.Error()
			return j
		}

		text, j.Values = constants.Upstream, constants.Values
	}

	c := components[j.Component]
	if c == nil {
		j.Verdict, j.Words = unvalidated, fmt.Sprintf("use --%s %s=PATH", componentBinary, j.Component)
		return j
	}

	v, objections := component.ValidationErrors(ctx, c, text)
	j.Verdict, j.Words, j.Warnings = outcome(v.Outcome.String()), v.Message, v.Warnings
	if len(objections) > 0 {
		j.Words = strings.Join(objections, "; ")
	}

	var err error
	if j.Version, err = c.Version(ctx); err != nil {
		j.Warnings = append(j.Warnings, fmt.Sprintf("the version of this %s is unknown: %v", j.Component, err))
	}

	return j
}

func (a *app) printJudgement(j judgement) {
	fmt.Fprintln(a.Out, j)
	for _, value := range j.Values {
		fmt.Fprintln(a.Out, " ", printable.Line(payload.ValueWords(value)))
	}

	for _, warning := range j.Warnings {
		fmt.Fprintln(a.Out, " ", printable.Line(warning))
	}
}
