// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/kustomize/api/filters/imagetag"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// ownImages are the images of the release.
var ownImages = []string{"agent", "controller"}

// renderManifests writes one file for each kustomization below config, for
// users without kustomize, with the images of this release by digest. The whole
// installation is install.yaml.
func (r *release) renderManifests() error {
	dirs, err := kustomizations("config")
	if err != nil {
		return err
	}

	var images []types.Image
	for _, name := range ownImages {
		digest, err := r.imageDigest(name)
		if err != nil {
			return err
		}

		images = append(images, types.Image{Name: "evenkeel.dev/" + name, NewName: r.registry + "/" + name, NewTag: r.version, Digest: digest})
	}

	for _, dir := range dirs {
		all, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
		if err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}

		for _, image := range images {
			if err := all.ApplyFilter(imagetag.LegacyFilter{ImageTag: image}); err != nil {
				return fmt.Errorf("%s: %w", dir, err)
			}
		}

		rendered, err := all.AsYaml()
		if err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}

		name := fmt.Sprintf("evenkeel-%s-%s.yaml", strings.ReplaceAll(strings.TrimPrefix(dir, "config/"), "/", "-"), r.version)
		if dir == installation {
			name = "install.yaml"
		}

		head := fmt.Sprintf("# evenkeel %s, %s: kubectl apply -f %s\n", r.version, dir, name)
		if err := r.write(name, append([]byte(head), rendered...), 0o644); err != nil {
			return err
		}
	}

	return nil
}

// imageDigest returns the digest under which a registry serves an image of this
// release: of the index of all architectures, or of the manifest if there is
// only one.
func (r *release) imageDigest(name string) (string, error) {
	archives, err := filepath.Glob(filepath.Join(r.out, "evenkeel-"+name+"-"+r.version+"-*.tar"))
	if err != nil {
		return "", err
	}
	if len(archives) != 1 {
		return "", fmt.Errorf("there are %d archives of the image %s, want one", len(archives), name)
	}

	f, err := os.Open(archives[0])
	if err != nil {
		return "", err
	}

	defer f.Close()
	for archive := tar.NewReader(f); ; {
		header, err := archive.Next()
		if err != nil {
			return "", fmt.Errorf("find index.json in %s: %w", archives[0], err)
		}
		if header.Name != "index.json" {
			continue
		}

		var index struct {
			Manifests []struct{ Digest string }
		}
		if err := json.NewDecoder(archive).Decode(&index); err != nil {
			return "", fmt.Errorf("index.json in %s: %w", archives[0], err)
		}
		if len(index.Manifests) != 1 {
			return "", fmt.Errorf("index.json in %s has %d images, want one", archives[0], len(index.Manifests))
		}

		return index.Manifests[0].Digest, nil
	}
}

// installation is the kustomization of the whole installation; refused is the
// one that nobody can apply.
const installation, refused = "config/base", "config/default"

// kustomizations returns the directories below dir that have a kustomization,
// without the examples and the one that is refused.
func kustomizations(dir string) (dirs []string, err error) {
	err = filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.Name() == "examples" || name == refused:
			return fs.SkipDir
		case entry.Name() == "kustomization.yaml":
			dirs = append(dirs, filepath.Dir(name))
		}

		return nil
	})
	return dirs, err
}

// trimV is a version as packages and charts have it.
func trimV(version string) string { return strings.TrimPrefix(version, "v") }
