// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// Each file in testdata/platforms has the unit files of a platform in the shape
// that the platform writes, each in testdata/units has another kind of unit:
// etc, run and lib are the directories of systemd, files is beside the kubelet.
// want is the drop-in's command line, in which FLAGS are the agent's, and the
// kubelet's, or the refusal. The kubelet must run under the agent with the same
// command line as without, and systemd-analyze must accept the unit.
func TestInstallKeepsTheCommandLineOfEveryKindOfUnit(t *testing.T) {
	units := assert.Value(filepath.Glob("testdata/*/*.txtar"))(t)
	assert.Must(t, len(units) >= 20, "there are %d units", len(units))
	for _, unit := range units {
		t.Run(filepath.Base(unit), func(t *testing.T) {
			n := bareNode(t)
			want := n.unpack(unit)
			if words, refused := strings.CutPrefix(want, "refused: "); refused {
				n.systemctl("daemon-reload")
				n.refused(words)
				return
			}

			n.start()
			command := n.command()
			dropIn := n.keeps("--dynamic-config-dir=/var/lib/evenkeel", `--odd=$A 100% "q" 'x' \ é`)
			if want != "" {
				flags := `--dynamic-config-dir=/var/lib/evenkeel "--odd=$$A 100%% \"q\" 'x' \\ é"`
				line, kubelet, _ := strings.Cut(n.filled(strings.Replace(want, "FLAGS", flags, 1)), "\n")
				assert.Equal(t, command, strings.ReplaceAll(n.dir+"/"+kubelet, " ", "|"))
				assert.That(t, strings.Contains(dropIn, "\n"+line+"\n"), "the drop-in lacks %s:\n%s", line, dropIn)
			}
		})
	}
}
