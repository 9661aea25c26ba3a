// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Command pack writes a container image of static programs as an archive into a
// directory: `make image`. The archive is named after the image and its
// architecture. Programs of several architectures have the same name in
// different directories.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/evenkeel/evenkeel/build/image"
	"github.com/evenkeel/evenkeel/testkit/must"
)

func main() {
	os.Exit(must.ExitCode("image", func() { must.OK(run(os.Args[1:], os.Stdout)) }))
}

func run(args []string, out io.Writer) (err error) {
	defer must.Catch(&err)

	flags := flag.NewFlagSet("build [flags] REFERENCE PROGRAM...", flag.ContinueOnError)
	dir := flags.String("dir", "dist", "directory to write the archive to")
	i := image.Image{Labels: map[string]string{}}
	flags.StringVar(&i.User, "user", "", "UID:GID that its programs run as; empty: root")
	flags.Func("label", "NAME=VALUE, as often as needed", func(label string) error {
		name, value, ok := strings.Cut(label, "=")
		if !ok {
			return fmt.Errorf("%q is not NAME=VALUE", label)
		}

		i.Labels[name] = value

		return nil
	})
	must.OK(flags.Parse(args))
	must.That(flags.NArg() >= 2, "want a reference and at least one program, not %q", flags.Args())
	reference := flags.Arg(0)
	name, tag, ok := strings.Cut(path.Base(reference), ":")
	must.That(ok && !strings.Contains(reference, "@"), "the reference %s has no tag: want REGISTRY/NAME:TAG", reference)
	i.References = []string{reference}
	for _, program := range flags.Args()[1:] {
		i.Programs = append(i.Programs, image.Program{Path: "/" + filepath.Base(program), File: program})
	}

	must.About("make "+reference, func() {
		archive, architectures := must.Get2(i.Archive())
		must.OK(os.MkdirAll(*dir, 0o755))
		file := filepath.Join(*dir, fmt.Sprintf("evenkeel-%s-%s-%s.tar", name, tag, strings.Join(architectures, "-")))
		must.OK(os.WriteFile(file, archive, 0o644))
		must.OK(os.Chmod(file, 0o644)) // independent of the umask
		must.Get(fmt.Fprintln(out, "built", file, reference))
	})
	return nil
}
