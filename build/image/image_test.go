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
	"maps"
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

// blob returns what a descriptor names.
func blob(t *testing.T, files map[string][]byte, d descriptor) []byte {
	t.Helper()
	data := files["blobs/"+strings.Replace(d.Digest, ":", "/", 1)]
	assert.Must(t, len(data) == d.Size && digest(data) == d.Digest,
		"%s has %d bytes with %s, want %d", d.Digest, len(data), digest(data), d.Size)
	return data
}

// packed is what the JSON in an image says: an index, a manifest or a config.
type packed struct {
	Manifests        []descriptor
	Config           json.RawMessage // a descriptor in a manifest, how the image runs in a config
	Layers           []descriptor
	OS, Architecture string
	Rootfs           struct {
		DiffIDs []string `json:"diff_ids"`
	}
}

func decode[T any](t *testing.T, text []byte) (out T) {
	t.Helper()
	assert.NoError(t, json.Unmarshal(text, &out))
	return out
}

func TestAnImageIsAnOCILayoutWithALayerForTheBaseAndEachProgram(t *testing.T) {
	base := filepath.Join(t.TempDir(), "base.tar")
	lowest := assert.Value(tarball(entry{"usr/sbin/iptables", 0o755, []byte("needs libraries")}))(t)
	assert.NoError(t, os.WriteFile(base, lowest, 0o644))
	one, two := program(t, elf.EM_AARCH64, "one"), program(t, elf.EM_AARCH64, "two")
	archive, architectures, err := Image{
		References: []string{"evenkeel.dev/x:1", "evenkeel.dev/y:1"},
		Programs:   []Program{{"/one", one}, {"/usr/bin/two", two}},
		Base:       base,
		User:       "65532:65532",
		Labels:     map[string]string{"a": "b"},
	}.Archive()
	assert.Must(t, err == nil && slices.Equal(architectures, []string{"arm64"}), "got %s, %v", architectures, err)
	files, names := unpack(t, archive)
	assert.That(t, slices.IsSorted(names) && string(files["oci-layout"]) == `{"imageLayoutVersion":"1.0.0"}`,
		"the archive has %q, and says %s", names, files["oci-layout"])
	images := decode[packed](t, files["index.json"]).Manifests
	var called []string
	for _, m := range images {
		assert.That(t, m.Annotations[annotationRef] == m.Annotations[annotationName] && m.Platform["architecture"] == "arm64" &&
			m.MediaType == typeManifest, "an image is %+v", m)

		called = append(called, m.Annotations[annotationName])
	}

	assert.NoDiff(t, cmp.Diff([]string{"evenkeel.dev/x:1", "evenkeel.dev/y:1"}, called))
	manifest := decode[packed](t, blob(t, files, images[0]))
	config := decode[packed](t, blob(t, files, decode[descriptor](t, manifest.Config)))
	assert.That(t, config.OS == "linux" && config.Architecture == "arm64", "it is for %s, %s", config.OS, config.Architecture)
	runs := map[string]any{
		"Entrypoint": []any{"/one"}, "Env": []any{searchPath}, "User": "65532:65532", "Labels": map[string]any{"a": "b"},
	}
	assert.NoDiff(t, cmp.Diff(runs, decode[map[string]any](t, config.Config)))
	assert.Must(t, len(manifest.Layers) == 3 && len(config.Rootfs.DiffIDs) == 3, "the layers are %+v", manifest.Layers)
	assert.Equal(t, config.Rootfs.DiffIDs[0], digest(lowest), "the base, with its modes")
	for i, layer := range manifest.Layers {
		unzipped := assert.Value(io.ReadAll(assert.Value(gzip.NewReader(bytes.NewReader(blob(t, files, layer))))(t)))(t)
		assert.Equal(t, digest(unzipped), config.Rootfs.DiffIDs[i], "layer", i)
		inside, _ := unpack(t, unzipped)
		want := map[string][]byte{"usr/sbin/iptables": []byte("needs libraries")}
		if i > 0 {
			name, file := []string{"one", "usr/bin/two"}[i-1], []string{one, two}[i-1]
			want = map[string][]byte{name: assert.Value(os.ReadFile(file))(t)}
		}

		assert.That(t, cmp.Equal(inside, want), "layer %d has %q", i, slices.Collect(maps.Keys(inside)))
	}
}

func TestProgramsOfTwoArchitecturesMakeAMultiPlatformImage(t *testing.T) {
	i := Image{References: []string{"evenkeel.dev/x:1"}, Programs: []Program{
		{"/one", program(t, elf.EM_X86_64, "one")}, {"/two", program(t, elf.EM_X86_64, "two")},
		{"/one", program(t, elf.EM_AARCH64, "one")}, {"/two", program(t, elf.EM_AARCH64, "two")},
	}}
	archive, architectures, err := i.Archive()
	assert.Must(t, err == nil && slices.Equal(architectures, []string{"amd64", "arm64"}), "got %s, %v", architectures, err)
	files, _ := unpack(t, archive)
	images := decode[packed](t, files["index.json"]).Manifests
	assert.Must(t, len(images) == 1 && images[0].MediaType == typeIndex && images[0].Platform == nil &&
		images[0].Annotations[annotationName] == "evenkeel.dev/x:1", "the images are %+v", images)
	var seen []string
	for _, m := range decode[packed](t, blob(t, files, images[0])).Manifests {
		assert.That(t, m.MediaType == typeManifest && m.Platform["os"] == "linux" && m.Annotations == nil, "one of its platforms is %+v", m)
		manifest := decode[packed](t, blob(t, files, m))
		config := decode[packed](t, blob(t, files, decode[descriptor](t, manifest.Config)))
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
		assert.Must(t, first == nil || bytes.Equal(first, archive), "they differ")
		first = archive
	}
}

func TestProgramsThatWouldNotRunInAnImageAreRejected(t *testing.T) {
	script := filepath.Join(t.TempDir(), "script")
	assert.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\n"), 0o755))
	amd64, arm64 := program(t, elf.EM_X86_64, ""), program(t, elf.EM_AARCH64, "")
	dynamic := program(t, elf.EM_X86_64, "", elf.Prog64{Type: uint32(elf.PT_INTERP)})
	odd := program(t, elf.EM_RISCV, "")
	x := func(files ...string) (all []Program) {
		for _, file := range files {
			all = append(all, Program{"/x", file})
		}

		return all
	}
	for want, i := range map[string]Image{
		"an image needs a name and a program":                {},
		"open /none/such: no such file or directory":         {Programs: x("/none/such")},
		"open /none/base: no such file or directory":         {Programs: x(amd64), Base: "/none/base"},
		script + " is not a program: ":                       {Programs: x(script)},
		odd + " is for the unsupported machine EM_RISCV":     {Programs: x(odd)},
		"two programs for amd64 have the path /x":            {Programs: x(amd64, amd64)},
		"the programs differ: amd64 has /x /y, arm64 has /x": {Programs: append(x(amd64, arm64), Program{"/y", amd64})},
		dynamic + " needs a dynamic linker, which the image does not have: build it with CGO_ENABLED=0": {
			Programs: x(amd64, dynamic),
		},
	} {
		i.References = []string{"evenkeel.dev/x:1"}
		_, _, err := i.Archive()
		assert.That(t, err != nil && strings.HasPrefix(err.Error(), want), "got %v, want %s", err, want)
	}
}
