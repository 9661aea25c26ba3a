// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"
)

// outputFlag adds --output to a command that writes a file. It has no -o, which is a format elsewhere.
func outputFlag(cmd *cobra.Command, path *string) {
	cmd.Flags().StringVar(path, "output", "", "file to write, which must not exist yet (default standard output)")
	_ = cmd.MarkFlagFilename("output", "yaml", "yml", "json")
}

// output writes data to a new file, or to standard output if path is "" or "-". After an error it leaves no new file behind.
func (a *app) output(path string, data []byte) error {
	if path == "" || path == "-" {
		if _, err := a.Out.Write(data); err != nil {
			return fmt.Errorf("write to standard output: %w", err)
		}
		return nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	switch {
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("--output: %s already exists: remove it, or choose another name; nothing was written", path)
	case err != nil:
		return fmt.Errorf("--output: %w; nothing was written", err)
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("--output: %w; the partial file was removed", errors.Join(err, os.Remove(path)))
	}
	return nil
}
