// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

const root = "../../"

func TestThePagesNameTheNewestVersion(t *testing.T) {
	read := func(name string) string { return string(assert.Value(os.ReadFile(root + name))(t)) }
	for page, link := range pages {
		assert.NoDiff(t, cmp.Diff(assert.Value(write(read(page), link, read("CHANGELOG.md")))(t), read(page)), page, "is not what make generate writes")
	}

	assert.That(t, strings.Contains(read("Makefile"), "DOWNLOADS ?= "+downloads+"$(VERSION)\n"), "the Makefile has another URL")
}

func TestAReleasedVersionHasNoNote(t *testing.T) {
	page := "a\n" + begin + "old\n" + end + "b\n"
	const url = "kubectl apply -f " + downloads + "v0.1.0/install.yaml\n"
	for heading, noted := range map[string]bool{"## v0.1.0": false, "## v0.1.0 (not released yet)": true} {
		got := assert.Value(write(page, "x.md", "# Changelog\n\n"+heading+"\n\n## v0.0.1\n"))(t)
		assert.That(t, strings.Contains(got, url) && strings.Contains(got, "[from a clone](x.md)") == noted && !strings.Contains(got, "old"), "%s: %s", heading, got)
	}

	for _, page := range []string{page, "no place\n"} {
		assert.ErrorHas(t, assert.Err(write(page, "x.md", "# Changelog\n")), "no version in CHANGELOG.md, or no place for the block")
	}
}
