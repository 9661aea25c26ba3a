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

// Info is what "version" prints.
type Info struct {
	Program string `json:"program"`
	Version string `json:"version"`
	// Commit is that of the source; empty if nobody knows. With "-dirty" the source was changed after it.
	Commit   string   `json:"commit,omitempty"`
	Go       string   `json:"go"`
	Platform string   `json:"platform"` // linux/amd64
	Kubelets Kubelets `json:"kubelets"`
}

// Kubelets are the minor versions of the kubelet that the program is for.
type Kubelets struct {
	Oldest string `json:"oldest"`
	Newest string `json:"newest"`
}

// Of is what the program that runs is. Version and commit are what the linker stamped; without a commit it is the one
// that the Go command noted, if it built from a repository.
func Of(program, version, commit string) Info {
	build, _ := debug.ReadBuildInfo()
	return Info{
		Program: program, Version: version, Commit: cmp.Or(commit, revision(build)),
		Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Kubelets: Kubelets{component.OldestKubelet, component.NewestKubelet},
	}
}

// revision is the commit in what the Go command noted; "" if there is none.
func revision(build *debug.BuildInfo) string {
	if build == nil {
		return ""
	}
	noted := map[string]string{}
	for _, s := range build.Settings {
		noted[s.Key] = s.Value
	}
	if noted["vcs.revision"] != "" && noted["vcs.modified"] == "true" {
		return noted["vcs.revision"] + "-dirty"
	}
	return noted["vcs.revision"]
}

// String is for people: the program and its version in the first line.
func (i Info) String() string {
	return fmt.Sprintf("%s %s\ncommit    %s\nbuilt     with %s for %s\nkubelets  %s to %s\n",
		i.Program, i.Version, cmp.Or(i.Commit, "unknown"), i.Go, i.Platform, i.Kubelets.Oldest, i.Kubelets.Newest)
}

// Print prints it, as JSON or for people.
func (i Info) Print(w io.Writer, asJSON bool) error {
	if !asJSON {
		_, err := io.WriteString(w, i.String())
		return err
	}
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	return out.Encode(i)
}

// Command is "version" for a program whose commands say with noArgs that they take no arguments.
func (i Info) Command(noArgs cobra.PositionalArgs) *cobra.Command {
	var output format
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version, the commit, and which kubelets it is for",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return i.Print(cmd.OutOrStdout(), output == "json") },
	}
	cmd.Flags().VarP(&output, "output", "o", "output format: json")
	return cmd
}

// format is json, or empty for people.
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
