// Copyright The evenkeel Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/testkit/assert"
)

var pictured = flag.Bool("pictured", false, "record that the pictures in docs/images were taken of this page; `make pictures` takes them")

// The pictures of the page in the documentation are taken again when the page
// changes.
func TestThePicturesInTheDocumentationAreOfThisPage(t *testing.T) {
	const record = "../../../docs/images/dashboard.sha256"
	sum := sha256.New()
	assert.NoError(t, fs.WalkDir(files, "web", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}

		data, err := files.ReadFile(path)
		sum.Write([]byte(path + "\n" + string(data) + "\n"))

		return err
	}))
	now := hex.EncodeToString(sum.Sum(nil))
	if *pictured {
		assert.NoError(t, os.WriteFile(record, []byte(now+"\n"), 0o644))
	}

	recorded := assert.Value(os.ReadFile(record))(t)
	assert.That(t, strings.TrimSpace(string(recorded)) == now, "the page has changed since its pictures were taken: make pictures, look at them, and commit docs/images")
}
