// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package image builds container images of static programs without a container
// engine: archives of the OCI image layout, which containerd imports and
// registries accept.
//
// The package must not know what the programs do.
package image

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/evenkeel/evenkeel/testkit/must"
)

// Image describes an image. The same programs give the same bytes, because
// nothing in the archive has a time.
type Image struct {
	// References are the image's names, with registry and tag:
	// evenkeel.dev/kubelet:v1.36.3.
	References []string
	// Programs are the only files of the image. Each is a layer, so unchanged
	// programs are not pulled again. The first one is the entrypoint. Programs
	// of several architectures make a multi-platform image; all have the same
	// paths in the same order.
	Programs []Program
	// Base is a tar archive whose files the image has too, for programs that
	// run others; empty: none.
	Base string
	// User runs the programs, as UID:GID; empty means root.
	User   string
	Labels map[string]string
}

// Program is a static program, read from File.
type Program struct{ Path, File string }

// Names of the OCI image specification.
const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"

	// annotationName has the full name for containerd, annotationRef is the
	// specification's annotation.
	annotationName = "io.containerd.image.name"
	annotationRef  = "org.opencontainers.image.ref.name"
)

// searchPath is the PATH of every process in the image, also of those that it
// starts elsewhere.
const searchPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// descriptor is a reference from one part of an image to another.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Platform    map[string]string `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Archive returns the image as an archive, and the sorted architectures of its
// programs. It fails if a program cannot be read, is not static, or is missing
// for one of the architectures.
func (i Image) Archive() (archive []byte, architectures []string, err error) {
	defer must.Catch(&err)

	must.That(len(i.Programs) > 0 && len(i.References) > 0, "an image needs a name and a program")
	var base []byte
	if i.Base != "" {
		base = must.Get(os.ReadFile(i.Base))
	}

	variants := map[string]*variant{}
	var blobs blobs
	for _, p := range i.Programs {
		program := must.Get(os.ReadFile(p.File))
		architecture, err := architectureOf(program)
		must.That(err == nil, "%s %w", p.File, err)
		v := variants[architecture]
		if v == nil {
			v = &variant{}
			variants[architecture] = v
			if base != nil {
				v.add(&blobs, base)
			}
		}

		must.That(!slices.Contains(v.paths, p.Path), "two programs for %s have the path %s", architecture, p.Path)
		v.paths = append(v.paths, p.Path)
		v.add(&blobs, must.Get(tarball(entry{strings.TrimPrefix(p.Path, "/"), 0o755, program})))
	}

	architectures = slices.Sorted(maps.Keys(variants))
	first := variants[architectures[0]]
	var manifests []descriptor
	for _, architecture := range architectures {
		paths := variants[architecture].paths
		must.That(slices.Equal(paths, first.paths), "the programs differ: %s has %s, %s has %s",
			architectures[0], strings.Join(first.paths, " "), architecture, strings.Join(paths, " "))
		manifests = append(manifests, i.manifest(&blobs, architecture, variants[architecture]))
	}

	image := manifests[0]
	if len(manifests) > 1 {
		image = blobs.addJSON(typeIndex, index(manifests))
	}

	var named []descriptor
	for _, name := range i.References {
		image.Annotations = map[string]string{annotationName: name, annotationRef: name}
		named = append(named, image)
	}

	entries := append(blobs,
		entry{"index.json", 0o644, must.Get(json.Marshal(index(named)))},
		entry{"oci-layout", 0o644, []byte(`{"imageLayoutVersion":"1.0.0"}`)})

	return must.Get(tarball(entries...)), architectures, nil
}

// variant is the image for one architecture.
type variant struct {
	paths    []string
	layers   []descriptor
	unpacked []string // digests of the uncompressed layers
}

// add adds a layer: a tar archive.
func (v *variant) add(blobs *blobs, layer []byte) {
	v.layers = append(v.layers, blobs.add(typeLayer, must.Get(compress(layer))))
	v.unpacked = append(v.unpacked, digest(layer))
}

func (i Image) manifest(blobs *blobs, architecture string, v *variant) descriptor {
	runs := map[string]any{"Entrypoint": v.paths[:1], "Env": []string{searchPath}, "Labels": i.Labels}
	if i.User != "" {
		runs["User"] = i.User
	}

	config := blobs.addJSON(typeConfig, map[string]any{
		"os": "linux", "architecture": architecture, "config": runs,
		"rootfs": map[string]any{"type": "layers", "diff_ids": v.unpacked},
	})
	manifest := blobs.addJSON(typeManifest, map[string]any{
		"schemaVersion": 2, "mediaType": typeManifest, "config": config, "layers": v.layers,
	})
	manifest.Platform = map[string]string{"os": "linux", "architecture": architecture}

	return manifest
}

func index(manifests []descriptor) map[string]any {
	return map[string]any{"schemaVersion": 2, "mediaType": typeIndex, "manifests": manifests}
}

// architectureOf returns a program's architecture, in the terms of images. It
// fails if the program would not run in an image without other files.
func architectureOf(program []byte) (string, error) {
	f, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		return "", fmt.Errorf("is not a program: %w", err)
	}
	if slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		return "", errors.New("needs a dynamic linker, which the image does not have: build it with CGO_ENABLED=0")
	}

	switch f.Machine {
	case elf.EM_X86_64:
		return "amd64", nil
	case elf.EM_AARCH64:
		return "arm64", nil
	}

	return "", fmt.Errorf("is for the unsupported machine %s", f.Machine)
}

// blobs are the parts that are named by their digest, sorted and unique.
type blobs []entry

func (b *blobs) add(mediaType string, data []byte) descriptor {
	d := descriptor{MediaType: mediaType, Digest: digest(data), Size: len(data)}
	e := entry{"blobs/" + strings.Replace(d.Digest, ":", "/", 1), 0o644, data}
	at, found := slices.BinarySearchFunc(*b, e, func(a, b entry) int { return cmp.Compare(a.name, b.name) })
	if !found {
		*b = slices.Insert(*b, at, e)
	}

	return d
}

func (b *blobs) addJSON(mediaType string, content any) descriptor {
	return b.add(mediaType, must.Get(json.Marshal(content)))
}

func digest(data []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(data)) }

func compress(data []byte) ([]byte, error) {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write(data)

	err = errors.Join(err, w.Close())

	return out.Bytes(), err
}

type entry struct {
	name string
	mode int64
	data []byte
}

// tarball is an archive of files that belong to root and have no time.
func tarball(entries ...entry) (_ []byte, err error) {
	defer must.Catch(&err)

	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		must.OK(w.WriteHeader(&tar.Header{Name: e.name, Mode: e.mode, Size: int64(len(e.data))}))
		must.Get(w.Write(e.data))
	}

	must.OK(w.Close())

	return out.Bytes(), nil
}
