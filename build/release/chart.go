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
func (r *release) packChart() error {
	source := os.DirFS(chartDir)
	if _, err := fs.Stat(source, "Chart.yaml"); errors.Is(err, fs.ErrNotExist) {
		return nil // no chart
	}

	var files []file
	err := fs.WalkDir(source, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || name == ".helmignore" {
			return err
		}
		if !entry.Type().IsRegular() {
			return fmt.Errorf("%s is not a regular file", path.Join(chartDir, name))
		}

		data, err := fs.ReadFile(source, name)
		if err == nil && name == "Chart.yaml" {
			data, err = r.versioned(data)
		}
		if err != nil {
			return err
		}

		files = append(files, file{path.Join(path.Base(chartDir), name), 0o644, data})

		return nil
	})
	if err != nil {
		return err
	}

	packed, err := r.archive(files)
	if err != nil {
		return err
	}
	if err := r.write(fmt.Sprintf("evenkeel-%s.tgz", trimV(r.version)), packed, 0o644); err != nil {
		return err
	}

	about, err := os.ReadFile(artifactHub)
	if err != nil {
		return err
	}

	return r.write(path.Base(artifactHub), about, 0o644)
}

// versioned returns a Chart.yaml with the version of this release, and with the
// annotations of Artifact Hub that depend on it.
func (r *release) versioned(chart []byte) ([]byte, error) {
	fields := map[string]any{}
	if err := yaml.Unmarshal(chart, &fields); err != nil {
		return nil, fmt.Errorf("Chart.yaml: %w", err)
	}

	fields["version"], fields["appVersion"] = trimV(r.version), r.version
	annotations, ok := fields["annotations"].(map[string]any)
	if !ok {
		annotations = map[string]any{}
	}

	var images []map[string]string
	for _, name := range ownImages {
		images = append(images, map[string]string{"name": name, "image": r.registry + "/" + name + ":" + r.version})
	}

	list, err := yaml.Marshal(images)
	if err != nil {
		return nil, err
	}

	annotations["artifacthub.io/images"] = string(list)
	annotations["artifacthub.io/prerelease"] = strconv.FormatBool(strings.Contains(r.version, "-"))
	fields["annotations"] = annotations

	return yaml.Marshal(fields)
}

// sum writes the digests of all files of the release, in the format of
// sha256sum.
func (r *release) sum() error {
	var lines strings.Builder
	err := r.each(func(name string, digest []byte) error {
		fmt.Fprintf(&lines, "%x  %s\n", digest, name)
		return nil
	})
	if err != nil {
		return err
	}

	return r.write("SHA256SUMS", []byte(lines.String()), 0o644)
}
