// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Command release builds the files of a release from compiled programs and
// images: packages (deb, rpm, tar, Krew), bills of materials, manifests, the
// Helm chart, the provenance, and the digests and signatures of all files. It
// is a separate module, so that evenkeel does not depend on its libraries.
//
// The same source gives the same bytes: every time is the commit's, and the
// files contain nothing from the machine.
package main

import (
	"crypto/ecdsa"
	"crypto/sha256"
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

// repository is where the source and its releases are.
const repository = "https://github.com/evenkeel/evenkeel"

// release is a release of the source in the working directory.
type release struct {
	version   string // v1.2.3
	commit    string
	registry  string
	downloads string // the URL of the directory with the files of the release
	programs  string // a directory with OS_ARCH/PROGRAM
	out       string
	time      time.Time
	key       *ecdsa.PrivateKey // nil: no signatures
}

func main() {
	if err := attempt(func() { run(os.Args[1:]) }); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(args []string) {
	var r release
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.StringVar(&r.version, "version", "", "the version, such as v1.2.3 or v1.2.3-rc.1")
	flags.StringVar(&r.registry, "registry", "evenkeel.dev", "where the images of the manifests are")
	flags.StringVar(&r.downloads, "downloads", "", "the URL of the directory from which users get the files of the release")
	flags.StringVar(&r.commit, "commit", "", "the commit that is released, in full")
	keyFile := flags.String("key", "", "file with the private key for the signatures; empty: no signatures")
	flags.StringVar(&r.programs, "programs", "", "directory with the programs of each platform, OS_ARCH/PROGRAM")
	flags.StringVar(&r.out, "out", "", "directory to write to; it has the images, and what else is there is released too")
	epoch := flags.Int64("time", 0, "the time of everything that has one, in seconds since 1970: the commit's")
	check := flags.Bool("check", false, "only say whether this source could be released as -version")
	tagged := flags.Bool("tagged", false, "with -check: -version must be the tag of what is checked out, and nothing changed since")
	ok(flags.Parse(args))
	that(releaseVersion.MatchString(r.version),
		"%q is not a release version: check out a tag such as v1.2.3, or set VERSION=v1.2.3 or VERSION=v1.2.3-rc.1", r.version)
	that(*epoch > 0, "the time of the commit is unknown: set SOURCE_DATE_EPOCH to seconds since 1970")
	that(fullHash.MatchString(r.commit), "the commit is unknown (%q): set COMMIT to the full hash of the released commit", r.commit)
	if *keyFile != "" {
		r.key = get(readKey(*keyFile))
	}
	if *check {
		if *tagged {
			checkTag(r.version)
		}

		return
	}

	that(r.programs != "" && r.out != "" && r.downloads != "", "-programs, -out and -downloads are required")
	r.time = time.Unix(*epoch, 0).UTC()
	for _, step := range []struct {
		name string
		make func()
	}{
		{"programs", r.copyPrograms},
		{"manifests", r.renderManifests},
		{"chart", r.packChart},
		{"packages", r.makePackages},
		{"plugin", r.packPlugin},
		// These read the directory, so their order says what each covers: all
		// files before it.
		{"provenance", r.state},
		{"digests", r.sum},
		{"signatures", r.sign},
	} {
		about(step.name, step.make)
	}
}

var (
	// releaseVersion matches a version that images, packages and charts can all
	// have.
	releaseVersion = regexp.MustCompile(`\Av(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z]+(\.[0-9A-Za-z]+)*)?\z`)
	fullHash       = regexp.MustCompile(`\A([0-9a-f]{40}|[0-9a-f]{64})\z`)
)

// checkTag ends the program if the working directory differs from the tag.
func checkTag(version string) {
	changed := get(git("status", "--porcelain"))
	that(changed == "", "not committed:\n%s\ncommit it, or set VERSION=v1.2.3 to release it anyway", changed)
	tag, err := git("describe", "--tags", "--exact-match")
	that(err == nil, "the checked-out commit does not have the tag %s: run git tag %s, or set VERSION=v1.2.3 (%w)", version, version, err)
	that(tag == version, "the checked-out commit has the tag %s, not %s", tag, version)
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

// platform is an operating system and architecture with compiled programs.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "_" + p.arch }

// platforms returns the platforms in the programs' directory, by name.
func (r *release) platforms() (all []platform) {
	for _, dir := range get(os.ReadDir(r.programs)) {
		system, arch, is := strings.Cut(dir.Name(), "_")
		that(is, "%s is not a platform: want OS_ARCH", filepath.Join(r.programs, dir.Name()))
		all = append(all, platform{system, arch})
	}

	return all
}

// copyPrograms copies every program, and writes its bill of materials, to the
// directory of the release.
func (r *release) copyPrograms() {
	for _, p := range r.platforms() {
		for _, program := range get(os.ReadDir(filepath.Join(r.programs, p.String()))) {
			data := get(os.ReadFile(filepath.Join(r.programs, p.String(), program.Name())))
			name, suffix := program.Name(), filepath.Ext(program.Name())
			name = fmt.Sprintf("%s-%s-%s-%s", strings.TrimSuffix(name, suffix), r.version, p.os, p.arch)
			r.write(name+suffix, data, 0o755)
			about(program.Name(), func() { r.write(name+".cdx.json", r.billOf(name+suffix, data), 0o644) })
		}
	}
}

// each calls do with the name and the SHA-256 of each file that is in the
// directory of the release at the call.
func (r *release) each(do func(name string, digest []byte)) {
	for _, file := range get(os.ReadDir(r.out)) {
		digest := sha256.Sum256(get(os.ReadFile(filepath.Join(r.out, file.Name()))))
		do(file.Name(), digest[:])
	}
}

// write writes a file of the release; the mode does not depend on the umask.
func (r *release) write(name string, data []byte, mode os.FileMode) {
	path := filepath.Join(r.out, name)
	ok(os.WriteFile(path, data, mode))
	ok(os.Chmod(path, mode))
}
