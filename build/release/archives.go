// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
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
func (r *release) archive(files []file) []byte {
	var out bytes.Buffer
	packed := gzip.NewWriter(&out)
	archive := tar.NewWriter(packed)
	for _, f := range files {
		ok(archive.WriteHeader(&tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.data)), ModTime: r.time}))
		get(archive.Write(f.data))
	}

	ok(archive.Close())
	ok(packed.Close())

	return out.Bytes()
}

// packPlugin writes an archive of the kubectl plugin for each platform, and the
// Krew manifest that names all of them.
func (r *release) packPlugin() {
	license := get(os.ReadFile("LICENSE"))
	completer := get(os.ReadFile("packaging/kubectl-evenkeel/kubectl_complete-evenkeel"))
	var entries []map[string]any
	for _, p := range r.platforms() {
		name, rest := "kubectl-evenkeel", []file{{"LICENSE", 0o644, license}, {"kubectl_complete-evenkeel", 0o755, completer}}
		if p.os == "windows" {
			name, rest = name+".exe", rest[:1] // the other one is a shell script
		}

		program := get(os.ReadFile(filepath.Join(r.programs, p.String(), name)))
		packed := r.archive(append([]file{{name, 0o755, program}}, rest...))
		archive := fmt.Sprintf("kubectl-evenkeel-%s-%s-%s.tar.gz", r.version, p.os, p.arch)
		r.write(archive, packed, 0o644)
		entries = append(entries, map[string]any{
			"selector": map[string]any{"matchLabels": map[string]string{"os": p.os, "arch": p.arch}},
			"uri":      r.downloads + "/" + archive,
			"sha256":   fmt.Sprintf("%x", sha256.Sum256(packed)),
			"bin":      name,
		})
	}

	r.write("evenkeel.yaml", get(yaml.Marshal(map[string]any{
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
	})), 0o644)
}
