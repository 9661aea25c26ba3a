// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// file is a file in an archive.
type file struct {
	name string
	mode int64
	data []byte
}

// archive returns a compressed tar archive whose files have the commit's time
// and no owner.
func (r *release) archive(files []file) ([]byte, error) {
	var out bytes.Buffer
	packed := gzip.NewWriter(&out)
	archive := tar.NewWriter(packed)
	for _, f := range files {
		if err := archive.WriteHeader(&tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.data)), ModTime: r.time}); err != nil {
			return nil, err
		}
		if _, err := archive.Write(f.data); err != nil {
			return nil, err
		}
	}

	err := errors.Join(archive.Close(), packed.Close())

	return out.Bytes(), err
}

// krewPlatform is an entry of spec.platforms in a Krew manifest.
type krewPlatform struct {
	Selector struct {
		MatchLabels map[string]string `json:"matchLabels"`
	} `json:"selector"`
	URI    string `json:"uri"`
	SHA256 string `json:"sha256"`
	Bin    string `json:"bin"`
}

// packPlugin writes an archive of the kubectl plugin for each platform, and the
// Krew manifest that names all of them.
func (r *release) packPlugin() error {
	platforms, err := r.platforms()
	if err != nil {
		return err
	}

	license, err := os.ReadFile("LICENSE")
	if err != nil {
		return err
	}

	completer, err := os.ReadFile("packaging/kubectl-evenkeel/kubectl_complete-evenkeel")
	if err != nil {
		return err
	}

	var entries []krewPlatform
	for _, p := range platforms {
		name, rest := "kubectl-evenkeel", []file{{"LICENSE", 0o644, license}, {"kubectl_complete-evenkeel", 0o755, completer}}
		if p.os == "windows" {
			name, rest = name+".exe", rest[:1] // the other one is a shell script
		}

		program, err := os.ReadFile(filepath.Join(r.programs, p.String(), name))
		if err != nil {
			return err
		}

		packed, err := r.archive(append([]file{{name, 0o755, program}}, rest...))
		if err != nil {
			return err
		}

		archive := fmt.Sprintf("kubectl-evenkeel-%s-%s-%s.tar.gz", r.version, p.os, p.arch)
		if err := r.write(archive, packed, 0o644); err != nil {
			return err
		}

		entry := krewPlatform{URI: r.downloads + "/" + archive, SHA256: fmt.Sprintf("%x", sha256.Sum256(packed)), Bin: name}
		entry.Selector.MatchLabels = map[string]string{"os": p.os, "arch": p.arch}
		entries = append(entries, entry)
	}

	manifest, err := yaml.Marshal(map[string]any{
		"apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
		"kind":       "Plugin",
		"metadata":   map[string]any{"name": "evenkeel"},
		"spec": map[string]any{
			"version":          r.version,
			"homepage":         repository,
			"shortDescription": "Roll out kubelet configuration step by step",
			"description": "Rolls out kubelet configuration step by step, shows which configuration every node\n" +
				"runs and why, and manages the component configurations of kubeadm.\n",
			"caveats":   "The cluster needs evenkeel: kubectl apply -f " + r.downloads + "/install.yaml\n",
			"platforms": entries,
		},
	})
	if err != nil {
		return err
	}

	return r.write("evenkeel.yaml", manifest, 0o644)
}
