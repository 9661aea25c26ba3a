// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

// TestAllPatchesApply keeps the patches up to date with the code; make mutants
// runs their tests.
func TestAllPatchesApply(t *testing.T) {
	patches := assert.Value(readPatches("../.."))(t)
	assert.That(t, len(patches) >= 20, "only %d defects are kept", len(patches))
	page := assert.Value(os.ReadFile("../../testkit/mutants/README.md"))(t)
	for _, p := range patches {
		assert.OK(t, p.apply(t.Context(), "../..", t.TempDir()), p.name)
		assert.That(t, strings.Contains(string(page), "| `"+p.name+"` |"), "the table of bugs in testkit/mutants/README.md has no row for %s", p.name)
	}
}

// A small module has a defect that its test finds, one that it does not find,
// and patches that are out of date.
func TestAVerdictForEachPatch(t *testing.T) {
	tree := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(tree, name)
		assert.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		assert.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	write("go.mod", "module example.com/a\n\ngo 1.24\n")
	write("a.go", "package a\n\nfunc Two() int { return 2 }\n\nfunc Three() int { return 3 }\n")
	write("a_test.go", "package a\n\nimport \"testing\"\n\nfunc TestTwo(t *testing.T) {\n\tif Two() != 2 {\n\t\tt.Error(Two())\n\t}\n}\n\n"+
		"func TestBroken(t *testing.T) {\n\tt.Fail()\n}\n\nfunc TestHangs(t *testing.T) {\n\tif Two() != 2 {\n\t\tselect {}\n\t}\n}\n")
	want := map[string]string{}
	patched := func(name, test, old, new, verdict string) {
		want[name] = verdict
		write(dir+"/"+name+".patch", "Defect: a\nTest: go test "+test+"\n--- a/a.go\n+++ b/a.go\n@@ -1,5 +1,5 @@\n package a\n \n"+
			strings.Replace(" func Two() int { return 2 }\n \n func Three() int { return 3 }\n", " "+old, "-"+old+"\n+"+new, 1))
	}
	patched("found", "-run TestTwo .", "func Two() int { return 2 }", "func Two() int { return 5 }", "[TestTwo] <nil>")
	patched("missed", "-run TestTwo .", "func Three() int { return 3 }", "func Three() int { return 5 }", "[] <nil>")
	patched("broken", ".", "func Two() int { return 2 }", "func Two() int { return two }", "it does not build")
	patched("renamed", "-run TestOther .", "func Two() int { return 2 }", "func Two() int { return 5 }", "no test has that name")
	patched("red", "-run TestBroken .", "func Two() int { return 2 }", "func Two() int { return 5 }", "fails without the patch, too")
	patched("hangs", "-timeout=1s -run TestHangs .", "func Two() int { return 2 }", "func Two() int { return 5 }", "[a panic or a timeout] <nil>")
	want["old"] = "does not apply any more"
	write(dir+"/old.patch", "Defect: a\nTest: go test .\n--- a/a.go\n+++ b/a.go\n@@ -1,1 +1,1 @@\n-package b\n+package c\n")
	patches := assert.Value(readPatches(tree))(t)
	for _, p := range patches {
		found, out, err := p.try(t.Context(), tree)
		got := fmt.Sprint(found, " ", err)
		assert.That(t, strings.Contains(got, want[p.name]), "%s: %s, want %q\n%s", p.name, got, want[p.name], out)
	}

	data := assert.Value(os.ReadFile(filepath.Join(tree, "a.go")))(t)
	assert.That(t, strings.Contains(string(data), "return 2"), "the tree was changed: %s", data)
	assert.Error(t, run(t.Context(), tree, "", false), "5 of 7 were not found", "all together")
}
