// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// shells are the shells with completions of the plugin.
var shells = []string{"bash", "fish", "zsh"}

// makePackages makes a deb and an rpm of each packaging/NAME/nfpm.yaml for each
// Linux.
func (r *release) makePackages() error {
	descriptions, err := filepath.Glob("packaging/*/nfpm.yaml")
	if err != nil {
		return err
	}

	platforms, err := r.platforms()
	if err != nil {
		return err
	}

	completions, err := os.MkdirTemp("", "completions-")
	if err != nil {
		return err
	}

	defer os.RemoveAll(completions)
	if err := r.complete(completions); err != nil {
		return err
	}

	for _, p := range platforms {
		if p.os != "linux" {
			continue
		}

		for _, description := range descriptions {
			for _, format := range []string{"deb", "rpm"} {
				if err := r.makePackage(description, format, p, completions); err != nil {
					return fmt.Errorf("%s for %s: %w", description, p, err)
				}
			}
		}
	}

	return nil
}

func (r *release) makePackage(description, format string, p platform, completions string) error {
	variables := map[string]string{
		"VERSION": trimV(r.version), "ARCH": p.arch,
		"PROGRAMS": filepath.Join(r.programs, p.String()), "COMPLETIONS": completions,
	}
	config, err := nfpm.ParseFileWithEnvMapping(description, func(name string) string { return variables[name] })
	if err != nil {
		return err
	}

	info, err := config.Get(format)
	if err != nil {
		return err
	}

	info.MTime = r.time
	info = nfpm.WithDefaults(info)
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}

	var out bytes.Buffer
	if err := packager.Package(info, &out); err != nil {
		return err
	}

	return r.write(packager.ConventionalFileName(info), out.Bytes(), 0o644)
}

// complete runs the plugin of this machine's platform to write its completions,
// one file for each shell.
func (r *release) complete(dir string) error {
	plugin := filepath.Join(r.programs, platform{runtime.GOOS, runtime.GOARCH}.String(), "kubectl-evenkeel")
	for _, shell := range shells {
		out, err := exec.Command(plugin, "completion", shell).Output()
		if err != nil {
			return fmt.Errorf("the plugin for this machine's platform is required for its completions: %w", err)
		}
		if err := os.WriteFile(filepath.Join(dir, shell), out, 0o644); err != nil {
			return err
		}
	}

	return nil
}
