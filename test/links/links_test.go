// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package links

import (
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

const (
	root = "../.."
	// published is where the pages can be read. Pages that are also shown
	// elsewhere, such as the chart's, link to it.
	published = "https://github.com/evenkeel/evenkeel/blob/main/"
)

// notPages are directories whose Markdown is not the project's, or is not
// published.
var notPages = []string{".git", "bin", "dist", "node_modules", "testdata"}

func TestLinksBetweenThePagesLeadSomewhere(t *testing.T) {
	pages := map[string]Page{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && slices.Contains(notPages, d.Name()) {
			return filepath.SkipDir
		}
		if filepath.Ext(path) != ".md" {
			return nil
		}

		text, err := os.ReadFile(path)
		pages[filepath.Clean(path)] = Parse(string(text))

		return err
	})
	assert.NoError(t, err)
	links := 0
	for path, page := range pages {
		for _, link := range page.Links {
			from, target := path, link.Target
			if own, is := strings.CutPrefix(target, published); is {
				from, target = filepath.Join(root, "README.md"), own
			}
			if u, err := url.Parse(target); err == nil && u.Scheme != "" {
				continue
			}

			links++
			problem := follow(pages, from, target)
			assert.That(t, problem == "", "%s:%d: the link to %s is broken: %s", strings.TrimPrefix(path, root+"/"), link.Line, link.Target, problem)
		}
	}

	assert.That(t, links >= 500, "only %d links were found", links) // there are about 900
}

// follow says what is wrong with a link of a page; empty: nothing.
func follow(pages map[string]Page, from, target string) string {
	u, err := url.Parse(target)
	if err != nil {
		return err.Error()
	}

	to := from
	if u.Path != "" {
		to = filepath.Join(filepath.Dir(from), u.Path)
	}
	if strings.HasPrefix(u.Path, "/") {
		return "it must be relative to its page"
	}
	// GitHub shows links out of the repository, such as ../../issues, as pages
	// of its own.
	if rel, err := filepath.Rel(root, to); err != nil || strings.HasPrefix(rel, "..") {
		return "it leads out of the repository"
	}
	if _, err := os.Stat(to); err != nil {
		return "there is no such file"
	}
	if page, is := pages[to]; is && u.Fragment != "" && !page.Anchors[u.Fragment] {
		return "no heading of " + strings.TrimPrefix(to, root+"/") + " has this anchor"
	}

	return ""
}

// What stands twice, or in a table with paragraphs, is where words can be
// saved.
func TestThePagesStayShort(t *testing.T) {
	readme := assert.Value(os.ReadFile(filepath.Join(root, "README.md")))(t)
	assert.That(t, Words(string(readme)) <= 700, "README.md has %d words", Words(string(readme)))
	total := 0
	assert.NoError(t, filepath.WalkDir(filepath.Join(root, "docs"), func(path string, _ fs.DirEntry, err error) error {
		if name := filepath.Base(path); err != nil || filepath.Ext(path) != ".md" || name == "api.md" || name == "fields.md" {
			return err // these two are generated
		}

		text, err := os.ReadFile(path)
		total += Words(string(text))

		return err
	}))
	assert.That(t, total <= 45_000, "docs/ has %d words", total)
}
