package install

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/evenkeel/evenkeel/internal/node/hostns"
)

// stable are directories in which programs stay.
var stable = []string{"/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin", "/var/lib/evenkeel-bin"}

const defaultBinDir = "/usr/local/bin"

// Program is the agent's own file.
type Program struct {
	Path    string // of what runs now
	BinDir  string // where it is to be; empty: where it is, if programs stay there
	Enforce string // the file with which SELinux says that it enforces
}

// Place puts the program where it can stay, and returns its path. A copy has a name of its own content, so that what an
// older drop-in names stays what it is. With dry it only says where that is.
func (p Program) Place(dry bool) (string, error) {
	dir := p.BinDir
	switch {
	case dir == "" && slices.Contains(stable, filepath.Dir(p.Path)), dir == filepath.Dir(p.Path):
		return p.Path, p.labelled(p.Path)
	case dir == "":
		dir = defaultBinDir
	case !filepath.IsAbs(dir) || filepath.Clean(dir) != dir || strings.ContainsFunc(dir, unusual):
		return "", fmt.Errorf("--bin-dir: %q is no absolute path of letters, digits and ./_-", dir)
	}
	path, err := p.copyTo(dir, dry)
	if err != nil {
		return "", fmt.Errorf("the agent cannot be copied to %s (another directory: --bin-dir): %w", dir, bare(err))
	}
	if dry {
		return path, nil
	}
	return path, p.labelled(path)
}

func unusual(r rune) bool { return !nameRune(r) && !strings.ContainsRune("./-", r) }

// bare is what hostns says without what it is about there.
func bare(err error) error {
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

// labelled returns an error if SELinux enforces and would not let systemd run the file.
func (p Program) labelled(path string) error {
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
		"(semanage fcontext -a -t bin_t '%s(/.*)?' && restorecon -R %[4]s)", path, context, defaultBinDir, filepath.Dir(path))
}
