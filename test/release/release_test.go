// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

func TestTheSameSourceGivesTheSameBytes(t *testing.T) {
	// Elsewhere, later, under another mask and clock, by way of a path of
	// another length, with other wishes for Go, and without the key, which only
	// the maintainers have.
	again, said, err := release(filepath.Join(t.TempDir(), "in", "another", "place"), "umask 077; unset COSIGN_KEY; export TZ=Pacific/Chatham LC_ALL=C HOSTNAME=other GOFLAGS=-tags=other GOFIPS140=latest GOAMD64=v3 GOARM64=v9.0")
	assert.NoError(t, err)
	assert.That(t, strings.Contains(said, "the release has no signatures: set COSIGN_KEY to sign it\n"), "a release without a key says %s", said)
	first, second := files(t, made), files(t, again)
	maps.DeleteFunc(first, func(name, _ string) bool { return isSignature(name) })
	assert.NoDiff(t, cmp.Diff(slices.Sorted(maps.Keys(first)), slices.Sorted(maps.Keys(second))))
	for name := range first {
		assert.That(t, first[name] == second[name], "%s differs: %d and %d bytes", name, len(first[name]), len(second[name]))
		one, two := assert.Value(os.Stat(filepath.Join(made, name)))(t), assert.Value(os.Stat(filepath.Join(again, name)))(t)
		assert.Equal(t, two.Mode(), one.Mode(), "the mode of", name)
	}
}

func TestTheReleaseHasAllFilesAndTheirDigests(t *testing.T) {
	all := slices.DeleteFunc(slices.Sorted(maps.Keys(files(t, made))), isSignature)
	of := "-" + version + "-linux-" + runtime.GOARCH
	for _, want := range []string{
		"SHA256SUMS", "evenkeel-agent" + of, "evenkeel-agent" + of + ".cdx.json", "evenkeel-controller" + of, "kubectl-evenkeel" + of,
		"evenkeel-agent-" + version + "-" + runtime.GOARCH + ".tar", "evenkeel-controller-" + version + "-" + runtime.GOARCH + ".tar",
		"evenkeel-agent_9.8.7~rc.1_" + runtime.GOARCH + ".deb", "kubectl-evenkeel_9.8.7~rc.1_" + runtime.GOARCH + ".deb",
		"kubectl-evenkeel" + of + ".tar.gz", "evenkeel.yaml", "artifacthub-repo.yml", "evenkeel-9.8.7-rc.1.tgz", "evenkeel-" + version + ".provenance.json",
		"install.yaml", "evenkeel-api-" + version + ".yaml", "evenkeel-drain-" + version + ".yaml", "evenkeel-self-hosted-" + version + ".yaml",
	} {
		assert.That(t, slices.Contains(all, want), "there is no %s in %q", want, all)
	}

	check := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
	check.Dir = made
	said, err := check.CombinedOutput()
	lines := strings.Count(string(said), ": OK\n")
	assert.That(t, err == nil && lines == len(all)-1, "%d of %d files have their digest: %v: %s", lines, len(all)-1, err, said)
}

func TestProgramsAreStaticAndHaveABillOfMaterials(t *testing.T) {
	for _, name := range []string{"evenkeel-agent", "evenkeel-controller", "kubectl-evenkeel"} {
		program := filepath.Join(made, name+"-"+version+"-linux-"+runtime.GOARCH)
		args := []string{"version", "-o", "json"}
		if name == "kubectl-evenkeel" {
			args = append(args, "--client")
		}

		said := says(t, program, args...)
		assert.That(t, strings.Contains(said, `"`+version+`"`) && strings.Contains(said, `"`+commit+`"`), "%s says %s", name, said)
		var bill struct {
			BOMFormat string
			Metadata  struct {
				Timestamp string
				Component struct {
					Name, Version, Purl string
					Hashes              []struct{ Alg, Content string }
				}
			}
			Components []struct{ Name, Version, Purl string }
		}
		assert.NoError(t, json.Unmarshal([]byte(files(t, made)[filepath.Base(program)+".cdx.json"]), &bill))
		sum, _, _ := strings.Cut(says(t, "sha256sum", program), " ")
		self := bill.Metadata.Component
		if bill.BOMFormat != "CycloneDX" || bill.Metadata.Timestamp != "2023-11-14T22:13:20Z" || self.Name != filepath.Base(program) ||
			self.Version != version || len(self.Hashes) != 1 || self.Hashes[0].Alg != "SHA-256" || self.Hashes[0].Content != sum {
			t.Errorf("the bill of %s, which has %s, is of %+v", program, sum, bill.Metadata)
		}

		// All that Go itself says is in it, and nothing else.
		var want, got []string
		for line := range strings.Lines(says(t, "go", "version", "-m", program)) {
			if f := strings.Fields(line); len(f) > 2 && f[0] == "dep" {
				want = append(want, f[1]+" "+f[2])
			}
		}

		for _, c := range bill.Components[1:] {
			got = append(got, c.Name+" "+c.Version)
		}

		diff := cmp.Diff(want, got)
		assert.That(t, diff == "" && len(got) >= 10, "%s:\n%s", name, diff)
		std := bill.Components[0]
		assert.That(t, std.Purl == "pkg:golang/std@"+strings.TrimPrefix(runtime.Version(), "go"), "the standard library of %s is %+v", name, std)
	}
}

// makeRelease is the program that `make release` runs, in a directory.
func makeRelease(t *testing.T, dir string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(filepath.Join(made, "../../bin/make-release"), append([]string{"-commit=" + commit, "-downloads=https://example.com/" + version}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
	said, err := cmd.CombinedOutput()

	return string(said), err
}

// remake makes a release of a source that a script has changed, and returns the
// directory that it is in and what was said. The script runs beside config,
// charts and so on, programs with links to the real ones, and out with the
// images.
func remake(t *testing.T, change string, args ...string) (out, said string, err error) {
	t.Helper()
	const copySource = `cd "$0"; cp -r "$1/config" "$1/packaging" "$1/docs" "$1/LICENSE" .; mkdir out charts; cp "$1/charts/artifacthub-repo.yml" charts
cp "$2"/evenkeel-*.tar out; cp -rs "$1/bin/programs" programs; `
	dir := t.TempDir()
	says(t, "bash", "-ec", copySource+change, dir, filepath.Join(made, "../.."), made)
	said, err = makeRelease(t, dir, append([]string{"-version=" + version, "-programs=programs", "-out=out", "-time=1700000000"}, args...)...)

	return filepath.Join(dir, "out"), said, err
}

func TestOnlyATaggedCommitIsReleasedUnlessAVersionIsSet(t *testing.T) {
	dir := t.TempDir()
	git := func(args ...string) {
		t.Helper()
		says(t, "git", append([]string{"-C", dir, "-c", "user.name=x", "-c", "user.email=x@example.com", "-c", "init.defaultBranch=main"}, args...)...)
	}
	refused := func(want string, args ...string) {
		t.Helper()
		said, err := makeRelease(t, dir, append([]string{"-time=1"}, args...)...)
		assert.That(t, err != nil && strings.Contains(said, want), "%q: %v, %s, want %s", args, err, said, want)
	}
	accepted := func(args ...string) {
		t.Helper()
		assert.Returns(t, "", args)(makeRelease(t, dir, append([]string{"-time=1"}, args...)...))
	}
	for _, version := range []string{"", "e7cd8bc", "1.2.3", "v1.2", "v1.2.3-4-gabcdef0", "v1.2.3-dirty-", "v01.2.3", "v1.2.3+x", "v1.2.3\n"} {
		refused("is not a release version: check out a tag such as v1.2.3, or set VERSION=v1.2.3", "-check", "-version="+version)
	}

	refused("the time of the commit is unknown: set SOURCE_DATE_EPOCH", "-check", "-version=v1.2.3", "-time=0")
	for _, unknown := range []string{"", "0123456", strings.ToUpper(commit), commit + "\n"} {
		refused("the commit is unknown ("+strconv.Quote(unknown)+"): set COMMIT to the full hash", "-check", "-version=v1.2.3", "-commit="+unknown)
	}

	accepted("-check", "-version=v1.2.3-rc.1")
	refused("git status --porcelain: fatal: not a git repository", "-check", "-tagged", "-version=v1.2.3")
	git("init", "-q")
	git("commit", "-q", "--allow-empty", "-m", "x")
	refused("the checked-out commit does not have the tag v1.2.3: run git tag v1.2.3, or set VERSION=v1.2.3 (git describe", "-check", "-tagged", "-version=v1.2.3")
	git("tag", "v1.2.3")
	accepted("-check", "-tagged", "-version=v1.2.3")
	refused("the checked-out commit has the tag v1.2.3, not v1.2.4", "-check", "-tagged", "-version=v1.2.4")
	assert.NoError(t, os.WriteFile(filepath.Join(dir, "new.go"), nil, 0o644))
	refused("not committed:\n?? new.go\ncommit it, or set VERSION=v1.2.3", "-check", "-tagged", "-version=v1.2.3")
}

func TestAFailedReleaseNamesItsStep(t *testing.T) {
	here := "linux_" + runtime.GOARCH
	for _, tt := range []struct {
		name, want string
		change     string
	}{
		{"no programs", "programs: open programs: no such file or directory", "rm -r programs"},
		{"a directory that is no platform", "programs: programs/linux is not a platform: want OS_ARCH", "mkdir programs/linux"},
		{"what is no program", "programs: evenkeel-agent: unrecognized file format", "rm programs/" + here + "/evenkeel-agent; echo x >programs/" + here + "/evenkeel-agent"},
		{"no plugin to ask for completions", "packages: the plugin for this machine's platform is required for its completions", "rm programs/" + here + "/kubectl-evenkeel"},
		{"no program for a package", "packages: packaging/evenkeel-agent/nfpm.yaml for " + here, "rm programs/" + here + "/evenkeel-agent"},
		{"a platform without a plugin", "plugin: open programs/darwin_arm64/kubectl-evenkeel: no such file or directory", "mkdir programs/darwin_arm64"},
		{"no image", "manifests: there are 0 archives of the image agent, want one", "rm out/evenkeel-agent-*.tar"},
		{"two images", "manifests: there are 2 archives of the image controller, want one", "cp out/evenkeel-controller-*.tar out/evenkeel-controller-" + version + "-other.tar"},
		{"an index of no image", "manifests: index.json in out/evenkeel-agent-" + version + "-" + runtime.GOARCH + ".tar has 0 images, want one", "echo {} >index.json; tar -cf out/evenkeel-agent-*.tar index.json"},
		{"a kustomization that names what is not there", "manifests: config/api: ", "rm config/api/namespace.yaml"},
		{"a chart that is none", "chart: Chart.yaml: ", "mkdir -p charts/evenkeel; echo '{' >charts/evenkeel/Chart.yaml"},
		{"a chart with a link", "chart: charts/evenkeel/x is not a regular file", "mkdir -p charts/evenkeel; echo 'name: evenkeel' >charts/evenkeel/Chart.yaml; ln -s / charts/evenkeel/x"},
		{"a chart without its description for Artifact Hub", "chart: open charts/artifacthub-repo.yml: ", "mkdir -p charts/evenkeel; echo 'name: evenkeel' >charts/evenkeel/Chart.yaml; rm charts/artifacthub-repo.yml"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, said, err := remake(t, tt.change)
			assert.That(t, err != nil && strings.Contains(said, "release: "+tt.want), "%v, %s, want %s", err, said, tt.want)
			assert.Is(t, assert.Err(os.Stat(filepath.Join(out, "SHA256SUMS"))), os.ErrNotExist, "there are digests of half a release")
		})
	}

	said, err := makeRelease(t, t.TempDir(), "-version="+version, "-time=1")
	assert.That(t, err != nil && strings.Contains(said, "-programs, -out and -downloads are required"),
		"without a directory: %v, %s", err, said)
}

func TestACloneInstallsItsOwnImages(t *testing.T) {
	source := filepath.Join(made, "../..")
	kubectl := assert.Value(filepath.Abs(root + "/bin/tools"))(t)
	said := says(t, "bash", "-ec", `cd "$0"; export PATH="$PATH:$1"; exec make --no-print-directory push "${@:2}"`, source, kubectl,
		"VERSION=abcdef0", "COMMIT="+commit, "REGISTRY=localhost:5000/x", "PUSH=echo pushed")
	manifests := string(assert.Value(os.ReadFile(filepath.Join(source, "install.yaml")))(t))
	for image, used := range map[string]int{"agent": 2, "controller": 1} {
		reference := "localhost:5000/x/" + image + ":v0.0.0-abcdef0"
		archive := "dist/install/evenkeel-" + image + "-v0.0.0-abcdef0-" + runtime.GOARCH + ".tar"
		assert.Equal(t, strings.Count(manifests, " image: "+reference+"\n"), used, reference)
		assert.That(t, strings.Contains(said, "pushed oci-archive:"+archive+" docker://"+reference+"\n"), "%s is not pushed: %s", archive, said)
		packed := string(assert.Value(os.ReadFile(filepath.Join(source, archive)))(t))
		assert.That(t, strings.Contains(packed, `"io.containerd.image.name":"`+reference+`"`), "containerd imports %s under another name", archive)
	}

	assert.Equal(t, strings.Count(manifests, " image: "), 3, "images")
	assert.That(t, strings.Contains(says(t, filepath.Join(source, "bin/kubectl-evenkeel"), "version", "--client"), "v0.0.0-abcdef0"), "the plugin has another version")
}
