package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"sigs.k8s.io/yaml"
)

// chartDir is the chart's directory in the source.
const chartDir = "charts/evenkeel"

// packChart makes the chart's archive as `helm package` does, but with the commit's time.
func (r *release) packChart() error {
	source := os.DirFS(chartDir)
	if _, err := fs.Stat(source, "Chart.yaml"); errors.Is(err, fs.ErrNotExist) {
		return nil // no chart
	}
	var out bytes.Buffer
	packed := gzip.NewWriter(&out)
	archive := tar.NewWriter(packed)
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
		header := &tar.Header{Name: path.Join(path.Base(chartDir), name), Mode: 0o644, Size: int64(len(data)), ModTime: r.time}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		_, err = archive.Write(data)
		return err
	})
	if err := errors.Join(err, archive.Close(), packed.Close()); err != nil {
		return err
	}
	return r.write(fmt.Sprintf("evenkeel-%s.tgz", trimV(r.version)), out.Bytes(), 0o644)
}

// versioned returns a Chart.yaml with the version of this release.
func (r *release) versioned(chart []byte) ([]byte, error) {
	fields := map[string]any{}
	if err := yaml.Unmarshal(chart, &fields); err != nil {
		return nil, fmt.Errorf("Chart.yaml: %w", err)
	}
	fields["version"], fields["appVersion"] = trimV(r.version), r.version
	return yaml.Marshal(fields)
}

// sum writes the digests of all files of the release, in the format of sha256sum.
func (r *release) sum() error {
	files, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var lines strings.Builder
	for _, file := range files {
		data, err := os.ReadFile(path.Join(r.out, file.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&lines, "%x  %s\n", sha256.Sum256(data), file.Name())
	}
	return r.write("SHA256SUMS", []byte(lines.String()), 0o644)
}
