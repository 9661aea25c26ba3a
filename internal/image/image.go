// Package image makes container images of static programs from nothing, without a container engine: archives of the OCI
// image layout, which containerd imports and registries take. It must not know what the programs do.
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
	"os"
	"slices"
	"strings"
)

// Image is what goes into an archive. The same programs make the same bytes: nothing in it has a time.
type Image struct {
	// References are its names, with registry and tag: evenkeel.dev/kubelet:v1.36.3.
	References []string
	// Programs are all that is in it, a layer each: what did not change is not pulled again. The first is its entrypoint.
	Programs []Program
	Labels   map[string]string
}

// Program is a static program, of this machine's file File.
type Program struct{ Path, File string }

// What the OCI image specification calls the parts of an image.
const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"

	// annotationName is where containerd looks for the whole name, annotationRef where the specification puts it.
	annotationName = "io.containerd.image.name"
	annotationRef  = "org.opencontainers.image.ref.name"
)

// searchPath is that of every process in the image, also of those that it starts elsewhere.
const searchPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// descriptor is how one part of an image names another.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Platform    map[string]string `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Archive returns the image as an archive, and the architecture of its programs. The error names the program that cannot
// be read, is not static, or is of another architecture than those before it.
func (i Image) Archive() (archive []byte, architecture string, err error) {
	if len(i.Programs) == 0 || len(i.References) == 0 {
		return nil, "", errors.New("an image needs a name and a program")
	}
	var blobs blobs
	var layers []descriptor
	var unpacked []string
	for _, p := range i.Programs {
		program, err := os.ReadFile(p.File)
		if err != nil {
			return nil, "", err
		}
		is, err := architectureOf(program)
		if err != nil {
			return nil, "", fmt.Errorf("%s %w", p.File, err)
		}
		if architecture = cmp.Or(architecture, is); is != architecture {
			return nil, "", fmt.Errorf("%s is for %s, %s for %s", p.File, is, i.Programs[0].File, architecture)
		}
		layer, err := tarball(entry{strings.TrimPrefix(p.Path, "/"), 0o755, program})
		if err != nil {
			return nil, "", err
		}
		packed, err := compress(layer)
		if err != nil {
			return nil, "", err
		}
		layers = append(layers, blobs.add(typeLayer, packed))
		unpacked = append(unpacked, digest(layer))
	}
	platform := map[string]string{"os": "linux", "architecture": architecture}
	config, err := blobs.addJSON(typeConfig, map[string]any{
		"os":           "linux",
		"architecture": architecture,
		"config":       map[string]any{"Entrypoint": []string{i.Programs[0].Path}, "Env": []string{searchPath}, "Labels": i.Labels},
		"rootfs":       map[string]any{"type": "layers", "diff_ids": unpacked},
	})
	if err != nil {
		return nil, "", err
	}
	manifest, err := blobs.addJSON(typeManifest, map[string]any{
		"schemaVersion": 2, "mediaType": typeManifest, "config": config, "layers": layers,
	})
	if err != nil {
		return nil, "", err
	}
	manifest.Platform = platform
	var named []descriptor
	for _, name := range i.References {
		manifest.Annotations = map[string]string{annotationName: name, annotationRef: name}
		named = append(named, manifest)
	}
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": typeIndex, "manifests": named})
	if err != nil {
		return nil, "", err
	}
	entries := append(blobs,
		entry{"index.json", 0o644, index},
		entry{"oci-layout", 0o644, []byte(`{"imageLayoutVersion":"1.0.0"}`)})
	archive, err = tarball(entries...)
	return archive, architecture, err
}

// architectureOf is what a program runs on, as images call it. The error says why it would not run in an image that has
// nothing else.
func architectureOf(program []byte) (string, error) {
	f, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		return "", fmt.Errorf("is no program: %w", err)
	}
	if slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		return "", errors.New("needs a dynamic linker, which the image has not: build it with CGO_ENABLED=0")
	}
	switch f.Machine {
	case elf.EM_X86_64:
		return "amd64", nil
	case elf.EM_AARCH64:
		return "arm64", nil
	}
	return "", fmt.Errorf("is for %s, of which no node is known", f.Machine)
}

// blobs are the parts that are named by their digest, sorted, each once.
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

func (b *blobs) addJSON(mediaType string, content any) (descriptor, error) {
	data, err := json.Marshal(content)
	return b.add(mediaType, data), err
}

func digest(data []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(data)) }

func compress(data []byte) ([]byte, error) {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	err := w.Close()
	return out.Bytes(), err
}

type entry struct {
	name string
	mode int64
	data []byte
}

// tarball is an archive of files that are root's and without a time.
func tarball(entries ...entry) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		if err := w.WriteHeader(&tar.Header{Name: e.name, Mode: e.mode, Size: int64(len(e.data))}); err != nil {
			return nil, err
		}
		if _, err := w.Write(e.data); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}
