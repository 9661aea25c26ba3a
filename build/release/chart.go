// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// chartDir is the chart's directory in the source, and artifactHub the
// description of its repository for Artifact Hub.
const (
	chartDir    = "charts/evenkeel"
	artifactHub = "charts/artifacthub-repo.yml"
)

// packChart makes the chart's archive as `helm package` does, but with the
// commit's time.
func (r *release) packChart() {
	source := os.DirFS(chartDir)
	if _, err := fs.Stat(source, "Chart.yaml"); errors.Is(err, fs.ErrNotExist) {
		return // no chart
	}

	var files []file
	ok(fs.WalkDir(source, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || name == ".helmignore" {
			return err
		}
		if !entry.Type().IsRegular() {
			return fmt.Errorf("%s is not a regular file", path.Join(chartDir, name))
		}

		data := get(fs.ReadFile(source, name))
		if name == "Chart.yaml" {
			data = r.versioned(data)
		}

		files = append(files, file{path.Join(path.Base(chartDir), name), 0o644, data})

		return nil
	}))
	r.write(fmt.Sprintf("evenkeel-%s.tgz", trimV(r.version)), r.archive(files), 0o644)
	r.write(path.Base(artifactHub), get(os.ReadFile(artifactHub)), 0o644)
}

// versioned returns a Chart.yaml with the version of this release, and with the
// annotations of Artifact Hub that depend on it.
func (r *release) versioned(chart []byte) []byte {
	fields := map[string]any{}
	about("Chart.yaml", func() { ok(yaml.Unmarshal(chart, &fields)) })
	fields["version"], fields["appVersion"] = trimV(r.version), r.version
	annotations, is := fields["annotations"].(map[string]any)
	if !is {
		annotations = map[string]any{}
	}

	var images []map[string]string
	for _, name := range ownImages {
		images = append(images, map[string]string{"name": name, "image": r.registry + "/" + name + ":" + r.version})
	}

	annotations["artifacthub.io/images"] = string(get(yaml.Marshal(images)))
	annotations["artifacthub.io/prerelease"] = strconv.FormatBool(strings.Contains(r.version, "-"))
	fields["annotations"] = annotations

	return get(yaml.Marshal(fields))
}

// sum writes the digests of all files of the release, in the format of
// sha256sum.
func (r *release) sum() {
	var lines strings.Builder
	r.each(func(name string, digest []byte) { fmt.Fprintf(&lines, "%x  %s\n", digest, name) })
	r.write("SHA256SUMS", []byte(lines.String()), 0o644)
}
