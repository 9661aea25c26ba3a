// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/evenkeel/evenkeel/internal/node/hostns"
)

// stableDirs are directories from which programs do not disappear.
var stableDirs = []string{"/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin", "/opt/bin", "/var/lib/evenkeel-bin"}

// defaultBinDirs are the directories for a copy: the first on which programs
// can be installed. /usr can be read-only.
var defaultBinDirs = []string{"/usr/local/bin", "/opt/bin"}

// Program is the agent's executable.
type Program struct {
	Path    string // of the running program
	BinDir  string // where to install it; empty: where it is, if that is one of stableDirs
	Enforce string // path of the file in which SELinux shows whether it enforces
}

// Place copies the program to its directory, and returns its path. The name of
// a copy contains the digest of its content, so an older drop-in still starts
// the older program. With dry it only returns the path.
func (p Program) Place(dry bool) (string, error) {
	dir := p.BinDir
	switch {
	case dir == "" && slices.Contains(stableDirs, filepath.Dir(p.Path)), dir == filepath.Dir(p.Path):
		return p.Path, p.checkLabel(p.Path)
	case dir == "":
		dir = firstUsable(defaultBinDirs)
	case !filepath.IsAbs(dir) || filepath.Clean(dir) != dir || strings.ContainsFunc(dir, isUnusual):
		return "", fmt.Errorf("--bin-dir: %q is no absolute path of letters, digits and ./_-", dir)
	}

	path, err := p.copyTo(dir, dry)
	if err != nil {
		return "", fmt.Errorf("the agent cannot be copied to %s (another directory: --bin-dir): %w", dir, trimRefused(err))
	}
	if dry {
		return path, nil
	}

	return path, p.checkLabel(path)
}

// firstUsable returns the first directory whose file system is writable and
// runs programs; if there is none, the first.
func firstUsable(dirs []string) string {
	for _, dir := range dirs {
		if system, err := fileSystem(dir); err == nil && system.Flags&(unix.ST_RDONLY|unix.ST_NOEXEC) == 0 {
			return dir
		}
	}

	return dirs[0]
}

// fileSystem returns the file system of a directory, or of the closest existing
// one above it.
func fileSystem(dir string) (unix.Statfs_t, error) {
	var system unix.Statfs_t
	err := unix.Statfs(dir, &system)
	if errors.Is(err, unix.ENOENT) && dir != filepath.Dir(dir) {
		return fileSystem(filepath.Dir(dir))
	}

	return system, err
}

func isUnusual(r rune) bool { return !nameRune(r) && !strings.ContainsRune("./-", r) }

// trimRefused removes the prefix of hostns.ErrRefused, which does not apply
// here.
func trimRefused(err error) error {
	if words, ok := strings.CutPrefix(err.Error(), hostns.ErrRefused.Error()+": "); ok {
		return errors.New(words)
	}

	return err
}

func (p Program) copyTo(dir string, dry bool) (string, error) {
	program, err := hostns.OpenProgram(p.Path)
	if err != nil {
		return "", err
	}

	defer program.Close()
	if dry {
		return program.In(dir)
	}

	bin, err := hostns.OpenBin(dir)
	if err != nil {
		return "", err
	}

	defer bin.Close()

	return bin.Put(program)
}

// checkLabel returns an error if SELinux enforces and does not let systemd run
// the file.
func (p Program) checkLabel(path string) error {
	if raw, err := os.ReadFile(p.Enforce); err != nil || strings.TrimSpace(string(raw)) != "1" {
		return nil
	}

	label := make([]byte, 256)
	n, err := unix.Getxattr(path, "security.selinux", label)
	if err != nil {
		return fmt.Errorf("SELinux enforces, and %s has no label (%w): restorecon %[1]s, or another --bin-dir", path, err)
	}

	context := strings.TrimRight(string(label[:n]), "\x00")
	fields := strings.Split(context, ":")
	if len(fields) > 2 && (fields[2] == "bin_t" || strings.HasSuffix(fields[2], "_exec_t")) {
		return nil
	}

	return fmt.Errorf("SELinux enforces, and %s is labelled %s, which systemd may not run: take --bin-dir=%s, or make it bin_t "+
		"(semanage fcontext -a -t bin_t '%s(/.*)?' && restorecon -R %[4]s)", path, context, defaultBinDirs[0], filepath.Dir(path))
}

// ReferencedPrograms returns a function that reports whether a unit file, or a
// recorded change that may be taken back, names a program: it must then exist
// at the next start of that unit, even if it does not run now. The directories
// of unit files and records may be missing.
func ReferencedPrograms(unitDirs []string, stateDir string) (func(path string) bool, error) {
	patterns := []string{filepath.Join(stateDir, "*.json")}
	for _, dir := range unitDirs {
		patterns = append(patterns, filepath.Join(dir, "*.service"), filepath.Join(dir, "*.d", "*.conf"))
	}

	var texts [][]byte
	for _, pattern := range patterns {
		files, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}

		for _, file := range files {
			text, err := readUnitFile(file)
			if errors.Is(err, fs.ErrNotExist) { // a dangling link
				continue
			}
			if err != nil {
				return nil, err
			}

			texts = append(texts, text)
		}
	}

	return func(path string) bool {
		return slices.ContainsFunc(texts, func(text []byte) bool { return bytes.Contains(text, []byte(path)) })
	}, nil
}
