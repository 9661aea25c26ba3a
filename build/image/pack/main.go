// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Command pack writes a container image of static programs as an archive into a
// directory: `make image`. The archive is named after the image and its
// architecture. Programs of several architectures have the same name in
// different directories.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/evenkeel/evenkeel/build/image"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
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
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() < 2 {
		return fmt.Errorf("want a reference and at least one program, not %q", flags.Args())
	}

	reference := flags.Arg(0)
	name, tag, ok := strings.Cut(path.Base(reference), ":")
	if !ok || strings.Contains(reference, "@") {
		return fmt.Errorf("the reference %s has no tag: want REGISTRY/NAME:TAG", reference)
	}

	i.References = []string{reference}
	for _, program := range flags.Args()[1:] {
		i.Programs = append(i.Programs, image.Program{Path: "/" + filepath.Base(program), File: program})
	}

	archive, architectures, err := i.Archive()
	if err != nil {
		return fmt.Errorf("make %s: %w", reference, err)
	}
	if err := os.MkdirAll(*dir, 0o755); err != nil {
		return fmt.Errorf("make %s: %w", reference, err)
	}

	file := filepath.Join(*dir, fmt.Sprintf("evenkeel-%s-%s-%s.tar", name, tag, strings.Join(architectures, "-")))
	if err := errors.Join(os.WriteFile(file, archive, 0o644), os.Chmod(file, 0o644)); err != nil { // independent of the umask
		return fmt.Errorf("make %s: %w", reference, err)
	}

	_, err = fmt.Fprintln(out, "built", file, reference)

	return err
}
