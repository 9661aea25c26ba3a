// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Command current writes the newest version into the pages that say how to
// install it. The version is the first heading of the changelog. It is run in
// the root of the repository.
package main

import (
	"errors"
	"os"
	"regexp"
	"strings"

	"github.com/evenkeel/evenkeel/testkit/must"
)

// pages have a place for the block, between begin and end. Each has its link to
// the way without a release.
var pages = map[string]string{"README.md": "docs/install.md#from-a-clone", "docs/install.md": "#from-a-clone"}

const (
	begin = "<!-- install: written by make generate -->\n"
	end   = "<!-- install ends -->\n"
	// downloads is the directory of a release's files, as in the Makefile.
	downloads = "https://github.com/evenkeel/evenkeel/releases/download/"
)

var newest = regexp.MustCompile(`(?m)^## (v\S+)( \(not released yet\))?$`)

func main() {
	os.Exit(must.ExitCode("current", func() {
		changelog := must.Get(os.ReadFile("CHANGELOG.md"))
		for page, link := range pages {
			text := must.Get(os.ReadFile(page))
			written := must.Get(write(string(text), link, string(changelog)))
			must.OK(os.WriteFile(page, []byte(written), 0o644))
		}
	}))
}

// write returns a page with the block for the newest version of the changelog.
func write(text, link, changelog string) (string, error) {
	m := newest.FindStringSubmatch(changelog)
	before, rest, begins := strings.Cut(text, begin)
	_, after, ends := strings.Cut(rest, end)
	if m == nil || !begins || !ends {
		return "", errors.New("no version in CHANGELOG.md, or no place for the block")
	}

	block := "<!-- test: skip: needs another machine or vendor -->\n```console\n$ kubectl apply -f " + downloads + m[1] + "/install.yaml\n```\n"
	if m[2] != "" {
		block = "This URL works when " + m[1] + " is released. Until then, build `install.yaml` [from a clone](" + link + ").\n\n" + block
	}

	return before + begin + block + end + after, nil
}
