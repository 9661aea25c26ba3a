// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/testkit/must"
)

// dir is where the patches are.
const dir = "testkit/mutants"

// patch brings a defect back. Its file begins with lines such as
//
//	Defect: a node that rejects an old assignment uses up the budget
//	Test: go test ./internal/rollout -run ^TestX$
//
// and continues with a unified diff.
type patch struct {
	name  string   // of the file, without .patch
	test  []string // the arguments of go test
	files []string // that the diff changes, relative to the tree
	path  string
}

var (
	header      = regexp.MustCompile(`^Defect: .+\nTest: go test (.+)\n`)
	changedFile = regexp.MustCompile(`(?m)^\+\+\+ b/(\S+)$`)
)

// readPatches reads all patches, sorted by name. The error names the file that
// is wrong.
func readPatches(tree string) (all []patch, err error) {
	defer must.Catch(&err)

	for _, path := range must.Get(filepath.Glob(filepath.Join(tree, dir, "*.patch"))) {
		text := string(must.Get(os.ReadFile(path)))
		first, files := header.FindStringSubmatch(text), changedFile.FindAllStringSubmatch(text, -1)
		must.That(first != nil, `%s must begin with a line "Defect: " and what it brings back, and a line "Test: go test " and its arguments`,
			path)
		must.That(len(files) > 0, "%s changes no file", path)
		p := patch{name: strings.TrimSuffix(filepath.Base(path), ".patch"), path: must.Get(filepath.Abs(path)), test: strings.Fields(first[1])}
		for _, m := range files {
			p.files = append(p.files, m[1])
		}

		all = append(all, p)
	}

	must.That(len(all) > 0, "there are no patches in %s: run it in the root of the repository", filepath.Join(tree, dir))

	return all, nil
}

// apply writes copies of the changed files, with the defect, below a directory.
func (p *patch) apply(ctx context.Context, tree, temp string) (err error) {
	defer must.Catch(&err)

	for _, file := range p.files {
		data := must.Get(os.ReadFile(filepath.Join(tree, file)))
		copied := filepath.Join(temp, file)
		must.OK(os.MkdirAll(filepath.Dir(copied), 0o755))
		must.OK(os.WriteFile(copied, data, 0o644))
	}

	cmd := exec.CommandContext(ctx, "git", "apply", "--whitespace=nowarn", p.path)
	cmd.Dir = temp
	cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(temp))
	out, err := cmd.CombinedOutput()
	must.That(err == nil, "the patch does not apply any more, adapt it: %s", bytes.TrimSpace(out))

	return nil
}

var failedTest = regexp.MustCompile(`(?m)^--- FAIL: (\S+)`)

// try runs the patch's test with the defect, and returns the tests that fail,
// and the output. A panic and a deadlock are failures of the package; a timeout
// is one only where the patch sets it. The same test must pass without the
// defect. The error says why there is no verdict.
func (p *patch) try(ctx context.Context, tree string) (found []string, out []byte, err error) {
	defer must.Catch(&err)

	temp := must.Get(os.MkdirTemp("", "evk-mutant-"))
	defer os.RemoveAll(temp)
	must.OK(p.apply(ctx, tree, temp))
	absolute := must.Get(filepath.Abs(tree))
	replace := map[string]string{}
	for _, file := range p.files {
		replace[filepath.Join(absolute, file)] = filepath.Join(temp, file)
	}

	overlay := must.Get(json.Marshal(map[string]any{"Replace": replace}))
	overlayFile := filepath.Join(temp, "overlay.json")
	must.OK(os.WriteFile(overlayFile, overlay, 0o644))
	before := examples(tree)
	defer func() {
		for _, file := range examples(tree) {
			if !slices.Contains(before, file) {
				_ = os.Remove(file)
			}
		}
	}()
	goTest := func(args ...string) ([]byte, error) {
		cmd := exec.CommandContext(ctx, "go", append(append([]string{"test"}, args...), p.test...)...)
		cmd.Dir = tree
		cmd.WaitDelay = 10 * time.Second // a process that a test leaves behind may hold its output
		return cmd.CombinedOutput()
	}
	out, runErr := goTest("-overlay="+overlayFile, "-count=1", "-timeout=5m")
	for _, m := range failedTest.FindAllSubmatch(out, -1) {
		if name := string(m[1]); !slices.Contains(found, name) {
			found = append(found, name)
		}
	}

	if _, is := errors.AsType[*exec.ExitError](runErr); runErr != nil && !is {
		return nil, out, runErr
	}

	switch {
	case runErr != nil && (bytes.Contains(out, []byte("[build failed]")) || bytes.Contains(out, []byte("[setup failed]"))):
		return nil, out, fmt.Errorf("it does not build: %s", firstLines(out))
	case runErr == nil && bytes.Contains(out, []byte("no tests to run")):
		return nil, out, errors.New("no test has that name any more")
	case runErr == nil:
		return nil, out, nil
	case bytes.Contains(out, []byte("panic: test timed out")) && !slices.ContainsFunc(p.test, func(arg string) bool { return strings.HasPrefix(arg, "-timeout") }):
		return nil, out, errors.New("the test does not end in time: if that is the verdict, its line must have a -timeout")
	case len(found) == 0:
		found = []string{"a panic or a timeout"}
	}

	if out, err := goTest(); err != nil {
		return nil, out, fmt.Errorf("the test fails without the patch, too: %w", err)
	}

	return found, out, nil
}

// examples returns the files that property tests write beside their source when
// they fail. Those of known defects are removed.
func examples(tree string) (files []string) {
	for _, below := range []string{"internal/*", "internal/*/*", "testkit/*", "test/*", "hack/*"} {
		found, _ := filepath.Glob(filepath.Join(tree, below, "testdata/rapid/*/*.fail")) // the pattern is valid
		files = append(files, found...)
	}

	return files
}

func firstLines(out []byte) string {
	lines := strings.SplitN(strings.TrimSpace(string(out)), "\n", 4)
	return strings.Join(lines[:min(3, len(lines))], " ")
}
