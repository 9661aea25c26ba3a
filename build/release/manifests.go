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
func (r *release) renderManifests() {
	var images []types.Image
	for _, name := range ownImages {
		images = append(images, types.Image{
			Name: "evenkeel.dev/" + name, NewName: r.registry + "/" + name, NewTag: r.version, Digest: r.imageDigest(name),
		})
	}

	for _, dir := range get(kustomizations("config")) {
		name := fmt.Sprintf("evenkeel-%s-%s.yaml", strings.ReplaceAll(strings.TrimPrefix(dir, "config/"), "/", "-"), r.version)
		if dir == installation {
			name = "install.yaml"
		}

		var rendered []byte
		about(dir, func() { rendered = render(dir, images) })
		head := fmt.Sprintf("# evenkeel %s, %s: kubectl apply -f %s\n", r.version, dir, name)
		r.write(name, append([]byte(head), rendered...), 0o644)
	}
}

func render(dir string, images []types.Image) []byte {
	all := get(krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir))
	for _, image := range images {
		ok(all.ApplyFilter(imagetag.LegacyFilter{ImageTag: image}))
	}

	return get(all.AsYaml())
}

// imageDigest returns the digest under which a registry serves an image of this
// release: of the index of all architectures, or of the manifest if there is
// only one.
func (r *release) imageDigest(name string) string {
	archives := get(filepath.Glob(filepath.Join(r.out, "evenkeel-"+name+"-"+r.version+"-*.tar")))
	that(len(archives) == 1, "there are %d archives of the image %s, want one", len(archives), name)
	f := get(os.Open(archives[0]))
	defer f.Close()
	archive := tar.NewReader(f)
	for header := get(archive.Next()); header.Name != "index.json"; {
		header = get(archive.Next())
	}

	var index struct {
		Manifests []struct{ Digest string }
	}
	ok(json.NewDecoder(archive).Decode(&index))
	that(len(index.Manifests) == 1, "index.json in %s has %d images, want one", archives[0], len(index.Manifests))
	return index.Manifests[0].Digest
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
