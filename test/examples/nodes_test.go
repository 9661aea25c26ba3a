// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package examples checks the examples of config/examples that set up nodes.
package examples

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

const (
	nodes       = "../../config/examples/nodes"
	unitPath    = "/etc/systemd/system/evenkeel-install.service"
	placeholder = "0000000000000000000000000000000000000000000000000000000000000000"
)

type file struct{ Path, Content string }

type cloudInit struct {
	WriteFiles []file `json:"write_files"`
	RunCmd     []string
}

type kubeadmConfigTemplate struct {
	APIVersion, Kind string
	Metadata         map[string]any
	Spec             struct {
		Template struct {
			Spec struct {
				Files              []file
				PreKubeadmCommands []string
			}
		}
	}
}

type butane struct {
	Variant, Version string
	Storage          struct {
		Files []struct {
			Path     string
			Mode     int
			Contents struct {
				Source       string
				Verification map[string]string
			}
		}
	}
	Systemd struct {
		Units []struct {
			Name, Contents string
			Enabled        bool
		}
	}
}

// read parses an example, in which every field must be known.
func read(t *testing.T, name string, into any) {
	t.Helper()
	raw := assert.Value(os.ReadFile(filepath.Join(nodes, name)))(t)
	assert.NoError(t, yaml.UnmarshalStrict(raw, into), name)
}

// one returns the only element of a list.
func one[T any](t *testing.T, list []T) T {
	t.Helper()
	assert.Must(t, len(list) == 1, "%d elements, want 1: %v", len(list), list)
	return list[0]
}

// scripts returns the unit and the script of the examples that have one.
func scripts(t *testing.T) map[string][2]string {
	t.Helper()
	var c cloudInit
	read(t, "cloud-init.yaml", &c)
	var k kubeadmConfigTemplate
	read(t, "cluster-api.yaml", &k)
	spec := k.Spec.Template.Spec
	for _, f := range []file{one(t, c.WriteFiles), one(t, spec.Files)} {
		assert.Equal(t, f.Path, unitPath, "the unit")
	}

	return map[string][2]string{
		"cloud-init.yaml":  {c.WriteFiles[0].Content, one(t, c.RunCmd)},
		"cluster-api.yaml": {spec.Files[0].Content, one(t, spec.PreKubeadmCommands)},
	}
}

func TestExamplesOfNodesHaveTheSameUnit(t *testing.T) {
	var b butane
	read(t, "butane.yaml", &b)
	program, unit := one(t, b.Storage.Files), one(t, b.Systemd.Units)
	assert.That(t, program.Mode == 0o755 && program.Contents.Verification["hash"] == "sha256-"+placeholder &&
		unit.Name == filepath.Base(unitPath) && unit.Enabled, "butane.yaml: %+v, %+v", program, unit)

	want := strings.Replace(unit.Contents, program.Path, "/usr/local/bin/evenkeel-agent", 1)
	for name, parts := range scripts(t) {
		assert.That(t, parts[0] == want, "%s has another unit than butane.yaml:\n%s", name, parts[0])
	}

	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("no systemd-analyze here")
	}

	dir := t.TempDir()
	unitFile := filepath.Join(dir, unit.Name)
	assert.NoError(t, os.WriteFile(unitFile, []byte(strings.ReplaceAll(unit.Contents, program.Path, "/bin/true")), 0o644))
	out, err := exec.Command(analyze, "verify", "--man=no", "--recursive-errors=no", unitFile).CombinedOutput()
	assert.That(t, err == nil && len(out) == 0, "systemd-analyze verify: %v\n%s", err, out)
}

func TestScriptsOfExamplesInstallOnlyTheProgramWithTheDigest(t *testing.T) {
	const program = "a program\n"
	for name, parts := range scripts(t) {
		for _, good := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, good program %t", name, good), func(t *testing.T) {
				root := t.TempDir()
				script := strings.NewReplacer("/run/", root+"/run/", "/usr/local/", root+"/usr/local/").Replace(parts[1])
				if good {
					script = strings.ReplaceAll(script, placeholder, fmt.Sprintf("%x", sha256.Sum256([]byte(program))))
				}

				out, err := exec.Command("bash", "-n", "-c", script).CombinedOutput()
				assert.Must(t, err == nil, "%v: %s", err, out)
				err = errors.Join(os.MkdirAll(root+"/run", 0o755), os.Mkdir(root+"/bin", 0o755),
					os.WriteFile(root+"/bin/curl", []byte("#!/bin/sh\nprintf 'a program\\n' > \"$2\"\n"), 0o755),
					os.WriteFile(root+"/bin/systemctl", []byte("#!/bin/sh\necho \"$@\" >> "+root+"/systemctl\n"), 0o755))
				assert.NoError(t, err)
				cmd := exec.Command("/bin/sh", "-c", script)
				cmd.Env = append(os.Environ(), "PATH="+root+"/bin:"+os.Getenv("PATH"))
				out, err = cmd.CombinedOutput()
				installed, readErr := os.ReadFile(root + "/usr/local/bin/evenkeel-agent")
				calls, _ := os.ReadFile(root + "/systemctl")
				switch {
				case good && (err != nil || string(installed) != program || string(calls) != "enable --now --no-block evenkeel-install.service\n"):
					t.Errorf("%v: %s\ninstalled %q, systemctl %q", err, out, installed, calls)
				case !good && (err == nil || !errors.Is(readErr, fs.ErrNotExist) || len(calls) > 0):
					t.Errorf("another program: %v, installed %q, systemctl %q", err, installed, calls)
				}
			})
		}
	}
}

func TestExampleOfAnotherDirectoryMovesEveryPath(t *testing.T) {
	kubectl, err := filepath.Abs("../../bin/tools/kubectl")
	if _, statErr := os.Stat(kubectl); err != nil || statErr != nil {
		t.Skip("no kubectl here: make tools")
	}

	installer := assert.Value(exec.Command(kubectl, "kustomize", "../../config/installer").Output())(t)
	moved := assert.Value(exec.Command(kubectl, "kustomize", "../../config/examples/bin-dir").Output())(t)
	want := strings.ReplaceAll(string(installer), "/var/lib/evenkeel-bin", "/home/kubernetes/bin")
	want = strings.Replace(want, "        - install\n", "        - install\n        - --bin-dir=/home/kubernetes/bin\n", 1)
	assert.That(t, string(moved) == want, "got\n%s\nwant\n%s", moved, want)
}
