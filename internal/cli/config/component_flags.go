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

// componentFlags is what --component-binary and --component-image give: the program of each component that is to judge
// its configuration. Its zero value has none.
type componentFlags struct {
	programs map[string]componentProgram // by the component's name
}

// componentProgram is how a component can be run.
type componentProgram struct {
	flag  string
	where string // a path, or an image's reference
}

// add gives a command the flags. A value that cannot be is wrong usage.
func (f *componentFlags) add(cmd *cobra.Command) {
	cmd.Flags().Var(&programFlag{f, componentBinary, "PATH"}, componentBinary,
		"the program that judges a component's configuration, such as kubelet=/usr/bin/kubelet; may be repeated")
	cmd.Flags().Var(&programFlag{f, componentImage, "REF"}, componentImage,
		"a container image with that program, such as kube-proxy=registry.k8s.io/kube-proxy:v1.37.1; may be repeated")
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
		return fmt.Errorf("there is no component %q; there are %s", name, strings.Join(component.Names(), ", "))
	case twice && before.flag != p.flag:
		return fmt.Errorf("--%s=%s=%s is given too: one of them can judge", before.flag, name, before.where)
	case twice:
		return fmt.Errorf("%s is given already, as %s", name, before.where)
	case p.all.programs == nil:
		p.all.programs = map[string]componentProgram{}
	}
	p.all.programs[name] = componentProgram{p.flag, where}
	return nil
}

// open returns the components that can be asked, by name. Their warnings go to warn. done, which is to be called whatever
// the error, removes what they leave on disk. The error names the flag whose program is none.
func (f *componentFlags) open(warn io.Writer) (components map[string]component.Component, done func(), err error) {
	if len(f.programs) == 0 {
		return nil, func() {}, nil
	}
	dir, err := os.MkdirTemp("", "evenkeel-")
	if err != nil {
		return nil, func() {}, fmt.Errorf("no directory for the components' throw-away files: %w", err)
	}
	done = func() { _ = os.RemoveAll(dir) } // it is where the system removes what is left, too
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
