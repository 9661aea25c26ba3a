// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package program

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/evenkeel/evenkeel/internal/component"
)

// Info is the output of "version".
type Info struct {
	Program string `json:"program"`
	Version string `json:"version"`
	// Commit is the commit of the source, with "-dirty" if the source had other changes; "" if unknown.
	Commit   string   `json:"commit,omitempty"`
	Go       string   `json:"go"`
	Platform string   `json:"platform"` // linux/amd64
	Kubelets Kubelets `json:"kubelets"`
}

// Kubelets are the supported minor versions of the kubelet.
type Kubelets struct {
	Oldest string `json:"oldest"`
	Newest string `json:"newest"`
}

// NewInfo describes the running program. Version and commit were set by the linker; the default commit is the one that the Go
// command stored when it built from a repository.
func NewInfo(program, version, commit string) Info {
	build, _ := debug.ReadBuildInfo()
	return Info{
		Program: program, Version: version, Commit: cmp.Or(commit, revision(build)),
		Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Kubelets: Kubelets{fmt.Sprintf("1.%d", component.OldestMinor), fmt.Sprintf("1.%d", component.NewestMinor)},
	}
}

// revision returns the commit stored by the Go command, or "".
func revision(build *debug.BuildInfo) string {
	if build == nil {
		return ""
	}
	settings := map[string]string{}
	for _, s := range build.Settings {
		settings[s.Key] = s.Value
	}
	if settings["vcs.revision"] != "" && settings["vcs.modified"] == "true" {
		return settings["vcs.revision"] + "-dirty"
	}
	return settings["vcs.revision"]
}

// String formats the information for people, with program and version in the first line.
func (i Info) String() string {
	return fmt.Sprintf("%s %s\ncommit    %s\nbuilt     with %s for %s\nkubelets  %s to %s\n",
		i.Program, i.Version, cmp.Or(i.Commit, "unknown"), i.Go, i.Platform, i.Kubelets.Oldest, i.Kubelets.Newest)
}

// Print writes the information as JSON or for people.
func (i Info) Print(w io.Writer, asJSON bool) error {
	if !asJSON {
		_, err := io.WriteString(w, i.String())
		return err
	}
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	return out.Encode(i)
}

// Command returns the "version" command.
func (i Info) Command() *cobra.Command {
	var output format
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version, the commit and the supported kubelet versions",
		Args:  NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return i.Print(cmd.OutOrStdout(), output == "json") },
	}
	cmd.Flags().VarP(&output, "output", "o", "output format: json")
	return cmd
}

// format is json, or empty for the format for people.
type format string

func (f *format) String() string { return string(*f) }
func (f *format) Type() string   { return "format" }
func (f *format) Set(s string) error {
	if s != "json" {
		return errors.New("must be json")
	}
	*f = format(s)
	return nil
}
