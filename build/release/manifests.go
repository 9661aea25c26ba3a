package main

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"sigs.k8s.io/kustomize/api/filters/imagetag"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// ownImages are the images that get the release's version.
var ownImages = []string{"agent", "controller"}

// renderManifests writes one file for each kustomization below config, for users without kustomize, with the images of this release.
func (r *release) renderManifests() error {
	dirs, err := kustomizations("config")
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		all, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
		if err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
		for _, name := range ownImages {
			image := types.Image{Name: "evenkeel.dev/" + name, NewName: r.registry + "/" + name, NewTag: r.version}
			if err := all.ApplyFilter(imagetag.LegacyFilter{ImageTag: image}); err != nil {
				return fmt.Errorf("%s: %w", dir, err)
			}
		}
		rendered, err := all.AsYaml()
		if err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
		head := fmt.Sprintf("# evenkeel %s, %s: kubectl apply --server-side -f THIS\n", r.version, dir)
		name := strings.ReplaceAll(strings.TrimPrefix(dir, "config/"), "/", "-")
		if err := r.write(fmt.Sprintf("evenkeel-%s-%s.yaml", name, r.version), append([]byte(head), rendered...), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// kustomizations returns the directories below dir that have a kustomization, without the examples.
func kustomizations(dir string) (dirs []string, err error) {
	err = filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.Name() == "examples":
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
