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
func (r *release) makePackages() {
	platforms, completions := r.platforms(), get(os.MkdirTemp("", "completions-"))
	defer os.RemoveAll(completions)
	r.complete(completions)
	for _, p := range platforms {
		if p.os != "linux" {
			continue
		}

		for _, description := range get(filepath.Glob("packaging/*/nfpm.yaml")) {
			for _, format := range []string{"deb", "rpm"} {
				about(fmt.Sprintf("%s for %s", description, p), func() { r.makePackage(description, format, p, completions) })
			}
		}
	}
}

func (r *release) makePackage(description, format string, p platform, completions string) {
	variables := map[string]string{
		"VERSION": trimV(r.version), "ARCH": p.arch,
		"PROGRAMS": filepath.Join(r.programs, p.String()), "COMPLETIONS": completions,
	}
	config := get(nfpm.ParseFileWithEnvMapping(description, func(name string) string { return variables[name] }))
	info := get(config.Get(format))
	info.MTime = r.time
	info = nfpm.WithDefaults(info)
	packager := get(nfpm.Get(format))
	var out bytes.Buffer
	ok(packager.Package(info, &out))
	r.write(packager.ConventionalFileName(info), out.Bytes(), 0o644)
}

// complete runs the plugin of this machine's platform to write its completions,
// one file for each shell.
func (r *release) complete(dir string) {
	plugin := filepath.Join(r.programs, platform{runtime.GOOS, runtime.GOARCH}.String(), "kubectl-evenkeel")
	for _, shell := range shells {
		out, err := exec.Command(plugin, "completion", shell).Output()
		that(err == nil, "the plugin for this machine's platform is required for its completions: %w", err)
		ok(os.WriteFile(filepath.Join(dir, shell), out, 0o644))
	}
}
