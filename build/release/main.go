// Command release makes of compiled programs all that is released besides: packages, bills of materials, manifests, the
// chart, and the digests of all files. It is a module of its own, so that what it needs is no part of evenkeel.
//
// The same source makes the same bytes: every time is that of the commit, and nothing of the machine goes into a file.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// release is what is made, from the directory of the source that is the working directory.
type release struct {
	version  string // v1.2.3
	registry string
	programs string // a directory with OS_ARCH/PROGRAM
	out      string
	time     time.Time
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	var r release
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.StringVar(&r.version, "version", "", "the version, such as v1.2.3 or v1.2.3-rc.1")
	flags.StringVar(&r.registry, "registry", "evenkeel.dev", "where the images of the manifests are")
	flags.StringVar(&r.programs, "programs", "", "directory with the programs of each platform, OS_ARCH/PROGRAM")
	flags.StringVar(&r.out, "out", "", "directory to write to; what is there is released too")
	epoch := flags.Int64("time", 0, "the time of everything that has one, in seconds since 1970: the commit's")
	check := flags.Bool("check", false, "only say whether this source could be released as -version")
	tagged := flags.Bool("tagged", false, "with -check: -version must be the tag of what is checked out, and nothing changed since")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := checkVersion(r.version); err != nil {
		return err
	}
	if *epoch <= 0 {
		return errors.New("the time of the commit is not known: give SOURCE_DATE_EPOCH, in seconds since 1970")
	}
	if *check {
		if *tagged {
			return checkTag(r.version)
		}
		return nil
	}
	if r.programs == "" || r.out == "" {
		return errors.New("-programs and -out are needed")
	}
	r.time = time.Unix(*epoch, 0).UTC()
	for _, step := range []struct {
		name string
		make func() error
	}{
		{"programs", r.copyPrograms},
		{"packages", r.makePackages},
		{"manifests", r.renderManifests},
		{"chart", r.packChart},
		{"digests", r.sum}, // the last: of all files
	} {
		if err := step.make(); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return nil
}

// checkVersion says why something cannot be the version of images, packages and a chart at once.
func checkVersion(version string) error {
	if !regexp.MustCompile(`\Av(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z]+(\.[0-9A-Za-z]+)*)?\z`).MatchString(version) {
		return fmt.Errorf("%q is no version to release: check out a tag such as v1.2.3, or give VERSION=v1.2.3 or VERSION=v1.2.3-rc.1", version)
	}
	return nil
}

// checkTag says what keeps the working directory from being what the tag names.
func checkTag(version string) error {
	changed, err := git("status", "--porcelain")
	if err != nil {
		return err
	}
	if changed != "" {
		return fmt.Errorf("not committed:\n%s\ncommit it, or give VERSION=v1.2.3 to release it all the same", changed)
	}
	tag, err := git("describe", "--tags", "--exact-match")
	switch {
	case err != nil:
		return fmt.Errorf("what is checked out has not the tag %s: git tag %s, or give VERSION=v1.2.3 (%w)", version, version, err)
	case tag != version:
		return fmt.Errorf("what is checked out has the tag %s, not %s", tag, version)
	}
	return nil
}

func git(args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	out, err := cmd.Output()
	if err != nil {
		words := err.Error()
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			words = strings.TrimSpace(string(exit.Stderr))
		}
		return "", fmt.Errorf("git %s: %s", strings.Join(args, " "), words)
	}
	return strings.TrimRight(string(out), "\n"), nil
}

// platform is one that programs were compiled for.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "_" + p.arch }

// platforms are those that there are programs for, in the order of their names.
func (r *release) platforms() ([]platform, error) {
	dirs, err := os.ReadDir(r.programs)
	if err != nil {
		return nil, err
	}
	var all []platform
	for _, dir := range dirs {
		system, arch, ok := strings.Cut(dir.Name(), "_")
		if !ok {
			return nil, fmt.Errorf("%s is no platform: OS_ARCH is needed", filepath.Join(r.programs, dir.Name()))
		}
		all = append(all, platform{system, arch})
	}
	return all, nil
}

// copyPrograms puts every program, and its bill of materials, where all is that is released.
func (r *release) copyPrograms() error {
	platforms, err := r.platforms()
	if err != nil {
		return err
	}
	for _, p := range platforms {
		programs, err := os.ReadDir(filepath.Join(r.programs, p.String()))
		if err != nil {
			return err
		}
		for _, program := range programs {
			data, err := os.ReadFile(filepath.Join(r.programs, p.String(), program.Name()))
			if err != nil {
				return err
			}
			name, suffix := program.Name(), filepath.Ext(program.Name())
			name = fmt.Sprintf("%s-%s-%s-%s", strings.TrimSuffix(name, suffix), r.version, p.os, p.arch)
			bill, err := r.billOf(name+suffix, data)
			if err != nil {
				return fmt.Errorf("%s: %w", program.Name(), err)
			}
			if err := errors.Join(r.write(name+suffix, data, 0o755), r.write(name+".cdx.json", bill, 0o644)); err != nil {
				return err
			}
		}
	}
	return nil
}

// write writes a file of the release, with this mode whatever the umask is.
func (r *release) write(name string, data []byte, mode os.FileMode) error {
	path := filepath.Join(r.out, name)
	return errors.Join(os.WriteFile(path, data, mode), os.Chmod(path, mode))
}
