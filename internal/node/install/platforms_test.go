// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
	"github.com/evenkeel/evenkeel/testkit/machine"
)

// Each directory of testdata/platforms has the unit files of a platform in the
// shape that the platform writes: etc and lib are those of systemd, files is
// beside the kubelet. want is the drop-in's command line and the kubelet's, or
// the refusal.
func TestInstallOnTheUnitsOfPlatforms(t *testing.T) {
	platforms, err := filepath.Glob("testdata/platforms/*")
	if err != nil || len(platforms) == 0 {
		t.Fatal("no platforms: ", err)
	}

	for _, platform := range platforms {
		t.Run(filepath.Base(platform), func(t *testing.T) {
			n := bareNode(t)
			n.copyPlatform(platform)
			raw := assert.Value(os.ReadFile(filepath.Join(platform, "want")))(t)
			if words, refused := strings.CutPrefix(string(raw), "refused: "); refused {
				n.systemctl("daemon-reload")
				n.refused(strings.TrimSpace(words))
				return
			}

			line, kubelet, _ := strings.Cut(strings.TrimSpace(n.filled(string(raw))), "\n")
			n.start()
			assert.Equal(t, n.command(), strings.ReplaceAll(n.dir+"/"+kubelet, " ", "|"))
			dropIn := n.keeps("--dynamic-config-dir=/var/lib/evenkeel")
			assert.That(t, strings.Contains(dropIn, "\n"+line+"\n"), "the drop-in lacks %s:\n%s", line, dropIn)
		})
	}
}

// copyPlatform writes the files of a platform, whose unit gets the name of this
// node's.
func (n *node) copyPlatform(platform string) {
	n.t.Helper()
	roots := map[string]string{"etc": n.m.Path(machine.Etc), "lib": n.m.Path(machine.Lib), "files": n.dir}
	for part, root := range roots {
		dir := filepath.Join(platform, part)
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if os.IsNotExist(err) && path == dir {
				return nil
			}
			if err != nil || d.IsDir() {
				return err
			}

			content, err := os.ReadFile(path)
			if err == nil {
				name := strings.Replace(strings.TrimPrefix(path, dir), "/kubelet.service", "/"+n.unit, 1)
				n.put(filepath.Join(root, name), string(content))
			}

			return err
		})
		assert.NoError(n.t, err)
	}
}
