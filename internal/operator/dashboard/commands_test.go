// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// The sources of the texts that the page shows must not advise a command that
// cannot be copied.
func TestEveryAdvisedCommandCanBeCopied(t *testing.T) {
	advised := regexp.MustCompile("kubectl evenkeel rollout ([a-z]+) ")
	seen := 0
	for _, dir := range []string{"rollout", "steer", "describe"} {
		for _, file := range assert.Value(filepath.Glob(filepath.Join("..", dir, "*.go")))(t) {
			text := assert.Value(os.ReadFile(file))(t)
			for _, m := range advised.FindAllStringSubmatch(string(text), -1) {
				seen++
				assert.That(t, slices.Contains(verbs, m[1]), "%s advises %q, which the page does not offer to copy", file, m[0])
			}
		}
	}

	assert.That(t, seen >= 10, "only %d commands were found", seen)
}

func TestARevisionThatIsNoPlainWordIsInNoCommand(t *testing.T) {
	for revision, want := range map[string]bool{
		"0b7d3f1c-9a0e-4a62-8f0d-2f6f1f6f1f6f": true, "workers-1.abc": true, "": false, "-f": false, "a b": false, "a;reboot": false, "a\nb": false, "$(id)": false,
	} {
		assert.Equal(t, plainRevision.MatchString(revision), want, revision)
	}
}
