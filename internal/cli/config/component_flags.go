// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/evenkeel/evenkeel/internal/component"
)

const (
	componentBinary = "component-binary"
	componentImage  = "component-image"
)

// componentFlags are --component-binary and --component-image: the program of
// each component that validates its configuration. The zero value has none.
type componentFlags struct {
	programs map[string]componentProgram // by component name
}

// componentProgram is where the program of a component is.
type componentProgram struct {
	flag  string
	where string // a path, or the reference of an image
}

// add adds the flags to a command.
func (f *componentFlags) add(cmd *cobra.Command) {
	cmd.Flags().Var(&programFlag{f, componentBinary, "PATH"}, componentBinary,
		"the program that validates a component's configuration, such as kubelet=/usr/bin/kubelet; can be repeated")
	cmd.Flags().Var(&programFlag{f, componentImage, "REF"}, componentImage,
		"a container image with that program, such as kube-proxy=registry.k8s.io/kube-proxy:v1.37.2; can be repeated")
	for _, flag := range []string{componentBinary, componentImage} {
		_ = cmd.RegisterFlagCompletionFunc(flag, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			var begun []string
			for _, name := range component.Names() {
				begun = append(begun, name+"=")
			}

			return begun, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
		})
	}
}

// programFlag is one of the two flags.
type programFlag struct {
	all         *componentFlags
	flag, where string
}

func (p *programFlag) String() string { return "" }
func (p *programFlag) Type() string   { return "NAME=" + p.where }
func (p *programFlag) Set(s string) error {
	name, where, assigned := strings.Cut(s, "=")
	known := slices.Contains(component.Names(), name)
	before, twice := p.all.programs[name]
	switch {
	case !assigned || where == "":
		return fmt.Errorf("must be %s, such as kubelet=%s", p.Type(), p.where)
	case !known:
		return fmt.Errorf("unknown component %q: use one of %s", name, strings.Join(component.Names(), ", "))
	case twice && before.flag != p.flag:
		return fmt.Errorf("--%s=%s=%s is given too: use one of them", before.flag, name, before.where)
	case twice:
		return fmt.Errorf("%s was given already, as %s", name, before.where)
	case p.all.programs == nil:
		p.all.programs = map[string]componentProgram{}
	}

	p.all.programs[name] = componentProgram{p.flag, where}

	return nil
}

// open returns the components by name. Their warnings go to warn. The caller
// must call done, also after an error, to remove temporary files. The error
// names the flag.
func (f *componentFlags) open(warn io.Writer) (components map[string]component.Component, done func(), err error) {
	if len(f.programs) == 0 {
		return nil, func() {}, nil
	}

	dir, err := os.MkdirTemp("", "evenkeel-")
	if err != nil {
		return nil, func() {}, fmt.Errorf("create a directory for temporary files: %w", err)
	}

	done = func() { _ = os.RemoveAll(dir) } // the system cleans up its temporary directory
	log := slog.New(slog.NewTextHandler(warn, &slog.HandlerOptions{Level: slog.LevelWarn}))
	components = map[string]component.Component{}
	for _, name := range slices.Sorted(maps.Keys(f.programs)) {
		p, create := f.programs[name], component.New
		if p.flag == componentImage {
			create = component.NewImage
		}
		if components[name], err = create(name, p.where, filepath.Join(dir, name), log); err != nil {
			return nil, done, fmt.Errorf("--%s=%s=%s: %w", p.flag, name, p.where, err)
		}
	}

	return components, done, nil
}
