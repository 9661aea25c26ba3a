// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"debug/elf"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// program writes the smallest file that is a program of this machine, and says
// something after its headers.
func program(t *testing.T, machine elf.Machine, says string, parts ...elf.Prog64) string {
	t.Helper()
	var out bytes.Buffer
	head := elf.Header64{
		Ident: [16]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT),
		Ehsize: 64, Phentsize: 56, Phnum: uint16(len(parts)), Phoff: 64, Shentsize: 64,
	}
	assert.NoError(t, errors.Join(binary.Write(&out, binary.LittleEndian, head), binary.Write(&out, binary.LittleEndian, parts)))
	out.WriteString(says)
	path := filepath.Join(t.TempDir(), "program")
	assert.NoError(t, os.WriteFile(path, out.Bytes(), 0o755))

	return path
}

// unpack returns what a tar archive holds, and the names in their order.
func unpack(t *testing.T, archive []byte) (files map[string][]byte, names []string) {
	t.Helper()
	files = map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files, names
		}

		assert.NoError(t, err)
		assert.That(t, h.ModTime.Equal(time.Unix(0, 0)) && h.Uid == 0 && h.Gid == 0 && h.Uname == "",
			"%s is of %v and of %d:%d %s", h.Name, h.ModTime, h.Uid, h.Gid, h.Uname)
		data := assert.Value(io.ReadAll(r))(t)
		files[h.Name] = data
		names = append(names, h.Name)
	}
}

func TestTheFilesOfABaseAreTheLowestLayer(t *testing.T) {
	base := filepath.Join(t.TempDir(), "base.tar")
	layer := assert.Value(tarball(entry{"usr/sbin/iptables", 0o755, []byte("needs libraries")}))(t)
	assert.NoError(t, os.WriteFile(base, layer, 0o644))
	i := Image{References: []string{"evenkeel.dev/x:1"}, Programs: []Program{{"/one", program(t, elf.EM_X86_64, "one")}}, Base: base}
	archive, _, err := i.Archive()
	assert.NoError(t, err)
	files, _ := unpack(t, archive)
	packed := assert.Value(compress(layer))(t)
	assert.That(t, bytes.Equal(files["blobs/"+strings.Replace(digest(packed), ":", "/", 1)], packed), "the archive has no such layer")
	var index struct{ Manifests []descriptor }
	assert.NoError(t, json.Unmarshal(files["index.json"], &index))
	var manifest struct{ Layers []descriptor }
	blob(t, files, index.Manifests[0], &manifest)
	assert.That(t, len(manifest.Layers) == 2 && manifest.Layers[0].Digest == digest(packed), "the layers are %+v", manifest.Layers)

	i.Base += "x"
	_, _, err = i.Archive()
	assert.That(t, errors.Is(err, os.ErrNotExist), "got %v", err)
}

func TestAnImageIsAnOCILayoutWithALayerForEachProgram(t *testing.T) {
	one, two := program(t, elf.EM_AARCH64, "one"), program(t, elf.EM_AARCH64, "two")
	archive, architectures, err := Image{
		References: []string{"evenkeel.dev/x:1", "evenkeel.dev/y:1"},
		Programs:   []Program{{"/one", one}, {"/usr/bin/two", two}},
		User:       "65532:65532",
		Labels:     map[string]string{"a": "b"},
	}.Archive()
	assert.Must(t, err == nil && slices.Equal(architectures, []string{"arm64"}), "got %s, %v", architectures, err)
	files, names := unpack(t, archive)
	assert.That(t, slices.IsSorted(names) && string(files["oci-layout"]) == `{"imageLayoutVersion":"1.0.0"}`,
		"the archive has %q, and says %s", names, files["oci-layout"])
	read := func(d descriptor, into any) []byte {
		t.Helper()
		return blob(t, files, d, into)
	}
	var index struct{ Manifests []descriptor }
	assert.NoError(t, json.Unmarshal(files["index.json"], &index))
	var called []string
	for _, m := range index.Manifests {
		assert.That(t, m.Annotations[annotationRef] == m.Annotations[annotationName] && m.Platform["architecture"] == "arm64" &&
			m.MediaType == typeManifest, "an image is %+v", m)

		called = append(called, m.Annotations[annotationName])
	}

	assert.NoDiff(t, cmp.Diff([]string{"evenkeel.dev/x:1", "evenkeel.dev/y:1"}, called))
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	read(index.Manifests[0], &manifest)
	var config struct {
		OS, Architecture string
		Config           struct {
			Entrypoint, Env []string
			User            string
			Labels          map[string]string
		}
		Rootfs struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	read(manifest.Config, &config)
	if config.OS != "linux" || config.Architecture != "arm64" || config.Config.Labels["a"] != "b" || config.Config.User != "65532:65532" ||
		!slices.Equal(config.Config.Entrypoint, []string{"/one"}) || !slices.Equal(config.Config.Env, []string{searchPath}) {
		t.Errorf("the config is %+v", config)
	}

	for i, want := range []struct{ path, file string }{{"one", one}, {"usr/bin/two", two}} {
		layer := assert.Value(gzip.NewReader(bytes.NewReader(read(manifest.Layers[i], nil))))(t)
		unzipped := assert.Value(io.ReadAll(layer))(t)
		assert.Equal(t, digest(unzipped), config.Rootfs.DiffIDs[i], "layer", i)
		inside, _ := unpack(t, unzipped)
		original, err := os.ReadFile(want.file)
		assert.That(t, err == nil && len(inside) == 1 && bytes.Equal(inside[want.path], original),
			"layer %d has not %s alone (%v)", i, want.path, err)
	}
}

// blob returns what a descriptor names, or decodes it.
func blob(t *testing.T, files map[string][]byte, d descriptor, into any) []byte {
	t.Helper()
	data := files["blobs/"+strings.Replace(d.Digest, ":", "/", 1)]
	assert.Must(t, len(data) == d.Size && digest(data) == d.Digest,
		"%s has %d bytes with %s, want %d", d.Digest, len(data), digest(data), d.Size)
	if into == nil {
		return data
	}

	assert.NoError(t, json.Unmarshal(data, into))

	return nil
}

func TestProgramsOfTwoArchitecturesMakeAMultiPlatformImage(t *testing.T) {
	i := Image{References: []string{"evenkeel.dev/x:1"}, Programs: []Program{
		{"/one", program(t, elf.EM_X86_64, "one")}, {"/two", program(t, elf.EM_X86_64, "two")},
		{"/one", program(t, elf.EM_AARCH64, "one")}, {"/two", program(t, elf.EM_AARCH64, "two")},
	}}
	archive, architectures, err := i.Archive()
	assert.Must(t, err == nil && slices.Equal(architectures, []string{"amd64", "arm64"}), "got %s, %v", architectures, err)
	files, _ := unpack(t, archive)
	var all, platforms struct{ Manifests []descriptor }
	if err := json.Unmarshal(files["index.json"], &all); err != nil || len(all.Manifests) != 1 {
		t.Fatalf("the archive has %s, %v", files["index.json"], err)
	}

	named := all.Manifests[0]
	assert.Must(t, named.MediaType == typeIndex && named.Platform == nil && named.Annotations[annotationName] == "evenkeel.dev/x:1",
		"the image is %+v", named)
	blob(t, files, named, &platforms)
	var seen []string
	for _, m := range platforms.Manifests {
		assert.That(t, m.MediaType == typeManifest && m.Platform["os"] == "linux" && m.Annotations == nil, "one of its platforms is %+v", m)
		var manifest struct {
			Config descriptor
			Layers []descriptor
		}
		blob(t, files, m, &manifest)
		var config struct{ Architecture string }
		blob(t, files, manifest.Config, &config)
		assert.That(t, config.Architecture == m.Platform["architecture"] && len(manifest.Layers) == 2,
			"what is called %s is for %s, and has %d layers", m.Platform["architecture"], config.Architecture, len(manifest.Layers))
		seen = append(seen, config.Architecture)
	}

	assert.That(t, slices.Equal(seen, architectures), "it is for %q, want %q", seen, architectures)
}

func TestTheSameProgramsGiveTheSameBytes(t *testing.T) {
	i := Image{References: []string{"evenkeel.dev/x:1"}, Labels: map[string]string{"a": "1", "b": "2", "c": "3"}}
	var first []byte
	for range 5 {
		// Written anew: a file's time is nothing that counts.
		i.Programs = []Program{{"/one", program(t, elf.EM_X86_64, "one")}, {"/same", program(t, elf.EM_X86_64, "one")}}
		archive, _, err := i.Archive()
		assert.NoError(t, err)
		if first == nil {
			first = archive
		}

		assert.Must(t, bytes.Equal(first, archive), "they differ")
	}
}

func TestProgramsThatWouldNotRunInAnImageAreRejected(t *testing.T) {
	script := filepath.Join(t.TempDir(), "script")
	assert.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\n"), 0o755))
	amd64, arm64 := program(t, elf.EM_X86_64, ""), program(t, elf.EM_AARCH64, "")
	dynamic := program(t, elf.EM_X86_64, "", elf.Prog64{Type: uint32(elf.PT_INTERP)})
	odd := program(t, elf.EM_RISCV, "")
	inTwo := []Program{{"/x", amd64}, {"/x", arm64}, {"/y", amd64}}
	if _, _, err := (Image{References: []string{"evenkeel.dev/x:1"}, Programs: inTwo}).Archive(); err == nil ||
		err.Error() != "the programs differ: amd64 has /x /y, arm64 has /x" {
		t.Errorf("with a program that one architecture lacks: %v", err)
	}

	for _, tt := range []struct {
		programs []string
		want     string
	}{
		{nil, "an image needs a name and a program"},
		{[]string{"/none/such"}, "open /none/such: no such file or directory"},
		{[]string{script}, script + " is not a program: "},
		{[]string{amd64, dynamic}, dynamic + " needs a dynamic linker, which the image does not have: build it with CGO_ENABLED=0"},
		{[]string{odd}, odd + " is for the unsupported machine EM_RISCV"},
		{[]string{amd64, amd64}, "two programs for amd64 have the path /x"},
	} {
		i := Image{References: []string{"evenkeel.dev/x:1"}}
		for _, p := range tt.programs {
			i.Programs = append(i.Programs, Program{"/x", p})
		}

		_, _, err := i.Archive()
		assert.That(t, err != nil && strings.HasPrefix(err.Error(), tt.want), "%q: got %v, want %s", tt.programs, err, tt.want)
	}
}
