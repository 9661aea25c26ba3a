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
)

// writeImages writes an archive for `ctr images import`: one image of one static program, which has both names.
func (n *Node) writeImages(ctx context.Context) (string, error) {
	program, err := n.cluster.buildHelper(ctx, "sleep")
	if err != nil {
		return "", err
	}
	binary, err := os.ReadFile(program)
	if err != nil {
		return "", err
	}
	archive, err := imageArchive(binary, PauseImage, SleepImage)
	if err != nil {
		return "", fmt.Errorf("make images: %w", err)
	}
	path := filepath.Join(n.dir, "images.tar")
	return path, os.WriteFile(path, archive, 0o644)
}

// imageArchive is an image in the format of `docker save`, whose entrypoint is the program.
func imageArchive(program []byte, names ...string) ([]byte, error) {
	layer, err := tarball(entry{"sleep", 0o755, program})
	if err != nil {
		return nil, err
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"config":       map[string]any{"Entrypoint": []string{"/sleep"}},
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
