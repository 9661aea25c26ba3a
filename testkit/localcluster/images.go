// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package localcluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/evenkeel/evenkeel/build/image"
	"github.com/evenkeel/evenkeel/testkit/must"
)

// ImportImage makes an image with one static program of this machine, and
// imports it into the node's containerd, where the kubelet finds it.
func (n *Node) ImportImage(ctx context.Context, reference, pathInImage, program string) error {
	i := image.Image{References: []string{reference}, Programs: []image.Program{{Path: pathInImage, File: program}}}
	if err := n.importImage(ctx, i); err != nil {
		return fmt.Errorf("import image %s: %w", reference, err)
	}

	return nil
}

func (n *Node) importImage(ctx context.Context, i image.Image) (err error) {
	defer must.Catch(&err)

	archive, _ := must.Get2(i.Archive())
	file := filepath.Join(n.dir, "image.tar")
	defer os.Remove(file)
	must.OK(os.WriteFile(file, archive, 0o644))

	return n.ImportArchive(ctx, file)
}

// ImportArchive imports an archive of images, such as `make image` writes, into
// the node's containerd.
func (n *Node) ImportArchive(ctx context.Context, file string) error {
	return n.ctr(ctx, "images", "import", "--snapshotter=overlayfs", file)
}
