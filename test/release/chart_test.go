// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// unpacked returns the files of a compressed archive, by name. All have the
// commit's time and no owner, and modes gives theirs.
func unpacked(t *testing.T, archive string) (contents map[string]string, modes map[string]int64) {
	t.Helper()
	packed := assert.Value(gzip.NewReader(strings.NewReader(archive)))(t)
	contents, modes = map[string]string{}, map[string]int64{}
	for archive := tar.NewReader(packed); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return contents, modes
		}

		data, readErr := io.ReadAll(archive)
		assert.NoError(t, errors.Join(err, readErr))
		assert.That(t, h.ModTime.Unix() == 1700000000 && h.Uname == "" && h.Uid == 0, "%s is of %s, %s", h.Name, h.ModTime, h.Uname)
		contents[h.Name], modes[h.Name] = string(data), h.Mode
	}
}

func TestTheChartIsPackedWithTheVersionOfTheRelease(t *testing.T) {
	out, said, err := remake(t, `mkdir -p charts/evenkeel/templates
printf 'apiVersion: v2\nname: evenkeel\nversion: 0.0.0\nappVersion: v0.0.0\n' >charts/evenkeel/Chart.yaml
echo '# {{ .Chart.AppVersion }}' >charts/evenkeel/templates/x.yaml; echo '*.bak' >charts/evenkeel/.helmignore`)
	assert.Must(t, err == nil, "%v: %s", err, said)
	got, modes := unpacked(t, files(t, out)["evenkeel-9.8.7-rc.1.tgz"])
	for name, mode := range modes {
		assert.Equal(t, mode, 0o644, name, "has mode")
	}

	want := map[string]string{
		"evenkeel/Chart.yaml": "annotations:\n  artifacthub.io/images: |\n    - image: evenkeel.dev/agent:v9.8.7-rc.1\n      name: agent\n    - image: evenkeel.dev/controller:v9.8.7-rc.1\n      name: controller\n" +
			"  artifacthub.io/prerelease: \"true\"\napiVersion: v2\nappVersion: v9.8.7-rc.1\nname: evenkeel\nversion: 9.8.7-rc.1\n",
		"evenkeel/templates/x.yaml": "# {{ .Chart.AppVersion }}\n",
	}
	assert.NoDiff(t, cmp.Diff(want, got))
}

func TestTheChartDescribesItselfToArtifactHub(t *testing.T) {
	all := files(t, made)
	chart, _ := unpacked(t, all["evenkeel-9.8.7-rc.1.tgz"])
	var about struct {
		Keywords    []string
		Maintainers []struct{ Name, Email string }
		Annotations map[string]string
	}
	assert.NoError(t, yaml.Unmarshal([]byte(chart["evenkeel/Chart.yaml"]), &about))
	assert.That(t, len(about.Keywords) != 0 && len(about.Maintainers) == 1 && strings.HasPrefix(chart["evenkeel/README.md"], "# evenkeel\n"),
		"the chart has the keywords %q, the maintainers %v, and the text %.20q", about.Keywords, about.Maintainers, chart["evenkeel/README.md"])
	for name, want := range map[string]string{"category": "integration-delivery", "license": "Apache-2.0", "prerelease": "true"} {
		assert.Equal(t, about.Annotations["artifacthub.io/"+name], want, name)
	}

	type crd struct{ Kind, Version, Name, DisplayName, Description string }
	var crds []crd
	assert.NoError(t, yaml.UnmarshalStrict([]byte(about.Annotations["artifacthub.io/crds"]), &crds))
	listed := map[string]string{}
	for _, c := range crds {
		assert.That(t, c.DisplayName != "" && c.Description != "", "%+v does not describe itself", c)
		listed[c.Name] = c.Kind + " " + c.Version
	}

	manifests := assert.Value(filepath.Glob(root + "/config/api/crd/*.yaml"))(t)
	want := map[string]string{}
	for _, manifest := range manifests {
		text := assert.Value(os.ReadFile(manifest))(t)
		var c struct {
			Metadata struct{ Name string }
			Spec     struct {
				Names    struct{ Kind string }
				Versions []struct{ Name string }
			}
		}
		assert.NoError(t, yaml.Unmarshal(text, &c))
		want[c.Metadata.Name] = c.Spec.Names.Kind + " " + c.Spec.Versions[0].Name
	}

	assert.NoDiff(t, cmp.Diff(want, listed), "CRDs")
	var repository struct {
		Owners []struct{ Name, Email string }
	}
	assert.NoError(t, yaml.UnmarshalStrict([]byte(all["artifacthub-repo.yml"]), &repository))
	assert.That(t, len(repository.Owners) == 1 && strings.Contains(repository.Owners[0].Email, "@"),
		"artifacthub-repo.yml has %+v", repository)
}

func TestTheSchemaOfTheChartHasEveryValue(t *testing.T) {
	chart, _ := unpacked(t, files(t, made)["evenkeel-9.8.7-rc.1.tgz"])
	var schema, values map[string]any
	assert.NoError(t, json.Unmarshal([]byte(chart["evenkeel/values.schema.json"]), &schema))
	assert.NoError(t, yaml.Unmarshal([]byte(chart["evenkeel/values.yaml"]), &values))
	properties := schema["properties"].(map[string]any)
	_, ok := properties["global"]
	assert.That(t, ok, "a chart that contains this one cannot give it global values")
	delete(properties, "global") // is the parent's
	compareSchema(t, "values", schema, values)
}

// compareSchema compares an object of the schema with the values.
func compareSchema(t *testing.T, path string, schema, values map[string]any) {
	t.Helper()
	assert.That(t, schema["additionalProperties"] == false, "%s accepts unknown values", path)
	properties := schema["properties"].(map[string]any)
	for name := range values {
		_, ok := properties[name]
		assert.That(t, ok, "the schema has no %s.%s", path, name)
	}

	for name, property := range properties {
		path, property := path+"."+name, property.(map[string]any)
		value, ok := values[name]
		if !ok || property["type"] == nil || property["description"] == nil {
			t.Errorf("%s is in values.yaml: %t; its schema is %v", path, ok, property)
			continue
		}

		if standard, ok := property["default"]; ok {
			assert.NoDiff(t, cmp.Diff(value, standard), "the default of", path)
			continue
		}

		compareSchema(t, path, property, value.(map[string]any))
	}
}

func TestThePluginComesAsArchiveWithAKrewManifest(t *testing.T) {
	all := files(t, made)
	name := "kubectl-evenkeel-" + version + "-linux-" + goarch
	got, modes := unpacked(t, all[name+".tar.gz"])
	license := assert.Value(os.ReadFile(root + "/LICENSE"))(t)
	assert.That(t, bytes.Equal([]byte(got["kubectl-evenkeel"]), []byte(all[name])) && got["LICENSE"] == string(license) &&
		strings.HasPrefix(got["kubectl_complete-evenkeel"], "#!/bin/sh\n"), "the archive has %d files, of which one differs", len(got))

	assert.NoDiff(t, cmp.Diff(map[string]int64{"kubectl-evenkeel": 0o755, "kubectl_complete-evenkeel": 0o755, "LICENSE": 0o644}, modes))
	checkKrew(t, all, "https://github.com/evenkeel/evenkeel/releases/download/"+version, map[string]string{"linux/" + goarch: name + ".tar.gz kubectl-evenkeel"})
}

// checkKrew compares the Krew manifest of a release with the archives that it
// must name: by platform, the file and the program in it.
func checkKrew(t *testing.T, all map[string]string, downloads string, want map[string]string) {
	t.Helper()
	var manifest struct {
		APIVersion, Kind string
		Metadata         struct{ Name string }
		Spec             struct {
			Version, Homepage, ShortDescription, Description, Caveats string
			Platforms                                                 []struct {
				Selector         struct{ MatchLabels struct{ OS, Arch string } }
				URI, SHA256, Bin string
			}
		}
	}
	assert.NoError(t, yaml.UnmarshalStrict([]byte(all["evenkeel.yaml"]), &manifest))
	spec := manifest.Spec
	if manifest.APIVersion != "krew.googlecontainertools.github.com/v1alpha2" || manifest.Kind != "Plugin" || manifest.Metadata.Name != "evenkeel" ||
		spec.Version != version || spec.Homepage == "" || spec.ShortDescription == "" || len(spec.ShortDescription) > 50 || spec.Description == "" || !strings.Contains(spec.Caveats, downloads+"/install.yaml") {
		t.Errorf("the manifest is %+v", manifest)
	}

	got := map[string]string{}
	for _, p := range spec.Platforms {
		file, ok := strings.CutPrefix(p.URI, downloads+"/")
		assert.That(t, ok && p.SHA256 == digest(all[file]), "%s has the digest %s, want that of %s below %s", p.URI, p.SHA256, file, downloads)
		got[p.Selector.MatchLabels.OS+"/"+p.Selector.MatchLabels.Arch] = file + " " + p.Bin
	}

	assert.NoDiff(t, cmp.Diff(want, got))
}

func TestThePluginForWindowsIsAnExe(t *testing.T) {
	out, said, err := remake(t, `mkdir programs/windows_amd64; cp -L programs/linux_*/kubectl-evenkeel programs/windows_amd64/kubectl-evenkeel.exe`)
	assert.Must(t, err == nil, "%v: %s", err, said)
	all, archive := files(t, out), "kubectl-evenkeel-"+version+"-windows-amd64.tar.gz"
	_, modes := unpacked(t, all[archive])
	assert.NoDiff(t, cmp.Diff(map[string]int64{"kubectl-evenkeel.exe": 0o755, "LICENSE": 0o644}, modes))
	checkKrew(t, all, "https://example.com/"+version, map[string]string{
		"linux/" + goarch: "kubectl-evenkeel-" + version + "-linux-" + goarch + ".tar.gz kubectl-evenkeel", "windows/amd64": archive + " kubectl-evenkeel.exe",
	})
}
