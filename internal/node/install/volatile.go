// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Volatile reports whether a reboot clears a directory, because its file system is in memory, or an overlay whose writable
// layer is. mounts is the path of a mountinfo file, which shows overlays; without it they do not count.
func Volatile(dir, mounts string) bool {
	system, err := fileSystem(dir)
	if err == nil && system.Type == unix.OVERLAYFS_SUPER_MAGIC {
		if upper := upperDir(dir, mounts); upper != "" {
			system, err = fileSystem(upper)
		}
	}
	return err == nil && (system.Type == unix.TMPFS_MAGIC || system.Type == unix.RAMFS_MAGIC)
}

// upperDir returns the directory of the writable layer of the overlay with a directory; empty if unknown.
func upperDir(dir, mounts string) string {
	data, err := os.ReadFile(mounts)
	if err != nil {
		return ""
	}
	at, options := "", ""
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		dash := slices.Index(fields, "-")
		if dash < 5 || len(fields) < dash+4 {
			continue
		}
		point := fields[4]
		if relative, err := filepath.Rel(point, dir); err == nil && filepath.IsLocal(relative) && len(point) >= len(at) {
			at, options = point, fields[dash+3]
		}
	}
	for option := range strings.SplitSeq(options, ",") {
		if upper, ok := strings.CutPrefix(option, "upperdir="); ok {
			return upper
		}
	}
	return ""
}
