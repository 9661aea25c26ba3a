package localcluster

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// ImportImage makes an image of one static program of this machine, and gives it to the node's containerd, where the
// kubelet's images are. The error names the image.
func (n *Node) ImportImage(ctx context.Context, reference, pathInImage, program string) error {
	if err := n.importImage(ctx, pathInImage, program, reference); err != nil {
		return fmt.Errorf("import image %s: %w", reference, err)
	}
	return nil
}

// importImage imports an image that has all of the names.
func (n *Node) importImage(ctx context.Context, pathInImage, program string, names ...string) error {
	binary, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	archive, err := imageArchive(binary, pathInImage, names...)
	if err != nil {
		return err
	}
	file := filepath.Join(n.dir, filepath.Base(program)+".tar")
	defer os.Remove(file)
	if err := os.WriteFile(file, archive, 0o644); err != nil {
		return err
	}
	return n.ctr(ctx, "images", "import", "--snapshotter=overlayfs", file)
}

// imageArchive is an image in the format of `docker save`, whose entrypoint is the program.
func imageArchive(program []byte, path string, names ...string) ([]byte, error) {
	layer, err := tarball(entry{strings.TrimPrefix(path, "/"), 0o755, program})
	if err != nil {
		return nil, err
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"config":       map[string]any{"Entrypoint": []string{path}},
		"rootfs":       map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
	})
	if err != nil {
		return nil, err
	}
	manifest, err := json.Marshal([]map[string]any{{"Config": "config.json", "RepoTags": names, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return nil, err
	}
	return tarball(entry{"manifest.json", 0o644, manifest}, entry{"config.json", 0o644, config}, entry{"layer.tar", 0o644, layer})
}

type entry struct {
	name string
	mode int64
	data []byte
}

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
	return out.Bytes(), w.Close()
}
