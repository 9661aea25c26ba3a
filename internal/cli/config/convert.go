// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/evenkeel/evenkeel/internal/cli/command"
	"github.com/evenkeel/evenkeel/internal/component"
	"github.com/evenkeel/evenkeel/internal/operator/kubeadm"
	"github.com/evenkeel/evenkeel/internal/payload"
	"github.com/evenkeel/evenkeel/internal/printable"
	"github.com/evenkeel/evenkeel/internal/program"
)

func (a *app) configConvertCommand() *cobra.Command {
	var form, output string
	cmd := &cobra.Command{
		Use:   "convert --form=grouped|flat FILE",
		Short: "Convert a kubelet configuration to the grouped form, or back",
		Long: `Convert a KubeletConfiguration to evenkeel's grouped form, or back to upstream's flat form, which the kubelet reads.

FILE holds one KubeletConfiguration, in either form, in YAML or JSON; - is standard input. The output is YAML with all
values of the input. COMMENTS ARE LOST. Fields that do not exist in the other form are an error:

  trial                  exists in the grouped form only
  unknown fields         of the flat form: this version has no group for them

A file that already has the form is printed unchanged. The values are not validated: use "config validate".`,
		Example: `  kubectl evenkeel config convert --form=grouped kubelet.yaml --output workers.yaml
  kubectl evenkeel config convert --form=flat workers.yaml | diff kubelet.yaml -`,
		Args: command.Args(1, 1, "needs one file, or - for standard input: see its --help"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.configConvert(cmd.Context(), form, args[0], output)
		},
	}
	program.Choice(cmd, &form, "form", "", "form of the output", "grouped", "flat")
	outputFlag(cmd, &output)

	return cmd
}

func (a *app) configConvert(ctx context.Context, form, file, output string) error {
	if form == "" {
		return errors.New("convert needs the form to write: use --form=grouped or --form=flat")
	}

	data, called, err := a.ReadFile(ctx, file, kubeadm.MaxFile)
	if err != nil {
		return err
	}
	if data, err = Convert(called, data, form); err != nil {
		return err
	}

	return a.output(output, data)
}

// Convert returns the KubeletConfiguration in data in a form, "grouped" or
// "flat"; a file that has the form already is returned unchanged. The error
// names the file.
func Convert(file string, data []byte, form string) ([]byte, error) {
	d, err := oneKubeletConfiguration(file, data)
	if err != nil {
		return nil, err
	}

	if otherForm(d) == form {
		data, err = convert(d)
	} else {
		_, err = payload.Decode(payload.KeyKubelet, data)
	}

	if err != nil {
		return nil, fmt.Errorf("%s: %w; nothing was written", file, err)
	}

	return data, nil
}

// oneKubeletConfiguration returns the only document of a file.
func oneKubeletConfiguration(file string, data []byte) (kubeadm.Document, error) {
	none := kubeadm.Document{}
	all, err := kubeadm.Documents(file, data)
	switch {
	case err != nil:
		return none, err
	case len(all) == 0:
		return none, fmt.Errorf("%s is empty: it must hold a KubeletConfiguration", file)
	case len(all) > 1:
		return none, fmt.Errorf("%s holds %s: convert needs a file with one KubeletConfiguration only",
			file, printable.Count(len(all), "document"))
	case all[0].Kind != payload.KubeletKind:
		return none, fmt.Errorf("%s holds %s of %s: only KubeletConfiguration has a grouped form",
			file, all[0].Kind, all[0].APIVersion)
	}

	return all[0], nil
}

// convert returns the other form of a KubeletConfiguration. The error names
// what would be lost.
func convert(d kubeadm.Document) ([]byte, error) {
	p, err := payload.Decode(payload.KeyKubelet, d.Text)
	if err != nil {
		return nil, err
	}

	given, err := payload.DecodeMapping(d.Text)
	if err != nil {
		return nil, err
	}

	constants, err := p.Resolve(payload.Capacity{})
	if err != nil {
		return nil, fmt.Errorf("%w: only the grouped form has rules", err)
	}

	fields, err := payload.DecodeMapping(constants.Upstream)
	if err != nil {
		return nil, err
	}
	if !d.IsGrouped() {
		fields = payload.Group(fields)
	}

	_, trial := given["trial"]
	ungrouped, homeless := fields["ungrouped"].(map[string]any)
	switch {
	case d.IsGrouped() && trial:
		return nil, errors.New("the flat form has no trial section: move it " +
			"to spec.trial of the rollout or NodeConfig, or keep the grouped form")
	case !d.IsGrouped() && homeless:
		return nil, fmt.Errorf("the grouped form of this version does not have %s: "+
			"remove it, or keep the flat form",
			strings.Join(paths(ungrouped), ", "))
	}

	text, err := component.Effective(fields).YAML()
	if err != nil {
		return nil, err
	}

	back, err := payload.Decode(payload.KeyKubelet, text)
	if err != nil { // such as an unknown field within a struct, or more than 1 MiB
		return nil, fmt.Errorf("the %s form is not valid: %w", otherForm(d), err)
	}
	if !alike(p.Fields, back.Fields) { // such as a key << in JSON, which is a merge in YAML
		return nil, errors.New("the YAML would have another meaning")
	}

	return text, nil
}

// alike reports whether two configurations have the same values, whatever the
// format of numbers.
func alike(a, b map[string]any) bool {
	textA, errA := json.Marshal(a)
	textB, errB := json.Marshal(b)
	return errA == nil && errB == nil && bytes.Equal(textA, textB)
}

func otherForm(d kubeadm.Document) string {
	if d.IsGrouped() {
		return "flat"
	}

	return "grouped"
}

// paths returns the sorted paths of upstream fields without a group. If a
// struct is a group, it returns the fields within it.
func paths(ungrouped map[string]any) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(ungrouped)) {
		isGroup := slices.ContainsFunc(payload.Fields, func(f payload.Field) bool { return strings.HasPrefix(f.Path, name+".") })
		inner, _ := ungrouped[name].(map[string]any)
		switch {
		case !isGroup:
			names = append(names, name)
		case len(inner) == 0:
			names = append(names, name+" (empty)")
		default:
			for _, field := range slices.Sorted(maps.Keys(inner)) {
				names = append(names, name+"."+field)
			}
		}
	}

	return names
}
