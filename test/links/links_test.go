// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

// Package links finds the links of a Markdown page that lead nowhere: to a file
// that does not exist, or to a heading that the linked page does not have. It
// knows no network: it does not follow links to other sites.
package links

import (
	"bytes"
	"fmt"
	"html"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"
	render "github.com/yuin/goldmark/renderer/html"

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

var (
	markdown  = goldmark.New(goldmark.WithExtensions(extension.GFM), goldmark.WithRendererOptions(render.WithUnsafe()))
	comment   = regexp.MustCompile(`(?s)<!--.*?-->`)
	attribute = regexp.MustCompile(`(?i)\s(href|src|id|name)=(?:"([^"]*)"|'([^']*)')`)
	heading   = regexp.MustCompile(`(?s)<h[1-6]>(.*?)</h[1-6]>`)
	tag       = regexp.MustCompile(`<[^>]*>`)
	noAnchor  = regexp.MustCompile(`[^-_\p{L}\p{M}\p{N}]`)
	code      = regexp.MustCompile(`(?s)<pre>.*?</pre>`)
	word      = regexp.MustCompile(`\w`)
)

// valuesOf returns the values of attributes in a page.
func valuesOf(page string, names ...string) (values []string) {
	for _, m := range attribute.FindAllStringSubmatch(page, -1) {
		if slices.Contains(names, strings.ToLower(m[1])) {
			values = append(values, html.UnescapeString(m[2]+m[3]))
		}
	}

	return values
}

// anchorsOf returns the anchors of a page. Those of headings are GitHub's; the
// second of equal headings gets the suffix -1.
func anchorsOf(page string) map[string]bool {
	anchors, times := map[string]bool{}, map[string]int{}
	for _, name := range valuesOf(page, "id", "name") {
		anchors[name] = true
	}

	for _, m := range heading.FindAllStringSubmatch(page, -1) {
		words := strings.ToLower(html.UnescapeString(tag.ReplaceAllString(m[1], "")))
		anchor := noAnchor.ReplaceAllString(strings.ReplaceAll(words, " ", "-"), "")
		if times[anchor]++; times[anchor] > 1 {
			anchor = fmt.Sprintf("%s-%d", anchor, times[anchor]-1)
		}

		anchors[anchor] = true
	}

	return anchors
}

func TestAnchorsAreThoseOfGitHub(t *testing.T) {
	for source, want := range map[string]string{
		"## A `max_pods` & *more*, v1.2": "a-max_pods--more-v12", "Größe\n---": "größe", "# A &amp; B": "a--b",
		"## See [that](x.md#y)": "see-that", "# A\n# B\n# A": "a a-1 b", `a <a ID="it's"></a>`: "it's", "```\n# no\n```": "",
	} {
		var page bytes.Buffer
		assert.NoError(t, markdown.Convert([]byte(source), &page))
		assert.Equal(t, strings.Join(slices.Sorted(maps.Keys(anchorsOf(page.String()))), " "), want, source)
	}
}

// readPages calls f with the Markdown pages below a directory, as HTML without
// comments.
func readPages(t *testing.T, dir string, f func(path, page string)) {
	t.Helper()
	assert.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && slices.Contains(notPages, d.Name()) {
			return filepath.SkipDir
		}
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}

		text, err := os.ReadFile(path)
		var page bytes.Buffer
		assert.NoError(t, markdown.Convert(text, &page), path)
		f(path, comment.ReplaceAllString(page.String(), ""))

		return err
	}))
}

func TestLinksBetweenThePagesLeadSomewhere(t *testing.T) {
	anchors, links := map[string]map[string]bool{}, map[string][]string{}
	readPages(t, root, func(path, page string) {
		anchors[path] = anchorsOf(page)
		links[path] = valuesOf(page, "href", "src")
	})
	followed := 0
	for path, targets := range links {
		for _, target := range targets {
			from, to := path, target
			if own, is := strings.CutPrefix(target, published); is {
				from, to = filepath.Join(root, "README.md"), own
			}
			if u, err := url.Parse(to); err == nil && u.Scheme != "" {
				continue
			}

			followed++
			problem := follow(anchors, from, to)
			assert.That(t, problem == "", "%s: the link to %s is broken: %s", strings.TrimPrefix(path, root+"/"), target, problem)
		}
	}

	assert.That(t, followed >= 500, "only %d links were found", followed)
}

// follow says what is wrong with a link of a page; empty: nothing.
func follow(anchors map[string]map[string]bool, from, target string) string {
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
	if page, is := anchors[to]; is && u.Fragment != "" && !page[u.Fragment] {
		return "no heading of " + strings.TrimPrefix(to, root+"/") + " has this anchor"
	}

	return ""
}

// words counts the words of a page without blocks of code.
func words(page string) (n int) {
	for w := range strings.FieldsSeq(tag.ReplaceAllString(code.ReplaceAllString(page, ""), "")) {
		if word.MatchString(w) {
			n++
		}
	}

	return n
}

// What stands twice, or in a table with paragraphs, is where words can be
// saved.
func TestThePagesStayShort(t *testing.T) {
	total := 0
	readPages(t, filepath.Join(root, "docs"), func(path, page string) {
		if name := filepath.Base(path); name != "api.md" && name != "fields.md" { // these two are generated
			total += words(page)
		}
	})
	assert.That(t, total <= 44_900, "docs/ has %d words", total)
	readPages(t, filepath.Join(root, "README.md"), func(_, page string) {
		assert.That(t, words(page) <= 663, "README.md has %d words", words(page))
	})
}
